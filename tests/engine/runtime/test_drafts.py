"""Answers with drafts in them: the same tokens, texts, ends and KV cache as without, in fewer calls."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine.runtime.engine import Engine
from engine.runtime.events import GenerationEvent, Message, SamplingParams
from engine.runtime.lookup import CallCosts

PROMPT = "Say it twice: the quick brown fox jumps. "
ANSWER = "the quick brown fox leaps. the quick brown fox jumps. the quick, the quick, the quick brown fox! " * 2
#: What `stop` may be met in: the middle of a draft, across its end, at its first and last token.
STOPS = ("fox leaps. the", "jumps. the quick,", "k, the quick, the", "k brown fox! the qu", "x! t")


@pytest.fixture(autouse=True)
def drafts_are_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that drafts of every length are made, whatever the clock says."""
    monkeypatch.setattr(CallCosts, "relative", lambda self, tokens: 1.0 + 0.01 * tokens)


@pytest.fixture
def real_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()


Outcome = tuple[list[tuple[str, tuple[int, ...], str | None]], list[int]]


def outcome(model: Engine, executor: Any, params: SamplingParams) -> Outcome:
    """Every event, and what is in the KV cache afterwards."""
    events = list(model.generate(PROMPT, params))
    assert model._cached == executor.tokens
    return [(event.text, event.token_ids, event.stop_reason) for event in events], list(executor.tokens)


def both(say: Callable, params: SamplingParams, context: int = 4096) -> tuple[Outcome, Outcome, Any]:
    with_drafts = say(ANSWER, PROMPT, context)
    plain = say(ANSWER, PROMPT, context)
    result = outcome(*with_drafts, params)
    expected = outcome(*plain, replace(params, lookup=False))
    assert max(plain[1].forwarded[1:], default=1) == 1
    return result, expected, with_drafts[1]


def greedy(**changes: object) -> SamplingParams:
    return SamplingParams(temperature=0.0, **changes)  # type: ignore[arg-type]


def test_the_answer_is_the_same_in_far_fewer_calls(say: Callable) -> None:
    result, expected, executor = both(say, greedy())
    assert result == expected
    assert len(executor.forwarded) < len(ANSWER) / 3


@pytest.mark.parametrize("limit", range(1, len(ANSWER) + 2, 3))
def test_a_token_limit_falls_anywhere_in_a_draft(say: Callable, limit: int) -> None:
    result, expected, executor = both(say, greedy(max_tokens=limit))
    assert result == expected
    # Nothing was computed that could not have been used.
    assert sum(executor.forwarded) <= len(PROMPT) + 16 * len(executor.forwarded)


@pytest.mark.parametrize("room", range(0, len(ANSWER), 5))
def test_the_context_fills_up_anywhere_in_a_draft(say: Callable, room: int) -> None:
    result, expected, _ = both(say, greedy(), context=len(PROMPT) + room)
    assert result == expected
    assert result[0][-1][2] == "context"


@pytest.mark.parametrize("stop", STOPS)
def test_a_stop_string_is_met_anywhere_in_a_draft(say: Callable, stop: str) -> None:
    result, expected, _ = both(say, greedy(stop=(stop, "never")))
    assert result == expected
    assert result[0][-1][2] == "stop_string"


def test_an_end_token_may_be_drafted(make_engine: Callable) -> None:
    """The conversation has an end token in it, and goes on to the same one."""
    end = 256
    prompt = [*b"the quick brown fox", end, *b" again: "]

    def script(tokens: Sequence[int]) -> int:
        return prompt[min(len(tokens) - len(prompt), 19)]

    results = []
    for wanted in (True, False):
        model, executor = make_engine(script)
        model.tokenizer.encode = lambda *_: list(prompt)
        events = list(model.generate("", greedy(lookup=wanted)))
        assert model._cached == executor.tokens == [*prompt, *b"the quick brown fox"]
        results.append([(event.text, event.token_ids, event.stop_reason) for event in events])
        assert (events[-1].stats.accepted_tokens > 0) == wanted
    assert results[0] == results[1]
    assert results[0][-1][2] == "end"


@pytest.mark.parametrize("after", range(1, 60, 4))
def test_a_cancel_between_two_tokens_of_a_draft(say: Callable, after: int) -> None:
    results = []
    for wanted in (True, False):
        model, executor = say(ANSWER, PROMPT)
        cancel = threading.Event()
        events = []
        for event in model.generate(PROMPT, greedy(lookup=wanted), cancel):
            events.append((event.text, event.token_ids, event.stop_reason))
            if event.stats.completion_tokens == after:
                cancel.set()
        assert model._cached == executor.tokens
        results.append((events, list(executor.tokens)))
    assert results[0] == results[1]
    assert results[0][0][-1][2] == "cancelled"


@pytest.mark.parametrize("after", [5, 20, 33])
def test_an_answer_given_up_in_a_draft_leaves_no_guess_behind(say: Callable, after: int) -> None:
    model, executor = say(ANSWER, PROMPT)
    generation = model.generate(PROMPT, greedy())
    for event in generation:
        if event.stats.completion_tokens == after:
            break
    generation.close()
    assert bytes(executor.tokens) == (PROMPT + ANSWER[: after - 1]).encode()
    assert model._cached == executor.tokens


