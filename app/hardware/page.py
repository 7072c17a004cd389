"""The This PC page: what this machine is and what that means, measured here and kept here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import Qt, QTimer, Signal, Slot
from PySide6.QtGui import QGuiApplication, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QProgressBar, QVBoxLayout, QWidget

from app import tasks
from app.hardware.check_row import CheckList, CheckRow
from app.hardware.checks import checks
from app.hardware.gauge import Measure, doing, measure_memory
from app.hardware.report_text import report_text
from app.hardware.what_if import WhatIfPanel
from app.language import tr
from app.widgets.buttons import button
from app.widgets.labels import ElideLabel, label
from app.widgets.page import PageHead, scrolled
from app.words import in_words
from engine.errors import GreenroomError
from engine.hardware.report import HardwareReport
from engine.progress import Progress

COPIED_MS = 1500


class HardwarePage(QWidget):
    """api: the `engine` package or its stand-in. measure: times the memory and returns a new report; for tests."""

    #: HardwareReport, after the user had the memory measured
    measured = Signal(object)
    measuringStarted = Signal()
    wizardWanted = Signal()

    def __init__(self, api: Any, measure: Measure = measure_memory, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._api, self._measure = api, measure
        self._probing: tasks.Task | None = None
        self._measuring: tasks.Task | None = None
        self._comparison_waits = False
        self._after_comparison: Callable[[], object] | None = None
        self.report: HardwareReport | None = None

        head = PageHead(tr("This PC"))
        self.again = button("", icon="refresh", kind="ghost", role="muted", name=tr("Refresh"), tip=tr("Refresh"))
        self.again.clicked.connect(self.refresh)
        self.measure = button(tr("Measure this PC"), icon="gauge")
        self.measure.clicked.connect(self.start_measuring)
        self.copy = button(tr("Copy report"), icon="copy", tip=tr("As text, without serial numbers or user names"))
        self.copy.setEnabled(False)
        self.copy.clicked.connect(self._copy)
        self._copied = QTimer(self, singleShot=True, interval=COPIED_MS)
        self._copied.timeout.connect(lambda: self.copy.setText(tr("Copy report")))
        head.add(self.again, self.copy, self.measure)
        self._lead = label(tr("Measured and kept on this PC. Nothing is sent anywhere."), "muted", wrap=True)

        self._progress = QProgressBar()
        self._progress.setTextVisible(False)
        self._progress.setAccessibleName(tr("Measuring this PC"))
        self._message = ElideLabel("", "small")
        self._skip = button(tr("Cancel"), kind="link")
        self._skip.clicked.connect(self.stop_measuring)
        self._work = QWidget()
        work = QHBoxLayout(self._work)
        work.setContentsMargins(0, 4, 0, 4)
        work.setSpacing(12)
        work.addWidget(self._progress, 2)
        work.addWidget(self._message, 1)
        work.addWidget(self._skip)
        self._work.hide()
        self._trouble = label("", "warn", wrap=True)
        self._trouble.hide()

        self._card = CheckList()
        self._card.setProperty("surface", "card")
        self._card.hide()

        self.what_if = WhatIfPanel(api)
        self.guide = button(tr("Run setup again"), name=tr("Run setup again"))
        self.guide.clicked.connect(self.wizardWanted)

        content = QVBoxLayout()
        content.setSpacing(8)
        content.addWidget(head)
        content.addWidget(self._lead)
        content.addWidget(self._work)
        content.addWidget(self._trouble)
        content.addSpacing(4)
        content.addWidget(self._card)
        content.addSpacing(8)
        content.addWidget(self.what_if)
        content.addSpacing(4)
        content.addWidget(self.guide, 0, Qt.AlignmentFlag.AlignLeft)
        content.addStretch(1)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(scrolled(content))

    @property
    def rows(self) -> list[CheckRow]:
        return self._card.rows

    @property
    def kept(self) -> object:
        """What a page that takes the place of this one needs for `resume`."""
        return self.what_if.question

    def resume(self, kept: object) -> None:
        """Ask about the PC that another page has asked about."""
        self.what_if.ask(kept)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()

    @Slot()
    def refresh(self) -> None:
        if self._probing is not None and self._probing.running:
            return
        if self.report is None:
            self._lead.setText(tr("Checking this PC…"))
        self._probing = tasks.run(self._api.probe, done=self.show_report, failed=self._fail)

    def show_report(self, report: HardwareReport) -> None:
        self.report = report
        self._lead.setText(tr("Measured and kept on this PC. Nothing is sent anywhere."))
        self._card.show_checks(checks(report))
        self._card.show()
        self.copy.setEnabled(True)
        self.what_if.show_report(report)
        if self._comparison_waits:
            self.open_comparison()

    def open_comparison(self, closed: Callable[[], object] | None = None) -> None:
        """Of this PC with others; as soon as this one has been looked at. closed: called when it has been closed."""
        self._comparison_waits = self.report is None
        if closed is not None:
            self._after_comparison = closed
        if self.report is not None:
            closed, self._after_comparison = self._after_comparison, None
            self.what_if.open_comparison(closed)

    @Slot()
    def _copy(self) -> None:
        if self.report is not None:
            QGuiApplication.clipboard().setText(report_text(self.report))
            self.copy.setText(tr("Copied"))
            self._copied.start()

    @Slot()
    def start_measuring(self) -> None:
        if not self.measure.isEnabled():
            return
        self.measuringStarted.emit()
        self._trouble.hide()
        self.measure.setEnabled(False)
        self._progress.setRange(0, 0)
        self._message.setText(tr("Starting…"))
        self._work.show()
        self._measuring = tasks.run(self._measure, done=self._measured, failed=self._fail, progress=self._show_progress)

    @Slot()
    def stop_measuring(self) -> None:
        if self._measuring is not None:
            self._measuring.cancel()
        self._end_measuring()

    def _show_progress(self, progress: Progress) -> None:
        self._progress.setRange(0, max(0, progress.total))
        self._progress.setValue(progress.done)
        self._message.setText(doing(progress))

    def _measured(self, report: HardwareReport) -> None:
        self._end_measuring()
        self.show_report(report)
        self.measured.emit(report)

    def _end_measuring(self) -> None:
        self._work.hide()
        self.measure.setEnabled(True)

    def _fail(self, error: GreenroomError) -> None:
        self._end_measuring()
        self._lead.setText(tr("Measured and kept on this PC. Nothing is sent anywhere."))
        self._trouble.setText(in_words(error))
        self._trouble.show()
