"""What is done to the open chat by a command, and to the list of chats from the search: all by keyboard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import make_report
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QInputDialog
from pytestqt.qtbot import QtBot

from app.host import EngineHost
from app.main_window import MainWindow
from app.settings.store import SettingsStore
from app.theme import theme

LONG = 20_000


@pytest.fixture
def window(host: EngineHost, settings: SettingsStore, load: Callable[..., None], qtbot: QtBot) -> MainWindow:
    made = MainWindow(host, settings, None, lambda: True, lambda progress: make_report())
    qtbot.addWidget(made)
    made.show()
    made.activateWindow()
    qtbot.waitUntil(lambda: made.chat_page is not None, timeout=LONG)
    store = made.store
    for title in ("The sea", "The wide sea", "Mountains"):
        chat = store.create_chat(title)
        question = store.add_message(chat, None, "user", f"What of {title.lower()}?")
        answer = store.add_message(chat, question, "assistant", model="m")
        store.finish(answer, f"<think>\nhm\n</think>\n\nAll of {title.lower()}.", None, "end")
    made._chat_list.refresh()
    return made


def titles(window: MainWindow) -> list[str]:
    return [chat.title for chat in window.store.chats()]


def open_chat(window: MainWindow, title: str) -> int:
    chat = next(chat.id for chat in window.store.chats() if chat.title == title)
    window.open_chat(chat)
    return chat


def dialog(window: MainWindow) -> QInputDialog:
    return next(d for d in window.findChildren(QInputDialog) if d.isVisible())


def test_the_open_chat_is_renamed(window: MainWindow) -> None:
    open_chat(window, "Mountains")
    window.actions_by_key["rename_chat"].trigger()
    asked = dialog(window)
    assert asked.textValue() == "Mountains"
    asked.setTextValue("Hills")
    asked.accept()
    assert "Hills" in titles(window)
    assert window.chat_page.title == "Hills"


def test_the_open_chat_is_pinned_and_unpinned(window: MainWindow) -> None:
    chat = open_chat(window, "Mountains")
    for pinned in (True, False):
        window.actions_by_key["pin_chat"].trigger()
        assert [known.pinned for known in window.store.chats() if known.id == chat] == [pinned]


def test_the_open_chat_is_deleted_and_brought_back(window: MainWindow) -> None:
    open_chat(window, "Mountains")
    QTest.keyClick(
        window, Qt.Key.Key_Backspace, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
    )
    assert "Mountains" not in titles(window)
    assert window.chat_page.chat is None
    window._chat_list.undo()
    assert "Mountains" in titles(window)
    assert window.chat_page.title == "Mountains"


def test_the_last_answer_is_copied_without_its_thoughts(window: MainWindow) -> None:
    open_chat(window, "The sea")
    window.actions_by_key["copy_answer"].trigger()
    assert QGuiApplication.clipboard().text() == "All of the sea."


def test_a_chat_without_messages_has_nothing_to_do_it_to(window: MainWindow) -> None:
    window.new_chat()
    QGuiApplication.clipboard().setText("before")
    for key in ("rename_chat", "pin_chat", "delete_chat", "copy_answer"):
        window.actions_by_key[key].trigger()
    assert len(titles(window)) == 3
    assert QGuiApplication.clipboard().text() == "before"
    assert not any(d.isVisible() for d in window.findChildren(QInputDialog))


def search(window: MainWindow, words: str) -> None:
    window.sidebar.focus_search()
    QTest.keyClicks(window.sidebar.search, words)


def test_enter_opens_the_first_chat_that_a_search_finds(window: MainWindow) -> None:
    search(window, "wide")
    QTest.keyClick(window.sidebar.search, Qt.Key.Key_Return)  # before the list has followed
    assert window.chat_page.title == "The wide sea"
    assert window.chat_page.find_bar.isVisible()


def test_enter_opens_nothing_without_words_or_hits(window: MainWindow) -> None:
    window.new_chat()
    for words in ("", "nowhere"):
        search(window, words)
        QTest.keyClick(window.sidebar.search, Qt.Key.Key_Return)
        assert window.chat_page.chat is None


def test_down_goes_to_what_was_found_and_esc_ends_the_search(window: MainWindow) -> None:
    search(window, "sea")
    QTest.keyClick(window.sidebar.search, Qt.Key.Key_Down)
    view = window._chat_list.view
    assert QApplication.focusWidget() is view
    assert view.currentIndex().data() == "The wide sea"
    QTest.keyClick(view, Qt.Key.Key_Down)
    QTest.keyClick(view, Qt.Key.Key_Return)
    assert window.chat_page.title == "The sea"
    window.sidebar.focus_search()
    QTest.keyClick(window.sidebar.search, Qt.Key.Key_Escape)
    assert window.sidebar.search.text() == ""
    search(window, "nowhere")
    QTest.keyClick(window.sidebar.search, Qt.Key.Key_Down)
    assert QApplication.focusWidget() is window.sidebar.search, "there is nothing to go to"


def test_closing_waits_for_chats_on_their_way_out(window: MainWindow, tmp_path: Path, qtbot: QtBot) -> None:
    exchange, target = window._chat_list.exchange, tmp_path / "all.json"
    exchange.export([chat.id for chat in window.store.chats()], target)
    assert not window.close()
    assert window.isVisible()
    qtbot.waitUntil(lambda: not window.isVisible(), timeout=LONG)
    assert "Mountains" in target.read_text(encoding="utf-8")


def test_who_closes_again_does_not_wait(window: MainWindow, tmp_path: Path) -> None:
    window._chat_list.exchange.export([chat.id for chat in window.store.chats()], tmp_path / "all.json")
    assert not window.close()
    assert window.close()
    assert not window.isVisible()


def test_an_import_that_fails_while_the_window_waits_closes_it_too(
    window: MainWindow, tmp_path: Path, qtbot: QtBot
) -> None:
    (tmp_path / "bad.json").write_text("{")
    window._chat_list.exchange.take(tmp_path / "bad.json")
    assert not window.close()
    qtbot.waitUntil(lambda: not window.isVisible(), timeout=LONG)


def test_a_change_of_a_message_stays_when_the_text_becomes_larger(window: MainWindow, qtbot: QtBot) -> None:
    open_chat(window, "Mountains")
    page = window.chat_page
    page._editing.begin(page._messages[-1])
    page.composer.set_text("Half a chan")
    try:
        window.actions_by_key["zoom_in"].trigger()
        qtbot.waitUntil(lambda: window.chat_page is not page, timeout=LONG)
    finally:
        theme().set_look("system", 1.0, "comfortable", False)
    assert (window.chat_page.composer.text, window.chat_page._editing.of_answer) == ("Half a chan", True)
