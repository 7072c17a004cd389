"""The list of chats with all that can be done to one: rename, pin, folders, export, delete and undo."""

from __future__ import annotations

import time
from datetime import datetime

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPoint, Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import QAbstractItemView, QHBoxLayout, QInputDialog, QMenu, QVBoxLayout, QWidget

from app.chat.copy_button import link_button
from app.chat.exchange import Exchange
from app.chat.list_model import FOLDER, HIT, ID, PINNED, ChatListModel, group_of
from app.chat.list_view import ChatView
from app.chat.storage.store import ChatStore
from app.language import mark, tr
from app.theme import theme
from app.widgets.labels import ElideLabel, label
from engine.errors import GreenroomError

__all__ = ["ID", "ChatList", "group_of"]

FILTER_MS, UNDO_MS = 120, 8000
FOLDER_DIALOG = 340
#: Under which folded folders are kept in the store.
FOLDED = "folded"
EXPORTS = ((mark("Markdown…"), ".md"), (mark("Web page…"), ".html"), (mark("JSON, with all versions…"), ".json"))


class ChatList(QWidget):
    """The chats of the store, always up to date."""

    chatChosen = Signal(int)
    #: int, str: after `chatChosen`: the message in which a search has found something (0: none), and the words
    hitChosen = Signal(int, str)
    #: GreenroomError
    failed = Signal(object)

    def __init__(self, store: ChatStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self._query = ""
        self._deleted: tuple[int, bool] | None = None
        self._model = ChatListModel(store, self)
        self._model.folded = set(filter(None, store.note(FOLDED).split("\n")))
        self.view = ChatView(self)
        self.view.setModel(self._model)
        # In a low window the list gives way, not what stands around it.
        self.view.setMinimumHeight(1)
        self.view.chosen.connect(self._choose)
        self.view.renamed.connect(self._rename)
        self.view.deleted.connect(self.delete)
        self.view.undoWanted.connect(self._undo_if_offered)
        self.view.folderToggled.connect(self.toggle_folder)
        self.view.menuWanted.connect(self._open_menu)
        self.exchange = Exchange(store, self)
        self.exchange.said.connect(self.say)
        self.exchange.failed.connect(self.failed)
        self.exchange.imported.connect(lambda chats: self._choose(chats[0]) if len(chats) == 1 else None)
        self._nothing = label("", "small", wrap=True)
        self._nothing.setContentsMargins(8, 8, 8, 0)
        self._bar = QWidget(self)
        # What happened stands at one end or the other, by the language.
        self._bar_text = ElideLabel("", "small", Qt.TextElideMode.ElideMiddle)
        self._undo = link_button(tr("Undo"), tr("Undo deleting the chat"))
        self._undo.clicked.connect(self.undo)
        row = QHBoxLayout(self._bar)
        row.setContentsMargins(8, 4, 4, 4)
        row.addWidget(self._bar_text, 1)
        row.addWidget(self._undo)
        self._bar.hide()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self._nothing)
        column.addWidget(self.view, 1)
        column.addWidget(self._bar)
        self._refresh_soon = QTimer(self, singleShot=True, interval=0)
        self._refresh_soon.timeout.connect(self.refresh)
        self._filter_soon = QTimer(self, singleShot=True, interval=FILTER_MS)
        self._filter_soon.timeout.connect(self.refresh)
        self._bar_time = QTimer(self, singleShot=True, interval=UNDO_MS)
        self._bar_time.timeout.connect(self._bar.hide)
        self._midnight = QTimer(self, singleShot=True)
        self._midnight.timeout.connect(self.refresh)
        store.subscribe(self._chat_changed)
        theme().changed.connect(self.view.viewport().update)
        self.refresh()

    @property
    def rows(self) -> list[str]:
        """Headings and titles as shown, for a reader who cannot see them."""
        return [self._model.index(row, 0).data() for row in range(self._model.rowCount())]

    @property
    def undo_shown(self) -> bool:
        return not self._bar.isHidden() and not self._undo.isHidden()

    @property
    def bar_text(self) -> str:
        """What the line below the list says."""
        return "" if self._bar.isHidden() else self._bar_text.text()

    @Slot(str)
    def filter(self, text: str) -> None:
        """Show only chats in which every word of `text` occurs."""
        self._query = text.strip()
        self._filter_soon.start()

    @Slot(int)
    def set_current(self, chat_id: int) -> None:
        """Mark the chat that is open; 0 marks none."""
        if chat_id != self.view.current:
            self.view.current = chat_id
            self.view.viewport().update()

    @Slot(int)
    def set_answering(self, chat_id: int) -> None:
        """Mark the chat in which an answer is being written; 0 marks none."""
        if chat_id != self.view.answering:
            self.view.answering = chat_id
            self.view.viewport().update()

    def _chat_changed(self, chat_id: int) -> None:
        self._refresh_soon.start()

    @Slot()
    def refresh(self) -> None:
        """Read the chats anew, keeping the place."""
        self._refresh_soon.stop()
        self._filter_soon.stop()
        if self._store.closed:
            return  # the window is going
        if self.view.state() == QAbstractItemView.State.EditingState:
            self._refresh_soon.start(300)  # not under the hands of someone who is renaming
            return
        place = self.view.verticalScrollBar().value()
        selected = self.view.currentIndex().data(ID)
        now = time.time()
        self.view.words = self._query.split()
        count = self._model.load(self._query, now)
        row = self._model.place_of(selected) if selected else None
        if row is not None:
            self.view.setCurrentIndex(self._model.index(row, 0))
        self.view.doItemsLayout()
        self.view.verticalScrollBar().setValue(place)
        self._nothing.setText(tr("No chats found") if self._query else tr("No chats yet"))
        self._nothing.setVisible(not count)
        tomorrow = datetime.now().replace(hour=23, minute=59, second=59).timestamp() + 2
        self._midnight.start(int((tomorrow - now) * 1000))

    @Slot(int)
    def _choose(self, chat_id: int) -> None:
        row = self._model.place_of(chat_id) if self._query else None
        self.chatChosen.emit(chat_id)
        if row is not None:
            hit = self._model.index(row, 0).data(HIT)
            if hit is not None:
                self.hitChosen.emit(hit.message_id or 0, self._query)

    @Slot()
    def take_keyboard(self) -> None:
        """To the chats that the search has found, the first of them."""
        if self._filter_soon.isActive():
            self.refresh()
        if self._model.first() is not None:
            self.view.setCurrentIndex(QModelIndex())
            self.view.setFocus(Qt.FocusReason.ShortcutFocusReason)

    @Slot()
    def choose_first(self) -> None:
        """Open the first chat that a search has found."""
        if self._filter_soon.isActive():
            self.refresh()
        first = self._model.first()
        if self._query and first is not None:
            self._choose(first)

    # What can be done to a chat

    def menu_for(self, index: QModelIndex) -> QMenu:
        """Of a chat, or of the list where there is none."""
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        chat = index.data(ID) if index.isValid() else None
        if chat:
            stays = QPersistentModelIndex(index)
            menu.addAction(tr("Rename"), lambda: self.view.edit(QModelIndex(stays)))
            pinned = index.data(PINNED)
            menu.addAction(
                tr("Unpin") if pinned else tr("Pin"), lambda: self._change(self._store.pin, chat, not pinned)
            )
            menu.addMenu(self._folder_menu(chat, menu))
            menu.addMenu(self._export_menu([chat], index.data(), tr("Export"), menu))
            menu.addSeparator()
            menu.addAction(tr("Delete"), lambda: self.delete(chat))
            return menu
        menu.addAction(tr("Import chats…"), self.exchange.choose_source)
        everything = [known.id for known in self._store.chats()]
        exporting = self._export_menu(everything, tr("All chats"), tr("Export all chats"), menu)
        exporting.setEnabled(bool(everything))
        menu.addMenu(exporting)
        if index.isValid() and index.data(FOLDER) is not None:
            folder = index.data(FOLDER)
            menu.addSeparator()
            menu.addAction(
                tr("Rename folder…"), lambda: self._ask_folder(folder, lambda name: self._empty(folder, name))
            )
            menu.addAction(tr("Move all chats out of folder"), lambda: self._empty(folder, ""))
        return menu

    def _folder_menu(self, chat: int, parent: QMenu) -> QMenu:
        menu = QMenu(tr("Move to folder"), parent)
        own = next((known.folder for known in self._store.chats() if known.id == chat), "")
        for folder in self._store.folders():
            entry = menu.addAction(folder.replace("&", "&&"))
            entry.setCheckable(True)
            entry.setChecked(folder == own)
            entry.triggered.connect(lambda checked=False, folder=folder: self._change(self._store.move, chat, folder))
        if menu.actions():
            menu.addSeparator()
        menu.addAction(tr("New folder…"), lambda: self._ask_folder("", lambda name: self.move(chat, name)))
        if own:
            menu.addAction(tr("Move out of folder"), lambda: self.move(chat, ""))
        return menu

    def _export_menu(self, chats: list[int], title: str, text: str, parent: QMenu) -> QMenu:
        menu = QMenu(text, parent)
        for name, ending in EXPORTS:
            menu.addAction(tr(name), lambda ending=ending: self.exchange.choose_target(chats, ending, title))
        return menu

    @Slot(QModelIndex, QPoint)
    def _open_menu(self, index: QModelIndex, place: QPoint) -> None:
        self.menu_for(index).popup(place)

    def _change(self, change, *values) -> None:
        try:
            change(*values)
        except GreenroomError as error:
            self.failed.emit(error)

    def move(self, chat_id: int, folder: str) -> None:
        """Put a chat into a folder; "" takes it out."""
        self._change(self._store.move, chat_id, folder)

    def ask_title(self, chat_id: int) -> None:
        """Have the user name a chat, wherever its row is."""
        title = self._store.title(chat_id) or ""
        self._ask(tr("Rename"), tr("Chat name"), title, lambda text: self._rename(chat_id, text))

    def toggle_pin(self, chat_id: int) -> None:
        pinned = any(known.id == chat_id and known.pinned for known in self._store.chats())
        self._change(self._store.pin, chat_id, not pinned)

    def _ask_folder(self, name: str, chosen) -> None:
        self._ask(tr("Folder"), tr("Folder name"), name, chosen)

    def _ask(self, title: str, what: str, name: str, chosen) -> None:
        dialog = QInputDialog(self.window())
        dialog.setWindowTitle(title)
        dialog.setLabelText(what)
        dialog.setTextValue(name)
        dialog.resize(theme().px(FOLDER_DIALOG), dialog.sizeHint().height())
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.textValueSelected.connect(lambda text: chosen(text) if text.strip() else None)
        dialog.open()

    def _empty(self, folder: str, other: str) -> None:
        for chat in self._store.chats():
            if chat.folder == folder:
                self.move(chat.id, other)

    @Slot(str)
    def toggle_folder(self, folder: str) -> None:
        """Show or hide the chats of a folder."""
        self._model.folded ^= {folder}
        self._change(self._store.set_note, FOLDED, "\n".join(sorted(self._model.folded)))
        self.refresh()

    @Slot(int)
    def delete(self, chat_id: int) -> None:
        """Hide a chat and offer to bring it back."""
        title = self._store.title(chat_id)
        if title is None:
            return
        self._deleted = (chat_id, chat_id == self.view.current)
        self._change(self._store.delete, chat_id)
        self.say(tr("Deleted “{title}”", title=title), undo=True)

    @Slot()
    def _undo_if_offered(self) -> None:
        if self.undo_shown:
            self.undo()

    @Slot()
    def undo(self) -> None:
        if self._deleted is None:
            return
        (chat_id, was_open), self._deleted = self._deleted, None
        self._bar.hide()
        self._change(self._store.restore, chat_id)
        if was_open:
            self.chatChosen.emit(chat_id)

    @Slot(str)
    def say(self, text: str, undo: bool = False) -> None:
        """Show a line below the list for a while."""
        self._bar_text.setText(text)
        self._undo.setVisible(undo)
        self._bar.setVisible(bool(text))
        self._bar_time.start()

    @Slot(int, str)
    def _rename(self, chat_id: int, title: str) -> None:
        self._change(self._store.rename, chat_id, title)
