"""A host, a store, a page and a theme for every test of the chat."""

from __future__ import annotations

import pytest
from chat_fakes import FakeHost
from pytestqt.qtbot import QtBot

from app.chat.page import ChatPage
from app.chat.storage.store import ChatStore
from app.theme import theme


class _PatientBot(QtBot):
    """Waits a minute where others wait five seconds: a busy machine is no failure."""

    def waitUntil(self, callback, *, timeout=60_000):
        super().waitUntil(callback, timeout=timeout)


@pytest.fixture
def qtbot(qapp, request):
    return _PatientBot(request)


@pytest.fixture
def host(qapp):
    return FakeHost()


@pytest.fixture
def store(tmp_path):
    store = ChatStore(tmp_path / "data" / "chats.sqlite3")
    yield store
    store.close()


@pytest.fixture
def page(qtbot, host, store):
    made = ChatPage(host, store)
    qtbot.addWidget(made)
    made.resize(900, 700)
    made.show()
    qtbot.waitExposed(made)
    yield made
    made.shutdown()


@pytest.fixture(autouse=True)
def light_theme(qapp):
    theme().set_mode("light")
