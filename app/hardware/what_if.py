"""What a model of the catalogue would do on this PC with other parts: worked out anew with every change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from PySide6.QtCore import Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import QFrame, QGridLayout, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app import tasks
from app.compare.study import Entry
from app.language import mark, told, tr
from app.models.survey import ModelRow, find_offers, plan_offer
from app.settings.fields import Combo, WholeNumber
from app.theme import theme
from app.widgets.buttons import button
from app.widgets.chip import ChipButton
from app.widgets.labels import label
from app.widgets.plan_popover import PlanPopover
from app.wizard.ranking import recommended
from app.words import in_amounts, rate_range, sentence
from engine.errors import GreenroomError
from engine.hardware.report import HardwareReport
from engine.hub.described import references
from engine.placement.planner import ONLY_A_PLAN

#: A change is worked out when no other has followed for this long.
WAIT_MS = 200
GB = 1_000_000_000
RAM_RANGE, VRAM_RANGE, CONTEXT_RANGE = (2, 6144), (0, 1024), (512, 1 << 20)
FIELD_WIDTH = 224
#: Two columns of fields need more room than this.
ROOMY = 768
BEST = mark("Best match")
ANY_DISK = 1 << 62


@dataclass(frozen=True)
class Question:
    """ram, vram: GB, None for what is here. cpu, gpu: names as sold, "" for what is here. entry: "" for the best.

    context: tokens of the conversation, None for the usual
    """

    ram: int | None = None
    vram: int | None = None
    cpu: str = ""
    gpu: str = ""
    entry: str = ""
    context: int | None = None


def answer(api: Any, report: HardwareReport, asked: Question) -> ModelRow | None:
    """The model with its plan on the imagined PC; None when none of the catalogue fits. Takes up to a second.

    Raises GreenroomError for a part that nobody knows.
    """
    from engine.placement.machines import what_if

    imagined = what_if(
        report,
        ram=None if asked.ram is None else asked.ram * GB,
        vram=None if asked.vram is None else asked.vram * GB,
        cpu=asked.cpu or None,
        gpu=asked.gpu or None,
    )
    offers = {row.entry.id: row for row in find_offers() if row.entry is not None}
    if asked.entry in offers:
        return plan_offer(api, offers[asked.entry], imagined, asked.context, {})
    if asked.entry:
        return _only_planned(api, asked, imagined)
    # Whoever buys memory buys a disk for the models as well.
    found = api.recommend(replace(imagined, disk=replace(imagined.disk, free_bytes=ANY_DISK)))
    return recommended(offers[found.ranked[0].id], found.ranked[0]) if found.ranked else None


def _only_planned(api: Any, asked: Question, imagined: HardwareReport) -> ModelRow:
    """Of a model that Greenroom does not compute."""
    entry = next(entry for entry in references() if entry.id == asked.entry)
    choice = entry.downloads[0]
    row = ModelRow(entry.id, entry.name, entry.author, entry.nbytes(choice), entry=entry, choice=choice)
    try:
        return replace(row, plan=api.plan(entry.checkpoint(choice.label), imagined, asked.context))
    except GreenroomError as error:
        return replace(row, problem=f"{sentence(told(error.why))}. {told(error.remedy)}")


class WhatIfPanel(QFrame):
    """Shows itself once there is a report to start from."""

    answered = Signal()

    def __init__(
        self, api: Any, answer: Callable[..., ModelRow | None] = answer, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._api, self._answer = api, answer
        self._report: HardwareReport | None = None
        self._task: tasks.Task | None = None
        self.row: ModelRow | None = None
        self.setProperty("surface", "card")
        self.ram = WholeNumber(tr("RAM in gigabytes"), RAM_RANGE, tr("Unchanged"))
        self.vram = WholeNumber(tr("VRAM in gigabytes; 0 for no GPU"), VRAM_RANGE, tr("Unchanged"))
        for field in (self.ram, self.vram):
            field.setSuffix(" GB")
            field.show_value(None)
            field.chosen.connect(self._later)
        self.cpu = _name(tr("CPU model"), tr("e.g. Ryzen 9 7950X"))
        self.gpu = _name(tr("GPU model"), tr("e.g. RTX 4090"))
        entries = [(row.name, row.entry.id) for row in find_offers() if row.entry is not None]
        entries += [(tr("{model} (plan only)", model=entry.name), entry.id) for entry in references()]
        self.model = Combo(tr("Model"), ((tr(BEST), ""), *entries))
        self.context = WholeNumber(tr("Context in tokens"), CONTEXT_RANGE, tr("Default"))
        self.context.show_value(None)
        self.context.chosen.connect(self._later)
        self.model.setSizeAdjustPolicy(Combo.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        for field in (self.cpu, self.gpu):
            field.textChanged.connect(self._later)
        self.model.currentIndexChanged.connect(self._later)

        self._fields = QGridLayout()
        self._fields.setHorizontalSpacing(12)
        self._fields.setVerticalSpacing(10)
        self._parts: list[tuple[QWidget, QWidget]] = []
        for title, field in (
            (tr("RAM"), self.ram),
            (tr("VRAM"), self.vram),
            (tr("CPU"), self.cpu),
            (tr("GPU"), self.gpu),
            (tr("Model"), self.model),
            (tr("Context"), self.context),
        ):
            field.setFixedWidth(theme().px(FIELD_WIDTH))
            caption = label(title, "muted")
            caption.setBuddy(field)
            self._parts.append((caption, field))
        self._columns = 0
        self.name = label("", "heading", wrap=True)
        self.chip = ChipButton()
        self.chip.setToolTip(tr("Show the calculation"))
        self.chip.clicked.connect(self._open_plan)
        # Empty until there is an answer.
        self.chip.hide()
        self.speed = label("", "heading")
        self.figures = label("", "small", wrap=True)
        chips = QHBoxLayout()
        chips.setSpacing(10)
        chips.addWidget(self.chip)
        chips.addWidget(self.speed)
        chips.addStretch(1)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 14, 16, 16)
        column.setSpacing(6)
        column.addWidget(label(tr("What if this PC had other parts?"), "heading"))
        column.addWidget(
            label(tr("See what would run with more memory, or on another PC. Nothing is changed."), "muted", True)
        )
        column.addSpacing(6)
        column.addLayout(self._fields)
        column.addSpacing(10)
        column.addWidget(self.name)
        column.addLayout(chips)
        column.addWidget(self.figures)
        self.compare = button(tr("Compare with this PC…"), icon="sliders")
        self.compare.clicked.connect(lambda: self.open_comparison())
        column.addSpacing(6)
        column.addWidget(self.compare, 0, Qt.AlignmentFlag.AlignLeft)
        self._timer = QTimer(self, singleShot=True, interval=WAIT_MS)
        self._timer.timeout.connect(self._ask)
        self.hide()
        self._arrange(2)

    def show_report(self, report: HardwareReport) -> None:
        self._report = report
        self.show()
        self._ask()

    @property
    def question(self) -> Question:
        return Question(
            _value(self.ram),
            _value(self.vram),
            self.cpu.text().strip(),
            self.gpu.text().strip(),
            str(self.model.currentData()),
            _value(self.context),
        )

    def ask(self, question: Question) -> None:
        """Fill the fields with a question."""
        for field, value in (
            (self.ram, question.ram),
            (self.vram, question.vram),
            (self.context, question.context),
        ):
            field.show_value(value)
        self.cpu.setText(question.cpu)
        self.gpu.setText(question.gpu)
        self.model.setCurrentIndex(max(0, self.model.findData(question.entry)))

    def resizeEvent(self, event: Any) -> None:
        super().resizeEvent(event)
        self._arrange(2 if self.width() >= theme().px(ROOMY) else 1)

    def _arrange(self, columns: int) -> None:
        if columns == self._columns:
            return
        self._columns = columns
        for number, (caption, field) in enumerate(self._parts):
            row, column = divmod(number, columns)
            self._fields.addWidget(caption, row, 3 * column)
            self._fields.addWidget(field, row, 3 * column + 1)
        self._fields.setColumnStretch(3 * columns - 1, 1)

    @Slot()
    def _later(self) -> None:
        self._timer.start()

    @Slot()
    def _ask(self) -> None:
        if self._report is None:
            return
        if self._task is not None:
            self._task.cancel()
        # What stands there answers another question.
        self.chip.hide()
        self.speed.hide()
        self.figures.setText(tr("Calculating…"))
        self._task = tasks.run(
            self._answer, self._api, self._report, self.question, done=self._show, failed=self._complain
        )

    def _show(self, row: ModelRow | None) -> None:
        self.row = row
        self.compare.setEnabled(True)
        plan = None if row is None else row.plan
        self.chip.setVisible(plan is not None)
        self.speed.setVisible(plan is not None and plan.runnable)
        if row is None:
            self.name.setText(tr("No model in the catalogue would fit"))
            self.figures.setText(tr("Add RAM, or a GPU with its own memory."))
        elif plan is None:
            self.name.setText(row.name)
            self.figures.setText(row.problem or "")
        else:
            quant = "" if row.choice is None else f" · {row.choice.label} · {row.size}"
            self.name.setText(f"{row.name}{quant}")
            self.chip.show_plan(plan)
            self.speed.setText(tr("{range} tok/s", range=rate_range(plan.prediction.decode_tps)))
            amounts = in_amounts(plan)
            planned_only = not plan.runnable or plan.explanation[0].startswith(ONLY_A_PLAN)
            said = told(plan.explanation[0]) if planned_only else sentence(told(plan.prediction.bottleneck))
            said = said.rstrip(".")
            self.figures.setText(f"{amounts}. {said}.".replace("/s", "/\u2060s"))
        self.answered.emit()

    def _complain(self, error: GreenroomError) -> None:
        self.row = None
        # What stands there says why.
        self.compare.setEnabled(False)
        self.chip.hide()
        self.speed.hide()
        self.name.setText(told(error.what))
        self.figures.setText(f"{sentence(told(error.why))}. {told(error.remedy)}")
        self.answered.emit()

    def open_comparison(self, closed: Callable[[], object] | None = None) -> None:
        """Of this PC with the one asked about, for the model of the answer. There must be a report.

        closed: called when it has been closed
        """
        from app.compare.dialog import CompareDialog

        asked = self.question
        model = asked.entry or (self.row.entry.id if self.row is not None and self.row.entry is not None else "")
        parts = Entry(asked.ram, asked.vram, asked.cpu, asked.gpu)
        try:
            dialog = CompareDialog(self._report, parts, model, asked.context, parent=self)
        except GreenroomError as error:
            self._complain(error)
            return
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        if closed is not None:
            dialog.finished.connect(lambda result: closed())
        dialog.open()

    def _open_plan(self) -> None:
        if self.row is not None and self.row.plan is not None:
            PlanPopover(self.row.name, self.row.plan, None, self).open_below(self.chip)


def _name(name: str, example: str) -> QLineEdit:
    made = QLineEdit()
    made.setAccessibleName(name)
    made.setPlaceholderText(example)
    made.setMaxLength(80)
    made.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    return made


def _value(field: WholeNumber) -> int | None:
    return None if field.value() == field.minimum() else field.value()
