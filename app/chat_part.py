"""The chats as the window has them: store and controller live as long as it does, page and list may be made anew."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import QWidget
from shiboken6 import isValid

from app.host import EngineHost
from app.language import tr
from app.notices import Notices
from app.settings.store import SettingsStore
from engine.errors import GreenroomError

if TYPE_CHECKING:
    from app.chat.controller import ChatController
    from app.chat.page import ChatPage
    from app.chat.place import Place
    from app.chat.sidebar import ChatList
    from app.chat.storage.store import ChatStore
    from app.chat.unsaved_question import UnsavedQuestion

log = logging.getLogger(__name__)

#: Between two looks at what other windows do to the chats.
FOLLOW_MS = 1000
#: After the desktop has said that its session ends: nobody is asked anything meanwhile.
SESSION_END_MS = 60_000
#: After a change, until attached files are indexed; and between two pieces of them.
QUIET_MS, PIECE_MS = 300, 20


class ChatPart(QObject):
    """Nothing of the chat is imported before `make`: the window paints first."""

    #: A path, or "demo"
    modelWanted = Signal(str)
    modelsWanted = Signal()
    #: A model file is to be chosen.
    fileWanted = Signal()
    #: What the window waited for before it closes has happened.
    closeWanted = Signal()
    #: The question before the end is answered: the window may close.
    quitWanted = Signal()

    def __init__(self, host: EngineHost, settings: SettingsStore, notices: Notices, window: QWidget) -> None:
        super().__init__(window)
        self._window = window
        self._host, self._settings, self._notices = host, settings, notices
        self.store: ChatStore | None = None
        #: The window is to close when nothing is on its way any more.
        self._closing = False
        self._controller: ChatController | None = None
        self._page: ChatPage | None = None
        self._list: ChatList | None = None
        #: Where one was in a page that has been given up.
        self._place: Place | None = None
        self._question: UnsavedQuestion | None = None
        self._session_ends = QTimer(self, singleShot=True, interval=SESSION_END_MS)
        self._follow = QTimer(self, interval=FOLLOW_MS)
        self._follow.timeout.connect(self._look_elsewhere)
        self._index_soon = QTimer(self, singleShot=True)
        self._index_soon.timeout.connect(self._index)

    def make(self, host: EngineHost, window: QWidget) -> tuple[QWidget, QWidget]:
        """The page and the list, anew each time, with the same store and the same answers going on."""
        from app.chat.page import ChatPage
        from app.chat.sidebar import ChatList

        store = self._open_store()
        page = ChatPage(host, store, self._values, controller=self._controller)
        chats = ChatList(store)
        page.answeringChanged.connect(chats.set_answering)
        page.modelWanted.connect(self.modelWanted)
        page.modelsWanted.connect(self.modelsWanted)
        page.fileWanted.connect(self.fileWanted)
        page.said.connect(chats.say)
        chats.hitChosen.connect(page.show_hit)
        chats.failed.connect(self._show_failure)
        # What went wrong with files before is no matter of these.
        chats.exchange.begun.connect(lambda: self._notices.dismiss("chats"))
        self._page, self._list = page, chats
        return page, chats

    @property
    def busy(self) -> bool:
        """Chats are on their way in or out: the list must stay until they are there."""
        return self._list is not None and self._list.exchange.busy

    def may_close(self) -> bool:
        """Whether nothing is lost when the window closes now. Otherwise `quitWanted` follows when that is so.

        Chats on their way in or out arrive first, unless the user wants to close again; what cannot be saved is asked.
        """
        if self.busy and not self._closing:
            self._closing = True
            self._list.exchange.rested.connect(self._close_rested, Qt.ConnectionType.QueuedConnection)
            return False
        self._closing = False
        if self._session_ends.isActive() or self._saved():
            return True
        self._ask()
        return False

    def _saved(self) -> bool:
        """Whether nothing would be lost now."""
        if self.store is None or self.store.closed:
            return True
        self.flush()
        return self.store.save_now()

    def _ask(self) -> None:
        from app.chat.unsaved_question import UnsavedQuestion

        if self._question is not None:
            self._question.raise_()
            self._question.activateWindow()
            return
        self._question = question = UnsavedQuestion(self.store.problem, self._window)
        question.quitWanted.connect(self.quitWanted, Qt.ConnectionType.QueuedConnection)
        question.exportWanted.connect(self.export_all)
        question.finished.connect(self._answered)
        question.open()

    @Slot()
    def _answered(self) -> None:
        self._question = None

    @Slot()
    def _close_rested(self) -> None:
        if self._closing and not self.busy:
            self.closeWanted.emit()

    def leave(self) -> None:
        """Page and list are about to be made anew."""
        from app.chat.place import place_of

        if self._page is not None:
            self._page.save_draft()
            self._place = place_of(self._page)

    def resume(self) -> None:
        """Be where one was, in the page made anew; the chat that was open is open."""
        from app.chat.place import return_to

        if self._page is not None and self._place is not None:
            return_to(self._page, self._place)
        self._place = None

    def _open_store(self) -> ChatStore:
        from app.chat.controller import ChatController
        from app.chat.storage.store import ChatStore
        from app.folders import chats_file

        if self.store is None:
            self.store = ChatStore(chats_file())
            self.store.subscribe(self._changed)
            self._show_problem()
            self._controller = ChatController(self._host, self.store, self._values, self)
            self._follow.start()
            self._index_soon.start(QUIET_MS)
        return self.store

    def flush(self) -> None:
        """What is being written, in the composer and by the model, into the store."""
        if self._page is not None and isValid(self._page):
            self._page.save_draft()
        if self._controller is not None:
            self._controller.save()

    @Slot()
    def end_session(self) -> None:
        """The desktop is about to end: what can be saved is saved, and nobody is asked for a while."""
        self._session_ends.start()
        self._saved()

    def _show_problem(self) -> None:
        self._notices.show_store_problem(self.store.problem, [(tr("Export now"), self.export_all)])

    def _values(self) -> Any:
        return self._settings.values

    def _changed(self, chat: int) -> None:
        if self.store is not None:
            self._show_problem()
        self._index_soon.start(QUIET_MS)

    @Slot()
    def _look_elsewhere(self) -> None:
        """What another window did to the chats is shown here, too."""
        if self.store is not None and not self.store.closed:
            self.store.look_for_changes()

    @Slot()
    def _index(self) -> None:
        """What came in becomes searchable piece by piece, between whatever else there is to do."""
        if self.store is None or self.store.closed:
            return
        try:
            more = self.store.index_next()
        except GreenroomError as error:
            log.info("%s", error)
            self._index_soon.start(10 * QUIET_MS)
        else:
            if more:
                self._index_soon.start(PIECE_MS)

    @Slot(object)
    def _show_failure(self, error: Any) -> None:
        self._notices.show(error, "bad", "chats")

    def export(self) -> None:
        """The open chat, as Markdown unless the file dialog says otherwise."""
        if self._list is not None and self._page is not None and self._page.chat is not None:
            self._list.exchange.choose_target([self._page.chat], ".md", self._page.title)

    @Slot()
    def export_all(self) -> None:
        """Every chat with every version, also what is not saved."""
        if self._list is not None:
            self.flush()
            chats = [chat.id for chat in self.store.chats()]
            self._list.exchange.choose_target(chats, ".json", tr("All chats"))

    def rename(self) -> None:
        """The open chat, as the user says."""
        if (chat := self._open_chat) is not None:
            self._list.ask_title(chat)

    def pin(self) -> None:
        """The open chat, or not any more."""
        if (chat := self._open_chat) is not None:
            self._list.toggle_pin(chat)

    def delete(self) -> None:
        """The open chat; it can be brought back for a while."""
        if (chat := self._open_chat) is not None:
            self._list.delete(chat)

    @property
    def _open_chat(self) -> int | None:
        """None also for one that has no message yet."""
        return self._page.chat if self._page is not None and self._list is not None else None

    def import_chats(self) -> None:
        if self._list is not None:
            self._list.exchange.choose_source()
