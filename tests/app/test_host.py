"""The engine host: one state, text in small portions, and nothing that waits on the UI thread."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable

import pytest
from fakes import FakeApi
from pytestqt.qtbot import QtBot

from app.host import ANSWER_INTERVAL_MS, DEMO, AnswerDelta, AnswerResult, EngineHost, HostState, TokenCount
from engine.errors import Cancelled, GreenroomError
from engine.progress import Progress
from engine.runtime.events import Begun, Message, SamplingParams

QUESTION = [Message("user", "Hello?")]
PATH = "/models/Qwen3-30B-A3B.gguf"
LONG = 20_000

Load = Callable[..., None]


def states_of(host: EngineHost) -> list[HostState]:
    seen: list[HostState] = []
    host.stateChanged.connect(seen.append)
    return seen


def answers_of(host: EngineHost) -> tuple[list[AnswerDelta], list[AnswerResult]]:
    deltas: list[AnswerDelta] = []
    results: list[AnswerResult] = []
    host.answerEvent.connect(deltas.append)
    host.answerFinished.connect(results.append)
    return deltas, results


def ask(host: EngineHost) -> None:
    host.generate(QUESTION, SamplingParams())


def test_starts_empty(host: EngineHost) -> None:
    assert host.state == HostState()
    assert host.loaded is None


def test_loading_goes_from_planning_over_loading_to_ready(
    host: EngineHost, api: FakeApi, qtbot: QtBot, load: Load
) -> None:
    seen = states_of(host)
    api.hold_load = threading.Event()
    host.load(PATH, context=4096, threads=3)
    qtbot.waitUntil(lambda: bool(host.state.progress and host.state.progress.total), timeout=LONG)
    assert host.state.kind == "loading"
    assert host.state.plan is not None
    assert "layer 31" in host.state.progress.message
    api.hold_load.set()
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    kinds = list(dict.fromkeys(state.kind for state in seen))
    assert kinds == ["planning", "loading", "ready"]
    assert host.state.model_name == "Qwen3-30B-A3B"
    assert host.state.kernel == "int4 avx512vnni, 8 threads"
    assert host.state.progress is None
    assert api.plans == [(4096, {"threads": 3})]


def test_engine_work_happens_on_one_thread_that_is_not_the_ui_thread(
    host: EngineHost, api: FakeApi, load: Load
) -> None:
    load(host)
    load(host, "/models/other.gguf")
    assert api.threads == {"greenroom-engine"}


def test_signals_arrive_on_the_ui_thread(host: EngineHost, qtbot: QtBot, load: Load) -> None:
    threads: set[str] = set()
    host.stateChanged.connect(lambda _: threads.add(threading.current_thread().name))
    host.answerEvent.connect(lambda _: threads.add(threading.current_thread().name))
    load(host)
    with qtbot.waitSignal(host.answerFinished, timeout=LONG):
        ask(host)
    assert threads == {threading.main_thread().name}


def test_cancelled_loading_ends_empty_and_leaves_nothing_open(host: EngineHost, api: FakeApi, qtbot: QtBot) -> None:
    api.hold_load = threading.Event()
    host.load(PATH)
    qtbot.waitUntil(lambda: host.state.kind == "loading", timeout=LONG)
    host.cancel_load()
    qtbot.waitUntil(lambda: host.state.kind == "empty", timeout=LONG)
    assert api.engines == []
    assert all(checkpoint.closed for checkpoint in api.checkpoints)
    assert host.state.error is None


def test_a_broken_file_fails_with_its_reason(host: EngineHost, api: FakeApi, load: Load) -> None:
    api.open_error = GreenroomError("x.gguf cannot be read", "it ends after 1.2 GB", "Download it again.")
    load(host)
    assert host.state.kind == "failed"
    assert host.state.error is api.open_error
    assert host.state.plan is None


def test_a_fault_inside_the_engine_becomes_a_readable_error(
    host: EngineHost, api: FakeApi, load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    api.load_error = ZeroDivisionError("division by zero")
    load(host)
    assert host.state.kind == "failed"
    assert isinstance(host.state.error, GreenroomError)
    assert "ZeroDivisionError" in host.state.error.why
    assert "division by zero" in caplog.text
    assert api.checkpoints[-1].closed


@pytest.mark.parametrize("mode", ["tight", "too_large"])
def test_a_refused_plan_stops_before_loading_and_shows_the_plan(
    host: EngineHost, api: FakeApi, load: Load, mode: str
) -> None:
    api.mode = mode
    load(host)
    assert host.state.kind == "failed"
    assert host.state.plan is not None
    assert host.state.plan.mode == mode
    assert host.state.plan.label.lower() in host.state.error.why.lower()
    assert api.engines == []


def test_load_anyway_obeys(host: EngineHost, api: FakeApi, load: Load) -> None:
    api.mode = "tight"
    load(host, force=True)
    assert host.state.kind == "ready"


def test_a_failed_plan_keeps_the_model_that_is_loaded(host: EngineHost, api: FakeApi, load: Load) -> None:
    load(host)
    api.mode = "too_large"
    load(host, "/models/huge.gguf")
    assert host.state.model_name == "huge"
    assert not api.engines[0].closed
    host.dismiss_failure()
    assert host.state.kind == "ready"
    assert host.state.path == PATH


def test_a_new_model_is_planned_with_the_old_ones_memory_and_replaces_it(
    host: EngineHost, api: FakeApi, load: Load
) -> None:
    load(host)
    load(host, "/models/other.gguf")
    assert api.plans[1][1] == {"unload_bytes": 17_500_000_000}
    assert [engine.closed for engine in api.engines] == [True, False]
    assert [checkpoint.closed for checkpoint in api.checkpoints] == [True, False]


@pytest.mark.parametrize(("wanted", "planned"), [(None, None), (4096, 4096), (1_000_000, 32768)])
def test_a_context_is_never_longer_than_the_models_own(
    host: EngineHost, api: FakeApi, load: Load, wanted: int | None, planned: int | None
) -> None:
    load(host, context=wanted)
    assert api.plans[0][0] == planned


def test_a_second_request_supersedes_the_first(host: EngineHost, api: FakeApi, qtbot: QtBot) -> None:
    api.hold_load = threading.Event()
    host.load(PATH)
    qtbot.waitUntil(api.loading.is_set, timeout=LONG)
    seen = states_of(host)
    host.load("/models/other.gguf")
    api.hold_load.set()
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    assert host.state.model_name == "other"
    assert {state.path for state in seen} == {"/models/other.gguf"}


def test_the_demo_is_prepared_with_progress_when_asked_for(
    make_host: Callable[..., EngineHost], api: FakeApi, qtbot: QtBot
) -> None:
    go_on = threading.Event()

    def demo(progress: Callable[[Progress], None]) -> str:
        while not go_on.wait(0.01):
            progress(Progress(10, 93, "Downloading"))
        return "/data/demo.gguf"

    host = make_host(demo=demo)
    host.load(DEMO)
    qtbot.waitUntil(lambda: host.state.progress == Progress(10, 93, "Downloading"), timeout=LONG)
    assert host.state.kind == "planning"
    go_on.set()
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    assert str(api.checkpoints[0].path) == "/data/demo.gguf"
    assert host.state.path == DEMO


def test_preparing_the_demo_can_be_cancelled(make_host: Callable[..., EngineHost], qtbot: QtBot) -> None:
    stopped = threading.Event()

    def demo(progress: Callable[[Progress], None]) -> str:
        try:
            while True:
                progress(Progress(10, 93, "Downloading"))
                time.sleep(0.001)
        except Cancelled:
            stopped.set()
            raise

    host = make_host(demo=demo)
    host.load(DEMO)
    qtbot.waitUntil(lambda: host.state.progress is not None, timeout=LONG)
    host.cancel_load()
    qtbot.waitUntil(lambda: host.state.kind == "empty", timeout=LONG)
    assert stopped.is_set()


def test_an_answer_comes_in_deltas_and_ends_with_the_whole(host: EngineHost, qtbot: QtBot, load: Load) -> None:
    load(host)
    seen = states_of(host)
    deltas, results = answers_of(host)
    with qtbot.waitSignal(host.answerFinished, timeout=LONG):
        ask(host)
    assert "".join(delta.text for delta in deltas) == "Hello, world."
    assert results[0].text == "Hello, world."
    assert results[0].stop_reason == "end"
    assert results[0].error is None
    assert results[0].stats.completion_tokens == 4
    assert [state.kind for state in seen] == ["generating", "ready"]


def test_the_next_prediction_learns_from_an_answer(host: EngineHost, api: FakeApi, qtbot: QtBot, load: Load) -> None:
    load(host)
    with qtbot.waitSignal(host.answerFinished, timeout=LONG):
        ask(host)
    qtbot.waitUntil(lambda: bool(api.learnt), timeout=LONG)
    ((checkpoint, plan, stats),) = api.learnt
    assert checkpoint is api.checkpoints[-1]
    assert plan == host.state.plan
    assert stats.completion_tokens == 4


def test_text_is_coalesced_to_one_delta_per_interval(host: EngineHost, api: FakeApi, qtbot: QtBot, load: Load) -> None:
    api.words = [f"w{i} " for i in range(5000)]
    load(host)
    deltas, results = answers_of(host)
    started = time.monotonic()
    with qtbot.waitSignal(host.answerFinished, timeout=LONG):
        ask(host)
    elapsed_ms = 1000 * (time.monotonic() - started)
    assert results[0].text == "".join(api.words)
    assert "".join(delta.text for delta in deltas) == results[0].text
    marks = [mark for delta in deltas for mark in delta.marks]
    assert [tokens for _, tokens in marks] == list(range(1, len(marks) + 1)), "every step has its mark"
    assert [when for when, _ in marks] == sorted(when for when, _ in marks)
    # One for each interval, one begun, and the rest at the end: never one for each of the 5000 tokens.
    assert len(deltas) <= elapsed_ms / (ANSWER_INTERVAL_MS * 0.9) + 2


def test_stop_ends_the_answer_within_one_token(host: EngineHost, api: FakeApi, qtbot: QtBot, load: Load) -> None:
    api.gate = threading.Semaphore(0)
    load(host)
    deltas, results = answers_of(host)
    ask(host)
    api.gate.release(2)
    qtbot.waitUntil(lambda: sum(len(delta.text) for delta in deltas) == len("Hello, "), timeout=LONG)
    with qtbot.waitSignal(host.answerFinished, timeout=LONG):
        host.stop()
    assert results[0].stop_reason == "cancelled"
    assert results[0].text == "Hello, "
    assert api.engines[0].steps == 2
    assert host.state.kind == "ready"


def test_after_a_stop_the_next_answer_is_whole(host: EngineHost, api: FakeApi, qtbot: QtBot, load: Load) -> None:
    api.gate = threading.Semaphore(0)
    load(host)
    _, results = answers_of(host)
    ask(host)
    with qtbot.waitSignal(host.answerFinished, timeout=LONG):
        host.stop()
    api.gate.release(10)
    with qtbot.waitSignal(host.answerFinished, timeout=LONG):
        ask(host)
    assert [result.stop_reason for result in results] == ["cancelled", "end"]


def test_an_answer_that_breaks_off_keeps_its_text_and_says_why(
    host: EngineHost, api: FakeApi, qtbot: QtBot, load: Load
) -> None:
    api.fail_after = 2
    load(host)
    _, results = answers_of(host)
    with qtbot.waitSignal(host.answerFinished, timeout=LONG):
        ask(host)
    assert results[0].text == "Hello, "
    assert results[0].stop_reason == "error"
    assert results[0].error.why == "memory ran out"
    assert host.state.kind == "ready"


def test_a_model_that_is_lost_in_an_answer_is_loaded_again_as_it_was(
    host: EngineHost, api: FakeApi, qtbot: QtBot, load: Load
) -> None:
    api.fail_after = 2
    load(host, threads=3, context=4096)
    api.engines[0].survives = False
    _, results = answers_of(host)
    seen = states_of(host)
    api.fail_after = None
    with qtbot.waitSignal(host.answerFinished, timeout=LONG):
        ask(host)
    assert (results[0].text, results[0].error.why) == ("Hello, ", "memory ran out")
    assert results[0].error.remedy.startswith("Greenroom will load the model again")
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    assert [state.kind for state in seen][:2] == ["generating", "ready"]
    assert {state.kind for state in seen[2:]} == {"planning", "loading", "ready"}
    assert api.engines[0].closed
    assert api.plans[-1] == (4096, {"threads": 3})
    with qtbot.waitSignal(host.answerFinished, timeout=LONG):
        ask(host)
    assert results[1].text == "Hello, world."


def test_what_was_stepped_down_is_told_with_one_answer(
    host: EngineHost, api: FakeApi, qtbot: QtBot, load: Load
) -> None:
    load(host)
    _, results = answers_of(host)
    for steps in (("q8",), ("q8",), ("q8", "12 slots"), ("q8", "6 slots")):
        api.engines[-1].stepped_down = steps
        with qtbot.waitSignal(host.answerFinished, timeout=LONG):
            ask(host)
    assert [result.stepped_down for result in results] == [("q8",), (), ("12 slots",), ("6 slots",)]
    load(host)
    api.engines[-1].stepped_down = ("q8",)
    with qtbot.waitSignal(host.answerFinished, timeout=LONG):
        ask(host)
    assert results[-1].stepped_down == ("q8",)


def test_without_a_model_the_answer_is_an_error(host: EngineHost, qtbot: QtBot) -> None:
    _, results = answers_of(host)
    with qtbot.waitSignal(host.answerFinished, timeout=LONG):
        ask(host)
    assert results[0].error.why == "no model is loaded"
    assert host.state.kind == "empty"


def test_a_second_answer_at_once_is_refused(host: EngineHost, api: FakeApi, qtbot: QtBot, load: Load) -> None:
    api.gate = threading.Semaphore(0)
    load(host)
    ask(host)
    with pytest.raises(RuntimeError, match="already"):
        ask(host)
    with qtbot.waitSignal(host.answerFinished, timeout=LONG):
        host.stop()


def test_unload_frees_the_engine(host: EngineHost, api: FakeApi, qtbot: QtBot, load: Load) -> None:
    load(host)
    host.unload()
    qtbot.waitUntil(lambda: host.state.kind == "empty", timeout=LONG)
    assert api.engines[0].closed
    assert host.loaded is None


def test_loading_another_model_stops_the_answer_first(host: EngineHost, api: FakeApi, qtbot: QtBot, load: Load) -> None:
    api.gate = threading.Semaphore(0)
    load(host)
    _, results = answers_of(host)
    ask(host)
    api.gate = None
    load(host, "/models/other.gguf")
    assert [result.stop_reason for result in results] == ["cancelled"]
    assert host.state.kind == "ready"
    assert host.state.model_name == "other"


def test_shutdown_while_generating_ends_the_answer_and_frees_the_engine(
    host: EngineHost, api: FakeApi, qtbot: QtBot, load: Load
) -> None:
    api.gate = threading.Semaphore(0)
    load(host)
    deltas, results = answers_of(host)
    ask(host)
    api.gate.release()
    qtbot.waitUntil(lambda: bool(deltas), timeout=LONG)
    assert host.shutdown()
    assert [(result.stop_reason, result.text) for result in results] == [("cancelled", "Hello")]
    assert api.engines[0].closed
    assert api.checkpoints[0].closed


def test_shutdown_while_loading_leaves_nothing_open(host: EngineHost, api: FakeApi, qtbot: QtBot) -> None:
    api.hold_load = threading.Event()
    host.load(PATH)
    qtbot.waitUntil(api.loading.is_set, timeout=LONG)
    assert host.shutdown()
    assert api.engines == []
    assert api.checkpoints[0].closed
    host.load(PATH)  # too late, and harmless
    assert len(api.checkpoints) == 1


def test_hosts_come_and_go_without_leftovers(make_host: Callable[..., EngineHost], api: FakeApi, load: Load) -> None:
    for _ in range(3):
        host = make_host()
        load(host)
        assert host.shutdown()
        gc.collect()
    assert all(engine.closed for engine in api.engines)


def test_a_ready_model_says_how_it_wants_to_be_talked_to(host: EngineHost, load: Load) -> None:
    load(host)
    state = host.state
    assert (state.family, state.thinking, state.suggested, state.limit) == (
        "qwen3moe",
        ("off", "on"),
        {"top_k": 20},
        32768,
    )


def test_what_makes_room_is_named_while_another_model_is_loaded(
    host: EngineHost, api: FakeApi, load: Load, qtbot: QtBot
) -> None:
    load(host)
    seen = states_of(host)
    load(host, "/models/other.gguf")
    named = {state.unloads[0] for state in seen if state.unloads}
    assert named == {"Qwen3-30B-A3B"}
    assert host.state.unloads is None


def test_wishes_reach_the_engine(host: EngineHost, api: FakeApi, load: Load, qtbot: QtBot) -> None:
    load(host)
    with qtbot.waitSignal(host.answerFinished, timeout=LONG):
        host.generate(QUESTION, SamplingParams(), thinking="off", begun=Begun("It is"))
    assert api.engines[-1].wished == [("off", Begun("It is"))]


def test_usage_and_status_are_the_loaded_engines(host: EngineHost, api: FakeApi, load: Load, qtbot: QtBot) -> None:
    assert host.usage() is None
    assert host.status() is None
    load(host)
    with qtbot.waitSignal(host.answerFinished, timeout=LONG):
        ask(host)
    assert host.usage().counts.tolist() == [[4, 0]]
    assert host.status().path == "hybrid"


def test_only_the_newest_of_the_counts_that_wait_is_made(
    host: EngineHost, api: FakeApi, load: Load, qtbot: QtBot
) -> None:
    api.gate = threading.Semaphore(0)
    load(host)
    counts: list[TokenCount] = []
    host.tokensCounted.connect(counts.append)
    ask(host)
    for text in ("one", "one two", "one two three"):
        host.count("draft", text)
    host.count("file", [Message("user", "four words of file")])
    host.count("other", "refused")
    api.gate.release(9)
    qtbot.waitUntil(lambda: len(counts) == 3, timeout=LONG)
    assert [(c.request.key, c.tokens) for c in counts] == [("draft", 3), ("file", 4), ("other", None)]
    assert api.engines[-1].counted[0] == "one two three"


def test_another_context_is_planned_without_the_model_that_makes_room(
    host: EngineHost, api: FakeApi, load: Load, qtbot: QtBot
) -> None:
    load(host, threads=3)
    with qtbot.waitSignal(host.contextPlanned, timeout=LONG) as planned:
        host.plan_context(16384)
    assert planned.args[0].plan.context == 16384
    assert api.plans[-1] == (16384, {"threads": 3, "unload_bytes": 17_500_000_000})
    host.unload()
    with qtbot.waitSignal(host.contextPlanned, timeout=LONG) as planned:
        host.plan_context(16384)
    assert planned.args[0].plan is None
