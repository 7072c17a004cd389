"""Attention with every switch against a plain float64 computation, in any chunks and after going back."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import _native
from engine.executors.device.attention import TorchAttention, rotate
from engine.executors.device.states import TorchKv
from engine.executors.devices import HostDevice
from engine.executors.kv_cache import KvCache, NativeKv
from engine.executors.native.blocks import NativeAttention, attention_kernel
from engine.executors.rope import Rope, pair_order
from engine.executors.step import Step
from engine.models import spec as spec_module
from engine.models.spec import AttentionSpec, LongRope, RopeSpec, TemperatureSpec

CPU = HostDevice()
EPS = 1e-3
CONTEXT = 48
#: Few enough that buffers with a reach wrap around within a test.
ROLLBACK = 6


@pytest.fixture(autouse=True)
def short_rollback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec_module, "ROLLBACK", ROLLBACK)


@pytest.fixture(scope="module")
def pool() -> Iterator[_native.ThreadPool]:
    pool = _native.ThreadPool(2)
    yield pool
    pool.close()


class Same:
    """A linear layer that changes nothing."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.nbytes = 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x.clone()


@dataclass
class Weights:
    """Random, as the spec asks for them; None for the others."""

    bias: np.ndarray | None
    qk_norm: np.ndarray | None
    sinks: np.ndarray | None

    @classmethod
    def of(cls, spec: AttentionSpec, rng: np.random.Generator) -> Weights:
        normed = spec.heads + spec.kv_heads
        qk_norm = None
        if spec.qk_norm in ("head", "full"):
            qk_norm = 1 + 0.3 * rng.standard_normal((normed, spec.head_dim)).astype(np.float32)
        if spec.qk_norm == "head":
            # One weight for all heads of q, one for all of k.
            qk_norm[: spec.heads], qk_norm[spec.heads :] = qk_norm[0], qk_norm[-1]
        return cls(
            rng.standard_normal((normed + spec.kv_heads) * spec.head_dim).astype(np.float32) if spec.qkv_bias else None,
            qk_norm,
            rng.standard_normal(spec.heads).astype(np.float32) if spec.sinks else None,
        )


class Running:
    """The block without projections: x is q, k, v side by side. In torch, or with a pool in our kernel."""

    def __init__(self, spec: AttentionSpec, weights: Weights, pool: _native.ThreadPool | None = None) -> None:
        self._ropes = {} if spec.rope is None else {spec.rope: Rope(spec.rope)}
        width = (spec.heads + 2 * spec.kv_heads) * spec.head_dim
        out = Same(spec.heads * spec.head_dim)
        self._block: TorchAttention | NativeAttention
        state: TorchKv | NativeKv
        if pool is None:
            bias, qk_norm, sinks = (
                None if part is None else torch.from_numpy(part)
                for part in (weights.bias, weights.qk_norm, weights.sinks)
            )
            state = TorchKv(spec, CONTEXT, torch.float32, CPU)
            self._block = TorchAttention(spec, EPS, state, Same(width), out, bias, None, qk_norm, sinks)
        else:
            q_norm = k_norm = None
            if weights.qk_norm is not None:
                n = {"q": spec.heads, "k": spec.kv_heads} if spec.qk_norm == "full" else {"q": 1, "k": 1}
                q_norm = weights.qk_norm[: n["q"]].reshape(-1)
                k_norm = weights.qk_norm[spec.heads :][: n["k"]].reshape(-1)
            kernel = attention_kernel(spec, CONTEXT, "f32", EPS, None, weights.bias, q_norm, k_norm, weights.sinks)
            state = NativeKv(spec, CONTEXT, "f32")
            self._block = NativeAttention(pool, kernel, spec.rope, state, out.rows, Same(width), out, None)
        self.cache = KvCache(CONTEXT, [state])

    def __call__(self, x: np.ndarray) -> np.ndarray:
        step = Step(self.cache.length, len(x), self._ropes, CPU)
        out = self._block(torch.from_numpy(x), step).numpy()
        self.cache.advance(len(x))
        return out


