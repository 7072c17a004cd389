"""The window's contents are made anew in another language: at the same place, and nothing that goes on is lost."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import FakeApi
from PySide6.QtCore import QCoreApplication, QEvent, QTimer
from PySide6.QtWidgets import QApplication, QMenuBar, QPlainTextEdit, QWidget
from pytestqt.qtbot import QtBot

from app import language, tasks
from app.host import EngineHost
from app.main_window import MainWindow
from app.settings.store import SettingsStore
from app.theme import theme
from engine.errors import GreenroomError

LONG = 20_000
PATH = "/models/Qwen3-30B-A3B.gguf"
KOREAN = {
    "New chat": "새 대화",
    "Settings": "설정",
    "Models": "모델",
    "Search chats": "대화 검색",
    "Appearance": "모양",
    "Theme": "테마",
    "No model loaded": "불러온 모델 없음",
}


@pytest.fixture
def korean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Korean of a few words, whatever the real one holds by now."""
    folder = tmp_path / "translations"
    folder.mkdir()
    messages = "".join(
        f"<message><source>{text}</source><translation>{said}</translation></message>" for text, said in KOREAN.items()
    )
    (folder / "greenroom_ko.ts").write_text(f"<TS><context>{messages}</context></TS>", encoding="utf-8")
    (folder / "greenroom_en.ts").write_text("<TS></TS>", encoding="utf-8")
    monkeypatch.setattr(language, "_folder", lambda: folder)


@pytest.fixture
def window(host: EngineHost, settings: SettingsStore, korean: None, qtbot: QtBot) -> Iterator[MainWindow]:
    made = MainWindow(host, settings, demo_is_here=lambda: True)
    made.resize(1200, 780)
    qtbot.addWidget(made)
    made.show()
    qtbot.waitUntil(lambda: made.chat_page is not None, timeout=LONG)
    tasks.finish()
    yield made
    made.close()
    theme().set_look("system", 1.0, "comfortable", False)


def switch(window: MainWindow, code: str, qtbot: QtBot) -> None:
    before = window.contents
    window.settings.change(language=code)
    qtbot.waitUntil(lambda: window.contents is not before, timeout=LONG)
    tasks.finish()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


def test_a_switch_changes_what_is_read_and_is_kept(window: MainWindow, qtbot: QtBot) -> None:
    switch(window, "ko", qtbot)
    assert window.sidebar.new_chat.text() == "새 대화"
    assert window.sidebar.search.placeholderText() == "대화 검색"
    assert window.actions_by_key["show_models"].text() == "모델"
    assert window.statusbar.note.text() == "불러온 모델 없음"
    assert "새 대화" in window.sidebar.new_chat.toolTip()
    assert SettingsStore().values.language == "ko"
    switch(window, "en", qtbot)
    assert window.sidebar.new_chat.text() == "New chat"


def test_the_place_stays_the_same(window: MainWindow, qtbot: QtBot) -> None:
    chat = window.store.create_chat("A question")
    window.open_chat(chat)
    window.show_setting("appearance")
    switch(window, "ko", qtbot)
    assert window.page == "settings"
    assert window.contents.pages["settings"].section == "appearance"
    assert window.contents.pages["settings"].entries["appearance"].text() == "모양"
    window.show_page("chat")
    assert window.chat_page.chat == chat


def test_an_answer_goes_on(window: MainWindow, host: EngineHost, api: FakeApi, qtbot: QtBot) -> None:
    api.gate = threading.Semaphore(0)
    window.load_model(PATH)
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    window.chat_page.send("Hello?")
    api.gate.release(2)
    chat = window.chat_page.chat
    qtbot.waitUntil(lambda: api.engines[0].steps == 2, timeout=LONG)
    switch(window, "ko", qtbot)
    assert host.state.kind == "generating"
    assert window.chat_page.chat == chat
    assert window.actions_by_key["stop"].isEnabled()
    with qtbot.waitSignal(host.answerFinished, timeout=LONG):
        api.gate.release(10)
    assert window.store.messages(chat)[-1].text == "Hello, world."
    window.chat_page.send("And again?")
    with qtbot.waitSignal(host.answerFinished, timeout=LONG):
        api.gate.release(10)
    assert len(window.store.messages(chat)) == 4


