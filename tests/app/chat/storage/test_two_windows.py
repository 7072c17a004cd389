"""Two windows with the same chats, as after one that hung: each shows what the other does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chat_fakes import FakeHost
from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app import chat_part
from app.chat.message_view import QuestionView
from app.chat.page import ChatPage
from app.chat.sidebar import ChatList
from app.chat.storage.store import ChatStore
from app.chat_part import ChatPart
from app.folders import chats_file
from app.settings.store import SettingsStore


class Quiet(QObject):
    """Notices that nobody reads."""

    def show_store_problem(self, problem: object, actions: object) -> None:
        assert problem is None

    def dismiss(self, key: str) -> None:
        pass


@pytest.fixture
def there() -> Iterator[ChatStore]:
    """What the other window has open."""
    made = ChatStore(chats_file())
    yield made
    made.close()


@pytest.fixture
def here(
    there: ChatStore, host: FakeHost, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot
) -> Iterator[tuple[ChatPage, ChatList]]:
    monkeypatch.setattr(chat_part, "FOLLOW_MS", 20)
    window, notices = QWidget(), Quiet()
    qtbot.addWidget(window)
    part = ChatPart(host, SettingsStore(), notices, window)
    page, chats = part.make(host, window)
    for widget in (page, chats):
        widget.setParent(window)
    chats.chatChosen.connect(page.open_chat)
    window.resize(900, 600)
    window.show()
    yield page, chats
    page.shutdown()


def shown(page: ChatPage) -> list[str]:
    return [v.message.text if isinstance(v, QuestionView) else v.body.text for v in page.transcript.views]


def test_a_chat_of_the_other_window_comes_grows_and_goes(
    here: tuple[ChatPage, ChatList], there: ChatStore, qtbot: QtBot
) -> None:
    page, chats = here
    chat = there.create_chat("Elsewhere?")
    question = there.add_message(chat, None, "user", "Elsewhere?")
    qtbot.waitUntil(lambda: "Elsewhere?" in chats.rows)
    page.open_chat(chat)
    answer = there.add_message(chat, question, "assistant")
    there.set_text(answer, "So far")
    qtbot.waitUntil(lambda: shown(page) == ["Elsewhere?", "So far"])
    there.finish(answer, "So far, so good.", None, "end")
    qtbot.waitUntil(lambda: shown(page) == ["Elsewhere?", "So far, so good."])
    there.rename(chat, "Renamed there")
    qtbot.waitUntil(lambda: page.title == "Renamed there")
    there.delete(chat)
    qtbot.waitUntil(lambda: page.chat is None and "Renamed there" not in chats.rows)


def test_what_is_being_edited_stays(here: tuple[ChatPage, ChatList], there: ChatStore, qtbot: QtBot) -> None:
    page, chats = here
    chat = there.create_chat("Q")
    there.add_message(chat, None, "user", "Q")
    qtbot.waitUntil(lambda: "Q" in chats.rows)
    page.open_chat(chat)
    page.transcript.views[0].edit_button.click()
    page.composer.field.setPlainText("Q, better")
    there.add_message(chat, None, "user", "Another version")
    there.rename(chat, "Another title")
    qtbot.waitUntil(lambda: page.title == "Another title")
    assert page.composer.text == "Q, better"
    assert shown(page) == ["Q"]


def test_what_changes_before_the_first_look_is_told(there: ChatStore) -> None:
    told: list[int] = []
    here = ChatStore(chats_file())
    here.subscribe(told.append)
    there.create_chat("Early")
    here.look_for_changes()
    here.look_for_changes()
    here.close()
    assert told == [0]
