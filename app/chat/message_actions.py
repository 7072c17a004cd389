"""What is done with one message of the open chat: answered anew, gone on with, shown in another version, deleted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from PySide6.QtCore import QObject, QPoint, Signal, Slot
from PySide6.QtWidgets import QWidget

from app.chat.controller import ChatController
from app.chat.message_menu import MessageMenu
from app.chat.storage.portable import PortableChat
from app.chat.storage.records import StoredMessage
from app.chat.storage.store import ChatStore
from app.language import tr
from engine.errors import GreenroomError


class MessageActions(QObject):
    #: bool: the path that is to be seen may be another now; True to stay at the place that is looked at
    changed = Signal(bool)
    #: A message was deleted, with all that follows it.
    deleted = Signal()
    #: It cannot be brought back any more, or was.
    forgotten = Signal()
    #: StoredMessage
    editWanted = Signal(object)
    #: int: a chat to open
    chatWanted = Signal(int)
    #: GreenroomError
    failed = Signal(object)

    def __init__(
        self,
        store: ChatStore,
        controller: ChatController,
        path: Callable[[], Sequence[StoredMessage]],
        parent: QWidget,
    ) -> None:
        """path: the messages that are to be seen. parent: where menus open."""
        super().__init__(parent)
        self._store, self._controller, self._path = store, controller, path
        self._window = parent
        self._deleted: int | None = None

    @Slot(object)
    def regenerate(self, message: StoredMessage) -> None:
        """Of an answer, or of a question that has none."""
        if self._controller.can_ask:
            self._do(lambda: self._controller.regenerate(message))
            self.changed.emit(False)

    @Slot(object)
    def continue_answer(self, message: StoredMessage) -> None:
        if self._controller.can_ask:
            self._do(lambda: self._controller.continue_answer(message))
            self.changed.emit(False)

    @Slot(object, int)
    def show_version(self, message: StoredMessage, step: int) -> None:
        self._do(lambda: self._store.show_version(message.id, step))
        self.changed.emit(True)

    @Slot(object, QPoint)
    def open_menu(self, message: StoredMessage, place: QPoint) -> None:
        self.menu(message).popup(place)

    def menu(self, message: StoredMessage) -> MessageMenu:
        """What else can be done with a message."""
        menu = MessageMenu(message, self._controller, list(self._path()[-1:]) == [message], self._window)
        menu.continueWanted.connect(self.continue_answer)
        menu.answerWanted.connect(self.regenerate)
        menu.editWanted.connect(self.editWanted)
        menu.deleteWanted.connect(self.delete)
        menu.branchWanted.connect(self.branch)
        return menu

    @Slot(object)
    def branch(self, message: StoredMessage) -> None:
        """Open a copy of the chat that ends with this message."""
        whole = self._store.portable(message.chat_id)
        shown = [known.id for known in self._path()]
        if whole is None or message.id not in shown:
            return
        copy = whole.until(shown.index(message.id) + 1, tr("Copy of {title}", title=whole.title), time.time())
        self._do(lambda: self.chatWanted.emit(self._copy(copy, message.chat_id)))

    def _copy(self, copy: PortableChat, original: int) -> int:
        (chat,) = self._store.add_portable([copy])
        self._store.set_model_path(chat, self._store.model_path(original))
        return chat

    @Slot(object)
    def delete(self, message: StoredMessage) -> None:
        """Hide a message with all that follows it."""
        stream = self._controller.stream
        if stream is not None and stream.chat_id == message.chat_id:
            return
        if self._do(lambda: self._store.delete_message(message.id)):
            self._deleted = message.id
            self.changed.emit(False)
            self.deleted.emit()

    @Slot()
    def undo_delete(self) -> None:
        """Bring back what was deleted last, unless something else has happened since."""
        if self._deleted is not None:
            message = self._deleted
            self.forget()
            self._do(lambda: self._store.restore_message(message))
            self.changed.emit(False)

    def forget(self) -> None:
        """What was deleted stays so."""
        self._deleted = None
        self.forgotten.emit()

    def _do(self, action: Callable[[], object]) -> bool:
        try:
            action()
        except GreenroomError as error:
            self.failed.emit(error)
            return False
        return True
