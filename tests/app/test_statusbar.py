"""The bottom line."""

from __future__ import annotations

from fakes import make_plan
from pytestqt.qtbot import QtBot

from app.host import AnswerDelta, AnswerResult, HostState
from app.statusbar import StatusBar
from engine.runtime.events import GenerationStats

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
    assert bar.ram.accessibleName() == "RAM of the model: 17.5 GB"
    assert bar.vram.accessibleName() == "VRAM of the model: 4.1 GB"
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
    bar._look_at_cpu()
    assert bar.cpu.value.text().endswith("%")
    assert "Greenroom as a whole" in bar.ram.toolTip()
