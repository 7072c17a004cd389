"""The frame all pages share: a title with its buttons, and content that scrolls."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QHBoxLayout, QLayout, QScrollArea, QWidget

from app.theme import theme
from app.widgets.labels import label

MARGIN = 28
#: Wider than this, lines of text become hard to read.
MAX_WIDTH = 1240


class PageHead(QWidget):
    """The page's title at the left, its buttons at the right."""

    def __init__(self, title: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._title = label(title, "title")
        self._row = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        self._row.setContentsMargins(0, 0, 0, 8)
        self._row.setSpacing(8)
        self._row.addWidget(self._title)
        self._row.addStretch(1)
        self._parts = QHBoxLayout()
        self._parts.setSpacing(8)
        # Below the title they keep to the right, too.
        self._parts.addStretch(1)
        self._row.addLayout(self._parts)

    def add(self, *parts: QWidget) -> None:
        for part in parts:
            self._parts.addWidget(part)

    def minimumSizeHint(self) -> QSize:
        return QSize(
            max(self._title.sizeHint().width(), self._parts.minimumSize().width()), super().minimumSizeHint().height()
        )

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Without room for both, the buttons stand below the title."""
        super().resizeEvent(event)
        fits = self.width() >= self._title.sizeHint().width() + 16 + self._parts.sizeHint().width()
        self._row.setDirection(QBoxLayout.Direction.LeftToRight if fits else QBoxLayout.Direction.TopToBottom)


def scrolled_panel(content: QLayout) -> QScrollArea:
    """The content of a narrow panel, on the panel's own ground; it scrolls only where it does not fit."""
    inner = QWidget()
    inner.setLayout(content)
    content.setContentsMargins(16, 14, 16, 16)
    area = _area(inner)
    for part in (inner, area.viewport()):
        part.setAutoFillBackground(False)
    return area


def scrolled(content: QLayout, max_width: int = MAX_WIDTH) -> QScrollArea:
    """The content in a page that scrolls down, never sideways; on a wide screen it stands in the middle."""
    content.setContentsMargins(0, 0, 0, 0)
    inner = QWidget()
    inner.setLayout(content)
    inner.setMaximumWidth(theme().px(max_width))
    page = QWidget()
    page.setProperty("surface", "page")
    row = QHBoxLayout(page)
    row.setContentsMargins(MARGIN, 20, MARGIN, 24)
    row.addWidget(inner, 1)
    return _area(page)


def _area(page: QWidget) -> QScrollArea:
    area = QScrollArea()
    area.setWidget(page)
    area.setWidgetResizable(True)
    area.setFrameShape(QFrame.Shape.NoFrame)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    return area
