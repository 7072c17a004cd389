"""What the window loads: at start, when asked, and what it says when that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import FakeApi
from PySide6.QtWidgets import QApplication, QFileDialog, QPushButton
from pytestqt.qtbot import QtBot
from window_fakes import LONG, PATH, Open, banner_texts, click, press

from app import tasks
from app.host import DEMO, EngineHost
from app.settings.store import SettingsStore
from app.widgets.plan_popover import PlanPopover
from engine.errors import GreenroomError
from engine.placement.plan import Range
from engine.runtime.events import Message, SamplingParams


def test_the_last_model_is_loaded_at_start(open_window: Open, tmp_path: Path, host: EngineHost, qtbot: QtBot) -> None:
    path = tmp_path / "last.gguf"
    path.write_bytes(b"")
    open_window(start="last", last_model=str(path), context=4096)
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    assert host.state.path == str(path)
    assert host.state.plan.context == 4096


def test_the_demo_is_loaded_when_the_last_model_is_gone(open_window: Open, host: EngineHost, qtbot: QtBot) -> None:
    window = open_window(start="last", last_model="/gone.gguf")
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    assert host.state.path == DEMO
    assert "gone was not found" in banner_texts(window)[0]
    assert "/gone.gguf" in banner_texts(window)[0]
    click(window, "Choose a model")
    assert window.page == "models"


def test_a_missing_demo_is_offered_not_downloaded(open_window: Open, host: EngineHost, qtbot: QtBot) -> None:
    window = open_window(demo_is_here=False, start="demo")
    assert host.state.kind == "empty"
    assert "93 MB" in banner_texts(window)[0]
    click(window, "Download the demo model")
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    assert banner_texts(window) == []


def test_a_stopped_download_of_the_demo_is_offered_again(
    open_window: Open, api: FakeApi, host: EngineHost, qtbot: QtBot
) -> None:
    window = open_window(demo_is_here=False, start="demo")
    api.hold_load = threading.Event()
    click(window, "Download the demo model")
    qtbot.waitUntil(api.loading.is_set, timeout=LONG)
    assert banner_texts(window) == []
    press(qtbot, window, "stop")
    qtbot.waitUntil(lambda: banner_texts(window) != [], timeout=LONG)
    assert "93 MB" in banner_texts(window)[0]
    (banner,) = window.banners.banners
    banner.findChildren(QPushButton)[-1].click()
    with qtbot.waitSignal(host.stateChanged, timeout=LONG):
        host.unload()
    tasks.finish()
    assert banner_texts(window) == [], "who closed it is not asked again"


def test_nothing_is_loaded_when_nothing_was_chosen(open_window: Open, host: EngineHost) -> None:
    window = open_window(start="nothing")
    assert host.state.kind == "empty"
    assert window.statusbar.note.text() == "No model loaded"


def test_a_loaded_model_is_remembered(
    open_window: Open, settings: SettingsStore, host: EngineHost, qtbot: QtBot
) -> None:
    window = open_window()
    window.load_model(PATH)
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    assert settings.values.last_model == PATH
    assert settings.values.recent == (PATH,)
    assert window.topbar.model.shown_name == "Qwen3-30B-A3B"


def test_threads_from_the_settings_go_into_the_plan(
    open_window: Open, api: FakeApi, host: EngineHost, qtbot: QtBot
) -> None:
    open_window(threads=6).load_model(PATH)
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    assert api.plans == [(None, {"threads": 6})]


def test_a_failing_load_is_a_banner_and_the_program_goes_on(
    open_window: Open, api: FakeApi, host: EngineHost, qtbot: QtBot
) -> None:
    window = open_window()
    api.open_error = GreenroomError("x.gguf is unknown", "its architecture is mamba9", "Choose another model.")
    window.load_model("/models/x.gguf")
    qtbot.waitUntil(lambda: host.state.kind == "failed", timeout=LONG)
    assert "mamba9" in banner_texts(window)[0]
    api.open_error = None
    click(window, "Use the demo model")
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    assert banner_texts(window) == []


def test_a_recent_model_that_is_gone_leaves_the_menu(
    open_window: Open, api: FakeApi, host: EngineHost, settings: SettingsStore, qtbot: QtBot, tmp_path: Path
) -> None:
    here = tmp_path / "here.gguf"
    here.write_bytes(b"")
    window = open_window(recent=["/gone.gguf", str(here)])
    api.open_error = GreenroomError("It cannot be opened", "there is no such file", "Check the path.")
    for path in ("/gone.gguf", str(here)):
        window.load_model(path)
        qtbot.waitUntil(lambda path=path: host.state.kind == "failed" and host.state.path == path, timeout=LONG)
    assert settings.values.recent == (str(here),)


def test_after_a_failure_the_loaded_model_goes_on(
    open_window: Open, api: FakeApi, host: EngineHost, qtbot: QtBot
) -> None:
    window = open_window()
    window.load_model(PATH)
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    api.open_error = GreenroomError("x.gguf is unknown", "its architecture is mamba9", "Choose another model.")
    window.load_model("/models/x.gguf")
    qtbot.waitUntil(lambda: banner_texts(window) != [], timeout=LONG)
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    assert "mamba9" in banner_texts(window)[0]
    assert "Qwen3-30B-A3B is still loaded" in banner_texts(window)[0]
    assert window.topbar.model.shown_name == "Qwen3-30B-A3B"


def test_a_refused_plan_can_be_loaded_anyway(open_window: Open, api: FakeApi, host: EngineHost, qtbot: QtBot) -> None:
    window = open_window()
    api.mode, api.label = "tight", "Tight: needs 3.1 GB more free RAM"
    window.load_model(PATH)
    qtbot.waitUntil(lambda: host.state.kind == "failed", timeout=LONG)
    assert window.topbar.chip.text() == api.label
    click(window, "Load anyway")
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)


def test_a_refused_plan_opens_to_its_sum_while_another_model_goes_on(
    open_window: Open, api: FakeApi, host: EngineHost, qtbot: QtBot
) -> None:
    window = open_window()
    window.load_model(PATH)
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    api.mode = "too_large"
    window.load_model("/models/giant.gguf")
    qtbot.waitUntil(lambda: banner_texts(window) != [] and host.state.kind == "ready", timeout=LONG)
    assert "17.5 GB of RAM" in banner_texts(window)[0]
    click(window, "Show the calculation")
    popover = next(w for w in QApplication.topLevelWidgets() if isinstance(w, PlanPopover) and w.isVisible())
    anyway = next(b for b in popover.findChildren(QPushButton) if b.text() == "Load anyway")
    anyway.click()
    qtbot.waitUntil(lambda: host.state.kind == "ready" and host.state.path == "/models/giant.gguf", timeout=LONG)


def test_esc_cancels_loading_and_stops_answers(open_window: Open, api: FakeApi, host: EngineHost, qtbot: QtBot) -> None:
    window = open_window()
    stop = window.actions_by_key["stop"]
    assert not stop.isEnabled()
    api.hold_load = threading.Event()
    window.load_model(PATH)
    qtbot.waitUntil(lambda: host.state.kind == "loading", timeout=LONG)
    stop.trigger()
    qtbot.waitUntil(lambda: host.state.kind == "empty", timeout=LONG)
    api.hold_load, api.gate = None, threading.Semaphore(0)
    window.load_model(PATH)
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    host.generate([Message("user", "Hello?")], SamplingParams())
    with qtbot.waitSignal(host.answerFinished, timeout=LONG) as answer:
        stop.trigger()
    assert answer.args[0].stop_reason == "cancelled"


def test_memory_measured_on_its_page_renews_the_prediction(
    open_window: Open, host: EngineHost, api: FakeApi, load: Callable[..., None], qtbot: QtBot
) -> None:
    window = open_window()
    load(host)
    api.mode = "cpu"  # any other plan will do
    api.speed = Range(30, 33, 36)
    window.show_page("hardware")
    tasks.finish()
    window.stack.currentWidget().measure.click()
    qtbot.waitUntil(lambda: window.topbar.speed.text() == "about 33 tok/s predicted", timeout=LONG)
    assert host.state.plan.mode == "hybrid"  # where the model lies is as before
    assert host.state.hardware.memory.bandwidth_gbs == {"8": 52.0}


@pytest.mark.parametrize(
    ("action", "title"), [("open_file", "a model file"), ("open_folder", "a folder of safetensors")]
)
def test_a_model_that_is_chosen_in_a_dialog_is_loaded(
    open_window: Open, host: EngineHost, action: str, title: str, qtbot: QtBot, tmp_path: Path
) -> None:
    window = open_window(models_folder=str(tmp_path))
    window.actions_by_key[action].trigger()
    dialog = window.findChild(QFileDialog)
    assert dialog.windowTitle() == f"Open {title}"
    assert dialog.directory().absolutePath() == str(tmp_path)
    dialog.fileSelected.emit(PATH)
    dialog.close()
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    assert host.state.path == PATH
