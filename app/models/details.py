"""One model in detail: what it is, and its quantisations side by side."""

from __future__ import annotations

from functools import partial
from typing import Any

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QDialog, QFrame, QGridLayout, QHBoxLayout, QVBoxLayout, QWidget

from app import tasks
from app.language import mark, told, tr
from app.models.download_host import network_settings
from app.models.survey import ModelRow, billions, find_remote, list_repository, plan_choices, plan_remote
from app.settings.store import SettingsStore
from app.theme import theme
from app.widgets.buttons import button
from app.widgets.chip import ChipButton
from app.widgets.labels import ElideLabel, label
from app.widgets.page import scrolled
from app.widgets.plan_popover import PlanPopover
from app.words import about, in_words, licence_name, predicted, rate_range, sentence
from engine.errors import GreenroomError
from engine.hardware.report import HardwareReport
from engine.hub.catalogue import CatalogueDownload
from engine.hub.repository import RemoteModel, Repository
from engine.placement.plan import OffloadPlan
from engine.units import size_text

WIDTH, HEIGHT = 900, 620
_LABEL, _SIZE, _CHIP, _SPEED = 168, 76, 250, 104
_GAP, _SIDE = 12, 16
FROM_SHAPE = mark("Plans and speeds are calculated from the model's published structure.")
#: Gigabytes of memory that machines are sold with.
_MACHINES = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)


