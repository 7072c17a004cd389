from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from engine.checkpoints.chat_template import ChatTemplate
from engine.errors import Cancelled, GreenroomError
from engine.placement.sizes import PREFILL_CHUNK
from engine.runtime.engine import Engine
from engine.runtime.events import Begun, GenerationEvent, Message, SamplingParams

GREEDY = SamplingParams(temperature=0.0)


def text(events: Iterable[GenerationEvent]) -> str:
    return "".join(event.text for event in events)


def greedy(**changes: object) -> SamplingParams:
    return SamplingParams(temperature=0.0, **changes)  # type: ignore[arg-type]


def test_answer_ends_at_the_end_token_which_is_not_part_of_it(say: Callable) -> None:
    engine, _ = say("Paris.", "Capital?")
    events = list(engine.generate("Capital?", GREEDY))
    assert text(events) == "Paris."
    assert bytes(t for e in events for t in e.token_ids) == b"Paris."
    assert [e.stop_reason for e in events if e.stop_reason] == ["end"]
    assert events[-1].stop_reason == "end"
    stats = events[-1].stats
    assert (stats.prompt_tokens, stats.reused_tokens, stats.completion_tokens) == (8, 0, 6)
    assert stats.first_token_s > 0
    assert stats.decode_tps > 0


def test_characters_split_over_tokens_arrive_whole(say: Callable) -> None:
    answer = "한국 👩‍🚀 naïve"
    engine, _ = say(answer, "?")
    events = list(engine.generate("?", GREEDY))
    assert text(events) == answer
    assert not any("\ufffd" in event.text for event in events)


def test_stop_string_across_tokens_is_never_shown(say: Callable) -> None:
    engine, executor = say("one\n\nUser: two", "?")
    events = list(engine.generate("?", greedy(stop=("\n\nUser:", "zzz"))))
    assert text(events) == "one"
    assert events[-1].stop_reason == "stop_string"
    assert executor.length == len("?one\n\nUser")


def test_text_held_back_for_a_stop_comes_out_when_the_answer_ends_otherwise(say: Callable) -> None:
    engine, _ = say("one\n\nUs", "?")
    assert text(engine.generate("?", greedy(stop=("\n\nUser:",)))) == "one\n\nUs"
    engine, _ = say("one\n\nUsed", "?")
    assert text(engine.generate("?", greedy(stop=("\n\nUser:",), max_tokens=6))) == "one\n\nU"


def test_token_limit(say: Callable) -> None:
    engine, executor = say("abcdef", "?")
    events = list(engine.generate("?", greedy(max_tokens=3)))
    assert (text(events), events[-1].stop_reason) == ("abc", "length")
    # The third token is chosen, and needs no forward pass of its own.
    assert executor.length == 3


def test_context_full_ends_the_answer_with_the_last_token_that_can_be_known(say: Callable) -> None:
    engine, executor = say("abcdefgh", "1234", context=7)
    events = list(engine.generate("1234", GREEDY))
    assert (text(events), events[-1].stop_reason) == ("abcd", "context")
    assert executor.length == 7


def test_prompt_as_long_as_the_context_still_gets_a_token(say: Callable) -> None:
    engine, _ = say("abc", "1234", context=4)
    events = list(engine.generate("1234", GREEDY))
    assert (text(events), events[-1].stop_reason) == ("a", "context")


def test_prompt_longer_than_the_context_says_both_numbers_and_the_way_out(say: Callable) -> None:
    engine, executor = say("a", "12345", context=4)
    with pytest.raises(GreenroomError, match=r"5 tokens .* holds 4.*longer context \(it allows 8192\)"):
        list(engine.generate("12345", GREEDY))
    assert executor.forwarded == []
    assert text(engine.generate("1234", greedy(max_tokens=1)))


def test_empty_prompt_is_refused(say: Callable) -> None:
    engine, _ = say("a", "")
    with pytest.raises(GreenroomError, match="empty"):
        next(engine.generate("", GREEDY))


