"""The This PC page: what this machine is and what that means, measured here and kept here."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QGridLayout, QHBoxLayout, QLabel, QProgressBar, QVBoxLayout, QWidget

from app import tasks
from app.hardware.checks import Check, checks
from app.hardware.gauge import Measure, measure_memory
from app.theme import theme
from app.theme.icons import make_pixmap
from app.widgets.buttons import button
from app.widgets.labels import ElideLabel, label
from app.widgets.page import PageHead, scrolled
from engine.errors import GreenroomError
from engine.hardware.report import HardwareReport
from engine.progress import Progress

WIDTH = 920
#: A narrower page folds its rows.
ROOMY = 720

#: (icon, ink, what a screen reader says)
_MARKS = {
    "good": ("check", "accent", "Good"),
    "warn": ("warning", "warn", "Warning"),
    "bad": ("cross", "bad", "Problem"),
    "note": ("info", "muted", "Note"),
}


class CheckRow(QFrame):
    """Mark, title, sentence, figure."""

    def __init__(self, check: Check, first: bool, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.check = check
        self.setProperty("surface", "row")
        self.setProperty("first", "true" if first else "false")
        self._icon, self._ink, said = _MARKS[check.state]
        self.setAccessibleName(f"{check.title}: {said}. {check.sentence} {check.note}".strip())
        self._mark = QLabel()
        self._mark.setFixedSize(20, 20)
        title = label(check.title, "strong")
        title.setFixedWidth(130)
        sentence = label(check.sentence, wrap=True)
        sentence.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        note = label(check.note, "small")
        note.setContentsMargins(0, 2, 0, 0)
        note.setVisible(bool(check.note))
        self._note = note
        self._grid = grid = QGridLayout(self)
        grid.setContentsMargins(16, 13, 16, 13)
        grid.setHorizontalSpacing(12)
        grid.setVerticalSpacing(2)
        sentence.setAlignment(Qt.AlignmentFlag.AlignTop)
        for column, part in enumerate((self._mark, title, sentence, note)):
            grid.addWidget(part, 0, column, Qt.AlignmentFlag(0) if part is sentence else Qt.AlignmentFlag.AlignTop)
        grid.setColumnStretch(2, 1)
        self._compact = False
        theme().changed.connect(self._draw)
        self._draw()

    def set_compact(self, compact: bool) -> None:
        """For a narrow window: the figure goes under the sentence."""
        if compact != self._compact:
            self._compact = compact
            self._grid.removeWidget(self._note)
            self._grid.addWidget(self._note, *((1, 2) if compact else (0, 3)), Qt.AlignmentFlag.AlignTop)

    def _draw(self) -> None:
        colour = getattr(theme().tokens, self._ink)
        self._mark.setPixmap(make_pixmap(self._icon, colour, 16, self.devicePixelRatioF()))


class HardwarePage(QWidget):
    """api: the `engine` package or its stand-in. measure: times the memory and returns a new report; for tests."""

    #: HardwareReport, after the user had the memory measured
    measured = Signal(object)
    measuringStarted = Signal()

    def __init__(self, api: Any, measure: Measure = measure_memory, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._api, self._measure = api, measure
        self._probing: tasks.Task | None = None
        self._measuring: tasks.Task | None = None
        self.report: HardwareReport | None = None

        head = PageHead("This PC")
        self.again = button("", icon="refresh", kind="ghost", role="muted", name="Look again", tip="Look again")
        self.again.clicked.connect(self.refresh)
        self.measure = button("Measure memory speed", icon="gauge")
        self.measure.clicked.connect(self.start_measuring)
        head.add(self.again, self.measure)
        self._lead = label("Measured here, kept here. Nothing is sent anywhere.", "muted", wrap=True)

        self._progress = QProgressBar()
        self._progress.setTextVisible(False)
        self._progress.setAccessibleName("Measuring memory speed")
        self._message = ElideLabel("", "small")
        self._skip = button("Cancel", kind="link")
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

        self._card = QFrame()
        self._card.setProperty("surface", "card")
        self._list = QVBoxLayout(self._card)
        self._list.setContentsMargins(0, 0, 0, 0)
        self._list.setSpacing(0)
        self._card.hide()

        content = QVBoxLayout()
        content.setSpacing(8)
        content.addWidget(head)
        content.addWidget(self._lead)
        content.addWidget(self._work)
        content.addWidget(self._trouble)
        content.addSpacing(4)
        content.addWidget(self._card)
        content.addStretch(1)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(scrolled(content, WIDTH))

    @property
    def rows(self) -> list[CheckRow]:
        return [self._list.itemAt(i).widget() for i in range(self._list.count())]

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()

    @Slot()
    def refresh(self) -> None:
        if self._probing is not None and self._probing.running:
            return
        if self.report is None:
            self._lead.setText("Looking at this PC…")
        self._probing = tasks.run(self._api.probe, done=self.show_report, failed=self._fail)

    def show_report(self, report: HardwareReport) -> None:
        self.report = report
        self._lead.setText("Measured here, kept here. Nothing is sent anywhere.")
        while (item := self._list.takeAt(0)) is not None:
            item.widget().hide()
            item.widget().deleteLater()
        for number, check in enumerate(checks(report)):
            row = CheckRow(check, first=number == 0)
            row.set_compact(self.width() < ROOMY)
            self._list.addWidget(row)
        self._card.show()

    def resizeEvent(self, event: QResizeEvent) -> None:
        for row in self.rows:
            row.set_compact(self.width() < ROOMY)

    @Slot()
    def start_measuring(self) -> None:
        self.measuringStarted.emit()
        self._trouble.hide()
        self.measure.setEnabled(False)
        self._progress.setRange(0, 0)
        self._message.setText("Starting…")
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
        self._message.setText(progress.message)

    def _measured(self, report: HardwareReport) -> None:
        self._end_measuring()
        self.show_report(report)
        self.measured.emit(report)

    def _end_measuring(self) -> None:
        self._work.hide()
        self.measure.setEnabled(True)

    def _fail(self, error: GreenroomError) -> None:
        self._end_measuring()
        self._lead.setText("Measured here, kept here. Nothing is sent anywhere.")
        self._trouble.setText(str(error))
        self._trouble.show()
