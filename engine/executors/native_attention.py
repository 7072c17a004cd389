"""Grouped-query attention in our own kernel."""

from __future__ import annotations

import torch

from engine import _native
from engine.executors.kv_cache import NativeKv
from engine.executors.linear import Linear
from engine.executors.step import Step
from engine.models.spec import RopeSpec


class NativeAttention:
    """On the CPU: one call of our kernel for everything between the projections.

    kernel:   made for this layer's sizes, bias, norms and the cache's type
    columns:  of o, heads * head_dim
    qkv:      q above k above v, [heads + 2 kv_heads] * head_dim rows; rotated pairs are neighbours
    o_bias:   [hidden] or None
    """

    def __init__(
        self,
        pool: _native.ThreadPool,
        kernel: _native.Attention,
        rope: RopeSpec,
        state: NativeKv,
        columns: int,
        qkv: Linear,
        o: Linear,
        o_bias: torch.Tensor | None,
    ) -> None:
        self._pool = pool
        self._kernel = kernel
        self._rope = rope
        self._state = state
        self._columns = columns
        self._qkv, self._o = qkv, o
        self._o_bias = o_bias

    def __call__(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        """x float32 [T, hidden] -> float32 [T, hidden]."""
        qkv = self._qkv(x)
        y = torch.empty((step.tokens, self._columns))
        self._kernel.forward(
            self._pool,
            qkv.data_ptr(),
            step.tokens,
            step.turns(self._rope).data_ptr(),
            step.start,
            self._state.buffer.data_ptr(),
            y.data_ptr(),
        )
        out = self._o(y)
        if self._o_bias is not None:
            out += self._o_bias
        return out
