"""One model in the list: what it is, where it would live, how fast, how big, and the one thing to do with it."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QProgressBar, QStackedWidget, QVBoxLayout, QWidget

from app.host import HostState
from app.models.survey import ModelRow
from app.widgets.buttons import button
from app.widgets.chip import ChipButton
from app.widgets.labels import ElideLabel, label
from app.widgets.plan_popover import PlanPopover
from app.words import about, gigabytes, rate_range

CHIP_WIDTH, SPEED_WIDTH, SIZE_WIDTH, ACTION_WIDTH = 256, 112, 72, 152
#: A range wider than this says less than its likely figure.
VAGUE = 2.5


class RowWidget(QFrame):
    """Shows a ModelRow, and the host's state where it is about this model."""

    loadWanted = Signal(str, bool)
    ejectWanted = Signal()
    cancelWanted = Signal()

    def __init__(self, row: ModelRow, first: bool, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.row = row
        self._state = HostState()
        self.setProperty("surface", "row")
        self.setProperty("first", "true" if first else "false")

        self._name = ElideLabel(row.name, "strong", Qt.TextElideMode.ElideMiddle)
        self._detail = label("", "small", wrap=True)
        self._problem = label("", "warn-small", wrap=True)
        self._text = QVBoxLayout()
        self._text.setSpacing(2)
        self._text.addStretch(1)
        for part in (self._name, self._detail, self._problem):
            self._text.addWidget(part)
        self._text.addStretch(1)

        self.chip = ChipButton()
        self.chip.setToolTip("Show the sum behind this")
        self.chip.clicked.connect(self._open_plan)
        self._waiting = label("working it out…", "small")
        self._chip_cell = _cell(CHIP_WIDTH, self.chip, self._waiting)
        self._speed = label("", "strong")
        self._unit = label("tok/s", "small")
        speed_cell = _cell(SPEED_WIDTH, self._speed, self._unit)
        self._size = label("")
        self._size_cell = _cell(SIZE_WIDTH, self._size)

        self._columns = QHBoxLayout(self)
        self._columns.setContentsMargins(16, 12, 16, 12)
        self._columns.setSpacing(12)
        self._columns.addLayout(self._text, 1)
        for cell in (self._chip_cell, speed_cell, self._size_cell, self._build_action()):
            self._columns.addWidget(cell)
        self._compact = False
        self.show_row(row)

    def _build_action(self) -> QWidget:
        self._action = QStackedWidget()
        self._action.setFixedWidth(ACTION_WIDTH)
        self.load = button("Load")
        self.load.clicked.connect(self._load)
        idle = _cell(ACTION_WIDTH, self.load)

        self._loaded_mark = label("● Loaded", "accent")
        self.eject = button("Eject", tip="Free its memory")
        self.eject.clicked.connect(self.ejectWanted)
        loaded = _cell(ACTION_WIDTH, self._loaded_mark, self.eject)

        busy = QWidget()
        box = QVBoxLayout(busy)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(4)
        self._message = ElideLabel("", "small")
        self._progress = QProgressBar()
        self._progress.setTextVisible(False)
        self._progress.setAccessibleName("Loading")
        self.cancel = button("Cancel", kind="link")
        self.cancel.clicked.connect(self.cancelWanted)
        box.addStretch(1)
        box.addWidget(self._message)
        box.addWidget(self._progress)
        box.addWidget(self.cancel, 0, Qt.AlignmentFlag.AlignLeft)
        box.addStretch(1)
        for page in (idle, loaded, busy):
            self._action.addWidget(page)
        return self._action

    @property
    def action(self) -> str:
        """Which action is offered: load | loaded | loading."""
        return ("load", "loaded", "loading")[self._action.currentIndex()]

    def show_row(self, row: ModelRow) -> None:
        self.row = row
        self._name.setText(row.name)
        self._detail.setText(row.detail)
        self._problem.setText(row.problem or "")
        self._problem.setVisible(row.problem is not None)
        self._size.setText(gigabytes(row.nbytes) if row.nbytes else "")
        self.load.setAccessibleName(f"Load {row.name}")
        self.eject.setAccessibleName(f"Eject {row.name}")
        self.chip.setVisible(row.plan is not None)
        self._waiting.setVisible(row.plan is None and row.problem is None and row.checkpoint is not None)
        self._speed.setVisible(row.plan is not None)
        self._unit.setVisible(row.plan is not None)
        if row.plan is not None:
            self.chip.show_plan(row.plan)
            speed = row.plan.prediction.decode_tps
            vague = speed.high > VAGUE * speed.low
            self._speed.setText(about(speed) if vague else rate_range(speed, "–"))
            self._speed.setToolTip(f"Predicted: {about(speed)} tok/s, from {rate_range(speed)}")
            self.load.setText("Load" if row.plan.runnable else "Load anyway")
        self.load.setEnabled(row.problem is None)

    def show_state(self, state: HostState) -> None:
        self._state = state
        mine = state.path == self.row.path
        if mine and state.busy:
            self._action.setCurrentIndex(2)
            self._message.setText(state.progress.message if state.progress else "Planning…")
            known = state.progress is not None and state.progress.total > 0
            self._progress.setRange(0, 1000 if known else 0)
            if known:
                self._progress.setValue(round(1000 * state.progress.fraction))
        elif mine and state.kind in ("ready", "generating"):
            self._action.setCurrentIndex(1)
        else:
            self._action.setCurrentIndex(0)

    def set_compact(self, compact: bool) -> None:
        """For a narrow window: the plan goes under the name and the size gives way."""
        if compact == self._compact:
            return
        self._compact = compact
        # Under the name the chip may be as narrow as its words.
        self._chip_cell.setMinimumWidth(0 if compact else CHIP_WIDTH)
        self._size_cell.setVisible(not compact)
        if compact:
            self._columns.removeWidget(self._chip_cell)
            # Without an alignment the cell's fixed width would be the width of all the text.
            self._text.insertWidget(self._text.count() - 1, self._chip_cell, 0, Qt.AlignmentFlag.AlignLeft)
        else:
            self._text.removeWidget(self._chip_cell)
            self._columns.insertWidget(1, self._chip_cell)

    def _load(self) -> None:
        refused = self.row.plan is not None and not self.row.plan.runnable
        self.loadWanted.emit(self.row.path, refused)

    def _open_plan(self) -> None:
        if self.row.plan is None:
            return
        refused = not self.row.plan.runnable and self.action == "load"
        anyway = self._load if refused else None
        PlanPopover(self.row.name, self.row.plan, anyway, self).open_below(self.chip)


def _cell(width: int, *parts: QWidget) -> QWidget:
    cell = QWidget()
    cell.setFixedWidth(width)
    row = QHBoxLayout(cell)
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(6)
    for part in parts:
        row.addWidget(part)
    row.addStretch(1)
    return cell
