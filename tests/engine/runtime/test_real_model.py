"""The answer loop on a real, tiny model: the same promises, with real arithmetic underneath."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

import engine
from engine.errors import Cancelled
from engine.progress import Progress
from engine.runtime.engine import Engine
from engine.runtime.events import Message, SamplingParams
from engine.runtime.perplexity import perplexity

GREEDY = SamplingParams(temperature=0.0, max_tokens=24)


@pytest.fixture(scope="module")
def checkpoint(tiny_model: Path) -> Iterator[object]:
    opened = engine.open_checkpoint(tiny_model)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def report() -> object:
    return engine.probe()


@pytest.fixture(params=[{"dtype": "float32"}, {}, {"kv_type": "q8"}], ids=["float32", "auto", "q8"])
def loaded(checkpoint: object, report: object, request: pytest.FixtureRequest) -> Iterator[Engine]:
    with engine.load(checkpoint, engine.plan(checkpoint, report, 256, **request.param)) as model:
        yield model


def tokens(model: Engine, prompt: object, params: SamplingParams = GREEDY) -> list[int]:
    return [token for event in model.generate(prompt, params) for token in event.token_ids]


def test_greedy_answers_are_the_same_with_a_full_and_an_empty_cache(loaded: Engine) -> None:
    prompt = [Message("user", "How are you?")]
    first = tokens(loaded, prompt)
    loaded.reset()
    assert tokens(loaded, prompt) == first
    # Now from the cache: all of the prompt but its last token is there already.
    events = list(loaded.generate(prompt, GREEDY))
    assert events[-1].stats.reused_tokens == loaded.count_tokens(prompt) - 1
    assert [t for e in events for t in e.token_ids] == first


def test_text_is_the_tokens_decoded(loaded: Engine) -> None:
    params = SamplingParams(temperature=1.5, top_p=1.0, seed=3, max_tokens=60)
    events = list(loaded.generate("Once upon a time", params))
    ids = [token for event in events for token in event.token_ids]
    assert "".join(event.text for event in events) == loaded.tokenizer.decode(ids, skip_special=True)


def test_a_seed_repeats_an_answer(loaded: Engine) -> None:
    params = SamplingParams(temperature=1.2, seed=11, max_tokens=30)
    assert tokens(loaded, "Hello", params) == tokens(loaded, "Hello", params)


def test_logits_do_not_depend_on_what_was_in_the_cache(loaded: Engine) -> None:
    ids = loaded.encode("The quick brown fox")
    before = loaded.logits(ids)
    tokens(loaded, "Something else entirely")
    np.testing.assert_array_equal(loaded.logits(ids), before)
    assert before.shape == (len(ids), loaded.spec.vocab)


def test_perplexity_repeats_exactly(loaded: Engine) -> None:
    ids = loaded.encode("It was the best of times, it was the worst of times. " * 3)
    assert perplexity(loaded, ids, window=64) == perplexity(loaded, ids, window=64)


def test_closing_gives_memory_back_and_loading_again_works(checkpoint: object, report: object) -> None:
    plan = engine.plan(checkpoint, report, 512)
    answers, used = set(), []
    for _ in range(8):
        with engine.load(checkpoint, plan) as model:
            answers.add(tuple(tokens(model, "Hello")))
        gc.collect()
        used.append(psutil.Process().memory_info().rss)
    assert len(answers) == 1
    # The first rounds warm the allocators up. Weights and KV cache are 1 MB: kept, they would be 6 MB by the end.
    assert used[-1] - used[1] < 3_000_000


def test_loading_can_be_cancelled(checkpoint: object, report: object) -> None:
    def stop(_: Progress) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        engine.load(checkpoint, engine.plan(checkpoint, report, 256), progress=stop)
