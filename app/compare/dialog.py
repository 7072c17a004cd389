"""Is it worth it: machines side by side for one model, with prices, to be saved as a table or a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QSize, Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import (
    QDialog,
    QFrame,
    QHBoxLayout,
    QLineEdit,
    QVBoxLayout,
    QWidget,
)

from app import tasks
from app.compare.picture import ComparisonView, paint_comparison
from app.compare.study import Entry, compared, models
from app.language import tr
from app.settings.fields import Combo, Fraction, WholeNumber
from app.theme import theme
from app.widgets.buttons import button
from app.widgets.file_dialog import FileDialog
from app.widgets.labels import ElideLabel, label
from app.widgets.page import scrolled
from app.widgets.wrap_row import WrapRow
from app.words import in_words
from engine.errors import GreenroomError
from engine.hardware.report import HardwareReport
from engine.placement.compare import MOST_MACHINES, Comparison, Use, to_csv

SIZE, MINIMUM = QSize(960, 760), QSize(700, 360)
WAIT_MS = 200
RAM_RANGE, VRAM_RANGE, CONTEXT_RANGE = (2, 6144), (0, 1024), (512, 1 << 20)
PRICE_RANGE = (0.01, 10_000_000.0)
FIELD_WIDTH, PRICE_WIDTH, NAME_WIDTH, MODEL_WIDTH = 150, 130, 136, 280
#: How a price is meant.
HOURLY, BOUGHT = "hour", "buy"

Compare = Callable[[HardwareReport, str, int | None, Sequence[Entry], Use], list[Comparison]]


class MachineLine(QWidget):
    """One machine with its price."""

    changed = Signal()
    removed = Signal(object)

    def __init__(self, name: str, entry: Entry, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._entry = entry
        self.price = Fraction(tr("Price of {name}", name=name), PRICE_RANGE, 1.0, tr("No price"), 0.01)
        self.price.show_value(None)
        self.price.setFixedWidth(theme().px(PRICE_WIDTH))
        kinds = ((tr("per hour"), HOURLY), (tr("to buy"), BOUGHT))
        self.kind = Combo(tr("Price type for {name}", name=name), kinds)
        self.kind.setFixedWidth(theme().px(PRICE_WIDTH - 20))
        self.price.chosen.connect(self._tell)
        self.kind.currentIndexChanged.connect(self._tell)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(10)
        row.addWidget(ElideLabel(name, "strong"), 1)
        row.addWidget(self.price)
        row.addWidget(self.kind)
        self.remove = button("", "cross", "ghost", "muted", tr("Remove {name}", name=name), tr("Remove"))
        self.remove.clicked.connect(lambda: self.removed.emit(self))
        # This PC stays: it is what the others are measured against.
        policy = self.remove.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        self.remove.setSizePolicy(policy)
        self.remove.setVisible(not entry.is_this_pc)
        row.addWidget(self.remove)

    @property
    def entry(self) -> Entry:
        parts = self._entry
        asked = None if self.price.value() == self.price.minimum() else self.price.value()
        hourly = self.kind.currentData() == HOURLY
        return Entry(
            parts.ram,
            parts.vram,
            parts.cpu,
            parts.gpu,
            price=None if hourly else asked,
            price_per_hour=asked if hourly else None,
        )

    @Slot()
    def _tell(self) -> None:
        self.changed.emit()


class CompareDialog(QDialog):
    """report: this PC. parts: a first machine to set beside it, or None. model: chosen at first, "" for the first.

    context: tokens at first, None for the usual
    """

    answered = Signal()

    def __init__(
        self,
        report: HardwareReport,
        parts: Entry | None = None,
        model: str = "",
        context: int | None = None,
        compare: Compare = compared,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._report, self._compare = report, compare
        self._task: tasks.Task | None = None
        self.lines: list[MachineLine] = []
        self.setWindowTitle(tr("Compare machines"))
        self.setMinimumSize(MINIMUM)
        self.resize(SIZE.boundedTo(self.screen().availableGeometry().size() - QSize(24, 56)))
        known = tuple((entry.name, entry.id) for entry in models())
        self.model = Combo(tr("Model"), known)
        self.model.setFixedWidth(theme().px(MODEL_WIDTH))
        self.model.setCurrentIndex(max(0, self.model.findData(model)))
        self.quant = Combo(tr("Quantisation"), ())
        self.quant.setFixedWidth(theme().px(FIELD_WIDTH))
        self._name_quants()
        self.context = WholeNumber(tr("Context in tokens"), CONTEXT_RANGE, tr("Default context"))
        self.context.show_value(context)
        self.years = Fraction(tr("Years a bought machine is used"), (0.5, 20.0), 3.0, "3", 0.5)
        self.hours = Fraction(tr("Hours of use per day"), (0.5, 24.0), 8.0, "8", 0.5)
        self.context.setFixedWidth(theme().px(FIELD_WIDTH))
        for field, value in ((self.years, 3.0), (self.hours, 8.0)):
            field.setFixedWidth(theme().px(FIELD_WIDTH))
            field.valueChanged.connect(self._put_words)
            field.show_value(value)
        for field in (self.context, self.years, self.hours):
            field.chosen.connect(self._later)
        self.model.currentIndexChanged.connect(self._name_quants)
        self.quant.currentIndexChanged.connect(self._later)
        self.view = ComparisonView()
        self.trouble = label("", "warn", wrap=True)
        self.trouble.hide()
        self._timer = QTimer(self, singleShot=True, interval=WAIT_MS)
        self._timer.timeout.connect(self._ask)
        self._build()
        self._insert(tr("This PC"), Entry())
        if parts is not None and not parts.is_this_pc:
            self.add(parts)
        self._ask()

    def _build(self) -> None:
        content = QVBoxLayout()
        content.setSpacing(8)
        content.addWidget(label(tr("Compare machines"), "title"))
        lead = tr("Compare one model on several machines: where its parts go, how fast it runs, and what it costs.")
        content.addWidget(label(lead, "muted", wrap=True))
        content.addSpacing(6)
        content.addLayout(WrapRow(self.model, self.quant, self.context, gap=10))
        content.addSpacing(6)
        content.addWidget(self._machines())
        content.addWidget(self.trouble)
        result = QFrame()
        result.setProperty("surface", "card")
        box = QVBoxLayout(result)
        box.setContentsMargins(18, 6, 18, 6)
        box.addWidget(self.view)
        content.addWidget(result)
        content.addStretch(1)
        self.csv = button(tr("Save as table"), icon="file", tip=tr("As CSV, for a spreadsheet"))
        self.csv.clicked.connect(self._save_table)
        self.save = button(tr("Save as picture"), icon="file")
        self.save.clicked.connect(self._save_picture)
        close = button(tr("Close"), kind="primary")
        close.clicked.connect(self.accept)
        foot = QHBoxLayout()
        foot.setContentsMargins(28, 10, 28, 16)
        foot.setSpacing(8)
        foot.addWidget(self.csv)
        foot.addWidget(self.save)
        foot.addStretch(1)
        foot.addWidget(close)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addWidget(scrolled(content), 1)
        outer.addLayout(foot)

    def _machines(self) -> QFrame:
        card = QFrame()
        card.setProperty("surface", "card")
        box = QVBoxLayout(card)
        box.setContentsMargins(18, 14, 18, 14)
        box.setSpacing(8)
        self._lines = QVBoxLayout()
        self._lines.setSpacing(8)
        box.addLayout(self._lines)
        used = label(tr("A bought machine is used for"), "muted")
        self._bought = QWidget()
        self._bought.setLayout(WrapRow(used, self.years, self.hours, gap=10))
        self._bought.hide()
        box.addWidget(self._bought)
        box.addSpacing(4)
        box.addWidget(label(tr("Add a machine: enter what differs from this PC"), "muted", wrap=True))
        self.ram = WholeNumber(tr("RAM in gigabytes"), RAM_RANGE, tr("Same RAM"))
        self.vram = WholeNumber(tr("VRAM in gigabytes; 0 for no GPU"), VRAM_RANGE, tr("Same VRAM"))
        for field in (self.ram, self.vram):
            field.setSuffix(" GB")
            field.show_value(None)
            field.setFixedWidth(theme().px(FIELD_WIDTH - 20))
        self.cpu = _name(tr("CPU model"), tr("e.g. EPYC 9355"))
        self.gpu = _name(tr("GPU model"), tr("e.g. RTX 4090"))
        self.more = button(tr("Add"), icon="plus", name=tr("Add this machine"))
        self.more.clicked.connect(self._add)
        box.addLayout(WrapRow(self.ram, self.vram, self.cpu, self.gpu, self.more))
        return card

    @Slot()
    def _name_quants(self) -> None:
        entry = next(entry for entry in models() if entry.id == self.model.currentData())
        self.quant.clear()
        for label_of_quant in dict.fromkeys(download.label for download in entry.downloads):
            self.quant.addItem(label_of_quant, label_of_quant)

    @property
    def use(self) -> Use:
        return Use(_number(self.years, 3.0), _number(self.hours, 8.0))

    def add(self, parts: Entry) -> None:
        """Raises GreenroomError for a part that nobody knows."""
        self._insert(parts.machine(self._report).name, parts)

    @Slot()
    def _add(self) -> None:
        parts = Entry(_whole(self.ram), _whole(self.vram), self.cpu.text().strip(), self.gpu.text().strip())
        if parts.is_this_pc or len(self.lines) >= MOST_MACHINES:
            return
        try:
            self.add(parts)
        except GreenroomError as error:
            self._complain(error)
            return
        for field in (self.ram, self.vram):
            field.show_value(None)
        for name in (self.cpu, self.gpu):
            name.clear()
        self._ask()

    def _insert(self, name: str, parts: Entry) -> None:
        line = MachineLine(name, parts)
        line.changed.connect(self._later)
        line.removed.connect(self._remove)
        self.lines.append(line)
        self._lines.addWidget(line)

    @Slot(object)
    def _remove(self, line: MachineLine) -> None:
        self.lines.remove(line)
        self._lines.removeWidget(line)
        line.hide()
        line.deleteLater()
        self._ask()

    @Slot()
    def _later(self) -> None:
        self._bought.setVisible(any(line.entry.price is not None for line in self.lines))
        self._timer.start()

    @Slot()
    def _ask(self) -> None:
        if self._task is not None:
            self._task.cancel()
        entries = [line.entry for line in self.lines]
        model = f"{self.model.currentData()}:{self.quant.currentData()}"
        asked = (self._report, model, _whole(self.context), entries, self.use)
        self._task = tasks.run(self._compare, *asked, done=self._show, failed=self._complain)

    def _show(self, rows: list[Comparison]) -> None:
        self.trouble.hide()
        self.view.show_rows(rows)
        self.answered.emit()

    def _complain(self, error: GreenroomError) -> None:
        self.trouble.setText(in_words(error))
        self.trouble.show()
        self.answered.emit()

    @Slot()
    def _save_table(self) -> None:
        self._choose(
            tr("Save as table"), "csv", lambda path: path.write_text(to_csv(self.view.rows), "utf-8", newline="")
        )

    @Slot()
    def _save_picture(self) -> None:
        self._choose(
            tr("Save as picture"), "png", lambda path: save_picture(path, self.view.rows, self.title, self.use)
        )

    @property
    def title(self) -> str:
        return f"{self.model.currentText()} {self.quant.currentText()}"

    def _choose(self, title: str, ending: str, save: Callable[[Path], object]) -> None:
        dialog = FileDialog(self, title, str(Path.home() / f"greenroom-{self.model.currentData()}.{ending}"))
        dialog.setAcceptMode(FileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix(ending)
        dialog.fileSelected.connect(lambda name: self._write(Path(name), save))
        dialog.open()

    @Slot()
    def _put_words(self) -> None:
        """What stands before and behind the figures of the fields: "1 year", "3 years"."""
        for field, words in ((self.years, _years), (self.hours, _hours)):
            before, _, behind = words(field.value(), "\0").partition("\0")
            field.setPrefix(before)
            field.setSuffix(behind)

    def _write(self, path: Path, save: Callable[[Path], object]) -> None:
        try:
            save(path)
        except OSError as error:
            why = error.strerror or str(error)
            self._complain(
                GreenroomError(tr("{path} could not be saved", path=path), why, tr("Choose another folder."))
            )


def save_picture(path: Path, rows: Sequence[Comparison], title: str, use: Use) -> None:
    """Raises OSError when it cannot be written."""
    note = tr("Speeds are for one answer at a time.")
    if any(row.cost_per_million for row in rows):
        note = tr(
            "Costs are per million answer tokens, one answer at a time. Bought machines are used for {years}, "
            "{hours}; electricity is not included.",
            years=_years(use.years),
            hours=_hours(use.hours_per_day),
        )
    if not paint_comparison(rows, title, note).save(str(path), "PNG"):
        raise OSError(0, tr("a picture cannot be saved there"))


def _name(name: str, example: str) -> QLineEdit:
    made = QLineEdit()
    made.setAccessibleName(name)
    made.setPlaceholderText(example)
    made.setToolTip(name)
    made.setMaxLength(80)
    made.setMinimumWidth(theme().px(NAME_WIDTH))
    made.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    return made


def _whole(field: WholeNumber) -> int | None:
    return None if field.value() == field.minimum() else field.value()


def _number(field: Fraction, otherwise: float) -> float:
    return otherwise if field.value() == field.minimum() else float(field.value())


def _years(value: float, written: str | None = None) -> str:
    return tr("%n years", n=_counted(value), written=written or f"{value:g}")


def _hours(value: float, written: str | None = None) -> str:
    return tr("%n hours a day", n=_counted(value), written=written or f"{value:g}")


def _counted(value: float) -> int:
    """The count whose plural form it takes: "1 year", but "1.5 years" and "0.5 years"."""
    return int(value) if value == int(value) else 2
