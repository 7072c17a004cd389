"""Every command of the window, once: menus, shortcuts, the palette and the list in the settings are made from this."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenu, QMenuBar, QWidget

from app.language import mark, tr


@dataclass(frozen=True)
class ActionSpec:
    """key: the name handlers are given under; text: in English, see `app.language`
    shortcut: in Qt's portable form ("Ctrl+N", Ctrl is Command on a Mac)
    menu: which of MENUS it stands in, "" for none
    checkable: is on or off
    """

    key: str
    text: str
    shortcut: str = ""
    icon: str = ""
    menu: str = ""
    checkable: bool = False


MENUS = (mark("File"), mark("Chat"), mark("View"), mark("Go"))

ACTIONS = (
    ActionSpec("new_chat", mark("New chat"), "Ctrl+N", "plus", "File"),
    ActionSpec("open_file", mark("Open a model file…"), "Ctrl+O", "file", "File"),
    ActionSpec("open_folder", mark("Open a model folder…"), "Ctrl+Shift+O", "folder", "File"),
    ActionSpec("eject", mark("Unload the model"), "", "", "File"),
    ActionSpec("quit", mark("Quit"), "Ctrl+Q", "", "File"),
    ActionSpec("search", mark("Search chats"), "Ctrl+F", "search", "Chat"),
    ActionSpec("find", mark("Find in this chat"), "Ctrl+Shift+F", "search", "Chat"),
    ActionSpec("chat_options", mark("Chat settings…"), "Ctrl+.", "sliders", "Chat"),
    ActionSpec("regenerate", mark("Regenerate answer"), "Ctrl+R", "refresh", "Chat"),
    ActionSpec("copy_answer", mark("Copy the last answer"), "Ctrl+Shift+C", "copy", "Chat"),
    ActionSpec("rename_chat", mark("Rename this chat…"), "", "", "Chat"),
    ActionSpec("pin_chat", mark("Pin or unpin this chat"), "", "", "Chat"),
    ActionSpec("delete_chat", mark("Delete this chat"), "Ctrl+Shift+Backspace", "", "Chat"),
    ActionSpec("import_chats", mark("Import chats…"), "", "", "Chat"),
    ActionSpec("export_chat", mark("Export this chat…"), "Ctrl+Shift+S", "", "Chat"),
    ActionSpec("stop", mark("Stop"), "Esc", "stop", "Chat"),
    ActionSpec("focus_message", mark("Write a message"), "Ctrl+L", "edit", "Chat"),
    ActionSpec("palette", mark("Find a command, chat, model or setting…"), "Ctrl+K", "search", "View"),
    ActionSpec("stage", mark("Stage"), "Ctrl+Shift+E", "stage", "View", checkable=True),
    ActionSpec("performance", mark("Performance panel"), "Ctrl+Shift+P", "gauge", "View", checkable=True),
    ActionSpec("copy_card", mark("Copy benchmark card"), "", "copy", "View"),
    ActionSpec("zoom_in", mark("Larger text"), "Ctrl++", "", "View"),
    ActionSpec("zoom_out", mark("Smaller text"), "Ctrl+-", "", "View"),
    ActionSpec("zoom_reset", mark("Reset text size"), "Ctrl+0", "", "View"),
    ActionSpec("toggle_theme", mark("Switch light/dark theme"), "Ctrl+Shift+L", "", "View"),
    ActionSpec("show_chat", mark("Chat"), "Ctrl+1", "chat", "Go"),
    ActionSpec("show_models", mark("Models"), "Ctrl+2", "models", "Go"),
    ActionSpec("show_hardware", mark("This PC"), "Ctrl+3", "chip", "Go"),
    ActionSpec("show_settings", mark("Settings"), "Ctrl+,", "settings", "Go"),
    ActionSpec("measure", mark("Measure this PC"), "", "gauge", "Go"),
    ActionSpec("compare", mark("Compare machines…"), "", "sliders", "Go"),
    ActionSpec("wizard", mark("Run setup again…"), "", "", "Go"),
)
SPECS = {spec.key: spec for spec in ACTIONS}
#: Further keys for an action that has its usual one: what people press without Shift.
ALSO = {"zoom_in": ("Ctrl+=",)}


#: What marks a key as a command.
_COMMANDING = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier | Qt.KeyboardModifier.MetaModifier
#: Keys that go through texts and lists, whatever is held with them, and those of text fields.
_MOVING = frozenset(
    {
        Qt.Key.Key_Return,
        Qt.Key.Key_Enter,
        Qt.Key.Key_Tab,
        Qt.Key.Key_Backtab,
        Qt.Key.Key_Space,
        Qt.Key.Key_Backspace,
        Qt.Key.Key_Delete,
        Qt.Key.Key_Left,
        Qt.Key.Key_Right,
        Qt.Key.Key_Up,
        Qt.Key.Key_Down,
        Qt.Key.Key_Home,
        Qt.Key.Key_End,
        Qt.Key.Key_PageUp,
        Qt.Key.Key_PageDown,
    }
)
_EDITING = frozenset({"Ctrl+C", "Ctrl+V", "Ctrl+X", "Ctrl+Z", "Ctrl+Y", "Ctrl+A", "Ctrl+Shift+Z", "Ctrl+Shift+V"})


class Actions(QObject):
    """One QAction for each spec, live in `window`; a mapping by key."""

    #: Shortcuts or texts are others now.
    changed = Signal()

    def __init__(self, window: QWidget, handlers: Mapping[str, Callable[[], object]]) -> None:
        """Every spec needs a handler."""
        super().__init__(window)
        self._made = {}
        self._live: dict[str, str] = {}
        for spec in ACTIONS:
            action = QAction(window)
            action.setCheckable(spec.checkable)
            action.triggered.connect(_without_checked(handlers[spec.key]))
            window.addAction(action)
            self._made[spec.key] = action
        self.set_shortcuts({})
        self.retranslate()

    def __getitem__(self, key: str) -> QAction:
        return self._made[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def values(self) -> list[QAction]:
        return list(self._made.values())

    def retranslate(self) -> None:
        for key, action in self._made.items():
            action.setText(tr(SPECS[key].text))
        self.changed.emit()

    def set_shortcuts(self, chosen: Mapping[str, str]) -> None:
        """chosen: instead of an action's own, by its key; "" for none.

        Keys that two have would do nothing: those who chose them have them, then who stands first.
        """
        # A file of settings may have what the settings page refuses.
        chosen = {key: keys for key, keys in chosen.items() if key in SPECS and not refusal(key, keys)}
        taken: set[str] = set()
        for key in sorted(self._made, key=lambda key: key not in chosen):
            own = chosen.get(key, SPECS[key].shortcut)
            also = ALSO.get(key, ()) if key not in chosen else ()
            live = {QKeySequence(text).toString(): text for text in (own, *also)}
            live = {keys: text for keys, text in live.items() if keys and keys not in taken}
            taken.update(live)
            self._made[key].setShortcuts([QKeySequence(text) for text in live.values()])
            self._live[key] = next(iter(live.values()), "")
        self.changed.emit()

    def shortcut(self, key: str) -> str:
        """What works, in Qt's portable form; "" for none."""
        return self._live[key]

    def shortcut_text(self, key: str) -> str:
        """As this system writes it, e.g. "Ctrl+N"; "" for none."""
        return QKeySequence(self.shortcut(key)).toString(QKeySequence.SequenceFormat.NativeText)

    def tip(self, key: str, text: str = "") -> str:
        """A tool tip: the action's text (or another) with its shortcut."""
        said, keys = text or self._made[key].text().rstrip("…"), self.shortcut_text(key)
        return f"{said} ({keys})" if keys else said

    def menu(self, name: str, parent: QWidget) -> QMenu:
        """One of MENUS."""
        menu = QMenu(tr(name), parent)
        for spec in ACTIONS:
            if spec.menu == name:
                menu.addAction(self._made[spec.key])
        return menu

    def fill(self, bar: QMenuBar) -> None:
        """The menus, for a system whose windows have them in a bar."""
        bar.clear()
        for name in MENUS:
            bar.addMenu(self.menu(name, bar))


