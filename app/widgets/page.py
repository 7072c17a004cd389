"""The frame all pages share: a title with its buttons, and content that scrolls."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLayout, QScrollArea, QWidget

from app.theme import theme
from app.widgets.labels import label

MARGIN = 28
#: Wider than this, lines of text become hard to read.
MAX_WIDTH = 1240


class PageHead(QWidget):
    """The page's title at the left, its buttons at the right."""

    def __init__(self, title: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(0, 0, 0, 8)
        self._row.setSpacing(8)
        self._row.addWidget(label(title, "title"))
        self._row.addStretch(1)

    def add(self, *parts: QWidget) -> None:
        for part in parts:
            self._row.addWidget(part)


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
    """The content in a page that scrolls down, never sideways, and keeps to the left on a wide screen."""
    content.setContentsMargins(0, 0, 0, 0)
    inner = QWidget()
    inner.setLayout(content)
    inner.setMaximumWidth(theme().px(max_width))
    page = QWidget()
    page.setProperty("surface", "page")
    row = QHBoxLayout(page)
    row.setContentsMargins(MARGIN, 20, MARGIN, 24)
    row.addWidget(inner, 1)
    if max_width < MAX_WIDTH:
        row.addStretch(0)
    return _area(page)


def _area(page: QWidget) -> QScrollArea:
    area = QScrollArea()
    area.setWidget(page)
    area.setWidgetResizable(True)
    area.setFrameShape(QFrame.Shape.NoFrame)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    return area
