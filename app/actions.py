"""Every command of the window, once: menus, shortcuts and the list in the settings are made from this."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QWidget


@dataclass(frozen=True)
class ActionSpec:
    """key: the name handlers are given under; shortcut: in Qt's portable form ("Ctrl+N", Ctrl is Command on a Mac)."""

    key: str
    text: str
    shortcut: str
    icon: str = ""


ACTIONS = (
    ActionSpec("new_chat", "New chat", "Ctrl+N", "plus"),
    ActionSpec("open_file", "Open a model file…", "Ctrl+O", "file"),
    ActionSpec("open_folder", "Open a model folder…", "Ctrl+Shift+O", "folder"),
    ActionSpec("search", "Search chats", "Ctrl+F", "search"),
    ActionSpec("show_chat", "Chat", "Ctrl+1", "chat"),
    ActionSpec("show_models", "Models", "Ctrl+2", "models"),
    ActionSpec("show_hardware", "This PC", "Ctrl+3", "chip"),
    ActionSpec("show_settings", "Settings", "Ctrl+,", "settings"),
    ActionSpec("toggle_theme", "Light or dark", "Ctrl+Shift+L"),
    ActionSpec("stop", "Stop the answer, or the loading", "Esc", "stop"),
    ActionSpec("quit", "Quit", "Ctrl+Q"),
)


def make_actions(window: QWidget, handlers: Mapping[str, Callable[[], object]]) -> dict[str, QAction]:
    """One QAction for each spec, with its shortcut live in `window`. Every spec needs a handler."""
    made = {}
    for spec in ACTIONS:
        action = QAction(spec.text, window)
        action.setShortcut(QKeySequence(spec.shortcut))
        action.triggered.connect(_without_checked(handlers[spec.key]))
        window.addAction(action)
        made[spec.key] = action
    return made


def _without_checked(handler: Callable[[], object]) -> Callable[[bool], None]:
    return lambda checked=False: handler() and None


def shortcut_text(key: str) -> str:
    """The shortcut as this system writes it, e.g. "Ctrl+N"."""
    spec = next(s for s in ACTIONS if s.key == key)
    return QKeySequence(spec.shortcut).toString(QKeySequence.SequenceFormat.NativeText)
