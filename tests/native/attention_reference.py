"""Attention in float64, one score at a time, and how far the kernels may be from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from engine import _native

EPSILON = 2.0**-24
#: Half a step of bf16 beside the number.
BF16_EPSILON = 2.0**-9
#: Of the powers of two that kernels of bf16 pairs take.
POWER_ERROR = 2.0**-18
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


@dataclass(frozen=True)
class Shape:
    heads: int
    kv_heads: int
    head_dim: int
    rotated: int = 0
    scale: float = 0.125
    #: RMS norm's epsilon; None for no norms.
    eps: float | None = None
    biased: bool = False
    qk_norm: str = "head"
    norm_after_rope: bool = False
    v_norm: bool = False
    clip: float = 0.0
    window: int = 0
    chunk: int = 0
    rollback: int = 1024
    sinks: bool = False
    temperature_interval: int = 0
    temperature_strength: float = 0.0

    @property
    def columns(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def switches(self) -> dict[str, Any]:
        names = ("qk_norm", "norm_after_rope", "v_norm", "clip", "window", "chunk", "rollback", "temperature_interval")
        return {name: getattr(self, name) for name in (*names, "temperature_strength")}

    def first_seen(self, position: int) -> int:
        """The first key that the token at this position sees."""
        if self.window:
            return max(0, position + 1 - self.window)
        return position - position % self.chunk if self.chunk else 0


@dataclass
class Inputs:
    """qkv [T, columns] of a whole sequence and what belongs to the layer."""

    shape: Shape
    qkv: np.ndarray
    turns: np.ndarray
    weights: dict[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def random(cls, shape: Shape, tokens: int, seed: int) -> Inputs:
        rng = np.random.default_rng(seed)
        qkv = rng.standard_normal((tokens, shape.columns)).astype(np.float32)
        angles = np.arange(tokens)[:, None] * 10.0 ** -np.arange(shape.rotated // 2)
        weights = {}
        if shape.biased:
            weights["bias"] = rng.standard_normal(shape.columns).astype(np.float32)
        if shape.eps is not None and shape.qk_norm != "l2":
            for part, heads in (("q_norm", shape.heads), ("k_norm", shape.kv_heads)):
                n = heads * shape.head_dim if shape.qk_norm == "full" else shape.head_dim
                weights[part] = (1 + 0.3 * rng.standard_normal(n)).astype(np.float32)
        if shape.sinks:
            weights["sinks"] = (2 * rng.standard_normal(shape.heads)).astype(np.float32)
        return cls(shape, qkv, np.exp(1j * angles).astype(np.complex64), weights)


class Layer:
    """The kernel with a cache of its own."""

    def __init__(self, inputs: Inputs, context: int, kv_type: str = "f32", isa: str | None = None) -> None:
        shape = inputs.shape
        self._inputs = inputs
        self._kernel = _native.Attention(
            shape.heads,
            shape.kv_heads,
            shape.head_dim,
            shape.rotated,
            context,
            shape.scale,
            kv_type,
            **inputs.weights,
            norm_eps=shape.eps or 0.0,
            isa=isa,
            **shape.switches,
        )
        nbytes = _native.kv_cache_nbytes(
            shape.kv_heads, shape.head_dim, context, kv_type, max(shape.window, shape.chunk), shape.rollback
        )
        # NaN everywhere: what was never written must never show.
        self._cache = np.full(nbytes, 0xFF, np.uint8)

    @property
    def pairs(self) -> bool:
        """Whether queries and weights are rounded to bf16."""
        return self._kernel.tier == "avx512bf16"

    def forward(self, pool: _native.ThreadPool, first: int, last: int) -> np.ndarray:
        """Tokens first .. last - 1 -> [last - first, heads * head_dim]."""
        shape = self._inputs.shape
        qkv = self._inputs.qkv[first:last].copy()
        turns = np.ascontiguousarray(self._inputs.turns[first:last])
        y = np.empty((last - first, shape.heads * shape.head_dim), dtype=np.float32)
        self._kernel.forward(
            pool,
            qkv.ctypes.data,
            last - first,
            turns.ctypes.data if turns.size else qkv.ctypes.data,
            first,
            self._cache.ctypes.data,
            y.ctypes.data,
        )
        return y


def reference(inputs: Inputs, kv_type: str, first: int, *, pairs: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Results of tokens `first` and later, and the error allowed for each: [T - first, heads * head_dim].

    pairs: queries and weights may be rounded to bf16
    """
    shape, tokens = inputs.shape, len(inputs.qkv)
    x = inputs.qkv.astype(np.float64) + inputs.weights.get("bias", np.zeros(1)).astype(np.float64)
    q, k, v = np.split(x.reshape(tokens, -1, shape.head_dim), [shape.heads, shape.heads + shape.kv_heads], axis=1)
    if shape.qk_norm == "full":
        q, k = _both_normed(inputs, q, k)
    if shape.clip:
        q, k, v = (np.clip(part, -shape.clip, shape.clip) for part in (q, k, v))
    if shape.qk_norm != "full" and not shape.norm_after_rope:
        q, k = _both_normed(inputs, q, k)
    q, k = _rotated(q, inputs.turns), _rotated(k, inputs.turns)
    if shape.norm_after_rope:
        q, k = _both_normed(inputs, q, k)
    q = q * shape.scale
    if shape.temperature_interval:
        steps = (np.arange(tokens) + 1) // shape.temperature_interval
        q = q * (1 + shape.temperature_strength * np.log1p(steps))[:, None, None]
    if shape.v_norm:
        v = _normed(v, shape.eps or 0.0)
    (k, k_step), (v, v_step) = _stored(k, kv_type), _stored(v, kv_type)
    # Roundings on the way to one score: the parts' own (bias, norm, rotation, scale: at most 16), then one per
    # dimension; norms over all heads add up longer sums.
    norm = shape.heads * shape.head_dim / 32 if shape.qk_norm == "full" and shape.eps is not None else 0
    per_score = (shape.head_dim + 16 + norm) * EPSILON + pairs * BF16_EPSILON
    results, limits = [], []
    for t in range(first, tokens):
        row, limit = [], []
        begin = shape.first_seen(t)
        for h in range(shape.heads):
            source = h // (shape.heads // shape.kv_heads)
            keys, values = k[begin : t + 1, source], v[begin : t + 1, source]
            scores = keys @ q[t, h]
            sink = inputs.weights["sinks"][h].astype(np.float64) if shape.sinks else -np.inf
            largest = max(scores.max(), sink)
            weights = np.exp(scores - largest)
            weights /= weights.sum() + np.exp(sink - largest)
            row.append(weights @ values)
            # A weight is as wrong as its score and the largest; then one rounding per block of keys and per sum.
            moved = 2 * (np.abs(keys) @ np.abs(q[t, h])).max() * per_score
            moved += 2 * (k_step[begin : t + 1, source] @ np.abs(q[t, h])).max()
            added = (min(t + 1, 512) + t / 512 + 16) * EPSILON
            # A power for the weight, one for each larger score after it and for each split.
            added += pairs * (BF16_EPSILON + (t / 64 + t / 512 + 2) * POWER_ERROR)
            error = (moved + added) * 2 * (weights @ np.abs(values))
            limit.append(error + weights @ v_step[begin : t + 1, source] + 1e-30)
        results.append(np.concatenate(row))
        limits.append(np.concatenate(limit))
    return np.array(results), np.array(limits)