def test_long_prompt_is_read_in_chunks_with_growing_figures(say: Callable) -> None:
    prompt = "x" * (2 * PREFILL_CHUNK + 10)
    engine, executor = say("ok", prompt)
    events = list(engine.generate(prompt, GREEDY))
    assert executor.forwarded[:3] == [PREFILL_CHUNK, PREFILL_CHUNK, 10]
    reading = [e for e in events if e.stats.completion_tokens == 0]
    assert [e.stats.prefilled_tokens for e in reading] == [PREFILL_CHUNK, 2 * PREFILL_CHUNK, len(prompt)]
    assert not any(e.text or e.token_ids or e.stop_reason for e in reading)
    assert text(events) == "ok"


def test_next_turn_computes_only_what_is_new(make_engine: Callable) -> None:
    """Counted in tokens forwarded: neither the first question nor its answer is computed again."""
    engine, executor = make_engine(lambda tokens: b"yes"[len(tokens) % 3])
    first = "Question one. "
    answer = text(engine.generate(first, greedy(max_tokens=5)))
    executor.forwarded.clear()
    second = first + answer + " Question two."
    events = list(engine.generate(second, greedy(max_tokens=1)))
    # The answer's last token was chosen but never forwarded.
    reused = len(first) + len(answer) - 1
    assert events[-1].stats.reused_tokens == reused
    assert sum(executor.forwarded) == len(second) - reused
    assert executor.tokens == list(second.encode())


def test_same_prompt_again_recomputes_its_last_token_only(say: Callable) -> None:
    engine, executor = say("abc", "12345")
    first = text(engine.generate("12345", GREEDY))
    executor.forwarded.clear()
    events = list(engine.generate("12345", GREEDY))
    assert text(events) == first
    assert executor.forwarded[0] == 1
    assert events[-1].stats.reused_tokens == 4


def test_edited_prompt_keeps_the_part_before_the_edit(say: Callable) -> None:
    engine, executor = say("abc", "12345")
    list(engine.generate("12345", GREEDY))
    executor.forwarded.clear()
    list(engine.generate("12x45", GREEDY))
    assert executor.forwarded[0] == 3
    assert executor.tokens[:5] == list(b"12x45")


