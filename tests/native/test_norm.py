"""Root mean square norms against float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import _native


def rms_norm(
    pool: _native.ThreadPool, x: np.ndarray, weight: np.ndarray, eps: float, added: np.ndarray | None = None
) -> np.ndarray:
    y = np.empty_like(x)
    more = 0 if added is None else added.ctypes.data
    _native.rms_norm(pool, x.ctypes.data, more, *x.shape, weight.ctypes.data, eps, y.ctypes.data)
    return y


@settings(max_examples=40, deadline=None)
@given(
    tokens=st.integers(1, 70),
    hidden=st.integers(1, 1200),
    eps=st.sampled_from([1e-6, 1e-5, 0.1]),
    adding=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_shape(pool: _native.ThreadPool, tokens: int, hidden: int, eps: float, adding: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((tokens, hidden)).astype(np.float32)
    added = rng.standard_normal((tokens, hidden)).astype(np.float32) if adding else None
    weight = rng.standard_normal(hidden).astype(np.float32)
    total = x if added is None else x + added
    exact = total.astype(np.float64)
    expected = exact / np.sqrt((exact**2).mean(axis=1, keepdims=True) + eps) * weight
    got = rms_norm(pool, x, weight, eps, added)
    # Sixteen chains of squares, half of whose error shows under the root, then some five roundings.
    limit = (hidden / 32 + 10) * 2.0**-24
    assert (np.abs(got - expected) <= limit * np.abs(expected)).all()
    np.testing.assert_array_equal(x, total)


def test_a_tokens_bits_depend_on_nothing_beside_it(pool: _native.ThreadPool) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((40, 2048)).astype(np.float32)
    weight = rng.standard_normal(2048).astype(np.float32)
    together = rms_norm(pool, x, weight, 1e-6)
    for t in (0, 7, 39):
        np.testing.assert_array_equal(rms_norm(pool, x[t : t + 1].copy(), weight, 1e-6)[0], together[t])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_number_spoils_its_token_only(pool: _native.ThreadPool, bad: float) -> None:
    x = np.ones((3, 64), dtype=np.float32)
    x[1, 5] = bad
    y = rms_norm(pool, x, np.ones(64, dtype=np.float32), 0.0)
    assert np.isfinite(y[[0, 2]]).all()
    assert not np.isfinite(y[1]).all()


def test_null_addresses_are_errors(pool: _native.ThreadPool) -> None:
    with pytest.raises(ValueError, match="null"):
        _native.rms_norm(pool, 0, 0, 1, 1, 0, 0.0, 0)
