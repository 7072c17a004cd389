"""The host with the real engine and the demo model: what the fakes promise is what the engine does."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.host import AnswerResult, EngineHost
from engine.runtime.events import Begun, Message, SamplingParams

LONG = 120_000


@pytest.fixture
def real_host(demo_model: Path, qtbot: QtBot) -> object:
    host = EngineHost()
    host.load(demo_model, context=100_000, force=True)
    qtbot.waitUntil(lambda: host.state.kind in ("ready", "failed"), timeout=LONG)
    assert host.state.error is None
    yield host
    assert host.shutdown()


def ask(host: EngineHost, qtbot: QtBot, question: str, tokens: int) -> AnswerResult:
    with qtbot.waitSignal(host.answerFinished, timeout=LONG) as finished:
        host.generate([Message("user", question)], SamplingParams(temperature=0, max_tokens=tokens))
    return finished.args[0]


def test_loads_answers_stops_and_frees(real_host: EngineHost, qtbot: QtBot) -> None:
    state = real_host.state
    assert state.plan.context < 100_000  # what the model was made for
    assert "thread" in state.kernel
    answer = ask(real_host, qtbot, "What is the capital of France?", 16)
    assert "Paris" in answer.text
    assert answer.stats.decode_tps > 0

    texts: list[str] = []
    real_host.answerEvent.connect(lambda delta: (texts.append(delta.text), real_host.stop()))
    stopped = ask(real_host, qtbot, "Count from one to a thousand.", 2000)
    assert stopped.stop_reason == "cancelled"
    assert stopped.stats.completion_tokens < 200
    assert stopped.text == "".join(texts)

    real_host.unload()
    qtbot.waitUntil(lambda: real_host.state.kind == "empty", timeout=LONG)


def test_counts_continues_and_plans(real_host: EngineHost, qtbot: QtBot) -> None:
    state = real_host.state
    assert state.family
    assert state.limit == state.plan.context
    question = [Message("user", "What is the capital of France?")]
    with qtbot.waitSignal(real_host.tokensCounted, timeout=LONG) as counted:
        real_host.count("chat", question)
    whole = ask(real_host, qtbot, question[0].content, 8)
    assert counted.args[0].tokens == whole.stats.prompt_tokens

    assert "Paris" in whole.text
    begun = whole.text.partition(" Paris")[0]
    with qtbot.waitSignal(real_host.answerFinished, timeout=LONG) as finished:
        real_host.generate(question, SamplingParams(temperature=0, max_tokens=8), begun=Begun(begun))
    rest = finished.args[0]
    assert rest.text.startswith(" Paris"), "the space before the first word counts where an answer goes on"
    assert rest.stats.prompt_tokens > whole.stats.prompt_tokens

    with qtbot.waitSignal(real_host.contextPlanned, timeout=LONG) as planned:
        real_host.plan_context(512)
    assert planned.args[0].plan.context == 512
    assert planned.args[0].plan.bytes.ram_total < state.plan.bytes.ram_total
    assert real_host.status().kernel == state.kernel
    usage = real_host.usage()
    assert usage is None or usage.counts.sum() > 0
