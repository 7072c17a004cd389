"""The stage beside the chat, live and replayed, with a fake engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from fakes import FakeApi, FakeEngine, make_plan, make_report
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QImage, QKeyEvent, QMouseEvent, QRegion
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from app import tasks
from app.host import EngineHost
from app.language import set_language
from app.stage.activity import Frame
from app.stage.panel import NARROWEST, WIDTH, StagePanel
from app.stage.recording import Recording, save_recording
from app.stage.sources import LiveRun, Replay
from app.theme import theme
from engine.hardware.report import MemoryReport
from engine.runtime.events import Message, SamplingParams
from engine.status import EngineStatus, ExpertUsage

LONG = 20_000


class Counters:
    """What the fake engine's router has done; the test moves it on."""

    def __init__(self) -> None:
        self.counts = np.zeros((2, 4), np.uint64)
        self.in_vram = np.zeros((2, 4), np.bool_)
        self.dense = False

    def usage(self) -> ExpertUsage | None:
        return (
            None
            if self.dense
            else ExpertUsage(tuple(range(1, len(self.counts) + 1)), self.counts.copy(), self.in_vram.copy())
        )


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> Counters:
    made = Counters()
    monkeypatch.setattr(FakeEngine, "usage", lambda engine: made.usage())
    monkeypatch.setattr(FakeEngine, "status", lambda engine: EngineStatus(path="hybrid", handoff_s=21e-6))
    return made


@pytest.fixture
def panel(host: EngineHost, counters: Counters, qtbot: QtBot) -> Iterator[StagePanel]:
    made = StagePanel(host)
    qtbot.addWidget(made)
    made.resize(made.width(), 700)
    made.show()
    yield made
    made.close()


@pytest.fixture
def answer(host: EngineHost, api: FakeApi, load: Callable[..., None], qtbot: QtBot) -> Callable[[], None]:
    """Begins an answer that waits for the test's gate."""

    def begin() -> None:
        api.gate = threading.Semaphore(0)
        load(host)
        host.generate([Message("user", "Hello?")], SamplingParams())
        qtbot.waitUntil(lambda: host.state.kind == "generating", timeout=LONG)

    return begin


def finish(host: EngineHost, api: FakeApi, qtbot: QtBot) -> None:
    with qtbot.waitSignal(host.answerFinished, timeout=LONG):
        api.gate.release(100)


def test_without_a_model_it_says_what_would_be_here(panel: StagePanel, qtbot: QtBot) -> None:
    assert "Load a mixture-of-experts model" in panel.nothing.text()
    assert panel.view.isHidden()
    assert panel.replay_bar.again.isHidden()
    qtbot.waitUntil(lambda: not panel._frames.isActive(), timeout=LONG)


def test_a_model_without_experts_says_so(
    panel: StagePanel, counters: Counters, host: EngineHost, load: Callable[..., None]
) -> None:
    counters.dense = True
    load(host)
    assert "This model has no experts" in panel.nothing.text()


def test_a_loaded_model_shows_where_its_experts_are(
    panel: StagePanel, counters: Counters, host: EngineHost, load: Callable[..., None], qtbot: QtBot
) -> None:
    counters.in_vram[0, 1] = True
    load(host)
    assert panel.nothing.isHidden()
    assert panel.shape.text() == "2 layers × 4 experts"
    assert panel.activity.in_vram.sum() == 1
    assert panel.served.value.text() == "–"
    qtbot.waitUntil(lambda: not panel._frames.isActive(), timeout=LONG)  # nothing moves, so no picture is painted


def test_an_answer_lights_experts_and_gives_figures(
    panel: StagePanel,
    counters: Counters,
    host: EngineHost,
    api: FakeApi,
    answer: Callable[[], None],
    qtbot: QtBot,
) -> None:
    api.report = make_report(memory=MemoryReport(64_000_000_000, 50_000_000_000, {"8": 52.0}))
    counters.in_vram[0, 0] = True
    answer()
    counters.counts[0, 0] += 3
    counters.counts[1, 2] += 1
    qtbot.waitUntil(lambda: panel.activity.uses.sum() == 4, timeout=LONG)
    assert panel.activity.glow[0, 0] > 0
    assert panel.live.running
    assert panel.replay_bar.save.isHidden(), "what goes on cannot be kept yet"
    panel._show_figures()
    assert panel.served.value.text() == "75%"
    assert panel.hand_off.value.text() == "21 µs per layer"
    assert "75% of the calls were served from VRAM" in panel.view.accessibleDescription()
    api.gate.release(2)
    qtbot.waitUntil(lambda: panel.live._tokens == 2, timeout=LONG)
    panel.live._look()
    counters.counts[1, 3] += 2
    finish(host, api, qtbot)
    assert panel.activity.uses.sum() == 6
    assert panel.from_ram.value.text() != "–"
    assert "of 52 GB/s" in panel.bandwidth.value.text()
    said, panel.activity.seconds = panel.bandwidth.value.text(), 1e6
    panel._show_figures()
    assert panel.bandwidth.value.text() == said, "reading a long prompt takes nothing of the answer's speed"
    assert not panel.replay_bar.save.isHidden()
    qtbot.waitUntil(lambda: not panel._frames.isActive(), timeout=LONG)


