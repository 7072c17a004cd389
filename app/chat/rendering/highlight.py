"""Words that were looked for, marked where they stand in the messages."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtGui import QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QPlainTextEdit, QTextEdit, QWidget

from app.chat.storage.search import places
from app.theme import theme

#: More marks than this in one text help nobody.
MOST_MARKS = 500
#: How much of the accent there is behind words where the search does not stand.
PALE = 0.3


def mark_words(widget: QWidget, words: Sequence[str], current: bool = True) -> int:
    """Mark the words in every text below `widget`; no words take the marks away. Returns how many there are.

    current: whether this is where the search stands; elsewhere marks are paler
    """
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
            selection.format = _format(current)
            selections.append(selection)
        if selections or view.extraSelections():
            view.setExtraSelections(selections)
        marked += len(selections)
    return marked


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _format(current: bool) -> QTextCharFormat:
    made, colour = QTextCharFormat(), theme().colour("accent")
    if current:
        made.setForeground(theme().colour("accent_ink"))
    else:
        colour.setAlphaF(PALE)
    made.setBackground(colour)
    return made
