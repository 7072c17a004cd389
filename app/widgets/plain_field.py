"""A field for plain text of several lines."""

from __future__ import annotations

from PySide6.QtCore import QMimeData
from PySide6.QtWidgets import QPlainTextEdit, QWidget

from app.settings.store import PROMPT_LIMIT


class PlainField(QPlainTextEdit):
    """Takes no more of a pasted text than a prompt may have: a gigabyte would stop the window."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setTabChangesFocus(True)

    def insertFromMimeData(self, source: QMimeData) -> None:
        self.insertPlainText(source.text()[:PROMPT_LIMIT])
