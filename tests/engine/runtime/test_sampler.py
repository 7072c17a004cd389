from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.errors import GreenroomError
from engine.runtime.events import SamplingParams
from engine.runtime.sampler import Sampler, distribution

#: Few distinct values, so that ties are common.
LOGITS = st.lists(st.one_of(st.integers(-4, 4).map(float), st.floats(-30, 30)), min_size=1, max_size=40)
GREEDY = SamplingParams(temperature=0.0, top_p=1.0)


def logits(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def reference(x: list[float], p: SamplingParams) -> dict[int, float]:
    """The documented steps 4 to 7, one token at a time."""
    weight = {i: math.exp((v - max(x)) / p.temperature) for i, v in enumerate(x)}
    order = sorted(weight, key=lambda i: (-x[i], i))
    if p.top_k:
        order = order[: p.top_k]
    # Logits that differ by less than float64 resolves are equally probable.
    order.sort(key=lambda i: (-weight[i], i))
    total = sum(weight[i] for i in order)
    kept, mass = [], 0.0
    for i in order:
        kept.append(i)
        mass += weight[i] / total
        # Sums in another order differ in the last bits; which side of an exact tie is taken says nothing.
        assume(abs(mass - p.top_p) > 1e-9 or p.top_p == 1.0)
        if mass >= p.top_p and p.top_p < 1.0:
            break
    assume(all(abs(weight[i] - p.min_p) > 1e-12 for i in kept if weight[i] < 1.0))
    kept = [i for i in kept if weight[i] >= p.min_p]
    total = sum(weight[i] for i in kept)
    return {i: weight[i] / total for i in kept}


@given(
    LOGITS,
    st.floats(0.05, 5.0),
    st.integers(0, 12),
    st.one_of(st.just(1.0), st.floats(0.01, 0.999)),
    st.one_of(st.just(0.0), st.floats(0.001, 1.0)),
)
def test_distribution_is_the_documented_one(
    x: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    expected = reference(x, params)
    ids, probabilities = distribution(np.array(x), params)
    got = dict(zip(ids.tolist(), probabilities.tolist(), strict=True))
    assert got.keys() == expected.keys()
    assert all(got[i] == pytest.approx(expected[i], rel=1e-9) for i in got)


@given(LOGITS)
def test_greedy_is_the_first_of_the_largest(x: list[float]) -> None:
    row = logits(*x)
    assert Sampler(GREEDY, len(x)).sample(row) == row.tolist().index(max(row.tolist()))


@given(LOGITS, st.floats(0.0, 3.0), st.floats(-2.0, 2.0), st.floats(-2.0, 2.0), st.lists(st.integers(0, 3), max_size=5))
def test_penalties_are_the_documented_ones(
    x: list[float], repetition: float, presence: float, frequency: float, prompt: list[int]
) -> None:
    """Greedy choices after penalties, replayed by hand."""
    assume(repetition > 0.01)
    prompt = [t for t in prompt if t < len(x)]
    row = logits(*x)
    params = SamplingParams(
        temperature=0.0,
        repetition_penalty=repetition,
        presence_penalty=presence,
        frequency_penalty=frequency,
    )
    sampler = Sampler(params, len(x), prompt)
    answer: list[int] = []
    for _ in range(4):
        adjusted = []
        for token, value in enumerate(row.tolist()):
            if token in prompt or token in answer:
                value = value / repetition if value > 0 else value * repetition
            count = answer.count(token)
            adjusted.append(value - presence * (count > 0) - frequency * count)
        best = sorted(adjusted)[-2:]
        assume(len(best) < 2 or best[1] - best[0] > 1e-9 or best[1] == best[0])
        token = sampler.sample(row)
        assert token == adjusted.index(max(adjusted))
        answer.append(token)


def test_draws_follow_the_distribution() -> None:
    row = logits(0.0, 1.0, 2.0, -math.inf)
    sampler = Sampler(SamplingParams(temperature=1.0, top_p=1.0, seed=5), 4)
    draws = np.bincount([sampler.sample(row) for _ in range(20_000)], minlength=4) / 20_000
    expected = np.exp([0.0, 1.0, 2.0, -math.inf]) / np.exp([0.0, 1.0, 2.0]).sum()
    # Four standard errors of a proportion near 1/2 in 20,000 draws.
    assert np.abs(draws - expected).max() < 4 * 0.5 / math.sqrt(20_000)
    assert draws[3] == 0


@given(LOGITS, st.integers(0, 12), st.one_of(st.just(1.0), st.floats(0.01, 0.999)))
def test_a_bias_of_nothing_changes_nothing(x: list[float], top_k: int, top_p: float) -> None:
    """Untouched logits go shorter ways than adjusted ones."""
    plain = SamplingParams(temperature=0.9, top_k=top_k, top_p=top_p, seed=11)
    samplers = [Sampler(params, len(x)) for params in (plain, replace(plain, logit_bias={0: 0.0}))]
    given_row, row = logits(*x), logits(*x)
    tokens = [[sampler.sample(row) for _ in range(5)] for sampler in samplers]
    assert tokens[0] == tokens[1]
    assert np.array_equal(row, given_row)


def test_seed_makes_an_answer_repeatable() -> None:
    row = np.linspace(-1, 1, 50, dtype=np.float32)

    def answer(seed: int | None) -> list[int]:
        sampler = Sampler(SamplingParams(temperature=1.5, top_p=0.99, seed=seed), 50)
        return [sampler.sample(row) for _ in range(40)]

    assert answer(7) == answer(7)
    assert answer(7) != answer(8)
    assert answer(None) != answer(None)


def test_bias_forbids_and_forces_tokens() -> None:
    row = logits(3.0, 2.0, 1.0)
    assert Sampler(SamplingParams(temperature=0.0, logit_bias={0: -math.inf}), 3).sample(row) == 1
    assert Sampler(SamplingParams(temperature=1.0, logit_bias={2: 100.0}, seed=1), 3).sample(row) == 2


def test_a_tiny_temperature_is_greedy_and_no_overflow() -> None:
    row = logits(3e38, -3e38, 0.0)
    assert Sampler(SamplingParams(temperature=1e-300, seed=1), 3).sample(row) == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_logits_that_are_no_numbers_are_an_error(bad: float, temperature: float) -> None:
    sampler = Sampler(SamplingParams(temperature=temperature), 3)
    with pytest.raises(GreenroomError, match="not numbers"):
        sampler.sample(logits(0.0, bad, 1.0))


def test_a_bias_that_forbids_everything_is_an_error() -> None:
    sampler = Sampler(SamplingParams(logit_bias={0: -math.inf, 1: -math.inf}), 2)
    with pytest.raises(GreenroomError, match="forbids every token"):
        sampler.sample(logits(0.0, 1.0))


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=-0.1),
        SamplingParams(temperature=math.nan),
        SamplingParams(top_k=-1),
        SamplingParams(top_p=1.1),
        SamplingParams(min_p=-0.5),
        SamplingParams(repetition_penalty=0.0),
        SamplingParams(presence_penalty=math.inf),
        SamplingParams(frequency_penalty=math.nan),
        SamplingParams(max_tokens=0),
        SamplingParams(seed=-1),
        SamplingParams(logit_bias={9: 1.0}),
        SamplingParams(logit_bias={-1: 1.0}),
        SamplingParams(logit_bias={0: math.inf}),
    ],
)
def test_settings_out_of_range_are_refused(params: SamplingParams) -> None:
    with pytest.raises(GreenroomError, match="cannot be used"):
        Sampler(params, 9)