def reference(spec: AttentionSpec, weights: Weights, x: np.ndarray) -> np.ndarray:
    """float64, one score at a time; rotates neighbouring pairs."""
    tokens, d = len(x), spec.head_dim
    x = x.astype(np.float64) + (0 if weights.bias is None else weights.bias)
    heads = x.reshape(tokens, -1, d)
    q, k, v = (part.copy() for part in np.split(heads, [spec.heads, spec.heads + spec.kv_heads], axis=1))
    if spec.qk_norm == "full":
        q, k = (part / np.sqrt((part**2).mean((1, 2), keepdims=True) + EPS) for part in (q, k))
        q, k = q * weights.qk_norm[: spec.heads], k * weights.qk_norm[spec.heads :]
    if spec.clip_qkv is not None:
        q, k, v = (np.clip(part, -spec.clip_qkv, spec.clip_qkv) for part in (q, k, v))
    steps = [normed, turned] if not spec.norm_after_rope else [turned, normed]
    for change in steps:
        q = change(spec, q, None if weights.qk_norm is None else weights.qk_norm[: spec.heads])
        k = change(spec, k, None if weights.qk_norm is None else weights.qk_norm[spec.heads :])
    if spec.v_norm:
        v = v / np.sqrt((v**2).mean(-1, keepdims=True) + EPS)
    out = np.zeros((tokens, spec.heads, d))
    for t in range(tokens):
        if spec.temperature is not None:
            q[t] *= 1 + spec.temperature.strength * math.log(1 + math.floor((t + 1) / spec.temperature.interval))
        first = 0
        if spec.window is not None:
            first = max(0, t - spec.window + 1)
        if spec.chunk is not None:
            first = t - t % spec.chunk
        for h in range(spec.heads):
            source = h // (spec.heads // spec.kv_heads)
            scores = k[first : t + 1, source] @ q[t, h] * (d**-0.5 if spec.scale is None else spec.scale)
            total = np.exp(scores).sum() + (0 if weights.sinks is None else np.exp(np.float64(weights.sinks[h])))
            out[t, h] = np.exp(scores) @ v[first : t + 1, source] / total
    return out.reshape(tokens, -1)


