"""The left column: the brand, new chat, search, the chats, and the way to the other pages.

In a narrow window it folds to a rail of icons, and unfolds for as long as a chat is looked for.
"""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QButtonGroup, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app.actions import shortcut_text
from app.widgets.buttons import button
from app.widgets.labels import label
from app.widgets.logo import Logo

WIDTH, RAIL_WIDTH = 248, 64

#: (page key, text, icon)
NAVIGATION = (("models", "Models", "models"), ("hardware", "This PC", "chip"), ("settings", "Settings", "settings"))


class Sidebar(QWidget):
    newChat = Signal()
    searched = Signal(str)
    #: A page key of NAVIGATION.
    pageChosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._narrow = self._unfolded = False
        self.setProperty("surface", "side")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)

        brand = QHBoxLayout()
        brand.setContentsMargins(8, 4, 8, 10)
        brand.setSpacing(10)
        self._name = label("Greenroom", "heading")
        brand.addWidget(Logo())
        brand.addWidget(self._name)
        brand.addStretch(1)

        self.new_chat = button("New chat", icon="plus", tip=f"New chat ({shortcut_text('new_chat')})")
        self.new_chat.clicked.connect(self.newChat)

        self.chats_button = button(
            "", icon="search", kind="nav", role="muted", name="Chats", tip=f"Chats ({shortcut_text('search')})"
        )
        self.chats_button.clicked.connect(self.focus_search)

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

        self._middle = QWidget()
        self._chats = QVBoxLayout(self._middle)
        self._chats.setContentsMargins(0, 4, 0, 8)

        box = QVBoxLayout(self)
        box.setContentsMargins(12, 16, 12, 12)
        box.setSpacing(4)
        box.addLayout(brand)
        box.addWidget(self.new_chat)
        box.addSpacing(8)
        box.addWidget(self.search)
        box.addWidget(self.chats_button)
        box.addWidget(self._middle, 1)
        box.addStretch(0)

        self._group = QButtonGroup(self)
        self._nav = {}
        for key, text, icon in NAVIGATION:
            entry = button(text, icon=icon, kind="nav", role="muted")
            entry.setCheckable(True)
            entry.setToolTip(f"{text} ({shortcut_text(f'show_{key}')})")
            entry.clicked.connect(lambda checked=False, key=key: self._choose_page(key))
            self._group.addButton(entry)
            self._nav[key] = entry
            box.addWidget(entry)
        self._fold()

    @property
    def folded(self) -> bool:
        return self._narrow and not self._unfolded

    def set_narrow(self, narrow: bool) -> None:
        """Whether the window has too little room for the whole column."""
        if narrow != self._narrow:
            self._narrow, self._unfolded = narrow, False
            self._fold()

    @Slot()
    def fold(self) -> None:
        """A chat or a page was chosen: give the room back."""
        if self._unfolded:
            self._unfolded = False
            self._fold()

    def _fold(self) -> None:
        folded = self.folded
        self.setFixedWidth(RAIL_WIDTH if folded else WIDTH)
        for part in (self._name, self.search, self._middle):
            part.setVisible(not folded)
        self.chats_button.setVisible(folded)
        self.layout().setStretch(self.layout().count() - 1 - len(NAVIGATION), 1 if folded else 0)
        for key, text, _ in NAVIGATION:
            self._nav[key].setText("" if folded else text)
        self.new_chat.setText("" if folded else "New chat")

    def _choose_page(self, key: str) -> None:
        self.fold()
        self.pageChosen.emit(key)

    def set_chat_list(self, chats: QWidget) -> None:
        while (item := self._chats.takeAt(0)) is not None:
            if item.widget() is not None:
                item.widget().deleteLater()
        self._chats.addWidget(chats)
        # Tab goes by age otherwise, and the chats were made last.
        before: QWidget = self.search
        for part in chats.findChildren(QWidget):
            if part.focusPolicy() & Qt.FocusPolicy.TabFocus:
                self.setTabOrder(before, part)
                before = part

    def mark(self, page: str) -> None:
        """Shows which page is open; a page without an entry here (the chat) marks none."""
        self._group.setExclusive(False)
        for key, entry in self._nav.items():
            entry.setChecked(key == page)
        self._group.setExclusive(True)

    @Slot()
    def focus_search(self) -> None:
        if self._narrow and not self._unfolded:
            self._unfolded = True
            self._fold()
        self.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.search.selectAll()
