"""The palette over a real window, with a fake engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import FakeApi
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QAction
from pytestqt.qtbot import QtBot

from app import tasks
from app.host import EngineHost
from app.main_window import MainWindow
from app.palette.palette import CommandPalette
from app.settings.store import SettingsStore

LONG = 20_000


@pytest.fixture
def window(host: EngineHost, settings: SettingsStore, qtbot: QtBot, tmp_path: Path) -> Iterator[MainWindow]:
    settings.change(recent=["/models/Qwen3-30B-A3B-Q4_K_M.gguf"])
    made = MainWindow(host, settings, demo_is_here=lambda: True)
    made.resize(1200, 780)
    qtbot.addWidget(made)
    made.show()
    qtbot.waitUntil(lambda: made.chat_page is not None, timeout=LONG)
    tasks.finish()
    yield made
    made.close()


def opened(window: MainWindow) -> CommandPalette:
    window.actions_by_key["palette"].trigger()
    palette = window.palette_box
    assert isinstance(palette, CommandPalette)
    assert palette.isVisible()
    return palette


def find(window: MainWindow, qtbot: QtBot, text: str) -> CommandPalette:
    palette = opened(window)
    qtbot.keyClicks(palette.field, text)
    return palette


def enter(palette: CommandPalette, qtbot: QtBot) -> None:
    qtbot.keyClick(palette.field, Qt.Key.Key_Return)


def test_it_offers_every_command_that_can_be_done_now(window: MainWindow) -> None:
    palette = opened(window)
    assert {"New chat", "Models", "Larger text", "Quit"} <= set(palette.titles)
    assert "Stop" not in palette.titles, "nothing is running"
    assert "Find a command, chat, model or setting" not in palette.titles, "it is open already"


def test_a_command_is_found_and_done(window: MainWindow, qtbot: QtBot) -> None:
    enter(find(window, qtbot, "this pc"), qtbot)
    tasks.finish()
    assert window.page == "hardware"
    assert not window.palette_box.isVisible()


def test_a_chat_is_found_and_opened(window: MainWindow, qtbot: QtBot) -> None:
    chat = window.store.create_chat("Refactor the parser tests")
    window.store.create_chat("Trip budget")
    palette = find(window, qtbot, "parser")
    assert palette.titles[0] == "Refactor the parser tests"
    enter(palette, qtbot)
    assert window.chat_page.chat == chat


def test_a_model_is_found_and_loaded(window: MainWindow, host: EngineHost, api: FakeApi, qtbot: QtBot) -> None:
    enter(find(window, qtbot, "qwen"), qtbot)
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    assert host.state.path == "/models/Qwen3-30B-A3B-Q4_K_M.gguf"


def test_a_setting_is_found_by_other_words_and_gone_to(window: MainWindow, qtbot: QtBot) -> None:
    palette = find(window, qtbot, "telemetry")
    assert palette.titles[0] in ("What may leave this PC", "What never leaves this PC")
    qtbot.keyClick(palette.field, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    qtbot.keyClicks(palette.field, "kv cache")
    enter(palette, qtbot)
    assert window.page == "settings"
    page = window.contents.pages["settings"]
    assert page.section == "performance"
    qtbot.waitUntil(lambda: window.focusWidget() is page.row("kv_type").control, timeout=LONG)


def test_actions_of_the_chat_page_are_found_too(window: MainWindow, qtbot: QtBot) -> None:
    done: list[bool] = []
    action = QAction("Export this conversation…", window.chat_page)
    action.triggered.connect(lambda: done.append(True))
    window.chat_page.addAction(action)
    enter(find(window, qtbot, "export this conv"), qtbot)
    assert done == [True]


def test_arrows_go_round_and_pages_stop_at_the_ends(window: MainWindow, qtbot: QtBot) -> None:
    palette = opened(window)
    count = len(palette.titles)

    def row_after(key: Qt.Key) -> int:
        qtbot.keyClick(palette.field, key)
        return palette.list.currentIndex().row()

    assert row_after(Qt.Key.Key_Up) == count - 1
    assert row_after(Qt.Key.Key_Down) == 0
    assert row_after(Qt.Key.Key_PageDown) == 9
    assert row_after(Qt.Key.Key_PageUp) == 0
    assert palette.focusWidget() is palette.field or window.focusWidget() is palette.field


@pytest.mark.parametrize("how", ["esc", "beside", "again"])
def test_it_closes_and_gives_the_focus_back(window: MainWindow, qtbot: QtBot, how: str) -> None:
    window.sidebar.search.setFocus()
    palette = opened(window)
    if how == "esc":
        qtbot.keyClick(palette.field, Qt.Key.Key_Escape)
    elif how == "beside":
        qtbot.mouseClick(palette, Qt.MouseButton.LeftButton, pos=QPoint(4, palette.height() - 4))
    else:
        window.actions_by_key["palette"].trigger()
    qtbot.waitUntil(lambda: window.focusWidget() is window.sidebar.search, timeout=LONG)
    assert window.findChildren(CommandPalette) == [] or not palette.isVisible()


def test_what_fits_nothing_is_said(window: MainWindow, qtbot: QtBot) -> None:
    palette = find(window, qtbot, "zzzzqqq")
    assert palette._nothing.isVisible()
    enter(palette, qtbot)
    assert palette.isVisible()


def test_it_keeps_its_place_in_a_small_window(window: MainWindow, qtbot: QtBot) -> None:
    palette = opened(window)
    window.resize(window.minimumSize())
    card = palette._card.geometry()
    assert window.rect().contains(card)


def test_ten_thousand_chats_are_searched_while_typing(window: MainWindow, qtbot: QtBot) -> None:
    from app.palette.entries import Entry, search

    many = [Entry(f"Conversation number {number} about a parser", "Chat", lambda: None) for number in range(10_000)]
    found = search(many, "9999 pars")
    assert found[0].entry.title == "Conversation number 9999 about a parser"


def test_long_titles_are_drawn(window: MainWindow, qtbot: QtBot) -> None:
    window.store.create_chat("A very long title " * 20)
    palette = find(window, qtbot, "long title")
    assert not palette.grab().isNull()
