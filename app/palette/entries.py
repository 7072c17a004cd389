"""What the palette offers: commands, chats, models and settings, each with what choosing it does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtGui import QAction, QKeySequence

from app.actions import SPECS
from app.host import DEMO
from app.language import tr
from app.palette.fuzzy import Match, match
from app.settings.pages import PAGES
from app.words import file_name, home_path

if TYPE_CHECKING:
    from app.main_window import MainWindow

#: At most so many are listed.
MOST = 60
#: Found by what stands beside its title, an entry counts less.
BY_WORDS = 60


@dataclass(frozen=True)
class Entry:
    """kind: what it is, as the user reads it; detail: at the right; words: what else it is found by
    weight: points that put its kind before others
    """

    title: str
    kind: str
    run: Callable[[], object]
    icon: str = ""
    detail: str = ""
    words: str = ""
    weight: int = 0


@dataclass(frozen=True)
class Found:
    """places: the letters of the title that were found."""

    entry: Entry
    score: float
    places: tuple[int, ...]


def search(entries: Iterable[Entry], query: str) -> list[Found]:
    """Best first. Without a query, all as they come."""
    if not query.strip():
        return [Found(entry, 0, ()) for entry in entries][:MOST]
    found = []
    for entry in entries:
        fits = match(query, entry.title)
        if fits is None and entry.words:
            beside = match(query, f"{entry.title} {entry.words}")
            fits = None if beside is None else Match(beside.score - BY_WORDS, ())
        if fits is not None:
            found.append(Found(entry, fits.score + entry.weight, fits.places))
    return sorted(found, key=lambda one: -one.score)[:MOST]


def commands(window: MainWindow) -> list[Entry]:
    """The window's actions, and those of the chat page."""
    made = []
    for key in window.actions_by_key:
        action = window.actions_by_key[key]
        if key != "palette" and action.isEnabled():
            made.append(_command(action, SPECS[key].icon, SPECS[key].text))
    page = window.chat_page
    if page is not None:
        made += [_command(action, "", "") for action in page.actions() if action.isEnabled() and action.text()]
    return made


def _command(action: QAction, icon: str, english: str) -> Entry:
    keys = action.shortcut().toString(QKeySequence.SequenceFormat.NativeText)
    title = action.text().replace("&", "").rstrip("…")
    return Entry(title, tr("Command"), action.trigger, icon, keys, english, weight=20)


def models(window: MainWindow) -> list[Entry]:
    """The demo, and the models on this PC: those opened lately first."""
    loaded = window.host.loaded
    known = [(tr("Demo model"), DEMO)]
    known += [(file_name(Path(path)), path) for path in window.settings.values.recent]
    known += [(model.title, model.path) for model in window.models_here.others]
    made = []
    for title, path in known:
        here = loaded is not None and loaded.path == path
        detail = tr("loaded") if here else "" if path == DEMO else home_path(Path(path).parent)
        made.append(Entry(title, tr("Model"), _loader(window, path), "models", detail, tr("Load the model"), weight=10))
    return made


def _loader(window: MainWindow, path: str) -> Callable[[], object]:
    return lambda: window.load_model(path)


def chats(window: MainWindow) -> list[Entry]:
    """All of them, newest first."""
    store = window.store
    if store is None:
        return []
    return [Entry(chat.title, tr("Chat"), _opener(window, chat.id), "chat") for chat in store.chats()]


def _opener(window: MainWindow, chat: int) -> Callable[[], object]:
    return lambda: window.open_chat(chat)


def settings(window: MainWindow) -> list[Entry]:
    """Pages and their options; shortcuts by their page only."""
    made = []
    for page in PAGES:
        name = tr(page.title)
        made.append(Entry(name, tr("Setting"), _shower(window, page.key, ""), page.icon, tr("Settings"), page.title))
        for option in page.options:
            if not option.name.startswith("shortcut:"):
                title, words = tr(option.title), f"{option.title} {option.words}"
                run = _shower(window, page.key, option.name)
                made.append(Entry(title, tr("Setting"), run, page.icon, name, words))
    return made


def _shower(window: MainWindow, page: str, option: str) -> Callable[[], object]:
    return lambda: window.show_setting(page, option)