def test_the_last_run_can_be_replayed_and_kept(
    panel: StagePanel,
    counters: Counters,
    host: EngineHost,
    api: FakeApi,
    answer: Callable[[], None],
    qtbot: QtBot,
    tmp_path: Path,
) -> None:
    answer()
    counters.counts[0, 0] += 5
    finish(host, api, qtbot)
    panel.replay_bar.save_to(panel.live.recording, tmp_path / "run.stage")
    tasks.finish()
    panel.replay_bar.again.click()
    assert panel.replay is not None
    qtbot.waitUntil(lambda: not panel.replay.running, timeout=LONG)
    assert panel.activity.uses[0, 0] == 5
    panel.replay_bar.leave.click()
    assert panel.replay is None
    panel.replay_bar.open_from(tmp_path / "run.stage")
    tasks.finish()
    assert panel.replay is not None
    assert panel.replay_bar.title.text() == "Qwen3-30B-A3B"
    with qtbot.waitSignal(panel.live.changed, timeout=LONG):
        host.generate([Message("user", "Again?")], SamplingParams())
    assert panel.replay is None, "an answer takes the stage back"
    finish(host, api, qtbot)


def test_a_file_that_is_no_run_is_said_below_the_buttons(panel: StagePanel, tmp_path: Path) -> None:
    (tmp_path / "x.stage").write_bytes(b"something else")
    panel.replay_bar.open_from(tmp_path / "x.stage")
    tasks.finish()
    assert "x.stage could not be opened" in panel.replay_bar.trouble.text()
    panel.replay_bar.save_to(Recording("m", (0,), 1), tmp_path / "x.stage")
    tasks.finish()
    assert panel.replay_bar.trouble.isHidden()


def ten_seconds() -> Recording:
    run = Recording("m", (0, 1), 4)
    for second in range(1, 11):
        moved = [0] if second == 5 else []
        used = np.array([second % 8], np.uint32)
        run.add(Frame(float(second), second, used, np.array([1], np.uint32), np.array(moved, np.uint32)))
    return run


def test_a_replay_goes_to_any_place(qapp: QApplication) -> None:
    replay = Replay(ten_seconds())
    replay.seek(7.5)
    assert (replay.activity.tokens, int(replay.activity.uses.sum())) == (7, 7)
    assert replay.activity.in_vram[0, 0]
    replay.seek(3.0)
    assert (replay.activity.tokens, int(replay.activity.uses.sum())) == (3, 3)
    assert not replay.activity.in_vram[0, 0]
    assert replay.activity.glow[0, 3] > 0.8
    assert replay.activity.glow[0, 2] < 0.1
    replay.seek(99)
    assert replay.seconds == 10


def test_a_replay_runs_at_its_speed_and_begins_anew_at_its_end(qapp: QApplication) -> None:
    replay = Replay(ten_seconds())
    replay.speed = 4.0
    replay.play()
    replay.tick(1.0)
    assert replay.activity.tokens == 4
    replay.tick(2.0)
    assert not replay.running
    assert replay.activity.tokens == 10
    replay.play()
    assert replay.activity.tokens == 0


def test_the_slider_and_play_move_the_replay(panel: StagePanel) -> None:
    panel.open_replay(Replay(ten_seconds()))
    bar = panel.replay_bar
    bar.play.click()
    assert not panel.replay.running
    assert bar.play.accessibleName() == "Play"
    assert panel.hand_off.isHidden(), "that is of the loaded model"
    bar.slider.setValue(100)
    assert panel.replay.seconds == 5.0
    assert bar.time.text() == "0:05 of 0:10 · 5 tokens"
    bar.speed.setCurrentIndex(0)
    bar.speed.activated.emit(0)
    assert panel.replay.speed == 0.25


