"""Grouped-query attention in our own kernel, and what that kernel can do."""

from __future__ import annotations

import torch

from engine import _native
from engine.executors.kv_cache import KvCache
from engine.executors.linear import Linear
from engine.models.spec import AttentionSpec


def can_attend(spec: AttentionSpec) -> bool:
    """Whether our kernel has every switch that this attention turns on; the torch block has them all."""
    return (
        spec.rope is not None
        and spec.rope.magnitude == 1.0
        and spec.qk_norm in (None, "head")
        and spec.head_dim <= 512
        and spec.reach is None
        and spec.clip_qkv is None
        and spec.temperature is None
        and not (spec.norm_after_rope or spec.v_norm or spec.keys_as_values or spec.sinks)
    )


class NativeAttention:
    """On the CPU: one call of our kernel for everything between the projections.

    kernel:   made for this layer's sizes, bias, norms and the cache's type
    columns:  of o, heads * head_dim
    qkv:      q above k above v, [heads + 2 kv_heads] * head_dim rows; rotated pairs are neighbours
    o_bias:   [hidden] or None
    """

    def __init__(
        self,
        layer: int,
        pool: _native.ThreadPool,
        kernel: _native.Attention,
        columns: int,
        qkv: Linear,
        o: Linear,
        o_bias: torch.Tensor | None,
    ) -> None:
        self._layer = layer
        self._pool = pool
        self._kernel = kernel
        self._columns = columns
        self._qkv, self._o = qkv, o
        self._o_bias = o_bias

    def __call__(self, x: torch.Tensor, turns: torch.Tensor, cache: KvCache, mask: torch.Tensor | None) -> torch.Tensor:
        tokens, qkv = x.shape[0], self._qkv(x)
        y = torch.empty((tokens, self._columns))
        self._kernel.forward(
            self._pool,
            qkv.data_ptr(),
            tokens,
            turns.data_ptr(),
            cache.length,
            cache.buffers[self._layer].data_ptr(),
            y.data_ptr(),
        )
        out = self._o(y)
        if self._o_bias is not None:
            out += self._o_bias
        return out