class DetailsDialog(QDialog):
    """For a row of the catalogue or a repository of the hub.

    report: this PC, None while it is not known; then nothing is planned
    """

    #: RemoteModel
    downloadWanted = Signal(object)

    def __init__(
        self,
        api: Any,
        settings: SettingsStore,
        row: ModelRow,
        report: HardwareReport | None,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._api, self._settings, self._report = api, settings, report
        self._tasks: list[tasks.Task] = []
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        name = row.name if row.entry is None else row.entry.name
        self.setWindowTitle(name)
        self.resize(WIDTH, HEIGHT)

        box = QVBoxLayout()
        box.setSpacing(6)
        box.addWidget(label(name, "title", wrap=True))
        entry = row.entry
        if entry is None:
            box.addWidget(label(f"{row.repo} · {row.detail.partition(' · ')[2]}", "muted", wrap=True))
        else:
            context = tr("up to %n tokens", n=entry.context)
            facts = (
                tr(
                    "{params_total} weights, {params_active} active per token",
                    params_total=billions(entry.params_total),
                    params_active=billions(entry.params_active),
                ),
                context,
                tr("licence {licence}", licence=licence_name(entry.licence)),
            )
            box.addWidget(label(" · ".join((entry.author, *facts)), "muted", wrap=True))
            box.addWidget(label(sentence(told(entry.good_at)), wrap=True))
        box.addSpacing(8)
        self._card = QFrame()
        self._card.setProperty("surface", "card")
        self._choices = QVBoxLayout(self._card)
        self._choices.setContentsMargins(0, 0, 0, 0)
        self._choices.setSpacing(0)
        box.addWidget(self._card)
        self._note = label("", "small", wrap=True)
        box.addWidget(self._note)
        box.addStretch(1)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 12)
        outer.addWidget(scrolled(box))
        close = button(tr("Close"))
        close.clicked.connect(self.reject)
        foot = QHBoxLayout()
        foot.setContentsMargins(28, 0, 28, 0)
        foot.addStretch(1)
        foot.addWidget(close)
        outer.addLayout(foot)

        if entry is not None:
            self._show_entry(row)
        else:
            self._ask(row.repo)

    @property
    def choices(self) -> list[ChoiceRow]:
        return self._card.findChildren(ChoiceRow)

    def done(self, result: int) -> None:
        for task in self._tasks:
            task.cancel()
        super().done(result)

    def _show_entry(self, row: ModelRow) -> None:
        entry = row.entry
        if entry is None:
            return
        for download in entry.downloads:
            size = entry.nbytes(download)
            choice = ChoiceRow(download.label, download.repo, size, about=download.nbytes is None)
            choice.downloadWanted.connect(partial(self._download_listed, choice, download))
            self._add(choice)
        self._note.setText(tr(FROM_SHAPE))
        if self._report is not None:
            args = (self._api, entry, self._report, self._settings.values.context, self._wishes())
            self._tasks.append(tasks.run(plan_choices, *args, done=self._show_plans, failed=self._complain))

    def _show_plans(self, planned: list[tuple[CatalogueDownload, OffloadPlan | GreenroomError]]) -> None:
        for choice, (_, plan) in zip(self.choices, planned, strict=True):
            choice.show_plan(plan)
        totals = [p.bytes.ram_total + p.bytes.vram_total for _, p in planned if isinstance(p, OffloadPlan)]
        if totals:
            self._note.setText(f"{tr(FROM_SHAPE)} {smallest_machine(min(totals))}")

    def _download_listed(self, choice: ChoiceRow, download: CatalogueDownload) -> None:
        choice.set_busy(tr("Checking…"))
        settings = network_settings(self._settings.values)
        self._tasks.append(
            tasks.run(find_remote, settings, download, done=self._start, failed=partial(self._complain_at, choice))
        )

    def _ask(self, repo: str) -> None:
        self._note.setText(tr("Checking {repo} on Hugging Face…", repo=repo))
        self._card.hide()
        settings = network_settings(self._settings.values)
        self._tasks.append(
            tasks.run(list_repository, settings, repo, done=self._show_repository, failed=self._complain)
        )

    def _show_repository(self, repository: Repository) -> None:
        for model in repository.models:
            choice = ChoiceRow(model.label, model.name, model.nbytes, files=len(model.files))
            choice.downloadWanted.connect(partial(self._start, model))
            choice.planWanted.connect(partial(self._plan, choice, model))
            choice.offer_plan()
            self._add(choice)
        self._card.show()
        words = [tr("Planning first downloads the file's header, a few megabytes.")]
        if repository.gated:
            words.insert(0, tr("Accept the model's terms on its page first: {repo}.", repo=repository.repo))
        self._note.setText(" ".join(words))

    def _plan(self, choice: ChoiceRow, model: RemoteModel) -> None:
        choice.set_busy(tr("Reading the header…"))
        values = self._settings.values
        args = (self._api, network_settings(values), model, self._report, values.context, self._wishes())
        self._tasks.append(
            tasks.run(plan_remote, *args, done=choice.show_plan, failed=partial(self._complain_at, choice))
        )

    def _start(self, model: RemoteModel) -> None:
        self.downloadWanted.emit(model)
        self.accept()

    def _wishes(self) -> dict[str, Any]:
        return self._settings.values.wishes

    def _add(self, choice: ChoiceRow) -> None:
        choice.setProperty("first", "true" if not self._choices.count() else "false")
        self._choices.addWidget(choice)

    def _complain(self, error: GreenroomError) -> None:
        self._note.setText(in_words(error))

    def _complain_at(self, choice: ChoiceRow, error: GreenroomError) -> None:
        choice.set_busy("")
        self._note.setText(in_words(error))


def smallest_machine(needed_bytes: int) -> str:
    """What a PC must have for it, beside what the system keeps for itself."""
    from engine.placement.sizes import ram_reserve

    enough = next((size for size in _MACHINES if size << 30 >= needed_bytes + ram_reserve(size << 30)), None)
    if enough is None:
        return tr("Even the smallest needs more memory than common PCs have.")
    return tr("The smallest needs a PC with {enough} GB of RAM and VRAM together.", enough=enough)


