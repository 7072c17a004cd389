"""One model in the list: what it is, where it would live, how fast, how big, and the thing to do with it."""

from __future__ import annotations

import re

from PySide6.QtCore import QSize, Qt, QUrl, Signal, SignalInstance
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import (
    QBoxLayout,
    QFrame,
    QHBoxLayout,
    QProgressBar,
    QPushButton,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.host import DEMO, HostState
from app.language import told, tr
from app.models.row_size import (
    CHIP_WIDTH,
    GAP,
    LINE_GAP,
    MARGIN_X,
    MARGIN_Y,
    SIZE_WIDTH,
    SPEED_WIDTH,
    Measures,
    action_width,
    figures,
    in_one_line,
    is_compact,
    is_planned,
    is_stacked,
    standing,
    trouble,
)
from app.models.survey import ModelRow
from app.theme import theme
from app.theme.theme import restyle
from app.widgets.buttons import button
from app.widgets.chip import ChipButton
from app.widgets.labels import ElideLabel, label, set_plain_tip
from app.widgets.plan_popover import PlanPopover
from app.words import about, predicted, rate_range
from engine.hub.downloads import DownloadStatus

#: Above and below a bar that shows progress.
_BESIDE_BAR = 4
_ACTIONS = ("load", "loaded", "loading", "download", "downloading")


def _address(status: DownloadStatus) -> str:
    """The page that the remedy sends the user to; "" when it sends them nowhere."""
    found = None if status.error is None else re.search(r"https?://[^\s,]+", status.error.remedy)
    return "" if found is None else found[0]


class _Actions(QStackedWidget):
    """Asks for no more room than the page in sight needs. It has a fixed width."""

    def sizeHint(self) -> QSize:
        page, hint = self.currentWidget(), self.currentWidget().sizeHint()
        return QSize(hint.width(), page.heightForWidth(self.minimumWidth())) if page.hasHeightForWidth() else hint

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def hasHeightForWidth(self) -> bool:
        return False


class RowWidget(QFrame):
    """Shows a ModelRow, and the host's state where it is about this model."""

    loadWanted = Signal(str, bool)
    ejectWanted = Signal()
    cancelWanted = Signal()
    #: ModelRow
    detailsWanted = Signal(object)
    deleteWanted = Signal(object)
    downloadWanted = Signal(object)
    #: The download's id.
    pauseWanted = Signal(int)
    resumeWanted = Signal(int)
    dropWanted = Signal(int)
    hurryWanted = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.row = ModelRow("", "", "")
        self._state = HostState()
        self.setProperty("surface", "shelf")

        self._name = ElideLabel("", "strong", Qt.TextElideMode.ElideMiddle)
        self._detail = label("", "small", wrap=True)
        self._problem = label("", "warn-small", wrap=True)
        self.chip = ChipButton()
        self.chip.setToolTip(tr("Show the calculation"))
        self.chip.clicked.connect(self._open_plan)
        self._waiting = label(tr("calculating…"), "small")
        self._chip_cell = _cell(theme().px(CHIP_WIDTH), self.chip, self._waiting)
        self._speed = label("", "strong")
        self._unit = label("tok/s", "small")
        self._speed_cell = _cell(theme().px(SPEED_WIDTH), self._speed, self._unit)
        self._size = label("")
        self._size_cell = _cell(theme().px(SIZE_WIDTH), self._size)
        self._figures = label("", "small")

        #: Under the name, in a narrow list: the chip, then speed and size.
        self._below = QWidget()
        self._facts = QBoxLayout(QBoxLayout.Direction.LeftToRight, self._below)
        self._facts.setContentsMargins(0, LINE_GAP, 0, 0)
        self._text = QVBoxLayout()
        self._text.setSpacing(LINE_GAP)
        self._text.addStretch(1)
        for part in (self._name, self._detail, self._problem, self._below):
            self._text.addWidget(part)
        self._text.addStretch(1)
        self._facts.addWidget(self._figures, 1)
        self._columns = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        self._columns.setContentsMargins(MARGIN_X, MARGIN_Y, MARGIN_X, MARGIN_Y)
        self._columns.setSpacing(GAP)
        self._columns.addLayout(self._text, 1)
        for cell in (self._chip_cell, self._speed_cell, self._size_cell, self._build_action()):
            self._columns.addWidget(cell)
        self._compact = False
        self._width = 0
        self._chip_column = theme().px(CHIP_WIDTH)

    def _build_action(self) -> QWidget:
        self._action = _Actions()
        self._action.currentChanged.connect(lambda _: self._action.updateGeometry())
        self.load = button(tr("Load"))
        self.load.clicked.connect(self._load)
        self.delete = button("", icon="trash", kind="ghost", role="muted", name=tr("Delete"), tip=tr("Delete"))
        self.delete.clicked.connect(lambda: self.deleteWanted.emit(self.row))
        self.others = button(tr("Details"), kind="link", tip=tr("Other quantisations"))
        self.others.clicked.connect(lambda: self.detailsWanted.emit(self.row))
        idle = _cell(None, self.load, self.delete, self.others)

        self._loaded_mark = label(tr("● Loaded"), "accent")
        self.eject = button(tr("Unload"), tip=tr("Free its memory"))
        self.eject.clicked.connect(self.ejectWanted)
        loaded = _cell(None, self._loaded_mark, self.eject)

        self._message, self._progress = ElideLabel("", "small"), _bar(tr("Loading"))
        self.cancel = button(tr("Cancel"), kind="link")
        self.cancel.clicked.connect(self.cancelWanted)
        busy = _progress_cell(self._message, self._progress, self.cancel)

        self.get = button(tr("Download"))
        self.get.clicked.connect(self._get)
        self.details = button(tr("Details"), kind="link")
        self.details.clicked.connect(lambda: self.detailsWanted.emit(self.row))
        offer = _cell(None, self.get, self.details)

        self._came, self._came_bar = label("", "small", wrap=True), _bar(tr("Downloading"))
        self.pause = button(tr("Pause"), kind="link")
        self.pause.clicked.connect(self._pause_or_resume)
        self.drop = button(tr("Cancel"), kind="link")
        self.drop.clicked.connect(lambda: self._about_download(self.dropWanted))
        self.hurry = button(tr("Next"), kind="link", tip=tr("Download this one next"))
        self.hurry.clicked.connect(lambda: self._about_download(self.hurryWanted))
        self._page = ""
        self.visit = button(tr("Page"), kind="link", tip=tr("Open the model page in the browser"))
        self.visit.clicked.connect(lambda: QDesktopServices.openUrl(QUrl(self._page)))
        coming = _progress_cell(self._came, self._came_bar, self.pause, self.drop, self.hurry, self.visit)
        for page in (idle, loaded, busy, offer, coming):
            self._action.addWidget(page)
        return self._action

    @property
    def action(self) -> str:
        """Which action is offered: load | loaded | loading | download | downloading."""
        return _ACTIONS[self._action.currentIndex()]

    def show_row(self, row: ModelRow) -> None:
        self.row = row
        if self.property("place") != row.place:
            self.setProperty("place", row.place)
            restyle(self)
        self._name.setText(row.name)
        self._detail.setText(row.detail)
        self._detail.setVisible(bool(row.detail))
        self._problem.setText(trouble(row))
        self._problem.setVisible(bool(trouble(row)))
        self._size.setText(row.size if row.nbytes else "")
        for part, verb in (
            (self.load, tr("Load")),
            (self.eject, tr("Unload")),
            (self.delete, tr("Delete")),
            (self.get, tr("Download")),
        ):
            part.setAccessibleName(f"{verb} {row.name}")
        self.details.setAccessibleName(tr("Details of {name}", name=row.name))
        self.delete.setVisible(row.own)
        self.get.setText(tr("Checking…") if row.asked else tr("Download") if row.choice is not None else tr("Choose…"))
        self.get.setEnabled(not row.asked)
        self.details.setVisible(row.choice is not None)
        self.chip.setVisible(row.plan is not None)
        self._waiting.setVisible(row.plan is None)
        self._speed.setVisible(row.plan is not None)
        self._unit.setVisible(row.plan is not None and row.plan.mode != "too_large")
        if row.plan is not None:
            self.chip.show_plan(row.plan)
            speed = row.plan.prediction.decode_tps
            self._speed.setText(predicted(row.plan))
            self._speed.setToolTip(
                tr("Predicted: {speed} tok/s, from {speed2}", speed=about(speed), speed2=rate_range(speed))
            )
            self.load.setText(tr("Load") if row.plan.runnable else tr("Load anyway"))
        self._figures.setText(figures(row))
        self.load.setEnabled(row.problem is None)
        # Beside the longer text there is no room.
        self.others.setVisible(row.entry is not None and self.load.text() == "Load")
        self.others.setAccessibleName(tr("Details of {name}", name=row.name))
        if row.download is not None:
            self._show_download(row.download)
        self._place_cells()
        self.show_state(self._state)

    def _show_download(self, status: DownloadStatus) -> None:
        stopped = status.state in ("paused", "failed")
        self._came.setText(standing(status, self._width))
        set_plain_tip(self._came, status.notice)
        self._came_bar.setRange(0, 1000)
        self._came_bar.setValue(round(1000 * status.done / status.total) if status.total else 0)
        _set_tone(self._came_bar, "vram" if status.state == "verifying" else "")
        self.pause.setText(tr("Resume") if stopped else tr("Pause"))
        self.pause.setAccessibleName(f"{self.pause.text()} {self.row.name}")
        self.drop.setAccessibleName(tr("Cancel {name}", name=self.row.name))
        self.hurry.setAccessibleName(tr("Download {name} next", name=self.row.name))
        self.hurry.setVisible(status.state == "queued")
        self._page = _address(status)
        self.visit.setVisible(bool(self._page))
        self.visit.setAccessibleName(tr("Open the page of {name}", name=self.row.name))

    def _pause_or_resume(self) -> None:
        if self.row.download is not None:
            stopped = self.row.download.state in ("paused", "failed")
            self._about_download(self.resumeWanted if stopped else self.pauseWanted)

    def _about_download(self, signal: SignalInstance) -> None:
        if self.row.download is not None:
            signal.emit(self.row.download.id)

    def show_state(self, state: HostState) -> None:
        self._state = state
        mine = state.path == self.row.path
        if self.row.download is not None:
            self._action.setCurrentIndex(4)
        elif self.row.checkpoint is None and self.row.path != DEMO:
            self._action.setCurrentIndex(3)
        elif mine and state.busy:
            self._action.setCurrentIndex(2)
            self._message.setText(told(state.progress.message) if state.progress else tr("Planning…"))
            known = state.progress is not None and state.progress.total > 0
            self._progress.setRange(0, 1000 if known else 0)
            if known:
                self._progress.setValue(round(1000 * state.progress.fraction))
        elif mine and state.kind in ("ready", "generating"):
            self._action.setCurrentIndex(1)
        else:
            self._action.setCurrentIndex(0)

    @property
    def measures(self) -> Measures:
        """Of this row's parts; they hold for every row."""
        for part in (self._name, self._figures, self.chip, self.load, self.pause):
            part.ensurePolished()
        text = self.chip.fontMetrics().horizontalAdvance(self.chip.text())
        return Measures(
            self._name.fontMetrics(),
            self._figures.fontMetrics(),
            self.chip.fontMetrics(),
            self.chip.sizeHint() - QSize(text, 0),
            self.load.sizeHint().height(),
            self._came_bar.sizeHint().height() + self.pause.sizeHint().height() + 2 * _BESIDE_BAR,
        )

    def set_width(self, width: int, chip: int) -> None:
        """Of the list, and of its column of chips. In a narrow one plan, speed and size go under the name."""
        if (width, chip) == (self._width, self._chip_column):
            return
        self._width, self._chip_column = width, chip
        self._action.setFixedWidth(action_width(width))
        self._columns.setDirection(
            QBoxLayout.Direction.TopToBottom if is_stacked(width) else QBoxLayout.Direction.LeftToRight
        )
        if is_compact(width) != self._compact:
            self._compact = not self._compact
            if self._compact:
                self._columns.removeWidget(self._chip_cell)
                self._facts.insertWidget(0, self._chip_cell, 0, Qt.AlignmentFlag.AlignLeft)
            else:
                self._facts.removeWidget(self._chip_cell)
                self._columns.insertWidget(1, self._chip_cell)
        self._place_cells()

    def _place_cells(self) -> None:
        """Where nothing is planned, the text has their room."""
        planned, compact = is_planned(self.row), self._compact
        # Under the name the chip may be as narrow as its words.
        self._chip_cell.setMinimumWidth(0 if compact else self._chip_column)
        self._chip_cell.setMaximumWidth(theme().px(CHIP_WIDTH) if compact else self._chip_column)
        self._chip_cell.setVisible(planned)
        self._speed_cell.setVisible(planned and not compact)
        self._size_cell.setVisible(not compact and (planned or self.row.nbytes > 0))
        self._figures.setVisible(compact and planned)
        self._below.setVisible(compact and planned)
        beside = not compact or in_one_line(self.row, self._width, self.measures)
        self._facts.setDirection(QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom)
        self._facts.setSpacing(GAP if beside else LINE_GAP)

    def _get(self) -> None:
        """The catalogue's choice; in a repository the user chooses."""
        (self.downloadWanted if self.row.choice is not None else self.detailsWanted).emit(self.row)

    def _load(self) -> None:
        refused = self.row.plan is not None and not self.row.plan.runnable
        self.loadWanted.emit(self.row.path, refused)

    def _open_plan(self) -> None:
        if self.row.plan is None:
            return
        refused = not self.row.plan.runnable and self.action == "load"
        anyway = self._load if refused else None
        PlanPopover(self.row.name, self.row.plan, anyway, self).open_below(self.chip)


def _bar(name: str) -> QProgressBar:
    bar = QProgressBar()
    bar.setTextVisible(False)
    bar.setAccessibleName(name)
    return bar


def _progress_cell(message: QWidget, bar: QProgressBar, *links: QPushButton) -> QWidget:
    cell = QWidget()
    box = QVBoxLayout(cell)
    box.setContentsMargins(0, 0, 0, 0)
    box.setSpacing(_BESIDE_BAR)
    row = QHBoxLayout()
    row.setSpacing(4)
    for link in links:
        row.addWidget(link)
    row.addStretch(1)
    box.addStretch(1)
    box.addWidget(message)
    box.addWidget(bar)
    box.addLayout(row)
    box.addStretch(1)
    return cell


def _set_tone(bar: QProgressBar, tone: str) -> None:
    if (bar.property("tone") or "") != tone:
        bar.setProperty("tone", tone)
        restyle(bar)


def _cell(width: int | None, *parts: QWidget) -> QWidget:
    cell = QWidget()
    if width is not None:
        cell.setFixedWidth(width)
    row = QHBoxLayout(cell)
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(6)
    for part in parts:
        row.addWidget(part)
    row.addStretch(1)
    return cell