def test_what_the_executor_cannot_keep_is_computed_again(say: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, executor = say("abc", "12345")
    first = text(engine.generate("12345", GREEDY))
    truncate = executor.truncate
    monkeypatch.setattr(executor, "truncate", lambda length: truncate(length // 3 * 3))
    executor.forwarded.clear()
    events = list(engine.generate("12345", GREEDY))
    assert text(events) == first
    assert executor.forwarded[0] == 2
    assert events[-1].stats.reused_tokens == 3
    assert executor.tokens[:5] == list(b"12345")


def test_messages_go_through_the_chat_template(make_engine: Callable) -> None:
    engine, executor = make_engine(lambda _: 256)
    messages = [Message("system", "Be kind."), Message("user", "Hi")]
    list(engine.generate(messages, GREEDY))
    assert bytes(executor.tokens) == b"<system>Be kind.</system><user>Hi</user><assistant>"
    assert engine.count_tokens(messages) == len(executor.tokens)
    assert engine.count_tokens("Hi") == 2


def test_a_wish_about_thinking_reaches_the_template(make_engine: Callable) -> None:
    engine, executor = make_engine(lambda _: 256)
    template = ChatTemplate("{{ messages[0].content }}{% if enable_thinking is false %}<nothink>{% endif %}")
    engine.checkpoint.chat_template = lambda: template
    messages = [Message("user", "Hi")]
    for thinking, prompt in (("off", b"Hi<nothink>"), ("on", b"Hi"), (None, b"Hi")):
        engine.reset()
        list(engine.generate(messages, GREEDY, thinking=thinking))
        assert bytes(executor.tokens) == prompt
        assert engine.count_tokens(messages, thinking) == len(prompt)
    with pytest.raises(GreenroomError, match=r'think "high".*knows off, on'):
        list(engine.generate(messages, GREEDY, thinking="high"))
    assert not list(engine.generate(messages, GREEDY))[-1].text


def test_an_answer_that_was_begun_is_continued(make_engine: Callable) -> None:
    follows = {ord("P"): ord("a"), ord("a"): ord("r")}
    engine, executor = make_engine(lambda tokens: follows.get(tokens[-1], 256))
    messages = [Message("user", "Hi")]
    assert text(engine.generate(messages, GREEDY, begun=Begun("It is P"))) == "ar"
    assert bytes(executor.tokens).startswith(b"<user>Hi</user><assistant>It is P")
    assert engine.encode(messages, begun=Begun("It")) == list(b"<user>Hi</user><assistant>It")


def test_cancel_event_ends_the_answer_before_the_next_token(say: Callable) -> None:
    engine, executor = say("abcdef", "?")
    cancel = threading.Event()
    events = []
    for event in engine.generate("?", greedy(stop=("bcz",)), cancel):
        events.append(event)
        if event.stats.completion_tokens == 3:
            cancel.set()
    assert events[-1].stop_reason == "cancelled"
    # "bc" was held back for the stop string; what the model said is not lost.
    assert text(events) == "abc"
    assert executor.length <= 4
    assert text(engine.generate("?", GREEDY)) == "abcdef"


def test_cancel_in_a_long_prompt_ends_between_chunks_and_keeps_what_was_read(say: Callable) -> None:
    prompt = "x" * (3 * PREFILL_CHUNK)
    engine, executor = say("ok", prompt)
    cancel = threading.Event()
    generation = engine.generate(prompt, GREEDY, cancel)
    next(generation)
    cancel.set()
    assert [e.stop_reason for e in generation] == ["cancelled"]
    assert executor.forwarded == [PREFILL_CHUNK]
    assert list(engine.generate(prompt, GREEDY))[-1].stats.reused_tokens == PREFILL_CHUNK


def test_engine_cancel_breaks_off_the_chunk_being_computed(say: Callable) -> None:
    engine, executor = say("ok", "prompt")
    executor.before = engine.cancel
    assert [e.stop_reason for e in engine.generate("prompt", GREEDY)] == ["cancelled"]
    assert executor.forwarded == []
    executor.before = lambda: None
    assert text(engine.generate("prompt", GREEDY)) == "ok"


def test_engine_cancel_without_a_generation_changes_nothing(say: Callable) -> None:
    engine, executor = say("ok", "?")
    engine.cancel()
    assert not executor.cancelled
    assert text(engine.generate("?", GREEDY)) == "ok"


def test_second_generation_is_refused_and_the_first_goes_on(say: Callable) -> None:
    engine, _ = say("abc", "?")
    first = engine.generate("?", GREEDY)
    next(first)
    with pytest.raises(GreenroomError, match="busy"):
        next(engine.generate("other", GREEDY))
    for disturb in (engine.reset, lambda: engine.logits([1]), lambda: engine.append([1])):
        with pytest.raises(GreenroomError, match="busy"):
            disturb()
    assert text(first) == "abc"
    assert text(engine.generate("?", GREEDY)) == "abc"


def test_abandoned_generation_frees_the_engine(say: Callable) -> None:
    engine, _ = say("abc", "?")
    for _ in engine.generate("?", GREEDY):
        break
    assert text(engine.generate("?", GREEDY)) == "abc"


@pytest.mark.parametrize("error", [RuntimeError("boom"), GreenroomError("a", "b", "c"), KeyboardInterrupt()])
def test_failure_in_the_executor_leaves_the_engine_usable(say: Callable, error: BaseException) -> None:
    engine, executor = say("abcdef", "12345")

    def fail() -> None:
        if executor.length == 7:
            # As after a real failure: the cache holds something nobody asked for.
            executor.tokens.append(0)
            raise error

    executor.before = fail
    with pytest.raises(type(error)):
        list(engine.generate("12345", GREEDY))
    executor.before = lambda: None
    events = list(engine.generate("12345", GREEDY))
    assert text(events) == "abcdef"
    assert events[-1].stats.reused_tokens == 0


def test_executor_that_cannot_be_reset_is_closed(say: Callable, caplog: pytest.LogCaptureFixture) -> None:
    engine, executor = say("abc", "?")

    def fail(*_: object) -> None:
        raise RuntimeError("boom")

    generation = engine.generate("?", GREEDY)
    next(generation)
    executor.before = executor.truncate = fail
    with pytest.raises(RuntimeError):
        list(generation)
    assert executor.closed == 1
    assert "cannot be reset" in caplog.text
    with pytest.raises(GreenroomError, match="no longer loaded"):
        next(engine.generate("?", GREEDY))
    engine.close()
    assert executor.closed == 1


def test_logits_that_are_no_numbers_are_not_reused(say: Callable) -> None:
    engine, executor = say("abc", "12345")
    executor.value = float("nan")
    with pytest.raises(GreenroomError, match="not numbers"):
        list(engine.generate("12345", GREEDY))
    executor.value = 1.0
    events = list(engine.generate("12345", GREEDY))
    assert text(events) == "abc"
    assert events[-1].stats.reused_tokens == 0


def test_logits_start_the_sequence_anew_and_give_every_row(make_engine: Callable) -> None:
    engine, executor = make_engine(lambda tokens: len(tokens) % 256)
    list(engine.generate("something else", greedy(max_tokens=2)))
    ids = list(range(200)) * 2
    rows = engine.logits(ids)
    assert rows.dtype == np.float32
    assert rows.shape == (400, 258)
    assert rows.argmax(axis=1).tolist() == [n % 256 for n in range(1, 401)]
    assert executor.tokens == ids


def test_append_continues_the_sequence_until_the_context_is_full(make_engine: Callable) -> None:
    engine, executor = make_engine(lambda tokens: sum(tokens) % 256, context=10)
    engine.reset()
    assert engine.append([1, 2, 3]).argmax() == 6
    assert engine.append([4]).argmax() == 10
    with pytest.raises(GreenroomError, match="11 tokens"):
        engine.append([0] * 7)
    assert executor.tokens == [1, 2, 3, 4]


def test_closed_engine_says_so_and_closes_once(say: Callable) -> None:
    with say("abc", "?")[0] as engine:
        executor = engine._executor
    engine.close()
    assert executor.closed == 1
    with pytest.raises(GreenroomError, match="no longer loaded"):
        next(engine.generate("?", GREEDY))
    with pytest.raises(GreenroomError, match="no longer loaded"):
        engine.logits([1])


def test_close_ends_a_generation_and_waits_for_the_step_being_computed(say: Callable) -> None:
    engine, executor = say("abcdef", "?")
    inside, go_on = threading.Event(), threading.Event()

    def step() -> None:
        if executor.length == 3:
            inside.set()
            assert go_on.wait(30)

    executor.before = step
    events: list[GenerationEvent] = []
    answering = threading.Thread(target=lambda: events.extend(engine.generate("?", GREEDY)))
    answering.start()
    assert inside.wait(30)
    closing = threading.Thread(target=engine.close)
    closing.start()
    assert executor.closed == 0
    go_on.set()
    closing.join(30)
    answering.join(30)
    assert executor.closed == 1
    assert events[-1].stop_reason == "cancelled"


def test_generation_left_open_over_close_ends_as_cancelled(say: Callable) -> None:
    engine, _ = say("abc", "?")
    generation = engine.generate("?", GREEDY)
    next(generation)
    engine.close()
    assert [e.stop_reason for e in generation] == ["cancelled"]


def test_cancelled_from_the_executor_lets_logits_callers_know(make_engine: Callable) -> None:
    engine, executor = make_engine(lambda _: 0)
    executor.before = executor.cancel
    with pytest.raises(Cancelled):
        engine.logits([1, 2])


def test_engine_is_the_documented_shape(say: Callable) -> None:
    engine: Engine = say("a", "?")[0]
    assert (engine.kernel, engine.context) == ("scripted", 4096)


def test_a_closed_model_says_so(make_engine: Callable) -> None:
    engine, _ = make_engine(lambda tokens: 65)
    assert engine.status().kernel == "scripted"
    engine.close()
    assert engine.usage() is None
    assert engine.status().notes == ("The model is no longer loaded.",)
