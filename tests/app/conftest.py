"""What every test of the window needs: no screen, no threads left behind, an engine that is a fake."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes import FakeApi
from PySide6.QtCore import QCoreApplication, QEvent
from pytestqt.qtbot import QtBot
from window_fakes import LONG, MEASURED, FakeChatList, FakeChatPage, Open

from app import language, tasks
from app.host import EngineHost
from app.main_window import MainWindow
from app.settings.store import SettingsStore


def pytest_configure(config: pytest.Config) -> None:
    # The offscreen platform says this whenever a window is shown; it is about that platform, not about us.
    config.addinivalue_line("qt_log_ignore", "This plugin does not support")


@pytest.fixture(autouse=True)
def private_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings, chats and models of a test never touch the user's."""
    monkeypatch.setenv("GREENROOM_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def english(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever this system speaks."""
    monkeypatch.setattr(language, "system_language", lambda: language.SOURCE)
    language.set_language(language.SOURCE)
    yield
    language.set_language(language.SOURCE)


@pytest.fixture(autouse=True)
def no_thread_survives(qapp: object) -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    # Closed windows go only now: no event loop is there to delete them, and every theme would be theirs as well.
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    assert tasks.shutdown(timeout=20.0)
    left = [t.name for t in threading.enumerate() if t not in before and t.name.startswith("greenroom")]
    assert left == []


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """Its checkpoints have no headers to read anything from."""
    monkeypatch.setattr("app.engine_worker.active_bytes", lambda checkpoint: 1.9e9)
    monkeypatch.setattr("app.planning.context_limit", lambda checkpoint: 32768)
    return FakeApi()


@pytest.fixture
def settings(private_data: Path) -> SettingsStore:
    store = SettingsStore()
    store.change(start="nothing")
    return store


@pytest.fixture
def make_host(api: FakeApi) -> Iterator[Callable[..., EngineHost]]:
    """Hosts with the fake engine, shut down after the test."""
    made: list[EngineHost] = []

    def make(**changes: object) -> EngineHost:
        host = EngineHost(**({"api": api, "demo": lambda progress: "/models/demo.gguf"} | changes))
        made.append(host)
        return host

    yield make
    for host in made:
        assert host.shutdown()


@pytest.fixture
def host(make_host: Callable[..., EngineHost]) -> EngineHost:
    return make_host()


@pytest.fixture
def load(qtbot: QtBot) -> Callable[..., None]:
    """Loads and waits until the model is there, or has failed."""

    def run(host: EngineHost, path: str = "/models/Qwen3-30B-A3B.gguf", **options: object) -> None:
        host.load(path, **options)
        qtbot.waitUntil(lambda: host.state.kind in ("ready", "failed"), timeout=20_000)

    return run


@pytest.fixture
def open_window(host: EngineHost, settings: SettingsStore, qtbot: QtBot) -> Open:
    def make(demo_is_here: bool = True, **choices: object) -> MainWindow:
        if choices:
            settings.change(**choices)
        window = MainWindow(
            host,
            settings,
            lambda *_: (FakeChatPage(), FakeChatList()),
            lambda: demo_is_here,
            lambda progress: MEASURED,
        )
        window.resize(1200, 780)
        qtbot.addWidget(window)
        window.show()
        qtbot.waitUntil(lambda: window._chat_list is not None, timeout=LONG)
        tasks.finish()
        return window

    return make
