"""An earlier message of the open chat, while it is changed in the composer."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtWidgets import QWidget

from app.chat.composing.composer import Composer
from app.chat.composing.drafting import Drafting
from app.chat.controller import ChatController
from app.chat.rendering.thinking import split_thought
from app.chat.storage.records import Attachment, Draft, StoredMessage
from engine.errors import GreenroomError


class Editing(QObject):
    """What is written is kept with the chat's draft, so that it is here again when the chat or the program is."""

    #: An answer is another now.
    revised = Signal()
    #: StoredMessage, Draft: what was written in its place was given up
    dropped = Signal(object, object)
    #: GreenroomError
    failed = Signal(object)

    def __init__(self, composer: Composer, drafting: Drafting, controller: ChatController, parent: QWidget) -> None:
        super().__init__(parent)
        self._composer, self._drafting, self._controller = composer, drafting, controller
        #: None while what is written is a new message.
        self.message: StoredMessage | None = None
        composer.editCancelled.connect(self._cancelled)

    @Slot(object)
    def begin(self, message: StoredMessage) -> None:
        if self.message is not None and self.message.id == message.id:
            self._composer.setFocus()
            return
        self._begin(message, _said(message), message.attachments)

    def begin_with(self, message: StoredMessage, draft: Draft) -> None:
        """Go on with what was given up."""
        self._begin(message, draft.text, draft.attachments)

    def resume(self, messages: Sequence[StoredMessage]) -> None:
        """Go on with what was written in place of one of these messages of the chat that was just opened."""
        edit = self._drafting.edit
        if edit is None:
            return
        message = next((message for message in messages if message.id == edit.message_id), None)
        if message is None:
            self._drafting.take_in(edit)
        else:
            self._show(message, edit.text, edit.attachments)

    def _begin(self, message: StoredMessage, text: str, attachments: Sequence[Attachment]) -> None:
        self._tell_dropped(self._composer.draft)
        self._drafting.save()
        self._show(message, text, attachments)
        self._drafting.save()
        self._composer.setFocus()

    def _show(self, message: StoredMessage, text: str, attachments: Sequence[Attachment]) -> None:
        self.message, self._drafting.edited = message, message.id
        self._composer.begin_edit(text, attachments, message.role == "assistant")

    @property
    def of_answer(self) -> bool:
        return self.message is not None and self.message.role == "assistant"

    def keep_answer(self, text: str) -> None:
        """The answer in the user's words, which no model needs to answer."""
        message, stream = self.message, self._controller.stream
        if message is None or not text or (stream is not None and stream.chat_id == message.chat_id):
            return
        changed = text != split_thought(message.text).answer.strip()
        if changed:
            try:
                self._controller.revise(message, text)
            except GreenroomError as error:
                self.failed.emit(error)
                return
        self.end()
        if changed:
            self.revised.emit()

    def end(self) -> None:
        """What was written is a message now; the draft that waited is here again."""
        self.message = None
        self._composer.clear()
        self._drafting.end_edit()

    def leave(self) -> None:
        """Another chat is about to be opened. What is written has been saved."""
        self.message = None

    @Slot(object)
    def _cancelled(self, draft: Draft) -> None:
        self._tell_dropped(draft)
        self.message = None
        self._drafting.end_edit()

    def _tell_dropped(self, draft: Draft) -> None:
        message = self.message
        if message is None:
            return
        if draft.text.strip() != _said(message).strip() or draft.attachments != message.attachments:
            self.dropped.emit(message, draft)


def _said(message: StoredMessage) -> str:
    """What of it can be changed."""
    return split_thought(message.text).answer if message.role == "assistant" else message.text