def test_hover_and_arrow_keys_tell_about_an_expert(panel: StagePanel, qtbot: QtBot) -> None:
    replay = Replay(ten_seconds())
    panel.open_replay(replay)
    replay.pause()
    replay.seek(6.0)
    view = panel.view
    view.grab()
    at = QPointF(view.width() * 3.5 / 4, view.height() * 0.25)
    move = QMouseEvent(
        QEvent.Type.MouseMove,
        at,
        view.mapToGlobal(at),
        Qt.MouseButton.NoButton,
        Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier,
    )
    QApplication.sendEvent(view, move)
    assert view.chosen == (0, 3)
    assert view.describe() == "Layer 0, expert 3 · in RAM · called once, 33% of its layer's calls"
    view.setFocus()
    for key in (Qt.Key.Key_Down, Qt.Key.Key_Left, Qt.Key.Key_Down):
        QApplication.sendEvent(view, QKeyEvent(QEvent.Type.KeyPress, key, Qt.KeyboardModifier.NoModifier))
    assert view.chosen == (1, 2)
    assert "Layer 1, expert 2" in view.accessibleDescription()
    assert view.mapToGlobal(QPoint(0, 0)) is not None


def test_an_answer_that_is_over_leaves_the_picture_of_what_worked_in_it(
    panel: StagePanel,
    counters: Counters,
    host: EngineHost,
    api: FakeApi,
    answer: Callable[[], None],
    qtbot: QtBot,
) -> None:
    answer()
    counters.counts[0] += np.array([4, 1, 0, 0], np.uint64)
    qtbot.waitUntil(lambda: panel.activity.uses.sum() == 5, timeout=LONG)
    assert panel.meaning.text() == "stronger = used recently"
    finish(host, api, qtbot)
    qtbot.waitUntil(lambda: not panel._frames.isActive(), timeout=LONG)
    assert panel.meaning.text() == "stronger = used more often"
    assert panel.activity.glow[0].tolist() == [1.0, 0.5, 0.0, 0.0]
    panel.meaning.click()  # who asks for the last moment sees it: nothing
    qtbot.waitUntil(lambda: not panel._frames.isActive(), timeout=LONG)
    assert panel.meaning.text() == "stronger = used recently"
    assert not panel.activity.alight


@pytest.mark.parametrize("spoken", ["en", "ko"])
@pytest.mark.parametrize("zoom", [1.0, 2.0])
def test_nothing_of_it_is_wider_than_the_panel(host: EngineHost, qtbot: QtBot, spoken: str, zoom: float) -> None:
    set_language(spoken)
    theme().set_look("system", zoom, "comfortable", False)
    try:
        panel = StagePanel(host)
        qtbot.addWidget(panel)
        panel.open_replay(Replay(ten_seconds()))
        panel.show()
        for room in range(NARROWEST, WIDTH + 1, 22):
            panel.set_room(theme().px(room))
            for _ in range(2):
                panel.meaning.click()
                panel.grab()
                assert panel._column.minimumSize().width() < panel.width(), (room, panel.meaning.text())
        panel.close()
    finally:
        theme().set_look("system", 1.0, "comfortable", False)
        set_language("en")


def test_brightness_by_the_whole_run_stands_still(panel: StagePanel, qtbot: QtBot) -> None:
    replay = Replay(ten_seconds())
    panel.open_replay(replay)
    replay.pause()
    replay.seek(9.0)
    panel._tick()
    panel.meaning.click()
    replay.seek(10.0)
    assert panel.meaning.text() == "stronger = used more often"
    qtbot.waitUntil(lambda: not panel._frames.isActive(), timeout=LONG)
    assert panel.activity.glow[0, 1] == 1.0, "used twice, though not lately"


def test_with_reduced_motion_nothing_fades(panel: StagePanel, qtbot: QtBot) -> None:
    theme().set_look("system", 1.0, "comfortable", True)
    try:
        assert panel.meaning.text() == "stronger = used more often"
        assert panel._frames.interval() >= 500
    finally:
        theme().set_look("system", 1.0, "comfortable", False)


def test_another_model_is_another_stage(
    counters: Counters, host: EngineHost, load: Callable[..., None], qtbot: QtBot
) -> None:
    live = LiveRun(host)
    load(host)
    first = live.activity
    counters.counts = np.zeros((3, 8), np.uint64)
    counters.in_vram = np.zeros((3, 8), np.bool_)
    load(host, "/models/Other.gguf")
    assert live.activity is not first
    assert live.activity.uses.shape == (3, 8)
    with qtbot.waitSignal(live.changed, timeout=LONG):
        host.unload()
    assert live.activity is None


def test_saving_a_run_needs_no_window(tmp_path: Path) -> None:
    save_recording(ten_seconds(), tmp_path / "a.stage")
    assert (tmp_path / "a.stage").stat().st_size < 1000