def _both_normed(inputs: Inputs, q: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    shape = inputs.shape
    if shape.eps is None:
        return q, k
    out = []
    for part, x in (("q_norm", q), ("k_norm", k)):
        flat = x.reshape(len(x), 1, -1) if shape.qk_norm == "full" else x
        out.append((_normed(flat, shape.eps) * inputs.weights.get(part, np.ones(1))).reshape(x.shape))
    return out[0], out[1]


def _normed(x: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)


def _rotated(heads: np.ndarray, turns: np.ndarray) -> np.ndarray:
    dim = 2 * turns.shape[-1]
    pairs = (heads[..., 0:dim:2] + 1j * heads[..., 1:dim:2]) * turns[:, None]
    out = heads.copy()
    out[..., 0:dim:2], out[..., 1:dim:2] = pairs.real, pairs.imag
    return out


def _stored(x: np.ndarray, kv_type: str) -> tuple[np.ndarray, np.ndarray]:
    """x as the cache keeps it, and how far from that it is where roundings before tip this one: a whole step of numbers
    that lie as good as halfway, nothing else.
    """
    if kv_type == "q8":
        scale = np.abs(x).max(axis=-1, keepdims=True) / 127
        codes = x / scale
        halfway = np.abs(codes - np.floor(codes) - 0.5) < 2.0**-12
        return np.rint(codes) * scale, halfway * scale

    def rounded(values: np.ndarray) -> np.ndarray:
        return torch.from_numpy(values.astype(np.float32)).to(DTYPES[kv_type]).double().numpy()

    if kv_type == "f32":
        return rounded(x), np.zeros(x.shape)
    tipping = 64 * EPSILON
    return rounded(x), np.abs(rounded(x * (1 + tipping)) - rounded(x * (1 - tipping)))
