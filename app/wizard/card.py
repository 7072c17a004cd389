"""One model of the catalogue as a card: where it would live, how fast, how big, and its button."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QGridLayout, QHBoxLayout, QVBoxLayout, QWidget

from app.language import told, tr
from app.models.survey import ModelRow
from app.theme import theme
from app.widgets.buttons import button
from app.widgets.chip import Chip, ChipButton
from app.widgets.labels import ElideLabel, label, plain_tip
from app.widgets.plan_popover import PlanPopover
from app.words import in_amounts, rate_range, sentence
from engine.units import size_text

#: A narrower card puts what is downloaded under the name instead of beside it.
ROOMY = 520


class OfferCard(QFrame):
    #: ModelRow
    downloadWanted = Signal(object)

    def __init__(
        self, row: ModelRow, reasons: Sequence[str] | None, disk_free: int | None, parent: QWidget | None = None
    ) -> None:
        """reasons: why it is the best for this PC; None where it is not. disk_free: bytes, None where not known."""
        super().__init__(parent)
        self.row, plan = row, row.plan
        best = reasons is not None
        self.setProperty("surface", "card")
        self.setProperty("best", "true" if best else "false")
        label_of_quant = row.choice.label if row.choice is not None else ""
        speed = rate_range(plan.prediction.decode_tps) if plan.runnable else "–"
        said = needs(row, disk_free)
        self.setAccessibleName(
            f"{row.name}, {label_of_quant}, {row.size}. {told(plan.label)}. "
            + (tr("{range} tokens per second.", range=speed) + " " if plan.runnable else "")
            + said
        )

        name = ElideLabel(row.name, "heading")
        self._about = about = ElideLabel(f"{label_of_quant} · {row.size}", "small")
        # Hidden on a narrow card, which it must not keep from becoming one.
        about.setMinimumWidth(1)
        head = QHBoxLayout()
        head.setSpacing(8)
        head.addWidget(name)
        head.addWidget(about)
        self._best = Chip(tr("Best for this PC")) if reasons is not None else None
        if self._best is not None and reasons is not None:
            self._best.setToolTip(plain_tip("\n".join(told(reason) for reason in reasons)))
            self.setAccessibleDescription(" ".join(told(reason) for reason in reasons))
            head.addWidget(self._best)
        head.addStretch(1)
        self.chip = ChipButton()
        self.chip.show_plan(plan)
        self.chip.setToolTip(tr("Show the calculation"))
        self.chip.clicked.connect(self._open_plan)
        self._said = said
        self._detail = detail = label(said, "small", wrap=True)
        text = QVBoxLayout()
        text.setSpacing(6)
        text.addLayout(head)
        place = QHBoxLayout()
        place.setSpacing(8)
        place.addWidget(self.chip)
        place.addStretch(1)
        text.addLayout(place)
        text.addWidget(detail)

        figures = QHBoxLayout()
        figures.setSpacing(5)
        figures.addStretch(1)
        figures.addWidget(label(speed, "heading"))
        if plan.runnable:
            figures.addWidget(label("tok/s", "small"))
        if plan.runnable:
            self.action = button(
                tr("Download"), kind="primary" if best else "", name=tr("Download {model}", model=row.name)
            )
            self.action.clicked.connect(lambda: self.downloadWanted.emit(self.row))
            self.action.setEnabled(disk_free is None or row.nbytes <= disk_free)
        else:
            self.action = button(
                tr("Show the calculation"), name=tr("Show the calculation for {model}", model=row.name)
            )
            self.action.clicked.connect(self._open_plan)
        side = QVBoxLayout()
        side.setSpacing(8)
        side.addLayout(figures)
        side.addWidget(self.action, 0, Qt.AlignmentFlag.AlignRight)
        side.addStretch(1)

        grid = QGridLayout(self)
        grid.setContentsMargins(16, 13, 16, 13)
        grid.setHorizontalSpacing(12)
        grid.addLayout(text, 0, 0)
        grid.addLayout(side, 0, 1, Qt.AlignmentFlag.AlignTop)
        grid.setColumnStretch(0, 1)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        roomy = self.width() >= theme().px(ROOMY)
        self._about.setVisible(roomy)
        said = self._said if roomy else f"{self._about.text()} · {self._said}"
        if self._best is not None:
            self._best.setVisible(roomy)
            said = said if roomy else f"{self._best.text()} · {said}"
        self._detail.setText(said)

    def _open_plan(self) -> None:
        PlanPopover(self.row.name, self.row.plan, None, self).open_below(self.chip)


def needs(row: ModelRow, disk_free: int | None) -> str:
    """What the model takes, or what keeps it from running, in one line."""
    plan = row.plan
    if plan is None:
        return row.problem or ""
    amounts = in_amounts(plan)
    if not plan.runnable:
        hint = f" {sentence(told(plan.alternatives[0]))}" if plan.alternatives else ""
        return tr("Would need {amounts}.", amounts=amounts) + hint
    if disk_free is not None and row.nbytes > disk_free:
        more = size_text(row.nbytes - disk_free)
        return tr("{amounts}. The download needs {more} more free disk space.", amounts=amounts, more=more)
    return amounts