def test_a_run_that_was_too_long_says_how_much_of_it_is_kept(panel: StagePanel) -> None:
    run = Recording("m", (1, 2), 4, full=True)
    run.frames.append(Frame(75.0, 1, *(np.array([], np.uint32) for _ in range(3))))
    panel.open_replay(Replay(run))
    assert panel.replay_bar.cut.isVisible()
    assert panel.replay_bar.cut.text().startswith("Only the first 1:15 of this run was recorded")
    panel.close_replay()
    assert not panel.replay_bar.cut.isVisible()


def test_the_picture_covers_what_lies_below_it_whatever_it_shows(panel: StagePanel, qtbot: QtBot) -> None:
    """It tells Qt that it does, so that nothing below is painted again for each of its pictures."""
    view = panel.view
    for activity in (None, Recording("model", (1, 2), 4).activity()):
        view.show_activity(activity)
        picture = QImage(view.size(), QImage.Format.Format_RGB32)
        picture.fill(0xFFFF00FF)
        view.render(picture, QPoint(), QRegion(), QWidget.RenderFlag(0))
        pixels = np.frombuffer(picture.constBits(), np.uint32).reshape(picture.height(), -1)
        assert not (pixels[:, : view.width()] == 0xFFFF00FF).any()
        assert picture.pixelColor(0, 0) == theme().colour("panel")


def test_in_a_high_window_the_figures_stand_below_the_picture(
    panel: StagePanel, host: EngineHost, load: Callable[..., None]
) -> None:
    load(host)
    for room in (panel.width(), 200):  # the legend in one line, and in two
        panel.set_room(room)
        panel.resize(panel.width(), 1200)
        QApplication.processEvents()
        below = panel.meaning.mapTo(panel, QPoint(0, panel.meaning.height())).y()
        assert panel.served.mapTo(panel, QPoint()).y() - below <= 12


def test_a_replay_that_is_paused_stands_still_and_shows_the_whole_run_at_its_end(
    panel: StagePanel, qtbot: QtBot
) -> None:
    replay = Replay(ten_seconds())
    panel.open_replay(replay)
    replay.seek(3.0)
    panel.replay_bar.play.click()
    before = panel.activity.glow.copy()
    assert before.max() > 0.8
    replay.tick(60.0)
    qtbot.waitUntil(lambda: not panel._frames.isActive(), timeout=LONG)
    np.testing.assert_array_equal(panel.activity.glow, before)
    assert panel.meaning.text() == "stronger = used recently"
    replay.play()
    replay.tick(60.0)
    qtbot.waitUntil(lambda: not panel._frames.isActive(), timeout=LONG)
    assert panel.meaning.text() == "stronger = used more often"
    assert panel.activity.glow[0, 1] == 1.0
    replay.seek(3.0)
    qtbot.waitUntil(lambda: not panel._frames.isActive(), timeout=LONG)
    np.testing.assert_array_equal(panel.activity.glow, before)


def test_a_slow_replay_fades_as_slowly(qapp: QApplication) -> None:
    slow, quick = Replay(ten_seconds()), Replay(ten_seconds())
    for replay, speed in ((slow, 0.25), (quick, 1.0)):
        replay.seek(3.0)
        replay.speed = speed
        replay._running = True
    slow.tick(0.8)
    quick.tick(0.2)
    np.testing.assert_allclose(slow.activity.glow, quick.activity.glow, rtol=1e-5)


@pytest.mark.parametrize("mode", ["cpu", "hybrid"])
def test_without_vram_nothing_is_said_of_it(
    panel: StagePanel,
    counters: Counters,
    host: EngineHost,
    api: FakeApi,
    load: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    plan = make_plan(mode)
    monkeypatch.setattr(api, "plan", lambda *arguments, **wishes: plan)
    load(host)
    there = mode == "hybrid"
    for part in (panel.served, panel.bar, panel._in_vram):
        assert part.isVisible() == there
    assert panel._in_ram.isVisible()
    run = ten_seconds()
    panel.open_replay(Replay(run))
    assert panel.served.isVisible(), "one of its experts came to VRAM"
    panel.open_replay(Replay(Recording("m", (0, 1), 4, frames=run.frames[:3])))
    assert not panel.served.isVisible()


def test_a_run_that_nobody_watched_has_its_average(
    counters: Counters, host: EngineHost, api: FakeApi, answer: Callable[[], None], qtbot: QtBot
) -> None:
    live = LiveRun(host)
    answer()
    counters.counts[0, 0] += 500  # the prompt
    api.gate.release(1)
    qtbot.waitUntil(lambda: live._tokens >= 1, timeout=LONG)
    counters.counts[1, 2] += 6
    finish(host, api, qtbot)
    activity = live.activity
    assert activity.decoded_tokens == live._tokens - 1 > 0
    assert activity.decoded_from_ram == 6
    panel = StagePanel(host, live)
    qtbot.addWidget(panel)
    assert panel.from_ram.value.text() != "–"
