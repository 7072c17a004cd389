"""The quiet line under an answer that had to do with less memory than planned."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QWidget

from app.language import told, tr


class SteppedDownLine(QLabel):
    """What was given up and what that costs, as the engine says it, and how to have it back."""

    def __init__(self, steps: Sequence[str], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        remedy = tr("To restore full speed, close other programs that use the GPU and load the model again.")
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setText(" ".join([*map(told, steps), remedy]))
        self.setAccessibleName(self.text())
        self.setWordWrap(True)
        self.setProperty("role", "small")
        # By keyboard too: a screen reader reads what has the focus.
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)

    def set_width(self, width: int) -> None:
        self.setFixedWidth(width)
        self.ensurePolished()
        self.setFixedHeight(self.heightForWidth(width))
