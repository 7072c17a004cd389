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


@settings(max_examples=40, deadline=None)
@given(
    tokens=st.integers(1, 70),
    hidden=st.integers(2, 1200),
    eps=st.sampled_from([1e-6, 1e-5, 0.1]),
    adding=st.booleans(),
    offset=st.sampled_from([0.0, 3.0]),
    seed=st.integers(0, 99),
)
def test_layer_norms_of_any_shape(
    pool: _native.ThreadPool, tokens: int, hidden: int, eps: float, adding: bool, offset: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((tokens, hidden)) + offset).astype(np.float32)
    added = rng.standard_normal((tokens, hidden)).astype(np.float32) if adding else None
    weight, bias = (rng.standard_normal(hidden).astype(np.float32) for _ in range(2))
    total = x if added is None else x + added
    exact = total.astype(np.float64)
    centred = exact - exact.mean(axis=1, keepdims=True)
    factor = 1 / np.sqrt((centred**2).mean(axis=1, keepdims=True) + eps)
    y = np.empty_like(x)
    more = 0 if added is None else added.ctypes.data
    _native.layer_norm(pool, x.ctypes.data, more, *x.shape, weight.ctypes.data, bias.ctypes.data, eps, y.ctypes.data)
    # The mean is off by its sixteen chains' roundings of numbers of about this size; the rest as in test_any_shape.
    mean_err = (hidden / 16 + 5) * 2.0**-24 * np.abs(exact).mean(axis=1, keepdims=True) + 2.0**-24 * np.abs(exact)
    relative = (hidden / 32 + 12) * 2.0**-24
    limit = relative * np.abs(centred * factor * weight) + 2.0**-23 * np.abs(bias)
    limit += mean_err * factor * (np.abs(weight) + np.abs(centred * factor * weight) * factor)
    assert (np.abs(y - (centred * factor * weight + bias)) <= limit).all()
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
