"""The left column: the brand, new chat, search, the chats, and the way to the other pages."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app.actions import shortcut_text
from app.widgets.buttons import button
from app.widgets.labels import label
from app.widgets.logo import Logo

WIDTH = 248

#: (page key, text, icon)
NAVIGATION = (("models", "Models", "models"), ("hardware", "This PC", "chip"), ("settings", "Settings", "settings"))


class Sidebar(QWidget):
    newChat = Signal()
    searched = Signal(str)
    #: A page key of NAVIGATION.
    pageChosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedWidth(WIDTH)
        self.setProperty("surface", "side")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)

        brand = QHBoxLayout()
        brand.setContentsMargins(8, 4, 8, 10)
        brand.setSpacing(10)
        name = label("Greenroom", "heading")
        brand.addWidget(Logo())
        brand.addWidget(name)
        brand.addStretch(1)

        self.new_chat = button("New chat", icon="plus", tip=f"New chat ({shortcut_text('new_chat')})")
        self.new_chat.clicked.connect(self.newChat)

        self.search = QLineEdit()
        self.search.setPlaceholderText("Search chats")
        self.search.setClearButtonEnabled(False)
        self.search.setAccessibleName("Search chats")
        self.search.textChanged.connect(self.searched)
        self._hint = label(shortcut_text("search").replace("+", " "), "small", parent=self.search)
        hint_row = QHBoxLayout(self.search)
        hint_row.setContentsMargins(0, 0, 10, 0)
        hint_row.addStretch(1)
        hint_row.addWidget(self._hint)
        self._hint.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.search.textChanged.connect(lambda text: self._hint.setVisible(not text))

        self._chats = QVBoxLayout()
        self._chats.setContentsMargins(0, 4, 0, 8)

        box = QVBoxLayout(self)
        box.setContentsMargins(12, 16, 12, 12)
        box.setSpacing(4)
        box.addLayout(brand)
        box.addWidget(self.new_chat)
        box.addSpacing(8)
        box.addWidget(self.search)
        box.addLayout(self._chats, 1)

        self._group = QButtonGroup(self)
        self._nav = {}
        for key, text, icon in NAVIGATION:
            entry = button(text, icon=icon, kind="nav", role="muted")
            entry.setCheckable(True)
            entry.clicked.connect(lambda checked=False, key=key: self.pageChosen.emit(key))
            self._group.addButton(entry)
            self._nav[key] = entry
            box.addWidget(entry)

    def set_chat_list(self, chats: QWidget) -> None:
        while (item := self._chats.takeAt(0)) is not None:
            if item.widget() is not None:
                item.widget().deleteLater()
        self._chats.addWidget(chats)

    def mark(self, page: str) -> None:
        """Shows which page is open; a page without an entry here (the chat) marks none."""
        self._group.setExclusive(False)
        for key, entry in self._nav.items():
            entry.setChecked(key == page)
        self._group.setExclusive(True)

    def focus_search(self) -> None:
        self.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.search.selectAll()
