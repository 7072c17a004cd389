"""Attention against a plain float64 computation, and its parts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import GreenroomError
from engine.executors.attention import TorchAttention, causal_mask
from engine.executors.kv_cache import NativeKvCache, TorchKvCache
from engine.executors.rope import Rope, pair_order, rotate
from engine.models.spec import AttentionSpec, LayerSpec, MlpSpec, RopeSpec

CPU = torch.device("cpu")


class Same:
    """A linear layer that changes nothing."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.nbytes = 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x.clone()


def attention(spec: AttentionSpec) -> TorchAttention:
    """Without projections: x is q, k, v side by side."""
    width = (spec.heads + 2 * spec.kv_heads) * spec.head_dim
    return TorchAttention(0, spec, 1e-6, Same(width), Same(spec.heads * spec.head_dim), None, None, None)


def reference(spec: AttentionSpec, x: np.ndarray) -> np.ndarray:
    """float64, one score at a time; rotates neighbouring pairs."""
    tokens, d, dim = len(x), spec.head_dim, spec.rope.dim
    heads = x.astype(np.float64).reshape(tokens, -1, d).copy()
    for t in range(tokens):
        for h in range(spec.heads + spec.kv_heads):
            for i in range(dim // 2):
                angle = t * spec.rope.theta ** (-2 * i / dim)
                a, b = heads[t, h, 2 * i : 2 * i + 2]
                heads[t, h, 2 * i] = a * np.cos(angle) - b * np.sin(angle)
                heads[t, h, 2 * i + 1] = a * np.sin(angle) + b * np.cos(angle)
    q, k, v = np.split(heads, [spec.heads, spec.heads + spec.kv_heads], axis=1)
    out = np.zeros((tokens, spec.heads, d))
    for t in range(tokens):
        for h in range(spec.heads):
            source = h // (spec.heads // spec.kv_heads)
            scores = k[: t + 1, source] @ q[t, h] * (d**-0.5 if spec.scale is None else spec.scale)
            share = np.exp(scores - scores.max())
            out[t, h] = share @ v[: t + 1, source] / share.sum()
    return out.reshape(tokens, -1)


@settings(max_examples=40, deadline=None)
@given(
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    half=st.sampled_from([2, 4, 8]),
    partial=st.booleans(),
    scale=st.sampled_from([None, 0.3]),
    chunks=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    seed=st.integers(0, 99),
)
def test_attention_in_any_chunks(
    kv_heads: int, group: int, half: int, partial: bool, scale: float | None, chunks: list[int], seed: int
) -> None:
    rope = RopeSpec(100.0, half if partial else 2 * half, interleaved=True)
    spec = AttentionSpec(kv_heads * group, kv_heads, 2 * half, rope, scale=scale)
    width = (spec.heads + 2 * spec.kv_heads) * spec.head_dim
    x = np.random.default_rng(seed).standard_normal((sum(chunks), width)).astype(np.float32)
    cache = TorchKvCache([LayerSpec(spec, MlpSpec(1))], 32, torch.float32, CPU)
    table, block = Rope(rope, CPU), attention(spec)
    got = []
    for part in np.split(x, np.cumsum(chunks)[:-1]):
        start, tokens = cache.length, len(part)
        mask = causal_mask(start, tokens, torch.float32, CPU)
        got.append(block(torch.from_numpy(part), table.turns(start, tokens), cache, mask).numpy())
        cache.advance(tokens)
    np.testing.assert_allclose(np.concatenate(got), reference(spec, x), atol=2e-5)


def test_causal_mask_hides_exactly_the_future() -> None:
    mask = causal_mask(3, 4, torch.float32, CPU)
    assert mask is not None
    visible = mask.numpy() == 0
    assert [row.sum() for row in visible] == [4, 5, 6, 7]
    assert all(row[: row.sum()].all() for row in visible)
    assert np.isneginf(mask.numpy()[~visible]).all()


@given(heads=st.integers(1, 4), half=st.integers(1, 8), extra=st.integers(0, 3), seed=st.integers(0, 9))
def test_reordered_rows_make_halves_into_pairs(heads: int, half: int, extra: int, seed: int) -> None:
    """Rotating halves of the stored order equals rotating pairs of the loaded order."""
    head_dim = 2 * (half + extra)
    spec = AttentionSpec(heads, heads, head_dim, RopeSpec(50.0, 2 * half))
    order = pair_order(spec, heads)
    assert order is not None
    assert sorted(order) == list(range(heads * head_dim))
    x = np.random.default_rng(seed).standard_normal((3, heads, head_dim)).astype(np.float32)
    turns = Rope(spec.rope, CPU).turns(5, 3)
    loaded = torch.from_numpy(np.ascontiguousarray(x.reshape(3, -1)[:, order]).reshape(x.shape))
    rotate(loaded, turns)
    angle = np.angle(turns.numpy())
    first, second = x[..., :half], x[..., half : 2 * half]
    expected = x.copy()
    expected[..., :half] = first * np.cos(angle) - second * np.sin(angle)
    expected[..., half : 2 * half] = second * np.cos(angle) + first * np.sin(angle)
    np.testing.assert_allclose(loaded.numpy().reshape(3, -1), expected.reshape(3, -1)[:, order], atol=1e-5)


def test_interleaved_rows_stay() -> None:
    assert pair_order(AttentionSpec(2, 2, 8, RopeSpec(1e4, 8, interleaved=True)), 2) is None


def test_scaled_positions() -> None:
    plain = Rope(RopeSpec(1e4, 8), CPU).turns(6, 1)
    torch.testing.assert_close(Rope(RopeSpec(1e4, 8, scale=2.0), CPU).turns(12, 1), plain)
    factors = (2.0, 2.0, 2.0, 2.0)
    torch.testing.assert_close(Rope(RopeSpec(1e4, 8, frequency_factors=factors), CPU).turns(12, 1), plain)


LAYERS = [LayerSpec(AttentionSpec(4, heads, 8, RopeSpec(1e4, 8)), MlpSpec(1)) for heads in (2, 4)]


@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 4), (torch.bfloat16, 2), (torch.float16, 2)])
def test_cache_size_is_what_the_spec_promises(dtype: torch.dtype, width: int) -> None:
    cache = TorchKvCache(LAYERS, 10, dtype, CPU)
    assert cache.nbytes == sum(2 * layer.mixer.kv_heads * 8 * 10 * width for layer in LAYERS)