def normed(spec: AttentionSpec, heads: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    if spec.qk_norm not in ("head", "l2"):
        return heads
    heads = heads / np.sqrt((heads**2).mean(-1, keepdims=True) + EPS)
    return heads if weight is None else heads * weight


def turned(spec: AttentionSpec, heads: np.ndarray, _: np.ndarray | None) -> np.ndarray:
    rope, heads = spec.rope, heads.copy()
    if rope is None:
        return heads
    for t in range(len(heads)):
        for i in range(rope.dim // 2):
            angle = t * rope.theta ** (-2 * i / rope.dim)
            a, b = heads[t, :, 2 * i].copy(), heads[t, :, 2 * i + 1].copy()
            heads[t, :, 2 * i] = rope.magnitude * (a * np.cos(angle) - b * np.sin(angle))
            heads[t, :, 2 * i + 1] = rope.magnitude * (a * np.sin(angle) + b * np.cos(angle))
    return heads


@st.composite
def specs(draw: st.DrawFn) -> AttentionSpec:
    kv_heads, group, half = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.sampled_from([2, 4]))
    rope = RopeSpec(100.0, draw(st.sampled_from([half, 2 * half])), interleaved=True)
    rope = replace(rope, magnitude=draw(st.sampled_from([1.0, 1.2])))
    reach = draw(st.sampled_from([{}, {}, {"window": 1}, {"window": 4}, {"window": 60}, {"chunk": 4}, {"chunk": 5}]))
    qk_norm = draw(st.sampled_from([None, "head", "full", "l2"]))
    return AttentionSpec(
        kv_heads * group,
        kv_heads,
        2 * half,
        draw(st.sampled_from([rope, rope, None])),
        qkv_bias=draw(st.booleans()),
        qk_norm=qk_norm,
        scale=draw(st.sampled_from([None, 0.3])),
        # A norm after the rotation is one over each head.
        norm_after_rope=qk_norm in ("head", "l2") and draw(st.booleans()),
        v_norm=draw(st.booleans()),
        clip_qkv=draw(st.sampled_from([None, None, 0.8])),
        temperature=draw(st.sampled_from([None, None, TemperatureSpec(3, 0.5)])),
        sinks=draw(st.booleans()),
        **reach,
    )


@pytest.mark.parametrize("native", [False, True])
@settings(max_examples=60, deadline=None)
@given(
    spec=specs(),
    chunks=st.lists(st.integers(1, ROLLBACK), min_size=1, max_size=7),
    back=st.integers(0, 42),
    seed=st.integers(0, 99),
)
def test_attention_in_any_chunks_and_after_going_back(
    pool: _native.ThreadPool, native: bool, spec: AttentionSpec, chunks: list[int], back: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    weights, total = Weights.of(spec, rng), sum(chunks)
    x = rng.standard_normal((total, (spec.heads + 2 * spec.kv_heads) * spec.head_dim)).astype(np.float32)
    run, expected = Running(spec, weights, pool if native else None), reference(spec, weights, x)
    got = np.concatenate([run(part) for part in np.split(x, np.cumsum(chunks)[:-1])])
    np.testing.assert_allclose(got, expected, atol=3e-5)
    asked = max(0, total - back)
    kept = run.cache.truncate(asked)
    # What one call brought can always be taken back; else what came before the last call of several tokens is there.
    starts = np.cumsum([0, *chunks])
    copied = max((int(at) for at, tokens in zip(starts, chunks, strict=False) if tokens > 1), default=0)
    assert kept == asked or (back > ROLLBACK and kept == (copied if copied <= asked else 0))
    again = np.concatenate([run(x[i : i + 1]) for i in range(kept, total)]) if kept < total else expected[total:]
    np.testing.assert_allclose(again, expected[kept:], atol=3e-5)


def test_scores_with_sinks_are_written_out_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = AttentionSpec(4, 2, 4, None, sinks=True)
    rng = np.random.default_rng(5)
    weights = Weights.of(spec, rng)
    x = rng.standard_normal((9, 32)).astype(np.float32)
    monkeypatch.setattr("engine.executors.device.attention.SINK_SCORES", 4 * 9 * 2)
    np.testing.assert_allclose(Running(spec, weights)(x), reference(spec, weights, x), atol=3e-5)


def test_very_large_scores_and_sinks_stay_finite() -> None:
    spec = AttentionSpec(1, 1, 2, None, scale=1e4, sinks=True)
    weights = Weights(None, None, np.array([1e4], np.float32))
    out = Running(spec, weights)(np.array([[3.0, 0.0, 3.0, 0.0, 1.0, 2.0]], np.float32))
    # The score is 9e4, the sink 1e4: the value alone.
    np.testing.assert_allclose(out, [[1.0, 2.0]])


def visible(spec: AttentionSpec, start: int, tokens: int, first: int) -> list[tuple[int, int]] | None:
    mask = Step(start, tokens, {}, CPU).mask(spec, first, torch.float32)
    if mask is None:
        return None
    assert set(mask.unique().tolist()) <= {0.0, -math.inf}
    return [(int(row.nonzero()[0]) + first, int(row.nonzero()[-1]) + first) for row in (mask == 0)]


def test_masks_hide_the_future_and_what_is_out_of_reach() -> None:
    full = AttentionSpec(1, 1, 2, None)
    assert visible(full, 0, 4, 0) is None
    assert visible(full, 9, 1, 0) is None
    assert visible(full, 3, 4, 0) == [(0, 3), (0, 4), (0, 5), (0, 6)]
    window = replace(full, window=3)
    assert visible(window, 0, 3, 0) is None
    assert visible(window, 0, 5, 0) == [(0, 0), (0, 1), (0, 2), (1, 3), (2, 4)]
    assert visible(window, 5, 1, 3) is None
    assert visible(window, 5, 2, 3) == [(3, 5), (4, 6)]
    chunk = replace(full, chunk=4)
    assert visible(chunk, 0, 4, 0) is None
    assert visible(chunk, 3, 1, 0) is None
    assert visible(chunk, 4, 2, 4) is None
    assert visible(chunk, 2, 4, 0) == [(0, 2), (0, 3), (4, 4), (4, 5)]


def test_a_mask_is_made_once_for_layers_alike() -> None:
    step = Step(3, 2, {}, CPU)
    spec = AttentionSpec(1, 1, 2, None, window=3)
    other = replace(spec, heads=4, kv_heads=2)
    assert step.mask(spec, 1, torch.float32) is step.mask(other, 1, torch.float32)


@given(heads=st.integers(1, 4), half=st.integers(1, 8), extra=st.integers(0, 3), seed=st.integers(0, 9))
def test_reordered_rows_make_halves_into_pairs(heads: int, half: int, extra: int, seed: int) -> None:
    """Rotating halves of the stored order equals rotating pairs of the loaded order."""
    head_dim = 2 * (half + extra)
    rope = RopeSpec(50.0, 2 * half)
    order = pair_order(AttentionSpec(heads, heads, head_dim, rope), heads)
    assert order is not None
    assert sorted(order) == list(range(heads * head_dim))
    x = np.random.default_rng(seed).standard_normal((3, heads, head_dim)).astype(np.float32)
    turns = torch.from_numpy(Rope(rope).turns(5, 3))
    loaded = torch.from_numpy(np.ascontiguousarray(x.reshape(3, -1)[:, order]).reshape(x.shape))
    rotate(loaded, turns)
    angle = np.angle(turns.numpy())
    first, second = x[..., :half], x[..., half : 2 * half]
    expected = x.copy()
    expected[..., :half] = first * np.cos(angle) - second * np.sin(angle)
    expected[..., half : 2 * half] = second * np.cos(angle) + first * np.sin(angle)
    np.testing.assert_allclose(loaded.numpy().reshape(3, -1), expected.reshape(3, -1)[:, order], atol=1e-5)


def test_rows_stay_where_pairs_are_neighbours_or_nothing_is_turned() -> None:
    assert pair_order(AttentionSpec(2, 2, 8, RopeSpec(1e4, 8, interleaved=True)), 2) is None
    assert pair_order(AttentionSpec(2, 2, 8, None), 2) is None


def test_scaled_positions() -> None:
    plain = Rope(RopeSpec(1e4, 8)).turns(6, 1)
    np.testing.assert_allclose(Rope(RopeSpec(1e4, 8, scale=2.0)).turns(12, 1), plain)
    factors = (2.0, 2.0, 2.0, 2.0)
    np.testing.assert_allclose(Rope(RopeSpec(1e4, 8, frequency_factors=factors)).turns(12, 1), plain)
    np.testing.assert_allclose(Rope(RopeSpec(1e4, 8, magnitude=1.5)).turns(6, 1), 1.5 * plain)
    stays = Rope(RopeSpec(1e4, 8, frequency_factors=(1.0, 1.0, 1.0, math.inf))).turns(6, 1)
    np.testing.assert_array_equal(stays[..., :3], plain[..., :3])
    assert stays[0, 0, 3] == 1.0


def test_long_factors_hold_for_conversations_planned_longer_than_the_original() -> None:
    rope = RopeSpec(1e4, 4, frequency_factors=(1.0, 1.1), magnitude=1.2, long=LongRope(64, (2.0, 3.0), 1.3))
    assert rope.at_context(64) == RopeSpec(1e4, 4, frequency_factors=(1.0, 1.1), magnitude=1.2)
    assert rope.at_context(65) == RopeSpec(1e4, 4, frequency_factors=(2.0, 3.0), magnitude=1.3)
    assert RopeSpec(1e4, 4).at_context(1 << 20) == RopeSpec(1e4, 4)
