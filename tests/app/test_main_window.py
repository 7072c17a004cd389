"""The window as a whole, with a fake engine and a fake chat."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from fakes import FakeApi
from PySide6.QtWidgets import QAbstractButton, QAbstractSpinBox, QComboBox, QLineEdit, QPushButton
from pytestqt.qtbot import QtBot
from window_fakes import LONG, PATH, ROOT, FakeChatList, FakeChatPage, Open, banner_texts, click, press

from app import tasks
from app.actions import ACTIONS
from app.host import EngineHost
from app.main_window import MainWindow
from app.settings.store import SettingsStore
from app.theme import theme
from engine.errors import GreenroomError
from engine.runtime.events import Message, SamplingParams


def test_every_action_has_a_handler_and_its_own_shortcut(open_window: Open) -> None:
    window = open_window()
    assert set(window.actions_by_key) == {spec.key for spec in ACTIONS}
    shortcuts = [keys.toString() for action in window.actions_by_key.values() for keys in action.shortcuts()]
    assert len(set(shortcuts)) == len(shortcuts)
    assert {"Ctrl+N", "Ctrl+O", "Ctrl+F", "Ctrl+,", "Esc"} <= set(shortcuts)


def test_pages_are_made_when_first_shown_and_marked_in_the_sidebar(open_window: Open) -> None:
    window = open_window()
    assert window.page == "chat"
    for key in ("models", "hardware", "settings"):
        window.sidebar._nav[key].click()
        assert window.page == key
        assert window.sidebar._nav[key].isChecked()
        assert window.topbar.isHidden()
        tasks.finish()
    window.actions_by_key["show_chat"].trigger()
    assert window.page == "chat"
    assert not any(entry.isChecked() for entry in window.sidebar._nav.values())


def test_new_chat_search_and_choosing_reach_the_chat_part(open_window: Open, qtbot: QtBot) -> None:
    window = open_window()
    window.show_page("settings")
    press(qtbot, window, "new_chat")
    assert window.page == "chat"
    window._chat_list.chatChosen.emit(7)
    assert window._chat_page.calls == ["new", 7]
    assert window._chat_list.current == 7
    press(qtbot, window, "search")
    qtbot.keyClicks(window.sidebar.search, "parser")
    assert window._chat_list.filters[-1] == "parser"


def test_the_theme_switches_live_and_is_remembered(open_window: Open, settings: SettingsStore) -> None:
    window = open_window(theme="light")
    before = window.grab().toImage().pixelColor(600, 400)
    window.actions_by_key["toggle_theme"].trigger()
    after = window.grab().toImage().pixelColor(600, 400)
    assert settings.values.theme == "dark"
    assert (before.name().upper(), after.name().upper()) == ("#F7F6F2", "#131715")
    theme().set_mode("system")


def test_an_unwritable_folder_is_a_banner(
    host: EngineHost, tmp_path: Path, qtbot: QtBot, settings: SettingsStore
) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    store = SettingsStore(blocked / "below")
    window = MainWindow(host, store, lambda *_: (FakeChatPage(), FakeChatList()), lambda: False)
    qtbot.addWidget(window)
    window.show()
    store.change(theme="dark", start="nothing")
    assert "Greenroom cannot save" in banner_texts(window)[0]
    theme().set_mode("system")


def test_the_windows_size_is_remembered(open_window: Open, settings: SettingsStore) -> None:
    first = open_window()
    first.resize(first.minimumWidth(), 640)  # the test screen is no wider
    first.close()
    again = MainWindow(first._host, settings, lambda *_: (FakeChatPage(), FakeChatList()))
    assert again.size() == first.size()


def test_a_fault_of_our_own_is_shown_once(open_window: Open) -> None:
    window = open_window()
    for _ in range(3):
        window.show_fault(GreenroomError("Something went wrong in Greenroom", "KeyError: 1", "You can go on."))
    assert len(window.banners.banners) == 1


def test_closing_while_generating_ends_everything(
    open_window: Open, api: FakeApi, host: EngineHost, qtbot: QtBot
) -> None:
    api.gate = threading.Semaphore(0)
    window = open_window()
    window.load_model(PATH)
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    host.generate([Message("user", "Hello?")], SamplingParams())
    window.close()
    assert api.engines[0].closed
    assert window._chat_page.calls == ["shutdown"]


@pytest.mark.parametrize("page", ["chat", "models", "hardware", "settings"])
def test_every_control_has_a_name(open_window: Open, page: str) -> None:
    window = open_window()
    window.show_page(page)
    tasks.finish()
    kinds = (QAbstractButton, QLineEdit, QComboBox, QAbstractSpinBox)
    nameless = [
        control
        for kind in kinds
        for control in window.findChildren(kind)
        if control.isVisible()
        and not isinstance(control.parent(), QAbstractSpinBox)
        and not control.accessibleName()
        and not (isinstance(control, QAbstractButton) and control.text())
    ]
    assert nameless == []


def test_tab_goes_through_the_sidebar_from_top_to_bottom(
    host: EngineHost, settings: SettingsStore, qtbot: QtBot
) -> None:
    window = MainWindow(host, settings, demo_is_here=lambda: True)
    window.resize(1200, 780)
    qtbot.addWidget(window)
    window.show()
    qtbot.waitUntil(lambda: window._chat_list is not None and window._chat_list.isVisible(), timeout=LONG)
    window.store.create_chat("A question")
    window.sidebar.new_chat.setFocus()
    names = []
    for _ in range(4):
        names.append(window.focusWidget().accessibleName())
        window.focusNextChild()
    assert names == ["New chat", "Search chats", "Chats", "Models"]
    window.close()


def test_tab_reaches_the_pages_controls(open_window: Open, qtbot: QtBot) -> None:
    window = open_window()
    window.show_page("settings")
    reached = set()
    for _ in range(60):
        window.focusNextChild()
        focused = window.focusWidget()
        reached.add(focused.accessibleName())
    assert {"Language", "Load at start", "Enter key", "Search settings", "New chat", "Search chats"} <= reached


def test_the_list_marks_the_open_chat_only_beside_it(open_window: Open) -> None:
    window = open_window()
    window._chat_list.chatChosen.emit(7)
    assert window._chat_list.current == 7
    window.show_page("models")
    assert window._chat_list.current == 0
    window.show_page("chat")
    assert window._chat_list.current == 7


def test_a_narrow_window_folds_its_sidebar_and_search_unfolds_it(open_window: Open) -> None:
    window = open_window()
    side = window.sidebar
    assert not side.folded
    window.resize(720, 500)
    assert side.folded
    assert not side.search.isVisible()
    press_search = window.actions_by_key["search"]
    press_search.trigger()
    assert not side.folded
    assert window.focusWidget() is side.search
    window._chat_list.chatChosen.emit(7)
    assert side.folded
    side.chats_button.click()
    window.show_page("settings")
    window.resize(1200, 780)
    assert not side.folded
    assert side.new_chat.text() == "New chat"


def test_a_problem_with_saving_chats_is_said_once_and_stays(
    host: EngineHost, settings: SettingsStore, private_data: Path, qtbot: QtBot
) -> None:
    private_data.mkdir(exist_ok=True)
    (private_data / "chats.sqlite").write_bytes(b"this is not a database" * 100)
    window = MainWindow(host, settings, demo_is_here=lambda: True)
    qtbot.addWidget(window)
    window.show()
    qtbot.waitUntil(lambda: window._chat_list is not None, timeout=LONG)
    (banner,) = window.banners.banners
    assert "damaged" in str(banner.error)
    window.store.create_chat("A question")
    window.store.create_chat("Another one")
    assert window.banners.banners == [banner]
    assert not window.close()
    window.end_now()
    assert window.isHidden()


def test_the_smallest_window_cuts_nothing_off(open_window: Open) -> None:
    window = open_window()
    window.resize(window.minimumSize())
    for page in ("models", "hardware", "settings"):
        window.show_page(page)
        tasks.finish()
        window.grab()
        for control in window.stack.currentWidget().findChildren(QPushButton):
            if control.isVisible():
                right = control.mapTo(window, control.rect().topRight()).x()
                assert right <= window.width(), control.accessibleName()
    assert window.width() == window.minimumWidth()


def test_the_window_shows_before_torch_is_imported(private_data: Path) -> None:
    program = """