@pytest.mark.parametrize(("kv_type", "width"), [("f32", 4), ("bf16", 2), ("f16", 2)])
def test_the_kernels_cache_rounds_up_to_its_blocks(kv_type: str, width: int) -> None:
    cache = NativeKvCache(LAYERS, 100, kv_type)
    # 64 tokens each for keys; values of 8 dimensions take 16.
    assert cache.nbytes == sum(layer.mixer.kv_heads * (8 + 16) * 128 * width for layer in LAYERS)


def test_cache_appends_and_truncates() -> None:
    cache = TorchKvCache(LAYERS, 5, torch.float32, CPU)
    values = torch.randn(4, 4, 8)
    cache.append(0, values[:3])
    cache.advance(3)
    keys, stored = cache.append(0, values[3:])
    cache.advance(1)
    assert torch.equal(keys, values[:, :2].transpose(0, 1))
    assert torch.equal(stored, values[:, 2:].transpose(0, 1))
    cache.truncate(1)
    keys, _ = cache.append(0, values[2:3])
    assert torch.equal(keys, values[[0, 2], :2].transpose(0, 1))
    with pytest.raises(ValueError, match="cache of 5"):
        cache.advance(5)
    with pytest.raises(ValueError, match="keep 2"):
        cache.truncate(2)


def test_a_cache_too_large_is_a_clear_error() -> None:
    with pytest.raises(GreenroomError, match="shorter context"):
        TorchKvCache(LAYERS, 1 << 50, torch.float32, CPU)
    huge = [LayerSpec(AttentionSpec(4096, 4096, 512, RopeSpec(1e4, 8)), MlpSpec(1))]
    with pytest.raises(GreenroomError, match="shorter context"):
        NativeKvCache(huge, 1 << 32, "f32")
