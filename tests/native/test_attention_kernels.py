"""Attention over the KV cache: against float64, and the same bits however it is asked for."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from attention_reference import DTYPES, EPSILON, Inputs, Layer, Shape, reference
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import _native

TIERS = ["avx512", "avx2", "portable"]
#: Multiplies pairs of bf16, where keys and values are so.
PAIRS = "avx512bf16"
KV_TYPES = ["f32", "bf16", "f16", "q8"]
#: What the families ask for, one or two at a time and all that can be together.
SWITCHES: list[dict[str, Any]] = [
    {},
    {"qk_norm": "full", "clip": 1.5},
    {"qk_norm": "l2", "norm_after_rope": True, "chunk": 50, "temperature_interval": 40, "temperature_strength": 0.1},
    {"norm_after_rope": True},
    {"v_norm": True, "window": 33},
    {"sinks": True, "window": 64},
    {"sinks": True, "window": 1},
    {"clip": 0.7, "chunk": 64},
    {"window": 97, "rollback": 71, "temperature_interval": 64, "temperature_strength": 1.0, "v_norm": True},
]


def kernel(**changes: object) -> _native.Attention:
    values: dict[str, object] = {
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 16,
        "rotated": 16,
        "context": 100,
        "scale": 0.25,
        "kv_type": "f32",
    }
    return _native.Attention(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture
def isa(request: pytest.FixtureRequest) -> str:
    tier: str = request.param
    if kernel(isa=tier, kv_type="bf16").tier != tier:
        pytest.skip(f"this CPU has no {tier}")
    return tier


def ways(*kv_types: str) -> pytest.MarkDecorator:
    """Every tier with each of these types, and the kernels of pairs with theirs."""
    every = [*itertools.product(TIERS, kv_types), (PAIRS, "bf16")]
    return pytest.mark.parametrize(("isa", "kv_type"), every, indirect=["isa"])


@settings(max_examples=25, deadline=None)
@given(
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 9),
    head_dim=st.sampled_from([1, 16, 24, 33, 48, 64, 80, 128]),
    rotated=st.sampled_from([0.0, 0.5, 1.0]),
    kv_type=st.sampled_from(KV_TYPES),
    normed=st.booleans(),
    biased=st.booleans(),
    switches=st.sampled_from(SWITCHES),
    start=st.integers(0, 200),
    tokens=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_any_shape_against_float64(
    pool: _native.ThreadPool,
    kv_heads: int,
    group: int,
    head_dim: int,
    rotated: float,
    kv_type: str,
    normed: bool,
    biased: bool,
    switches: dict[str, Any],
    start: int,
    tokens: int,
    seed: int,
) -> None:
    eps = 1e-5 if normed or switches.get("qk_norm") == "l2" else None
    rotated_dims = int(head_dim * rotated) // 2 * 2
    shape = Shape(kv_heads * group, kv_heads, head_dim, rotated_dims, head_dim**-0.5, eps, biased, **switches)
    inputs = Inputs.random(shape, start + tokens, seed)
    for tier in (*TIERS, PAIRS):
        layer = Layer(inputs, start + tokens + 3, kv_type, tier)
        if tier == PAIRS and not layer.pairs:
            continue
        if tier in (TIERS[0], PAIRS):
            expected, limits = reference(inputs, kv_type, start, pairs=layer.pairs)
        for first, last in itertools.pairwise([*range(0, start, shape.rollback), start]):
            layer.forward(pool, first, last)
        error = np.abs(layer.forward(pool, start, start + tokens) - expected)
        assert (error <= limits).all(), (tier, (error / limits).max())


@ways(*KV_TYPES)
def test_long_contexts_against_float64(pool: _native.ThreadPool, isa: str, kv_type: str) -> None:
    """Several splits, joined by one thread (many tokens) and by many (one token)."""
    inputs = Inputs.random(Shape(4, 2, 32, 32), 1300, 1)
    layer = Layer(inputs, 1300, kv_type, isa)
    got = layer.forward(pool, 0, 1300)
    expected, limits = reference(inputs, kv_type, 1290, pairs=layer.pairs)
    assert (np.abs(got[1290:] - expected) <= limits).all()
    assert (np.abs(layer.forward(pool, 1299, 1300) - expected[-1:]) <= limits[-1:]).all()


@ways(*KV_TYPES)
@pytest.mark.parametrize("group", [1, 3, 8])
def test_bits_depend_on_nothing_but_the_sequence(isa: str, kv_type: str, group: int) -> None:
    """One piece, pieces of any length, token by token; one thread or several."""
    tokens = 1100
    inputs = Inputs.random(Shape(2 * group, 2, 32, 32, eps=1e-6, biased=True), tokens, group)
    single, several = _native.ThreadPool(1), _native.ThreadPool(3)
    expected = Layer(inputs, tokens, kv_type, isa).forward(single, 0, tokens)
    for pool, cuts in (
        (several, [0, tokens]),
        (single, [0, 1, 8, 63, 64, 65, 500, 513, 1024, 1025, 1099, tokens]),
        (several, [0, 512, 515, 640, 1023, tokens]),
        (several, [0, 1000, *range(1020, tokens + 1)]),
    ):
        layer = Layer(inputs, tokens + 64, kv_type, isa)
        for first, last in itertools.pairwise(cuts):
            np.testing.assert_array_equal(layer.forward(pool, first, last), expected[first:last])
    single.close()
    several.close()


@ways("f16", "q8")
@pytest.mark.parametrize("switches", SWITCHES[1:], ids=lambda s: "-".join(s))
def test_bits_with_every_switch(isa: str, kv_type: str, switches: dict[str, Any]) -> None:
    """The same, in pieces that a cache of limited reach can take."""
    tokens = 700
    inputs = Inputs.random(Shape(6, 2, 32, 16, eps=1e-6, biased=True, **switches), tokens, 4)
    single, several = _native.ThreadPool(1), _native.ThreadPool(3)
    layer = Layer(inputs, tokens, kv_type, isa)
    expected = np.concatenate([layer.forward(single, t, t + 1) for t in range(tokens)])
    for pool, cuts in (
        (several, [*range(0, tokens, 64), tokens]),
        (single, [0, 1, 8, 63, 64, 65, 130, 200, 210, 213, 284, 355, 426, 497, 513, 560, 631, 699, tokens]),
    ):
        layer = Layer(inputs, tokens + 64, kv_type, isa)
        for first, last in itertools.pairwise(cuts):
            np.testing.assert_array_equal(layer.forward(pool, first, last), expected[first:last])
    single.close()
    several.close()


@ways("f32")
@pytest.mark.parametrize("limit", [{"window": 100}, {"chunk": 100}])
def test_a_limited_cache_takes_tokens_back(
    pool: _native.ThreadPool, isa: str, kv_type: str, limit: dict[str, Any]
) -> None:
    """Up to `rollback` tokens, from anywhere; and no more are taken at once, so that an interruption loses nothing."""
    inputs = Inputs.random(Shape(2, 1, 16, 16, rollback=70, **limit), 1000, 8)
    layer = Layer(inputs, 1000, kv_type, isa)
    expected = np.concatenate([layer.forward(pool, t, t + 10) for t in range(0, 1000, 10)])
    layer = Layer(inputs, 1000, kv_type, isa)
    length = 0
    for back in [0, 70, 3, 69, 0, 70, 70, 1, 64, 63, 0, 65, 70, 12, 70]:
        for first in (length, length + 70, length + 140):
            np.testing.assert_array_equal(layer.forward(pool, first, first + 70), expected[first : first + 70])
        length += 210 - back
        if length + 210 > 1000:
            length = 0
    with pytest.raises(ValueError, match="70 can be"):
        layer.forward(pool, 0, 71)


def test_the_limited_cache_is_small() -> None:
    full = _native.kv_cache_nbytes(2, 16, 100_000, "f16")
    assert _native.kv_cache_nbytes(2, 16, 100_000, "f16", 128, 1024) == full // (100_032 // 64) * (1152 // 64 + 1)
    assert _native.kv_cache_nbytes(2, 16, 1000, "f16", 128, 1024) == _native.kv_cache_nbytes(2, 16, 1000, "f16")


@ways("f16")
def test_what_a_window_hides_does_not_spoil(pool: _native.ThreadPool, isa: str, kv_type: str) -> None:
    """A NaN is gone once the window has passed it, whatever tokens are computed together."""
    for limit, spoilt in (
        ({"window": 20}, range(70, 90)),
        ({"window": 20}, range(71, 91)),
        ({"chunk": 40}, range(70, 80)),
    ):
        inputs = Inputs.random(Shape(8, 2, 16, 16, **limit), 200, 3)
        expected = Layer(inputs, 200, kv_type, isa).forward(pool, 0, 200)
        inputs.qkv[spoilt[0], 8 * 16 :] = np.nan
        got = Layer(inputs, 200, kv_type, isa).forward(pool, 0, 200)
        good = [t for t in range(200) if t not in spoilt]
        np.testing.assert_array_equal(got[good], expected[good])
        assert np.isnan(got[list(spoilt)]).all()


@pytest.mark.parametrize("spoilt", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("part", [0, 2, 3])
@ways("f16", "q8")
def test_earlier_tokens_never_see_a_bad_number(
    pool: _native.ThreadPool, isa: str, part: int, spoilt: float, kv_type: str
) -> None:
    """In q, k or v of token 70 or 71 of 100: the tokens before keep their bits."""
    shape = Shape(2, 1, 16, 16)
    for token in (70, 71):
        inputs = Inputs.random(shape, 100, 3)
        expected = Layer(inputs, 100, kv_type, isa).forward(pool, 0, 100)
        inputs.qkv[token, part * 16 + 5] = spoilt
        got = Layer(inputs, 100, kv_type, isa).forward(pool, 0, 100)
        np.testing.assert_array_equal(got[:token], expected[:token])
        assert not np.isfinite(got[token]).all()
        if part == 0:
            np.testing.assert_array_equal(got[token + 1 :], expected[token + 1 :])


@ways("f32")
def test_huge_scores_are_no_trouble(pool: _native.ThreadPool, isa: str, kv_type: str) -> None:
    """Scores beyond the range of e^x: the largest takes all."""
    shape = Shape(1, 1, 16, 0, scale=1.0)
    inputs = Inputs.random(shape, 80, 5)
    inputs.qkv[:, :32] = 0
    inputs.qkv[:, 0] = 100.0
    inputs.qkv[:, 16] = np.arange(80) * 50.0
    got = Layer(inputs, 80, kv_type, isa).forward(pool, 0, 80)
    values = torch.from_numpy(inputs.qkv[:, 32:]).to(DTYPES[kv_type]).float().numpy()
    np.testing.assert_array_equal(got, values)


@ways("bf16")
def test_weights_count_as_they_are_multiplied(pool: _native.ThreadPool, isa: str, kv_type: str) -> None:
    """Values that are all the same come out so, however weights are rounded: these are divided by their own sum."""
    inputs = Inputs.random(Shape(4, 2, 16, scale=1.0), 600, 2)
    inputs.qkv[:, 6 * 16 :] = 1.5
    got = Layer(inputs, 600, kv_type, isa).forward(pool, 0, 600)
    np.testing.assert_allclose(got, 1.5, rtol=2 * (512 + 2 + 16) * EPSILON)


@ways("bf16", "f16")
def test_narrow_types_round_to_nearest_even(pool: _native.ThreadPool, isa: str, kv_type: str) -> None:
    """A single token gives back its value as stored."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 512, dtype=np.uint64).astype(np.uint32)
    ties = (bits & 0xFFFF0000) | rng.choice([0x1000, 0x3000, 0x8000, 0x7FFF, 0], 512).astype(np.uint32)
    values = np.where(rng.random(512) < 0.5, bits, ties).astype(np.uint32).view(np.float32)
    inputs = Inputs.random(Shape(1, 1, 512), 1, 0)
    inputs.qkv[0, 1024:] = np.where(np.isfinite(values), values, 1.5)
    inputs.qkv[0, 1024:1040] = [0.0, -0.0, 65504, 65519, 65520, 1e30, 6e-8, 2.9e-8, 3e-8, 6.1e-5, 1, 2, 3, 4, 5, 6]
    got = Layer(inputs, 1, kv_type, isa).forward(pool, 0, 1)[0]
    stored = torch.from_numpy(inputs.qkv[0, 1024:]).to(DTYPES[kv_type])
    expected = stored.float().numpy()
    if isa == PAIRS:
        # Its instructions take subnormal numbers for 0.
        expected = np.where(np.abs(expected) < np.finfo(np.float32).tiny, 0, expected)
    np.testing.assert_array_equal(got, expected)


