"""The field messages are written in: it grows, sends with Enter, remembers what was asked, and takes files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

from PySide6.QtCore import QMimeData, Qt, Signal, Slot
from PySide6.QtGui import QFocusEvent, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QPlainTextEdit, QWidget

from app.chat.composing.attaching import LONG_PASTE, MOST_INSERT
from app.widgets.labels import elided

MOST_LINES = 10
HISTORY = 100


def local_files(data: QMimeData) -> list[str]:
    """The paths of the files on this machine that are dragged or pasted."""
    return [url.toLocalFile() for url in data.urls() if url.isLocalFile()] if data.hasUrls() else []


class Field(QPlainTextEdit):
    """Grows with its text up to MOST_LINES lines."""

    sent = Signal()
    escaped = Signal()
    focusChanged = Signal(bool)
    #: list[str]: paths of files that were dropped or pasted
    filesGiven = Signal(list)
    #: str: pasted text that is too long to be read in here, or, where no files go, for any field
    longPasted = Signal(str)
    #: A picture was pasted or dropped, which no model here can see.
    pictureGiven = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFrameShape(QPlainTextEdit.Shape.NoFrame)
        self.setTabChangesFocus(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._placeholders: tuple[str, ...] = ("",)
        #: Off while an answer is changed, which has no files: whatever is pasted is part of it then.
        self.takes_files = True
        #: "send" or "newline": what Enter alone does.
        self._enter = "send"
        #: What was asked before, newest first; asked for when it is wanted.
        self._history: Callable[[], Sequence[str]] = tuple
        self._remembered: Sequence[str] = ()
        self._place = -1
        self.document().setDocumentMargin(0)
        self.document().documentLayout().documentSizeChanged.connect(self._fit)
        self.textChanged.connect(self._forget_place)
        self._fit()

    def set_enter(self, does: str) -> None:
        """ "send", or "newline": then Ctrl+Enter sends."""
        self._enter = does

    def set_history(self, history: Callable[[], Sequence[str]]) -> None:
        """history: gives what was asked before, newest first."""
        self._history = history

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self._sends(event.modifiers()):
            self.sent.emit()
        elif event.key() == Qt.Key.Key_Escape:
            self.escaped.emit()
        elif event.key() == Qt.Key.Key_Up and (self._place >= 0 or not self.toPlainText()):
            self._recall(+1)
        elif event.key() == Qt.Key.Key_Down and self._place >= 0:
            self._recall(-1)
        else:
            super().keyPressEvent(event)

    def _sends(self, modifiers: Qt.KeyboardModifier) -> bool:
        if modifiers & (Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.AltModifier):
            return False
        return self._enter == "send" or bool(modifiers & Qt.KeyboardModifier.ControlModifier)

    def _recall(self, step: int) -> None:
        """Show an older (+1) or newer (-1) question; before the newest stands the empty field."""
        if self._place < 0:
            self._remembered = self._history()[:HISTORY]
        place = min(self._place + step, len(self._remembered) - 1)
        if place != self._place:
            self.setPlainText(self._remembered[place] if place >= 0 else "")
            self.moveCursor(self.textCursor().MoveOperation.End)
            self._place = place

    @Slot()
    def _forget_place(self) -> None:
        self._place = -1

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        if not self.takes_files:
            return source.hasText() and not local_files(source)
        return bool(local_files(source)) or source.hasText() or source.hasImage()

    def insertFromMimeData(self, source: QMimeData) -> None:
        """Text from a word processor comes without its looks, files become attachments."""
        if files := local_files(source):
            if self.takes_files:
                self.filesGiven.emit(files)
        elif source.hasText():
            text = source.text()
            if len(text) > (LONG_PASTE if self.takes_files else MOST_INSERT):
                self.longPasted.emit(text)
            else:
                self.insertPlainText(text)
        elif source.hasImage() and self.takes_files:
            self.pictureGiven.emit()

    def set_placeholder(self, *texts: str) -> None:
        """On one line: the first that fits, the longest first."""
        self._placeholders = texts
        self._show_placeholder()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._show_placeholder()

    def _show_placeholder(self) -> None:
        room = self.viewport().width() - 4
        advance = self.fontMetrics().horizontalAdvance
        fits = next((text for text in self._placeholders if advance(text) <= room), self._placeholders[-1])
        self.setPlaceholderText(elided(fits, self.fontMetrics(), Qt.TextElideMode.ElideRight, room))
        # Qt paints the new words only where the caret blinks.
        self.viewport().update()

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focusChanged.emit(True)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.focusChanged.emit(False)

    @Slot()
    def _fit(self) -> None:
        lines = min(MOST_LINES, max(1, ceil(self.document().size().height())))
        self.setFixedHeight(lines * self.fontMetrics().lineSpacing() + 4)
        fits = lines < MOST_LINES
        self.setVerticalScrollBarPolicy(
            Qt.ScrollBarPolicy.ScrollBarAlwaysOff if fits else Qt.ScrollBarPolicy.ScrollBarAsNeeded
        )
