"""An earlier message of the open chat, while it is changed in the composer."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtWidgets import QWidget

from app.chat.composing.composer import Composer
from app.chat.composing.drafting import Drafting
from app.chat.controller import ChatController
from app.chat.rendering.thinking import split_thought
from app.chat.storage.records import StoredMessage
from engine.errors import GreenroomError


class Editing(QObject):
    #: An answer is another now.
    revised = Signal()
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
        self._drafting.save()
        self._drafting.keeping = False
        self.message = message
        answer = message.role == "assistant"
        text = split_thought(message.text).answer if answer else message.text
        self._composer.begin_edit(text, message.attachments, answer)

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
        self._composer.cancel_edit()
        if changed:
            self.revised.emit()

    @Slot()
    def _cancelled(self) -> None:
        self.message = None
        self._drafting.resume()
