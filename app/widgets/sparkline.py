"""A line of recent figures, as small as text."""

from __future__ import annotations

from collections import deque

from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QWidget

from app.language import tr
from app.theme import theme


class Sparkline(QWidget):
    """The last `length` values, scaled to their own highest."""

    def __init__(self, length: int = 48, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._values: deque[float] = deque(maxlen=length)
        self.setFixedSize(theme().px(92), theme().px(16))
        self.setAccessibleName(tr("Recent speed"))
        theme().changed.connect(self.update)

    @property
    def values(self) -> list[float]:
        return list(self._values)

    def push(self, value: float) -> None:
        self._values.append(value)
        self.update()

    def clear(self) -> None:
        self._values.clear()
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        if len(self._values) < 3:
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        top = max(self._values) * 1.15 or 1.0
        step = (self.width() - 3) / (self._values.maxlen - 1)
        height = self.height() - 3
        points = [QPointF(1.5 + i * step, 1.5 + height * (1 - v / top)) for i, v in enumerate(self._values)]
        painter.setPen(QPen(theme().colour("accent"), 1.4, Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap))
        painter.drawPolyline(QPolygonF(points))
