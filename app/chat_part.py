"""The chats as the window has them: store and controller live as long as it does, page and list may be made anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtWidgets import QWidget

from app.host import EngineHost
from app.notices import Notices
from app.settings.store import SettingsStore

if TYPE_CHECKING:
    from app.chat.controller import ChatController
    from app.chat.page import ChatPage
    from app.chat.sidebar import ChatList
    from app.chat.store import ChatStore


class ChatPart(QObject):
    """Nothing of the chat is imported before `make`: the window paints first."""

    #: A path, or "demo"
    modelWanted = Signal(str)
    modelsWanted = Signal()
    #: A model file is to be chosen.
    fileWanted = Signal()

    def __init__(self, host: EngineHost, settings: SettingsStore, notices: Notices, window: QWidget) -> None:
        super().__init__(window)
        self._host, self._settings, self._notices = host, settings, notices
        self.store: ChatStore | None = None
        self._controller: ChatController | None = None
        self._page: ChatPage | None = None
        self._list: ChatList | None = None

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
        chats.hitChosen.connect(page.show_hit)
        chats.failed.connect(self._show_failure)
        self._page, self._list = page, chats
        return page, chats

    @property
    def busy(self) -> bool:
        """Chats are on their way in or out: the list must stay until they are there."""
        return self._list is not None and self._list.exchange.busy

    def leave(self) -> None:
        """Page and list are about to be made anew."""
        if self._page is not None:
            self._page.save_draft()

    def _open_store(self) -> ChatStore:
        from app.chat.controller import ChatController
        from app.chat.store import ChatStore
        from app.folders import data_folder

        if self.store is None:
            self.store = ChatStore(data_folder() / "chats.sqlite")
            self.store.subscribe(self._look_for_problems)
            self._notices.show_store_problem(self.store.problem)
            self._controller = ChatController(self._host, self.store, self._values, self)
        return self.store

    def _values(self) -> Any:
        return self._settings.values

    def _look_for_problems(self, chat: int) -> None:
        if self.store is not None:
            self._notices.show_store_problem(self.store.problem)

    @Slot(object)
    def _show_failure(self, error: Any) -> None:
        self._notices.show(error, "bad", "chats")

    def export(self) -> None:
        """The open chat, as Markdown unless the file dialog says otherwise."""
        if self._list is not None and self._page is not None and self._page.chat is not None:
            self._list.exchange.choose_target([self._page.chat], ".md", self._page.title)

    def import_chats(self) -> None:
        if self._list is not None:
            self._list.exchange.choose_source()