class ChoiceRow(QFrame):
    """One quantisation: size, mode, speed, and the button that gets it. about: the size is worked out, not listed."""

    downloadWanted = Signal()
    planWanted = Signal()

    def __init__(self, name: str, detail: str, nbytes: int, files: int = 1, about: bool = False) -> None:
        super().__init__()
        self.setProperty("surface", "row")
        self._plan: OffloadPlan | None = None
        self._name = name
        text = QVBoxLayout()
        text.setSpacing(1)
        text.addWidget(ElideLabel(name, "strong", Qt.TextElideMode.ElideMiddle))
        about_it = ElideLabel(detail if files == 1 else tr("%n files, {detail}", n=files, detail=detail), "small")
        # The repository's name says more than its owner's.
        about_it.shorter = (detail.rpartition("/")[2],)
        text.addWidget(about_it)
        left = QWidget()
        left.setLayout(text)
        text.setContentsMargins(0, 0, 0, 0)
        left.setMinimumWidth(theme().px(_LABEL))
        size = label(f"{'~' if about else ''}{size_text(nbytes)}")
        size.setFixedWidth(theme().px(_SIZE))
        if about:
            size.setToolTip(tr("Calculated from the model's structure"))
        self.chip = ChipButton()
        self.chip.clicked.connect(self._open_plan)
        self.plan = button(
            tr("Plan"),
            kind="link",
            name=tr("Plan {name}", name=name),
            tip=tr("Read the header and plan what goes where"),
        )
        self.plan.clicked.connect(self.planWanted)
        self._state = label(tr("calculating…"), "small", wrap=True)
        self._speed = label("", "strong")
        self._speed.setFixedWidth(theme().px(_SPEED))
        self.get = button(tr("Download"), name=tr("Download {name}", name=name))
        self.get.clicked.connect(self.downloadWanted)
        cell = QWidget()
        cell.setFixedWidth(theme().px(_CHIP))
        middle = QHBoxLayout(cell)
        middle.setContentsMargins(0, 0, 0, 0)
        middle.setSpacing(0)
        for part in (self.chip, self.plan, self._state):
            middle.addWidget(part)
        middle.addStretch(1)
        self._facts = QWidget()
        facts = QHBoxLayout(self._facts)
        facts.setContentsMargins(0, 0, 0, 0)
        facts.setSpacing(_GAP)
        for part in (size, cell, self._speed):
            facts.addWidget(part)
        self._left = left
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(_SIDE, 10, _SIDE, 10)
        self._grid.setHorizontalSpacing(_GAP)
        self._grid.setColumnStretch(0, 1)
        self._grid.addWidget(left, 0, 0)
        self._grid.addWidget(self._facts, 0, 1)
        self._grid.addWidget(self.get, 0, 2)
        self.chip.hide()
        self.plan.hide()

    def minimumSizeHint(self) -> QSize:
        """With the figures under the name."""
        first = self._left.minimumSizeHint().width() + _GAP + self.get.sizeHint().width()
        width = max(first, self._facts.sizeHint().width()) + 2 * _SIDE
        return QSize(width, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        parts = (self._left.minimumSizeHint(), self._facts.sizeHint(), self.get.sizeHint())
        if self.width() >= sum(part.width() for part in parts) + 2 * (_GAP + _SIDE):
            self._grid.addWidget(self._facts, 0, 1)
        else:
            self._grid.addWidget(self._facts, 1, 0, 1, 3, Qt.AlignmentFlag.AlignLeft)

    def offer_plan(self) -> None:
        self.plan.show()
        self._state.hide()

    def set_busy(self, message: str) -> None:
        self.plan.setVisible(not message and self._plan is None)
        self.chip.setVisible(not message and self._plan is not None)
        self._state.setText(message)
        self._state.setVisible(bool(message))

    def show_plan(self, plan: OffloadPlan | GreenroomError) -> None:
        self.plan.hide()
        if isinstance(plan, GreenroomError):
            self._state.setText(f"{sentence(told(plan.why))}.")
            self._state.show()
            return
        self._plan = plan
        self._state.hide()
        self.chip.show_plan(plan)
        self.chip.show()
        speed = plan.prediction.decode_tps
        self._speed.setText("–" if plan.mode == "too_large" else tr("{plan} tok/s", plan=predicted(plan)))
        self._speed.setToolTip(
            tr("Predicted: {speed} tok/s, from {speed2}", speed=about(speed), speed2=rate_range(speed))
        )

    def _open_plan(self) -> None:
        if self._plan is not None:
            PlanPopover(self._name, self._plan, None, self).open_below(self.chip)
