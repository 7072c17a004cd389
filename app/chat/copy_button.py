"""A link-like button that copies and says so."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QTimer, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QPushButton, QWidget

from app.language import tr
from app.widgets.buttons import button

COPIED_MS = 1500


def link_button(text: str, name: str = "", parent: QWidget | None = None) -> QPushButton:
    """A button that looks like a word of the line it stands in."""
    return button(text, kind="link", name=name or text, parent=parent)


class CopyButton(QPushButton):
    """source: gives the text at the moment of the click."""

    def __init__(self, source: Callable[[], str], name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setText(tr("Copy"))
        self.setProperty("kind", "link")
        self.setAccessibleName(name)
        self._source = source
        self._back = QTimer(self, singleShot=True, interval=COPIED_MS)
        self._back.timeout.connect(self._offer)
        self.clicked.connect(self._copy)

    @Slot()
    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self._source())
        self.setText(tr("Copied"))
        self._back.start()

    @Slot()
    def _offer(self) -> None:
        self.setText(tr("Copy"))
