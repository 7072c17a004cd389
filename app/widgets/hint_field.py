"""A line of text whose hint fits: of several ways to say it, the longest for which there is room."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QLineEdit, QStyle, QStyleOptionFrame, QWidget

#: QLineEdit's own, at either side of its text.
_TEXT_MARGIN = 2


class HintField(QLineEdit):
    """hints: the longest first."""

    def __init__(self, hints: Sequence[str], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._hints = tuple(hints)
        self.setPlaceholderText(self._hints[0])

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        option = QStyleOptionFrame()
        self.initStyleOption(option)
        area = self.style().subElementRect(QStyle.SubElement.SE_LineEditContents, option, self)
        margins = self.textMargins()
        room = area.width() - margins.left() - margins.right() - 2 * _TEXT_MARGIN
        advance = self.fontMetrics().horizontalAdvance
        self.setPlaceholderText(next((hint for hint in self._hints if advance(hint) <= room), self._hints[-1]))
