"""Looking for words in the open chat."""

from __future__ import annotations

import re
from collections.abc import Sequence

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLineEdit, QWidget

from app.chat.rendering.highlight import mark_words
from app.chat.storage.records import StoredMessage
from app.chat.transcript import MessageView, Transcript
from app.language import tr
from app.widgets.buttons import button
from app.widgets.labels import ElideLabel

PAUSE_MS = 150


class FindBar(QFrame):
    """Marks the words in the transcript and steps from one message that has them to the next."""

    closed = Signal()

    def __init__(self, transcript: Transcript, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("findBar")
        self._transcript = transcript
        self._messages: Sequence[StoredMessage] = ()
        self._hits: list[int] = []
        self._place = -1
        self.field = QLineEdit()
        self.field.setPlaceholderText(tr("Find in this chat"))
        self.field.setAccessibleName(tr("Find in this chat"))
        self.field.installEventFilter(self)
        self.field.textChanged.connect(self._changed)
        self._count = ElideLabel("", "small", Qt.TextElideMode.ElideMiddle)
        self.older = button("", icon="chevron-up", kind="ghost", role="muted", name=tr("Previous match"))
        self.newer = button("", icon="chevron-down", kind="ghost", role="muted", name=tr("Next match"))
        close = button("", icon="cross", kind="ghost", role="muted", name=tr("Close"))
        self.older.clicked.connect(lambda: self.step(-1))
        self.newer.clicked.connect(lambda: self.step(+1))
        close.clicked.connect(self.close_bar)
        row = QHBoxLayout(self)
        row.setContentsMargins(10, 6, 6, 6)
        row.setSpacing(6)
        row.addWidget(self.field, 1)
        for part in (self._count, self.older, self.newer, close):
            row.addWidget(part)
        self._pause = QTimer(self, singleShot=True, interval=PAUSE_MS)
        self._pause.timeout.connect(self.search)
        # Views come and go while the chat is scrolled.
        transcript.viewMade.connect(self._mark_view)
        self.hide()

    @property
    def words(self) -> list[str]:
        return self.field.text().split() if not self.isHidden() else []

    @property
    def count_text(self) -> str:
        return self._count.text()

    def open_bar(self, words: str = "") -> None:
        self.show()
        if words:
            self.field.setText(words)
            self.search(stay=True)
        else:
            self.field.setFocus(Qt.FocusReason.ShortcutFocusReason)
            self.field.selectAll()
            self.search(stay=True)

    @Slot()
    def close_bar(self) -> None:
        if not self.isHidden():
            self.hide()
            mark_words(self._transcript, ())
            self.closed.emit()

    def show_messages(self, messages: Sequence[StoredMessage]) -> None:
        """The path that is looked through is another now."""
        self._messages = messages
        if not self.isHidden():
            self.search(stay=True)

    @Slot()
    def search(self, stay: bool = False) -> None:
        """Find the words anew and go to the newest message that has them. stay: only mark and count."""
        self._pause.stop()
        words = self.words
        self._hits = [place for place, m in enumerate(self._messages) if words and _where(m, words) is not None]
        self._place = len(self._hits) - 1
        self._mark()
        self._show_count()
        if self._hits and not stay:
            self._go()

    @property
    def message(self) -> int:
        """The message that is looked at; 0 for none."""
        return self._messages[self._hits[self._place]].id if self._hits else 0

    def stand_at(self, message_id: int) -> None:
        """The message that is looked at."""
        for place, hit in enumerate(self._hits):
            if self._messages[hit].id == message_id:
                self._place = place
        self._mark()
        self._show_count()

    def step(self, step: int) -> None:
        if self._hits:
            self._place = (self._place + step) % len(self._hits)
            self._show_count()
            self._go()

    def _go(self) -> None:
        self._mark()
        self._transcript.go_to(self.message)

    def _show_count(self) -> None:
        if not self.words:
            text = ""
        elif self._hits:
            text = tr("{count} of {all}", count=self._place + 1, all=len(self._hits))
            file = _where(self._messages[self._hits[self._place]], self.words)
            if file:
                text = tr("{count} of {all}, in {file}", count=self._place + 1, all=len(self._hits), file=file)
        else:
            text = tr("No results")
        self._count.setText(text)
        for step in (self.older, self.newer):
            step.setEnabled(len(self._hits) > 1)

    @Slot(str)
    def _changed(self, text: str) -> None:
        self._pause.start()

    def _mark(self) -> None:
        for view in self._transcript.views:
            mark_words(view, self.words, view.message.id == self.message)

    @Slot(object)
    def _mark_view(self, view: MessageView) -> None:
        if self.words:
            mark_words(view, self.words, view.message.id == self.message)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            if event.key() == Qt.Key.Key_Escape:
                self.close_bar()
                return True
            if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                if self._pause.isActive():
                    self.search()
                else:
                    back = event.modifiers() & Qt.KeyboardModifier.ShiftModifier
                    self.step(+1 if back else -1)
                return True
        return super().eventFilter(watched, event)


def _where(message: StoredMessage, words: Sequence[str]) -> str | None:
    """Where all the words stand: "" for the message itself, else the name of a file of it; None for nowhere."""
    if _has_all(message.text, words):
        return ""
    return next((a.name for a in message.attachments if _has_all(a.text, words)), None)


def _has_all(text: str, words: Sequence[str]) -> bool:
    return all(re.search(re.escape(word), text, re.IGNORECASE) for word in words)
