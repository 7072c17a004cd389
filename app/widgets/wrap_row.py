"""A row of parts that goes on below where it has no more room."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtWidgets import QLayout, QLayoutItem, QSizePolicy, QWidget


class WrapRow(QLayout):
    """From left to right, then from line to line. What is left of a line goes to parts that expand."""

    def __init__(self, *parts: QWidget, gap: int = 8) -> None:
        super().__init__()
        self._items: list[QLayoutItem] = []
        self.setContentsMargins(0, 0, 0, 0)
        self.setSpacing(gap)
        for part in parts:
            self.addWidget(part)

    def addItem(self, item: QLayoutItem) -> None:
        self._items.append(item)

    def count(self) -> int:
        return len(self._items)

    def itemAt(self, index: int) -> QLayoutItem | None:
        return self._items[index] if 0 <= index < len(self._items) else None

    def takeAt(self, index: int) -> QLayoutItem | None:
        return self._items.pop(index) if 0 <= index < len(self._items) else None

    def expandingDirections(self) -> Qt.Orientation:
        return Qt.Orientation.Horizontal

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        lines = self._lines(width)
        return sum(map(_height, lines)) + self.spacing() * (len(lines) - 1)

    def sizeHint(self) -> QSize:
        shown = [item for item in self._items if not item.isEmpty()]
        wide = sum(_width(item) for item in shown) + self.spacing() * (len(shown) - 1)
        return QSize(max(0, wide), _height(shown))

    def minimumSize(self) -> QSize:
        shown = [item for item in self._items if not item.isEmpty()]
        return QSize(max(map(_width, shown), default=0), _height(shown))

    def setGeometry(self, area: QRect) -> None:
        super().setGeometry(area)
        top = area.top()
        for line in self._lines(area.width()):
            height, left = _height(line), area.left()
            spare = area.width() - sum(map(_width, line)) - self.spacing() * (len(line) - 1)
            growing = [item for item in line if _expands(item)]
            for item in line:
                width = _width(item)
                if item in growing:
                    width += max(0, spare) // len(growing)
                size = QSize(width, min(height, item.sizeHint().height()))
                item.setGeometry(QRect(QPoint(left, top + (height - size.height()) // 2), size))
                left += width + self.spacing()
            top += height + self.spacing()

    def _lines(self, width: int) -> list[list[QLayoutItem]]:
        lines: list[list[QLayoutItem]] = []
        left = 0
        for item in self._items:
            if item.isEmpty():
                continue
            if not lines or left + _width(item) > width:
                lines.append([])
                left = 0
            lines[-1].append(item)
            left += _width(item) + self.spacing()
        return lines


def _expands(item: QLayoutItem) -> bool:
    return item.widget().sizePolicy().horizontalPolicy() == QSizePolicy.Policy.Expanding


def _width(item: QLayoutItem) -> int:
    """What a part takes at least: one that expands its minimum, the others what they ask for."""
    return item.minimumSize().width() if _expands(item) else item.sizeHint().width()


def _height(line: list[QLayoutItem]) -> int:
    return max((item.sizeHint().height() for item in line), default=0)
