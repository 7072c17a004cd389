"""The window's contents are made anew in another language: at the same place, and nothing that goes on is lost."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fakes import FakeApi
from PySide6.QtCore import QCoreApplication, QEvent, QTimer
from PySide6.QtWidgets import QApplication, QMenuBar, QPlainTextEdit, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app import language, tasks
from app.host import EngineHost
from app.main_window import MainWindow
from app.settings.store import SettingsStore
from app.stage.activity import Frame
from app.stage.recording import Recording
from app.stage.sources import Replay
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
    window.show_fault(GreenroomError("Something went wrong in Greenroom", "KeyError: 1", "You can go on."))
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


def long_answer(window: MainWindow) -> int:
    store = window.store
    chat, parent = store.create_chat("Long"), None
    for number in range(12):
        parent = store.add_message(chat, parent, "user", f"Question {number}")
        answer = store.add_message(chat, parent, "assistant", model="m")
        store.finish(answer, f"<think>Which {number}?</think>" + f"A sentence of answer {number}. " * 60, None, "end")
        parent = answer
    return chat


def zoom(window: MainWindow, factor: float, qtbot: QtBot) -> None:
    before = window.contents
    window.settings.change(zoom=factor)
    qtbot.waitUntil(lambda: window.contents is not before, timeout=LONG)
    tasks.finish()
    QApplication.processEvents()


def test_zoom_forgets_nothing_of_the_chat(window: MainWindow, qtbot: QtBot) -> None:
    window.open_chat(long_answer(window))
    page = window.chat_page
    messages = page._messages
    page.transcript.unfold(messages[9].id)
    page.find_bar.open_bar("sentence")
    page.find_bar.stand_at(messages[5].id)
    page.show_performance(True)
    page.transcript.return_to(messages[5].id, 0.5)
    window.sidebar.search.setText("Lon")
    before = page.transcript.place
    zoom(window, 1.25, qtbot)
    again = window.chat_page
    assert again is not page
    assert again.transcript.place[0] == before[0] == messages[5].id
    assert again.transcript.place[1] == pytest.approx(before[1], abs=0.05)
    assert again.find_bar.isVisible()
    assert again.find_bar.count_text == "3 of 12"
    assert again.performance is not None
    assert window.actions_by_key["performance"].isChecked()
    assert window.sidebar.search.text() == "Lon"
    open_ = [
        view.message.id
        for view in again.transcript.views
        if getattr(view, "thought", None) is not None and view.thought.toggle.isChecked()
    ]
    assert open_ == [messages[9].id]


def test_zoom_keeps_what_was_measured(window: MainWindow, host: EngineHost, qtbot: QtBot) -> None:
    window.load_model(PATH)
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    with qtbot.waitSignal(host.answerFinished, timeout=LONG):
        window.chat_page.send("Hello?")
    for value in (40.0, 50.0, 45.0):
        window.statusbar.spark.push(value)
    said, line = window.statusbar.speed.value.text(), window.statusbar.spark.values
    assert said
    tip = window.topbar.speed.toolTip()
    zoom(window, 1.1, qtbot)
    assert window.statusbar.speed.value.text() == said
    assert window.statusbar.speed.isVisible()
    assert window.statusbar.spark.values == line
    assert window.topbar.speed.toolTip() == tip
    host.unload()
    qtbot.waitUntil(lambda: host.state.kind == "empty", timeout=LONG)
    zoom(window, 1.0, qtbot)
    assert window.statusbar.speed.isHidden()


def test_zoom_keeps_a_replay_at_its_place(window: MainWindow, qtbot: QtBot) -> None:
    window.actions_by_key["stage"].trigger()
    run = Recording("m", (0, 1), 6)
    cells = np.array([1, 3], np.uint32)
    for second in range(9):
        run.add(Frame(second, second + 1, cells, cells, np.zeros(0, np.uint32)))
    window.contents.stage.open_replay(Replay(run))
    window.contents.stage.replay.pause()
    window.contents.stage.replay.seek(4.0)
    zoom(window, 1.1, qtbot)
    replay = window.contents.stage.replay
    assert replay is not None
    assert (replay.seconds, replay.running) == (4.0, False)
    assert window.contents.stage.replay_bar.slider.value() == 80


def test_zoom_keeps_what_was_asked_on_pages_that_are_not_shown(window: MainWindow, qtbot: QtBot) -> None:
    window.show_page("models")
    models = window.contents.pages["models"]
    models.search.setText("qwen")
    models.filters.fits.click()
    models.filters.sorts.menu().actions()[2].trigger()
    window.show_page("hardware")
    tasks.finish()
    window.contents.pages["hardware"].what_if.ram.setValue(256)
    window.show_page("chat")
    for factor in (1.1, 1.25):
        zoom(window, factor, qtbot)
    window.show_page("models")
    again = window.contents.pages["models"]
    assert again is not models
    assert again.search.text() == "qwen"
    assert again.filters.fits.isChecked()
    assert again.filters.sorts.text() == "Smallest first"
    qtbot.waitUntil(lambda: again._filter == models._filter, timeout=LONG)
    window.show_page("hardware")
    assert window.contents.pages["hardware"].what_if.question.ram == 256


def test_in_the_smallest_window_a_panel_takes_the_place_of_the_chat_and_gives_it_back(
    window: MainWindow, qtbot: QtBot
) -> None:
    zoom(window, 2.0, qtbot)
    window.resize(window.minimumSize())
    QApplication.processEvents()

    def whole(part: QWidget) -> bool:
        return part.isVisible() and part.mapTo(window, part.rect().topRight()).x() < window.width()

    window.actions_by_key["stage"].trigger()
    QApplication.processEvents()
    stage = window.contents.stage
    assert not window.chat_page.isVisible()
    assert whole(stage)
    assert whole(stage.back)
    assert whole(window.topbar.stage)
    window.show_page("models")
    assert window.contents.pages["models"].isVisible()
    window.show_page("chat")
    assert stage.isVisible()
    stage.back.click()
    assert window.chat_page.isVisible()
    assert not window.settings.values.stage
    window.actions_by_key["stage"].trigger()
    window.new_chat()
    assert window.chat_page.isVisible(), "who wants to write gets the chat"

    window.actions_by_key["performance"].trigger()
    QApplication.processEvents()
    panel = window.chat_page.performance
    assert whole(panel)
    assert not window.chat_page.composer.isVisible()
    closing = next(made for made in panel.findChildren(QPushButton) if "Close" in made.accessibleName())
    assert whole(closing)
    window.resize(1600, 900)
    QApplication.processEvents()
    assert window.chat_page.composer.isVisible(), "there is room beside it now"
    window.resize(window.minimumSize())
    QApplication.processEvents()
    closing.click()
    assert window.chat_page.composer.isVisible()


def test_one_card_is_offered_where_two_panels_could(window: MainWindow) -> None:
    window.resize(1600, 900)
    window.actions_by_key["stage"].trigger()
    assert window.contents.stage.card.isVisible()
    window.actions_by_key["performance"].trigger()
    assert not window.contents.stage.card.isVisible()
    window.actions_by_key["performance"].trigger()
    assert window.contents.stage.card.isVisible()


def test_the_menu_is_in_the_rail_too(window: MainWindow) -> None:
    window.resize(700, 600)
    QApplication.processEvents()
    side = window.sidebar
    assert side.folded
    assert side.menu_button.isVisible()
    assert side.rect().contains(side.menu_button.geometry())
    assert side.menu_button.geometry().top() >= side._logo.geometry().bottom()
    assert abs(side.menu_button.geometry().center().x() - side.width() / 2) <= 2
    assert abs(side._logo.geometry().center().x() - side.width() / 2) <= 2


def test_after_a_comparison_one_is_where_one_was(window: MainWindow, qtbot: QtBot) -> None:
    window.actions_by_key["compare"].trigger()
    tasks.finish()
    qtbot.waitUntil(lambda: QApplication.activeModalWidget() is not None, timeout=LONG)
    assert window.page == "hardware"
    tasks.finish()
    QApplication.activeModalWidget().reject()
    assert window.page == "chat"


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
