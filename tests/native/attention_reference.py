"""Attention in float64, one score at a time, and how far float32 may be from it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from engine import _native

EPSILON = 2.0**-24
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

    @property
    def columns(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim


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
        if shape.eps is not None:
            weights["q_norm"] = (1 + 0.3 * rng.standard_normal(shape.head_dim)).astype(np.float32)
            weights["k_norm"] = (1 + 0.3 * rng.standard_normal(shape.head_dim)).astype(np.float32)
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
        )
        # NaN everywhere: what was never written must never show.
        self._cache = np.full(_native.kv_cache_nbytes(shape.kv_heads, shape.head_dim, context, kv_type), 0xFF, np.uint8)

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


def reference(inputs: Inputs, kv_type: str, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Results of tokens `first` and later, and the error allowed for each: [T - first, heads * head_dim]."""
    shape, tokens = inputs.shape, len(inputs.qkv)
    x = inputs.qkv.astype(np.float64) + inputs.weights.get("bias", np.zeros(1)).astype(np.float64)
    q, k, v = np.split(x.reshape(tokens, -1, shape.head_dim), [shape.heads, shape.heads + shape.kv_heads], axis=1)
    if shape.eps is not None:
        q = _normed(q, shape.eps) * inputs.weights["q_norm"]
        k = _normed(k, shape.eps) * inputs.weights["k_norm"]
    q, k = _rotated(q, inputs.turns) * shape.scale, _rotated(k, inputs.turns)
    k, v = _stored(k, kv_type), _stored(v, kv_type)
    # Roundings on the way to one score: the parts' own (bias, norm, rotation, scale: at most 12), then one per
    # dimension. Where they tip the rounding to a narrow type, the score moves by a whole step of that.
    step = {"f32": 0.0, "bf16": 2.0**-8, "f16": 2.0**-11}[kv_type]
    per_score = (shape.head_dim + 12) * EPSILON + step * 2.0**-6
    results, limits = [], []
    for t in range(first, tokens):
        row, limit = [], []
        for h in range(shape.heads):
            source = h // (shape.heads // shape.kv_heads)
            scores = k[: t + 1, source] @ q[t, h]
            weights = np.exp(scores - scores.max())
            weights /= weights.sum()
            row.append(weights @ v[: t + 1, source])
            # A weight is as wrong as its score and the largest; then one rounding per block of keys and per sum.
            moved = 2 * (np.abs(k[: t + 1, source]) @ np.abs(q[t, h])).max() * per_score
            added = (min(t + 1, 512) + t / 512 + 16) * EPSILON + step * 2.0**-6
            limit.append((moved + added) * 2 * (weights @ np.abs(v[: t + 1, source])) + 1e-30)
        results.append(np.concatenate(row))
        limits.append(np.concatenate(limit))
    return np.array(results), np.array(limits)


def _normed(x: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)


def _rotated(heads: np.ndarray, turns: np.ndarray) -> np.ndarray:
    dim = 2 * turns.shape[-1]
    pairs = (heads[..., 0:dim:2] + 1j * heads[..., 1:dim:2]) * turns[:, None]
    out = heads.copy()
    out[..., 0:dim:2], out[..., 1:dim:2] = pairs.real, pairs.imag
    return out


def _stored(x: np.ndarray, kv_type: str) -> np.ndarray:
    return torch.from_numpy(x.astype(np.float32)).to(DTYPES[kv_type]).double().numpy()
