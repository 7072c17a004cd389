"""The host with the real engine and the demo model: what the fakes promise is what the engine does."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.host import AnswerResult, EngineHost
from engine.runtime.events import Message, SamplingParams

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