import sys
from PySide6.QtCore import QEvent, QObject, QTimer
from PySide6.QtWidgets import QApplication
app = QApplication([])
from app.host import EngineHost
from app.main_window import MainWindow
from app.settings.store import SettingsStore
heavy = ("torch", "numpy", "gguf", "tokenizers", "transformers", "engine._native", "app.chat.page")
painted = []
class Watch(QObject):
    def eventFilter(self, watched, event):
        if event.type() == QEvent.Type.Paint and not painted:
            painted.append([name for name in heavy if name in sys.modules])
            app.quit()
        return False
host = EngineHost()
window = MainWindow(host, SettingsStore())
watch = Watch()
window.centralWidget().installEventFilter(watch)
window.show()
QTimer.singleShot(20000, app.quit)
app.exec()
host.shutdown()
print(painted)
"""
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert ran.stdout.strip() == "[[]]", ran.stderr


def test_a_note_that_sends_the_user_to_the_settings_leads_there(open_window: Open) -> None:
    window = open_window()
    window._downloads.failed.emit(GreenroomError("No room", "the disk is full", "Choose another folder in Settings."))
    assert "the disk is full" in banner_texts(window)[0]
    click(window, "Settings")
    assert window.page == "settings"
    assert banner_texts(window) == []


def test_the_performance_panel_is_toggled_and_opens_when_there_is_no_card(open_window: Open) -> None:
    window = open_window()
    action = window.actions_by_key["performance"]
    action.trigger()
    assert action.isChecked()
    action.trigger()
    assert not action.isChecked()
    window.contents.cardWanted.emit()
    assert action.isChecked()
    calls = [call for call in window._chat_page.calls if isinstance(call, tuple)]
    assert calls == [("performance", True), ("performance", False), ("performance", True)]