def test_what_is_being_written_stays(window: MainWindow, qtbot: QtBot) -> None:
    qtbot.keyClicks(window.chat_page.composer.field, "Half a question")
    switch(window, "ko", qtbot)
    assert window.chat_page.composer.text == "Half a question"


def test_an_import_is_not_interrupted(window: MainWindow, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = [True]
    monkeypatch.setattr("app.chat_part.ChatPart.busy", property(lambda part: busy[0]))
    before = window.contents
    window.settings.change(language="ko")
    qtbot.waitUntil(lambda: window._rebuild_soon.interval() > 0, timeout=LONG)  # it was asked, and put off
    assert window.contents is before
    busy[0] = False
    qtbot.waitUntil(lambda: window.contents is not before, timeout=LONG)
    assert window.sidebar.new_chat.text() == "새 대화"


def test_what_is_still_to_be_read_stays(window: MainWindow, qtbot: QtBot) -> None:
    window.show_fault(GreenroomError("Something in Greenroom went wrong", "KeyError: 1", "You can go on."))
    switch(window, "ko", qtbot)
    (banner,) = window.banners.banners
    assert banner.isVisible()


def test_the_stage_is_open_again(window: MainWindow, qtbot: QtBot) -> None:
    window.actions_by_key["stage"].trigger()
    assert window.settings.values.stage
    assert window.contents.stage is not None
    assert window.topbar.stage.isChecked()
    switch(window, "ko", qtbot)
    assert window.contents.stage.isVisible()
    window.show_page("models")
    assert not window.contents.stage.isVisible(), "it belongs beside the chat"
    window.show_page("chat")
    window.topbar.stage.click()
    assert window.contents.stage is None
    assert not window.settings.values.stage


def test_the_last_run_is_still_there_when_the_stage_opens_again(
    window: MainWindow, host: EngineHost, api: FakeApi, qtbot: QtBot
) -> None:
    window.actions_by_key["stage"].trigger()
    window.load_model(PATH)
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    with qtbot.waitSignal(host.answerFinished, timeout=LONG):
        window.chat_page.send("Hello?")
    recording = window.contents.stage.live.recording
    assert recording.frames
    window.actions_by_key["stage"].trigger()
    window.actions_by_key["stage"].trigger()
    switch(window, "ko", qtbot)
    assert window.contents.stage.live.recording is recording
    assert window.contents.stage.replay_bar.again.isVisible()


def test_a_run_that_the_stage_was_closed_in_is_there_when_it_opens(
    window: MainWindow, host: EngineHost, qtbot: QtBot
) -> None:
    window.load_model(PATH)
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    with qtbot.waitSignal(host.answerFinished, timeout=LONG):
        window.chat_page.send("Hello?")
    window.actions_by_key["stage"].trigger()
    assert window.contents.stage.live.recording.frames


def test_the_stage_leaves_room_to_the_chat(window: MainWindow) -> None:
    window.actions_by_key["stage"].trigger()
    window.resize(1400, 800)
    wide = window.contents.stage.width()
    window.resize(window.minimumSize())
    window.grab()
    assert window.contents.stage.width() < wide
    assert window.chat_page.width() >= 400
    right = window.contents.stage.mapTo(window, window.contents.stage.rect().topRight()).x()
    assert right < window.width()


def test_at_twice_the_text_size_the_stage_is_whole_in_a_window_of_a_small_screen(window: MainWindow) -> None:
    window.settings.change(zoom=2.0)
    window.actions_by_key["stage"].trigger()
    window.resize(1008, 660)
    window.grab()
    assert window.contents.stage.mapTo(window, window.contents.stage.rect().topRight()).x() < window.width()


def test_nothing_is_left_behind(window: MainWindow, qtbot: QtBot) -> None:
    for page in ("models", "hardware", "settings", "chat"):
        window.show_page(page)
        tasks.finish()
    window.actions_by_key["stage"].trigger()

    def alive() -> tuple[int, int]:
        gc.collect()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        return len(QApplication.allWidgets()), len(QApplication.instance().findChildren(QTimer))

    switch(window, "ko", qtbot)
    switch(window, "en", qtbot)
    before = alive()
    for _ in range(2):
        switch(window, "ko", qtbot)
        switch(window, "en", qtbot)
    assert alive() == before


def test_zoom_goes_through_its_steps_and_stops_at_both_ends(window: MainWindow, settings: SettingsStore) -> None:
    seen = []
    for _ in range(8):
        window.actions_by_key["zoom_in"].trigger()
        seen.append(settings.values.zoom)
    assert seen == [1.1, 1.25, 1.5, 1.75, 2.0, 2.0, 2.0, 2.0]
    window.actions_by_key["zoom_reset"].trigger()
    assert settings.values.zoom == 1.0
    for _ in range(4):
        window.actions_by_key["zoom_out"].trigger()
    assert settings.values.zoom == 0.75


def test_zoom_reaches_text_bars_and_the_list_of_pages(window: MainWindow, settings: SettingsStore) -> None:
    def sizes() -> tuple[int, ...]:
        window.grab()
        body = window.sidebar.new_chat.fontMetrics().height()
        return body, window.sidebar.width(), window.topbar.height(), window.statusbar.height()

    before = sizes()
    settings.change(zoom=1.5)
    window.resize(1600, 900)
    for old, new in zip(before, sizes(), strict=True):
        assert 1.3 * old <= new <= 1.7 * old
    assert "font-size: 18px" in QApplication.instance().styleSheet()


def test_compact_controls_are_lower(window: MainWindow, settings: SettingsStore) -> None:
    before = window.sidebar.new_chat.sizeHint().height()
    settings.change(density="compact")
    assert window.sidebar.new_chat.sizeHint().height() < before


@pytest.mark.parametrize("page", ["chat", "models", "hardware", "settings"])
def test_large_text_cuts_no_button_off(window: MainWindow, settings: SettingsStore, page: str) -> None:
    settings.change(zoom=1.5)
    window.resize(1280, 820)
    window.show_page(page)
    tasks.finish()
    window.grab()
    assert window.width() == 1280
    for part in window.findChildren(QWidget):
        if part.isVisible() and part.focusPolicy() and not isinstance(part, QPlainTextEdit) and part.width() > 1:
            right = part.mapTo(window, part.rect().topRight()).x()
            assert right <= window.width(), (part, part.accessibleName())


def test_every_command_is_in_the_menu(window: MainWindow) -> None:
    menu = window.sidebar.build_menu()
    titles = {action.text() for sub in menu.actions() for action in sub.menu().actions()}
    assert {"New chat", "Stage", "Larger text", "Settings", "Quit"} <= titles
    assert len(titles) == len({action.text() for action in window.actions_by_key.values()})
    menu.deleteLater()


def test_shortcuts_follow_the_settings(window: MainWindow, settings: SettingsStore) -> None:
    new_chat, zoom = window.actions_by_key["new_chat"], window.actions_by_key["zoom_in"]
    assert [keys.toString() for keys in zoom.shortcuts()] == ["Ctrl++", "Ctrl+="]
    settings.change(shortcuts={"new_chat": "Ctrl+T", "search": "", "zoom_in": "F9"})
    assert new_chat.shortcut().toString() == "Ctrl+T"
    assert window.sidebar.new_chat.toolTip() == "New chat (Ctrl+T)"
    assert window.actions_by_key["search"].shortcuts() == []
    assert window.sidebar.chats_button.toolTip() == "Chats"
    assert [keys.toString() for keys in zoom.shortcuts()] == ["F9"]


def test_a_menu_bar_has_the_same_commands(window: MainWindow, qtbot: QtBot) -> None:
    bar = QMenuBar()
    qtbot.addWidget(bar)
    for _ in range(2):  # made anew for another language
        window.actions_by_key.fill(bar)
    assert [action.text() for action in bar.actions()] == ["File", "Chat", "View", "Go"]
    first = bar.actions()[0].menu()
    assert window.actions_by_key["new_chat"] in first.actions()


def test_the_stage_and_the_performance_panel_share_the_room_or_give_way(window: MainWindow) -> None:
    stage, performance = window.actions_by_key["stage"], window.actions_by_key["performance"]
    stage.trigger()
    performance.trigger()
    assert window.contents.stage is not None
    assert window.chat_page.performance is not None
    assert window.sidebar.folded
    window.resize(800, 700)
    assert window.chat_page.performance is None
    assert not performance.isChecked()
    performance.trigger()
    assert window.contents.stage is None
    assert not stage.isChecked()
    stage.trigger()
    assert window.contents.stage is not None
    assert window.chat_page.performance is None