def test_a_draft_that_is_broken_off_leaves_no_trace(say: Callable) -> None:
    model, executor = say(ANSWER, PROMPT)
    drafting = len(PROMPT) + 30

    def stop() -> None:
        if executor.length >= drafting:
            model.cancel()

    executor.before = stop
    events = list(model.generate(PROMPT, greedy()))
    assert events[-1].stop_reason == "cancelled"
    chosen = [token for event in events for token in event.token_ids]
    assert executor.tokens == [*PROMPT.encode(), *chosen[:-1]]
    executor.before = lambda: None
    assert "".join(event.text for event in model.generate(PROMPT, greedy())) == ANSWER


def test_closing_the_model_in_a_draft_ends_the_answer(say: Callable) -> None:
    model, _ = say(ANSWER, PROMPT)
    generation = model.generate(PROMPT, greedy())
    events: list[GenerationEvent] = []
    for event in generation:
        events.append(event)
        if event.stats.accepted_tokens == 2:
            model.close()
    assert events[-1].stop_reason == "cancelled"


def test_figures_tell_guesses_from_tokens(say: Callable) -> None:
    model, executor = say(ANSWER, PROMPT)
    stats = list(model.generate(PROMPT, greedy()))[-1].stats
    assert stats.completion_tokens == len(ANSWER)
    assert stats.drafted_tokens == sum(executor.forwarded[1:]) - len(executor.forwarded[1:])
    assert 0 < stats.accepted_tokens <= stats.drafted_tokens
    # Every token of the answer was either drafted or asked for by a call of its own; the end is no token of it.
    assert len(executor.forwarded) - 1 + stats.accepted_tokens in (len(ANSWER), len(ANSWER) + 1)
    plain, _ = say(ANSWER, PROMPT)
    stats = list(plain.generate(PROMPT, greedy(lookup=False)))[-1].stats
    assert (stats.drafted_tokens, stats.accepted_tokens) == (0, 0)


def test_an_executor_whose_bits_depend_on_a_calls_length_gets_no_drafts(
    say: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(say(ANSWER, PROMPT)[1]), "takes_drafts", False)
    model, executor = say(ANSWER, PROMPT)
    assert "".join(event.text for event in model.generate(PROMPT, greedy())) == ANSWER
    assert max(executor.forwarded[1:]) == 1


def test_what_does_not_pay_here_is_not_drafted(
    say: Callable, monkeypatch: pytest.MonkeyPatch, real_costs: None
) -> None:
    """A clock by which each token of a call costs as much as a call of its own."""
    model, executor = say(ANSWER * 3, PROMPT)
    now = 0.0
    forward = executor.forward

    def timed(token_ids: np.ndarray, logits: str = "last") -> np.ndarray:
        nonlocal now
        now += len(token_ids)
        return forward(token_ids, logits)

    monkeypatch.setattr(executor, "forward", timed)
    monkeypatch.setattr("engine.runtime.engine.perf_counter", lambda: now)
    events = list(model.generate(PROMPT, greedy()))
    assert "".join(event.text for event in events) == ANSWER * 3
    # A try now and then is how that becomes known.
    assert 0 < events[-1].stats.drafted_tokens < len(ANSWER * 3) / 20


# --- with real arithmetic --------------------------------------------------------------------------------------------

FAMILIES_FOLDER = Path(__file__).parents[1] / "llama_cpp"
FAMILIES = sorted(path.stem for path in FAMILIES_FOLDER.glob("*.gguf"))
REPETITIVE = "the cat and the other cat, the cat and the other "


@pytest.fixture(scope="module")
def report() -> object:
    return engine.probe()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_answers_the_same(family: str, report: object) -> None:
    """Greedy and with a seed, also where layers forget; on tokens that repeat themselves and on such that do not."""
    with contextlib.closing(engine.open_checkpoint(FAMILIES_FOLDER / f"{family}.gguf")) as checkpoint:
        plan = engine.plan(checkpoint, report, 128, device="cpu", threads=1)
        with engine.load(checkpoint, plan) as model:
            drafted = accepted = 0
            # Few tokens to choose from, so that guesses are made and some come true.
            few = dict.fromkeys(model.encode(REPETITIVE)[:4], 50.0)
            for params in (
                greedy(max_tokens=48),
                SamplingParams(temperature=0.6, seed=7, logit_bias=few, max_tokens=60),
                SamplingParams(temperature=1.0, top_p=1.0, seed=8, repetition_penalty=0.8, max_tokens=60),
            ):
                answers, lengths = [], []
                for lookup in (True, False):
                    events = list(model.generate(REPETITIVE, replace(params, lookup=lookup)))
                    answers.append([token for event in events for token in event.token_ids])
                    lengths.append(len(model._cached))
                    drafted += events[-1].stats.drafted_tokens
                    accepted += events[-1].stats.accepted_tokens
                assert answers[0] == answers[1]
                assert lengths[0] == lengths[1]
            assert 0 < accepted < drafted


def test_the_demo_model_answers_the_same(demo_model: Path, report: object) -> None:
    question = [
        Message("user", "Repeat this list, with the word 'new' before each: a red bell, a red door, a red bell.")
    ]
    with (
        contextlib.closing(engine.open_checkpoint(demo_model)) as checkpoint,
        engine.load(checkpoint, engine.plan(checkpoint, report, 512, device="cpu")) as model,
    ):
        accepted = 0
        for params in (greedy(max_tokens=64), SamplingParams(temperature=0.7, seed=1, max_tokens=64)):
            told = [list(model.generate(question, replace(params, lookup=lookup))) for lookup in (True, False)]
            drafted, plain = ([(event.text, event.token_ids) for event in events] for events in told)
            assert drafted == plain
            accepted += told[0][-1].stats.accepted_tokens
        assert accepted > 0
