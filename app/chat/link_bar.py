"""Where a link in an answer leads, before it is opened."""

from __future__ import annotations

import re

from PySide6.QtCore import Qt, QUrl, Slot
from PySide6.QtGui import QDesktopServices, QGuiApplication, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.chat.rendering.addresses import Address, read_address
from app.language import tr
from app.widgets.buttons import button
from app.widgets.labels import ElideLabel, label
from app.widgets.wrap_row import WrapRow

#: Where the name of a host may go on in the next line.
_BREAKS = re.compile(r"[.:/@-]+|[^.:/@-]{16}")


class LinkBar(QFrame):
    """Shows where a link leads, its host whole however long the address is, and opens it only when told to."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("surface", "banner-info")
        self._shown = Address("", "", "")
        self._place = label("", "strong", wrap=True)
        self._rest = ElideLabel("", "small", mode=Qt.TextElideMode.ElideMiddle)
        self._open = button(tr("Open in browser"))
        copy = button(tr("Copy address"))
        close = button("", icon="cross", kind="ghost", name=tr("Close"))
        self._open.clicked.connect(self._open_address)
        copy.clicked.connect(self._copy_address)
        close.clicked.connect(self.hide)
        first = QHBoxLayout()
        where = QVBoxLayout()
        where.setSpacing(0)
        where.addWidget(self._place)
        where.addWidget(self._rest)
        first.addLayout(where, 1)
        first.addWidget(close, 0, Qt.AlignmentFlag.AlignTop)
        self._said = label("", "small", wrap=True)
        self._buttons = WrapRow(copy, self._open)
        second = self._second = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        second.setSpacing(8)
        second.addWidget(self._said, 1)
        second.addLayout(self._buttons)
        column = QVBoxLayout(self)
        column.setContentsMargins(14, 8, 8, 8)
        column.setSpacing(4)
        column.addLayout(first)
        column.addLayout(second)
        self.hide()

    @property
    def address(self) -> str:
        return self._shown.whole

    @property
    def open_button(self) -> QWidget:
        return self._open

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The buttons stand below the words where beside them there is too little room."""
        super().resizeEvent(event)
        words = self._said.fontMetrics().horizontalAdvance(self._said.text())
        beside = words + self._buttons.sizeHint().width() + 40 <= self.width()
        directions = QBoxLayout.Direction
        self._second.setDirection(directions.LeftToRight if beside else directions.TopToBottom)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.hide()
        else:
            super().keyPressEvent(event)

    def offer(self, address: str) -> None:
        self._shown = read_address(address)
        place, rest = self._shown.place, self._shown.rest
        self._place.setText(_BREAKS.sub("\\g<0>\u200b", place))
        self._place.setVisible(bool(place))
        self._rest.setText(rest)
        self._rest.setVisible(bool(rest))
        self._open.setVisible(bool(place))
        opens = (
            tr("This link opens outside Greenroom.")
            if place
            else tr("Greenroom only opens web pages and email addresses.")
        )
        self._said.setText(opens)
        self.show()

    @Slot()
    def _open_address(self) -> None:
        self.hide()
        QDesktopServices.openUrl(QUrl(self.address, QUrl.ParsingMode.StrictMode))

    @Slot()
    def _copy_address(self) -> None:
        QGuiApplication.clipboard().setText(self.address)
        self.hide()