def test_cancel_interrupts(pool: _native.ThreadPool) -> None:
    inputs = Inputs.random(Shape(32, 8, 128), 3000, 0)
    layer = Layer(inputs, 3000)
    stop = threading.Event()

    def cancel() -> None:
        while not stop.is_set():
            pool.cancel()
            time.sleep(0)

    canceller = threading.Thread(target=cancel)
    canceller.start()
    try:
        with pytest.raises(_native.Interrupted):
            layer.forward(pool, 0, 3000)
    finally:
        stop.set()
        canceller.join()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 3}, "multiple"),
        ({"kv_heads": 0}, "kv_heads"),
        ({"head_dim": 0}, "head_dim"),
        ({"head_dim": 520}, "head_dim"),
        ({"rotated": 18}, "rotated"),
        ({"rotated": 3}, "rotated"),
        ({"context": 0}, "context"),
        ({"kv_type": "q4"}, "q4"),
        ({"qk_norm": "tail"}, "tail"),
        ({"qk_norm": "l2", "q_norm": np.zeros(16, np.float32)}, "l2"),
        ({"qk_norm": "full", "q_norm": np.zeros(16, np.float32)}, "64 weights"),
        ({"qk_norm": "full", "norm_after_rope": True}, "before the rotation"),
        ({"window": 3, "chunk": 4}, "not both"),
        ({"window": -1}, "window"),
        ({"window": 1, "rollback": 0}, "rollback"),
        ({"clip": -1.0}, "clip"),
        ({"temperature_interval": -1}, "temperature"),
        ({"sinks": np.zeros(3, np.float32)}, "sinks"),
        ({"bias": np.zeros(7, np.float32)}, "bias"),
        ({"q_norm": np.zeros(7, np.float32)}, "norm of q"),
        ({"k_norm": np.zeros(7, np.float32)}, "norm of k"),
        ({"isa": "sse9"}, "sse9"),
    ],
)
def test_impossible_layers_are_errors(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel(**changes)


def test_tokens_beyond_the_context_are_errors(pool: _native.ThreadPool) -> None:
    layer = Layer(Inputs.random(Shape(1, 1, 16), 12, 0), 10)
    layer.forward(pool, 0, 10)
    layer.forward(pool, 10, 10)
    for first, last in ((10, 11), (0, 11), (12, 12)):
        with pytest.raises(ValueError, match="context of 10"):
            layer.forward(pool, first, last)


def test_null_addresses_are_errors(pool: _native.ThreadPool) -> None:
    with pytest.raises(ValueError, match="null"):
        kernel().forward(pool, 0, 1, 0, 0, 0, 0)


def test_the_environment_caps_the_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENROOM_ISA", "portable")
    assert kernel().tier == "portable"
    monkeypatch.setenv("GREENROOM_ISA", "avxvnni")
    assert kernel().tier in ("avx2", "portable")
    monkeypatch.setenv("GREENROOM_ISA", "avx512vnni")
    assert kernel(kv_type="bf16").tier in TIERS


@pytest.mark.parametrize("isa", [PAIRS], indirect=True)
def test_only_a_cache_in_bf16_is_multiplied_in_pairs(isa: str) -> None:
    tiers = {kv_type: kernel(kv_type=kv_type).tier for kv_type in KV_TYPES}
    assert tiers == dict.fromkeys(KV_TYPES, "avx512") | {"bf16": isa}
    assert kernel(kv_type="bf16", isa="avx512vnni").tier == "avx512"


def test_the_cache_is_as_large_as_its_numbers() -> None:
    # 128 positions of 2 heads, keys and values; a context is rounded up to blocks of 64.
    assert _native.kv_cache_nbytes(2, 16, 100, "f32") == 128 * 2 * 2 * 16 * 4
    assert _native.kv_cache_nbytes(2, 16, 100, "f16") == 128 * 2 * 2 * 16 * 2
    # Values are padded to vectors of 16.
    assert _native.kv_cache_nbytes(2, 24, 100, "bf16") == 128 * 2 * (24 + 32) * 2
    # Every key and value of q8 has a scale.
    assert _native.kv_cache_nbytes(2, 24, 100, "q8") == 128 * 2 * (24 + 4 + 32 + 4)
    for wrong in ((0, 16, 100, "f32"), (2, 0, 100, "f32"), (2, 16, 0, "f32"), (2, 16, 100, "q4")):
        with pytest.raises(ValueError):  # noqa: PT011, the messages are those of Attention
            _native.kv_cache_nbytes(*wrong)
