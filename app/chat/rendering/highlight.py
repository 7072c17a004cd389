"""Words that were looked for, marked where they stand in the messages."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtGui import QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QPlainTextEdit, QTextEdit, QWidget

from app.chat.storage.search import places
from app.theme import theme

#: More marks than this in one text help nobody.
MOST_MARKS = 500


def mark_words(widget: QWidget, words: Sequence[str]) -> int:
    """Mark the words in every text below `widget`; no words take the marks away. Returns how many there are."""
    marked = 0
    for view in (*widget.findChildren(QTextEdit), *widget.findChildren(QPlainTextEdit)):
        # Characters outside the basic plane are two positions of a document.
        text = view.toPlainText() if words else ""
        found = places(text, words)[:MOST_MARKS]
        wide = any(ord(character) > 0xFFFF for character in text) if found else False
        selections = []
        for start, end in found:
            if wide:
                start, end = _units(text[:start]), _units(text[:end])
            selection = QTextEdit.ExtraSelection()
            cursor = QTextCursor(view.document())
            cursor.setPosition(start)
            cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
            selection.cursor = cursor
            selection.format = _format()
            selections.append(selection)
        if selections or view.extraSelections():
            view.setExtraSelections(selections)
        marked += len(selections)
    return marked


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _format() -> QTextCharFormat:
    made = QTextCharFormat()
    made.setBackground(theme().colour("accent"))
    made.setForeground(theme().colour("accent_ink"))
    return made
