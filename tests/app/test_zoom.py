"""In a window of 1024 x 700, at the usual and at the largest zoom, nothing is cut, in English and in Korean."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes import make_report
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from whole import cut

from app import tasks
from app.host import EngineHost
from app.main_window import MainWindow
from app.settings.options import Page
from app.settings.pages import PAGES
from app.settings.store import SettingsStore
from app.wizard.wizard import SetupWizard
from engine.hardware.report import MemoryReport

LONG = 20_000
MEASURED = make_report(memory=MemoryReport(64_000_000_000, 50_000_000_000, {"8": 52.0}))


@pytest.fixture(params=[("en", 1.0), ("ko", 1.0), ("en", 2.0), ("ko", 2.0)], ids=lambda p: f"{p[0]}-{p[1]:g}")
def window(
    request: pytest.FixtureRequest,
    host: EngineHost,
    settings: SettingsStore,
    load: Callable[..., None],
    qtbot: QtBot,
) -> MainWindow:
    language, zoom = request.param
    settings.change(zoom=zoom, language=language)
    made = MainWindow(host, settings, None, lambda: True, lambda progress: MEASURED)
    made.resize(1024, 700)
    qtbot.addWidget(made)
    made.show()
    qtbot.waitUntil(lambda: made.chat_page is not None, timeout=LONG)
    load(host)
    tasks.finish()
    yield made
    made.close()
    settings.change(zoom=1.0)


@pytest.mark.parametrize("page", ["chat", "models", "hardware"])
def test_pages(window: MainWindow, page: str) -> None:
    window.show_page(page)
    tasks.finish()
    assert cut(window) == []


def test_settings(window: MainWindow) -> None:
    for page in PAGES:
        assert isinstance(page, Page)
        window.show_setting(page.key)
        assert cut(window) == [], page.key


def test_chat_with_its_panels(window: MainWindow, settings: SettingsStore) -> None:
    window.chat_page.show_performance(True)
    assert cut(window) == []
    window.chat_page.show_performance(False)
    settings.change(stage=True)
    assert cut(window) == []
    settings.change(stage=False)
    window.chat_page.open_options()
    assert cut(window.chat_page.options) == []
    window.chat_page.options.close()
    window.open_palette()
    assert cut(window.palette_box) == []
    window.open_palette()


def test_the_list_of_chats_unfolded(window: MainWindow) -> None:
    for number in range(20):
        window.store.create_chat(f"Chat {number}")
    window.sidebar.focus_search()
    assert cut(window) == []
    assert window.sidebar.minimumSizeHint().height() <= window.sidebar.height()


def test_the_wizard(window: MainWindow) -> None:
    window.open_wizard()
    wizard = next(w for w in QApplication.topLevelWidgets() if isinstance(w, SetupWizard))
    wizard.resize(980, 640)
    for _ in range(4):
        tasks.finish()
        assert cut(wizard) == []
        wizard.next()
    wizard.reject()
