"""What can be done with one message beside what its row shows."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QMenu, QWidget

from app.chat.controller import ChatController
from app.chat.rendering.thinking import split_thought
from app.chat.speed.figures import answered_by
from app.chat.storage.records import StoredMessage
from app.language import tr
from app.words import brief


class MessageMenu(QMenu):
    """last: the message ends the visible path. Deleting is refused while the chat is being answered."""

    #: StoredMessage each
    continueWanted = Signal(object)
    #: A question at the end of the chat
    answerWanted = Signal(object)
    editWanted = Signal(object)
    deleteWanted = Signal(object)
    branchWanted = Signal(object)

    def __init__(
        self, message: StoredMessage, controller: ChatController, last: bool, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._message = message
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        stream = controller.stream
        busy = stream is not None and stream.chat_id == message.chat_id
        if message.role == "assistant":
            goes_on = self.addAction(tr("Continue answer"), lambda: self.continueWanted.emit(message))
            goes_on.setEnabled(last and controller.can_ask and bool(message.text.strip()))
            self.addAction(tr("Edit answer"), lambda: self.editWanted.emit(message)).setEnabled(not busy)
            self.addAction(tr("Copy answer"), lambda: self._copy(split_thought(message.text).answer))
            self.addAction(tr("Copy raw text"), lambda: self._copy(message.text))
        else:
            if last:
                answer = self.addAction(tr("Answer this message"), lambda: self.answerWanted.emit(message))
                answer.setEnabled(controller.can_ask)
            self.addAction(tr("Edit message"), lambda: self.editWanted.emit(message)).setEnabled(not busy)
            self.addAction(tr("Copy message"), lambda: self._copy(message.text))
        away = self.addAction(tr("New chat from here"), lambda: self.branchWanted.emit(message))
        away.setToolTip(tr("Copy this chat up to this message"))
        self.addSeparator()
        if message.role == "assistant" and message.model:
            # It may have been another one than the model that is loaded.
            name = brief(message.model).replace("&", "&&")
            self.addAction(answered_by(name, message.stop_reason)).setEnabled(False)
            self.addSeparator()
        gone = tr("Delete") if last else tr("Delete this and later messages")
        self.addAction(gone, lambda: self.deleteWanted.emit(message)).setEnabled(not busy)

    def _copy(self, text: str) -> None:
        QGuiApplication.clipboard().setText(text)
