"""The small rounded mark that carries a plan's label."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QPushButton, QWidget

from app.language import told, tr
from app.theme.theme import restyle
from engine.placement.plan import OffloadPlan

#: The chip's tone for each mode of a plan.
TONES = {"all_gpu": "vram", "hybrid": "accent", "cpu": "accent", "tight": "warn", "too_large": "bad"}


class Chip(QLabel):
    """tone: accent | vram | warn | bad | plain."""

    def __init__(self, text: str = "", tone: str = "accent", parent: QWidget | None = None) -> None:
        super().__init__(text, parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.setProperty("chip", tone)


class ChipButton(QPushButton):
    """A chip that opens something."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("chip", "accent")
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)

    def show_plan(self, plan: OffloadPlan) -> None:
        self.setText(told(plan.short_label))
        self.setAccessibleName(tr("Plan: {label}", label=told(plan.label)))
        tone = TONES[plan.mode]
        if self.property("chip") != tone:
            self.setProperty("chip", tone)
            restyle(self)
