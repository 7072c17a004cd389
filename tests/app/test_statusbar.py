"""The bottom line."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import make_plan, make_report
from pytestqt.qtbot import QtBot

from app import tasks
from app.host import AnswerDelta, AnswerResult, HostState
from app.statusbar import StatusBar
from engine.runtime.events import GenerationStats
from engine.status import EngineStatus

READY = HostState("ready", "Qwen", "/q.gguf", make_plan(), kernel="int4 avx512vnni, 8 threads")


def bar_in(qtbot: QtBot) -> StatusBar:
    bar = StatusBar()
    qtbot.addWidget(bar)
    bar.resize(1200, 30)
    bar.show()
    return bar


def stats(tokens: int, speed: float) -> GenerationStats:
    return GenerationStats(completion_tokens=tokens, decode_tps=speed)


def test_shows_memory_and_kernel_of_the_loaded_model(qtbot: QtBot) -> None:
    bar = bar_in(qtbot)
    assert bar.note.text() == "No model loaded"
    bar.show_state(READY)
    assert bar.ram.accessibleName() == "RAM used by the model: 17.5 GB"
    assert bar.vram.accessibleName() == "VRAM used by the model: 4.1 GB"
    assert bar.kernel.text() == "int4 avx512vnni, 8 threads"
    assert bar.note.text() == ""
    bar.show_state(HostState())
    assert bar.ram.isHidden()
    assert bar.kernel.text() == ""


def test_without_a_gpu_no_vram_is_shown(qtbot: QtBot) -> None:
    bar = bar_in(qtbot)
    bar.show_state(HostState("ready", "Qwen", "/q.gguf", make_plan("cpu"), kernel="int8 avx2, 2 threads"))
    assert bar.vram.isHidden()


def test_speed_is_live_and_stays_after_the_answer(qtbot: QtBot) -> None:
    bar = bar_in(qtbot)
    bar.show_state(READY)
    assert bar.speed.isHidden()
    bar.show_delta(AnswerDelta("a", stats(1, 0.0)))
    assert bar.speed.isHidden()  # one token has no speed yet
    bar.show_delta(AnswerDelta("b", stats(9, 58.34)))
    assert bar.speed.accessibleName() == "Answer speed: 58.3 tok/s"
    bar.show_result(AnswerResult("ab", stats(10, 57.0), "end"))
    assert bar.speed.value.text() == "57.0"


def test_the_line_shows_the_last_second_not_the_whole_answer(qtbot: QtBot) -> None:
    bar = bar_in(qtbot)
    now = 100.0
    bar._clock = lambda: now
    bar.show_state(READY)
    for step in range(40):  # 10 s at 4 deltas a second: 10 tok/s at first, then 40 tok/s
        now = 100.0 + step * 0.25
        tokens = 2.5 * step if step < 20 else 50 + 10 * (step - 20)
        bar.show_delta(AnswerDelta("x", stats(int(tokens * 2), 20.0)))
        bar._add_point()
    assert bar.spark.values[0] < 25
    assert abs(bar.spark.values[-1] - 80) < 1


def test_cpu_use_appears_once_it_is_known(qtbot: QtBot) -> None:
    bar = bar_in(qtbot)
    bar.start()
    assert bar.cpu.isHidden()
    bar._look()
    assert bar.cpu.value.text().endswith("%")
    assert "Greenroom uses" in bar.ram.toolTip()


class Telling:
    """A host that says what its engine does."""

    def __init__(self) -> None:
        self.said = EngineStatus()

    def status(self) -> EngineStatus:
        return self.said


def test_what_the_engine_says_goes_before_what_was_planned(qtbot: QtBot) -> None:
    host = Telling()
    bar = StatusBar(host)
    qtbot.addWidget(bar)
    bar.resize(1400, 30)
    bar.show()
    host.said = EngineStatus(graphs=True, ram_bytes=17_900_000_000, vram_bytes=9_600_000_000, hits=100, misses=300)
    bar.show_state(replace(READY, hardware=make_report()))
    assert bar.ram.accessibleName() == "RAM used by the model: 17.9 GB"
    assert bar.vram.accessibleName() == "VRAM used by the model: 9.6 of 12 GB"
    assert bar.kernel.text() == "int4 avx512vnni, 8 threads · graphs on"
    bar.show_state(replace(READY, kind="generating"))
    assert bar.cache.isHidden(), "what earlier answers found says nothing about this one"
    host.said = replace(host.said, hits=141, misses=359, notes=("Graphs are off: the driver is too old.",))
    bar._look()
    assert bar.cache.accessibleName() == "Experts found in VRAM: 41%"
    assert not bar.cache.isHidden()
    bar.grab()
    assert "the driver is too old" in bar.kernel.toolTip()
    bar.show_state(HostState())
    assert bar.cache.isHidden()
    assert bar.kernel.text() == ""


def test_a_short_line_keeps_what_matters(qtbot: QtBot) -> None:
    host = Telling()
    bar = StatusBar(host)
    qtbot.addWidget(bar)
    bar.show_state(READY)
    bar.show_delta(AnswerDelta("b", stats(9, 58.34)))
    bar._show_gpu(0.31)
    bar._want(bar.cpu, True)
    parts = (bar.speed, bar.spark, bar.cpu, bar.gpu, bar.ram, bar.vram)
    bar.show()
    bar.resize(1400, 30)
    assert not any(part.isHidden() for part in parts)
    # The line of speeds goes before any of the kernel's name does.
    for width in range(1400, 600, -10):
        bar.resize(width, 30)
        bar.grab()
        assert bar.spark.isHidden() or bar.kernel.width() >= bar.kernel.sizeHint().width(), width
    assert bar.spark.isHidden()
    bar.resize(430, 30)
    assert not bar.speed.isHidden()
    assert not bar.ram.isHidden()
    assert bar.spark.isHidden()
    for part in parts:
        if not part.isHidden():
            assert part.geometry().right() <= bar.width()


def test_gpu_use_is_shown_where_the_driver_says_it(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = [0.31, None]
    monkeypatch.setattr("app.statusbar.GpuLoad.read", lambda load: shares.pop(0))
    bar = bar_in(qtbot)
    bar.show_state(replace(READY, hardware=make_report()))
    bar._look()
    tasks.finish()
    assert bar.gpu.accessibleName() == "GPU use: 31%"
    assert not bar.gpu.isHidden()
    bar._look()
    tasks.finish()
    assert bar.gpu.isHidden()
    bar.show_state(HostState("ready", "Qwen", "/q.gguf", make_plan("cpu")))
    bar._look()
    assert shares == [], "without a plan for the GPU nobody asks"
