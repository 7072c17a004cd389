"""The mark: nine experts, four of them on stage."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.theme import theme

_ON_STAGE = {(0, 0), (2, 0), (1, 1), (0, 2)}


class Logo(QWidget):
    """Draws the mark in the theme's accent colour; `side` in logical pixels."""

    def __init__(self, side: int = 22, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedSize(theme().px(side), theme().px(side))
        self.setAccessibleName("Greenroom")
        theme().changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        unit = self.width() / 22
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme().colour("accent"))
        painter.drawRoundedRect(QRectF(self.rect()), 6 * unit, 6 * unit)
        ink = theme().colour("accent_ink")
        for column in range(3):
            for row in range(3):
                ink.setAlphaF(1.0 if (column, row) in _ON_STAGE else 0.45)
                painter.setBrush(ink)
                cell = QRectF((3 + 6 * column) * unit, (3 + 6 * row) * unit, 4 * unit, 4 * unit)
                painter.drawRoundedRect(cell, unit, unit)
