"""The left column: the brand, new chat, search, the chats, and the way to the other pages.

In a narrow window it folds to a rail of icons, and unfolds for as long as a chat is looked for.
"""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QPoint, Qt, Signal, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QButtonGroup, QHBoxLayout, QLineEdit, QMenu, QVBoxLayout, QWidget

from app.actions import MENUS, Actions
from app.language import mark, tr
from app.theme import theme
from app.theme.theme import restyle
from app.widgets.buttons import button
from app.widgets.labels import label
from app.widgets.logo import Logo
from app.widgets.tab_order import tab_in_order_made

WIDTH, RAIL_WIDTH = 248, 64
#: A rail that is not this high leaves out the logo.
LOW = 300

#: (page key, text, icon)
NAVIGATION = (
    ("models", mark("Models"), "models"),
    ("hardware", mark("This PC"), "chip"),
    ("settings", mark("Settings"), "settings"),
)


class Sidebar(QWidget):
    newChat = Signal()
    searched = Signal(str)
    #: The keyboard is to go from the search to the chats; the first of them is to open.
    listWanted = Signal()
    firstWanted = Signal()
    #: A page key of NAVIGATION.
    pageChosen = Signal(str)

    def __init__(self, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._actions = actions
        self._narrow = self._unfolded = False
        self.setProperty("surface", "side")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)

        self.menu_button = button("", icon="dots", kind="ghost", role="muted", name=tr("Menu"), tip=tr("All commands"))
        self.menu_button.clicked.connect(self._open_menu)
        self._brand = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._brand.setContentsMargins(8, 4, 0, 10)
        self._brand.setSpacing(10)
        self._name = label("Greenroom", "heading")
        self._logo = Logo()
        self._brand.addWidget(self._logo)
        self._brand.addWidget(self._name, 1)
        self._brand.addWidget(self.menu_button)

        self.new_chat = button(tr("New chat"), icon="plus")
        self.new_chat.clicked.connect(self.newChat)

        self.chats_button = button("", icon="search", kind="nav", role="muted", name=tr("Chats"))
        self.chats_button.clicked.connect(self.focus_search)

        self.search = QLineEdit()
        self.search.setPlaceholderText(tr("Search chats"))
        self.search.setClearButtonEnabled(False)
        self.search.setAccessibleName(tr("Search chats"))
        self.search.textChanged.connect(self.searched)
        self._hint = label("", "small", parent=self.search)
        hint_row = QHBoxLayout(self.search)
        hint_row.setContentsMargins(0, 0, 10, 0)
        hint_row.addStretch(1)
        hint_row.addWidget(self._hint)
        self._hint.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.search.textChanged.connect(self._show_hint)
        self.search.returnPressed.connect(self.firstWanted)
        self.search.installEventFilter(self)

        self._middle = QWidget()
        self._chats = QVBoxLayout(self._middle)
        self._chats.setContentsMargins(0, 4, 0, 8)

        box = QVBoxLayout(self)
        box.setContentsMargins(12, 16, 12, 12)
        box.setSpacing(4)
        box.addLayout(self._brand)
        box.addWidget(self.new_chat)
        box.addSpacing(8)
        box.addWidget(self.search)
        box.addWidget(self.chats_button)
        box.addWidget(self._middle, 1)
        box.addStretch(0)

        self._group = QButtonGroup(self)
        self._nav = {}
        for key, text, icon in NAVIGATION:
            entry = button(tr(text), icon=icon, kind="nav", role="muted")
            entry.setCheckable(True)
            entry.clicked.connect(lambda checked=False, key=key: self.pageChosen.emit(key))
            self._group.addButton(entry)
            self._nav[key] = entry
            box.addWidget(entry)
        actions.changed.connect(self._show_shortcuts)
        theme().changed.connect(self._fold)
        self._show_shortcuts()
        self._fold()

    @property
    def folded(self) -> bool:
        return self._narrow and not self._unfolded

    @property
    def full_width(self) -> int:
        """What it takes of the window's width when it is not folded."""
        return theme().px(WIDTH)

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

    @Slot()
    def _fold(self) -> None:
        folded = self.folded
        self.setFixedWidth(theme().px(RAIL_WIDTH) if folded else self.full_width)
        for part in (self._name, self.search, self._middle):
            part.setVisible(not folded)
        self.chats_button.setVisible(folded)
        self.layout().setStretch(self.layout().count() - 1 - len(NAVIGATION), 1 if folded else 0)
        for key, text, _ in NAVIGATION:
            self._nav[key].setText("" if folded else tr(text))
        for entry in (*self._nav.values(), self.chats_button):
            entry.setProperty("rail", folded)
            restyle(entry)
        # In the rail the logo stands over the signs, and the menu below it.
        self._show_logo()
        directions, middle = QBoxLayout.Direction, Qt.AlignmentFlag.AlignHCenter
        self._brand.setDirection(directions.TopToBottom if folded else directions.LeftToRight)
        for part in (self._logo, self.menu_button):
            self._brand.setAlignment(part, middle if folded else Qt.AlignmentFlag(0))
        self._brand.setContentsMargins(0 if folded else 8, 4, 0, 10)
        self.new_chat.setText("" if folded else tr("New chat"))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._show_logo()

    def _show_logo(self) -> None:
        self._logo.setVisible(not self.folded or self.height() >= theme().px(LOW))

    @Slot()
    def _show_shortcuts(self) -> None:
        self.new_chat.setToolTip(self._actions.tip("new_chat"))
        self.chats_button.setToolTip(self._actions.tip("search", tr("Chats")))
        self._hint.setText(self._actions.shortcut_text("search").replace("+", " "))
        for key, text, _ in NAVIGATION:
            self._nav[key].setToolTip(self._actions.tip(f"show_{key}", tr(text)))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """In the search: Down goes to what was found, Esc ends it."""
        if watched is self.search and event.type() == QEvent.Type.KeyPress:
            if event.key() == Qt.Key.Key_Down:
                self.listWanted.emit()
                return True
            if event.key() == Qt.Key.Key_Escape and self.search.text():
                self.search.clear()
                return True
        return super().eventFilter(watched, event)

    @Slot(str)
    def _show_hint(self, text: str) -> None:
        self._hint.setVisible(not text)

    @Slot()
    def _open_menu(self) -> None:
        menu = self.build_menu()
        menu.aboutToHide.connect(menu.deleteLater)
        menu.popup(self.menu_button.mapToGlobal(QPoint(0, self.menu_button.height() + 2)))

    def build_menu(self) -> QMenu:
        """Every command, by subject."""
        menu = QMenu(self)
        for name in MENUS:
            menu.addMenu(self._actions.menu(name, menu))
        return menu

    def set_chat_list(self, chats: QWidget) -> None:
        while (item := self._chats.takeAt(0)) is not None:
            if item.widget() is not None:
                item.widget().deleteLater()
        self._chats.addWidget(chats)
        # Tab goes by age otherwise, and the chats were made last.
        tab_in_order_made(chats, self.search)

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
