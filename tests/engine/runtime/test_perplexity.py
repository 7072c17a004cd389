from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import GreenroomError
from engine.runtime.perplexity import perplexity

VOCAB = 258


class LeakyExecutor:
    """Its logits depend on every token in the cache and their order, so a wrong window changes the result."""

    kernel = "leaky"
    takes_drafts = False

    def __init__(self, context: int) -> None:
        self.context = self.chunk = context
        self.tokens: list[int] = []

    @property
    def length(self) -> int:
        return len(self.tokens)

    def forward(self, token_ids: np.ndarray, logits: str = "last") -> np.ndarray:
        assert logits == "all"
        rows = []
        for token in token_ids.tolist():
            self.tokens.append(token)
            rows.append(row_after(self.tokens))
        return np.stack(rows)

    def truncate(self, length: int) -> int:
        del self.tokens[length:]
        return length


def row_after(tokens: list[int]) -> np.ndarray:
    seed = [len(tokens), *tokens]
    return np.random.default_rng(seed).normal(size=VOCAB).astype(np.float32)


def loss(context: list[int], token: int) -> float:
    row = row_after(context).astype(np.float64)
    return math.log(np.exp(row).sum()) - row[token]


@given(
    st.lists(st.integers(0, 255), min_size=2, max_size=40),
    st.integers(2, 12),
    st.data(),
)
@settings(deadline=None, max_examples=60)
def test_every_token_is_scored_once_by_the_first_window_that_reaches_it(
    text: list[int], window: int, data: st.DataObject
) -> None:
    stride = data.draw(st.integers(1, window - 1))
    bos = data.draw(st.sampled_from([None, 257]))
    engine, _ = make(bos)
    start = [] if bos is None else [bos]
    expected, seen = [], 0
    for begin in range(0, len(text), stride):
        tokens = start + text[begin : begin + window - len(start)]
        for i in range(1, len(tokens)):
            position = begin + i - len(start)
            if position >= seen:
                expected.append(loss(tokens[:i], tokens[i]))
        seen = max(seen, begin + window - len(start))
    result = perplexity(engine, text, window, stride)
    assert result.tokens == len(expected) == len(text) - (bos is None)
    assert result.perplexity == pytest.approx(math.exp(sum(expected) / len(expected)), rel=1e-9)
    assert perplexity(engine, text, window, stride) == result


def make(bos: int | None, context: int = 64) -> tuple:
    from types import SimpleNamespace

    from engine.runtime.engine import Engine

    executor = LeakyExecutor(context)
    tokenizer = SimpleNamespace(bos_id=bos, add_bos=bos is not None)
    spec = SimpleNamespace(vocab=VOCAB, context_length=context)
    return Engine(SimpleNamespace(), spec, SimpleNamespace(), tokenizer, executor), executor


def test_a_uniform_model_has_the_vocabulary_as_perplexity(make_engine: Callable) -> None:
    engine, executor = make_engine(lambda _: 0)
    executor.value = 0.0
    result = perplexity(engine, list(range(1, 200)), window=50, stride=25)
    assert result.perplexity == pytest.approx(VOCAB)
    assert result.standard_error == pytest.approx(0.0, abs=1e-6)
    assert result.tokens == 198


@pytest.mark.parametrize(
    ("text", "window", "stride", "complaint"),
    [
        ([1], 8, 4, "empty"),
        ([1, 2, 3], 1, 1, "from 2 to"),
        ([1, 2, 3], 65, 4, "context of 64"),
        ([1, 2, 3], 8, 8, "from 1 to 7"),
    ],
)
def test_what_cannot_be_measured_is_refused(text: list[int], window: int, stride: int, complaint: str) -> None:
    with pytest.raises(GreenroomError, match=complaint):
        perplexity(make(None)[0], text, window, stride)


def test_a_text_the_model_takes_for_impossible_is_an_error(make_engine: Callable) -> None:
    engine, executor = make_engine(lambda _: 0)
    executor.value = 5000.0
    with pytest.raises(GreenroomError, match="impossible"):
        perplexity(engine, [1, 2, 3], 8, 4)


def test_logits_that_are_no_numbers_are_an_error(make_engine: Callable) -> None:
    engine, executor = make_engine(lambda _: 0)
    executor.value = float("nan")
    with pytest.raises(GreenroomError, match="not numbers"):
        perplexity(engine, [1, 2, 3], 8, 4)
