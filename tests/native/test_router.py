"""The router's kernel where it has no counterpart in torch: ties, bad numbers, what makes no sense.

Its choices and weights are compared with float64 in tests/engine/executors/test_moe.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import _native


def choose(router: _native.Router, logits: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    ids, weights = np.empty((len(logits), top_k), np.int32), np.empty((len(logits), top_k), np.float32)
    router.choose(logits.ctypes.data, len(logits), ids.ctypes.data, weights.ctypes.data, 0)
    return ids, weights


@pytest.mark.parametrize("score", ["softmax", "sigmoid", "topk_softmax"])
def test_among_equals_the_first_wins(score: str) -> None:
    ids, weights = choose(_native.Router(6, 3, score), np.zeros((1, 6), np.float32), 3)
    np.testing.assert_array_equal(ids, [[0, 1, 2]])
    assert len(set(weights[0].tolist())) == 1
    logits = np.array([[1, 5, 5, 0, 5, 5]], np.float32)
    np.testing.assert_array_equal(choose(_native.Router(6, 3, score), logits, 3)[0], [[1, 2, 4]])


@pytest.mark.parametrize("score", ["softmax", "sigmoid", "topk_softmax", "sparsemixer"])
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_bad_numbers_choose_different_experts_that_exist(score: str, groups: int, bad: float) -> None:
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((50, 16)).astype(np.float32)
    logits[rng.random(logits.shape) < 0.3] = bad
    logits[0] = bad
    top_groups = groups // 2 + 1
    ids, _ = choose(_native.Router(16, 4, score, groups=groups, top_groups=min(groups, top_groups)), logits, 4)
    assert ids.min() >= 0
    assert ids.max() < 16
    assert all(len(set(row.tolist())) == 4 for row in ids)


def test_a_nan_shows() -> None:
    logits = np.zeros((1, 4), np.float32)
    logits[0, 2] = np.nan
    for score in ("softmax", "topk_softmax"):
        assert np.isnan(choose(_native.Router(4, 2, score), logits, 2)[1]).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"score": "cosine"}, "cosine"),
        ({"experts": 0}, "experts"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": 9}, "top_k"),
        ({"groups": 3}, "divide"),
        ({"groups": 4, "top_groups": 5}, "top_groups"),
        ({"groups": 4, "top_k": 3}, "fewer"),
        ({"group_score": "median"}, "median"),
        ({"bias": np.zeros(3, np.float32)}, "one value per expert"),
        ({"choice_bias": np.zeros(3, np.float32)}, "one value per expert"),
        ({"expert_scale": np.zeros(3, np.float32)}, "one value per expert"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    values: dict[str, Any] = {"experts": 8, "top_k": 2, "score": "softmax"}
    with pytest.raises(ValueError, match=message):
        _native.Router(**{**values, **changes})


def test_turns_are_cosine_and_sine() -> None:
    frequencies = 10000.0 ** -(np.arange(32) / 32)
    got = _native.rope_turns(frequencies, 1.25, 100_000, 7)
    angles = np.arange(100_000, 100_007)[:, None] * frequencies
    np.testing.assert_array_equal(got, (1.25 * np.stack((np.cos(angles), np.sin(angles)), -1)).astype(np.float32))
    assert _native.rope_turns([], 1.0, 0, 3).shape == (3, 0, 2)