def conflict(chosen: Mapping[str, str], key: str, shortcut: str) -> ActionSpec | None:
    """The other action that has this shortcut, None when it is free or empty."""
    wanted = QKeySequence(shortcut).toString()
    if not wanted:
        return None
    for spec in ACTIONS:
        taken = (chosen.get(spec.key, spec.shortcut), *(ALSO.get(spec.key, ()) if spec.key not in chosen else ()))
        if spec.key != key and wanted in {QKeySequence(text).toString() for text in taken}:
            return spec
    return None


def refusal(key: str, shortcut: str) -> str:
    """Why an action cannot have this shortcut, in the user's language; "" when it can."""
    keys = QKeySequence(shortcut)
    if keys.isEmpty() or keys == QKeySequence(SPECS[key].shortcut):
        return ""
    named = keys.toString(QKeySequence.SequenceFormat.NativeText)
    pressed = keys[0]
    held = pressed.keyboardModifiers()
    if pressed.key() in _MOVING or shortcut_of(keys) in _EDITING:
        return tr("{keys} is reserved for editing text. Choose another shortcut.", keys=named)
    if Qt.Key.Key_F1 <= pressed.key() <= Qt.Key.Key_F35 or held & _COMMANDING:
        return ""
    return tr("{keys} alone is used for typing. Add Ctrl or Alt, or choose a function key.", keys=named)


def shortcut_of(keys: QKeySequence) -> str:
    """In Qt's portable form."""
    return keys.toString(QKeySequence.SequenceFormat.PortableText)


def _without_checked(handler: Callable[[], object]) -> Callable[[bool], None]:
    return lambda checked=False: handler() and None
