"""Grouped-query attention in our own kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine import _native
from engine.executors.kv_cache import NativeKv
from engine.executors.linear import Linear
from engine.models.spec import AttentionSpec, RopeSpec

if TYPE_CHECKING:
    import torch

    from engine.executors.step import Step

Floats = npt.NDArray[np.float32]


class NativeAttention:
    """On the CPU: one call of our kernel for everything between the projections.

    kernel:   as `attention_kernel` makes it
    rope:     settled for the context, or None where nothing is rotated
    columns:  of o, heads * head_dim
    qkv:      q above k above v, [heads + 2 kv_heads] * head_dim rows; rotated pairs are neighbours
    o_bias:   [hidden] or None
    """

    def __init__(
        self,
        pool: _native.ThreadPool,
        kernel: _native.Attention,
        rope: RopeSpec | None,
        state: NativeKv,
        columns: int,
        qkv: Linear,
        o: Linear,
        o_bias: Floats | None,
    ) -> None:
        self._pool = pool
        self.kernel = kernel
        self.rope = rope
        self.state = state
        self._columns = columns
        self.qkv, self.o = qkv, o
        self.o_bias = o_bias

    def __call__(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        """x float32 [T, hidden] -> float32 [T, hidden]."""
        qkv = self.qkv(x)
        y = x.new_empty((step.tokens, self._columns))
        self.state.reserve(step.start, step.start + step.tokens, draft=step.draft)
        self.kernel.forward(
            self._pool,
            qkv.data_ptr(),
            step.tokens,
            0 if self.rope is None else step.turns(self.rope).data_ptr(),
            step.start,
            self.state.address,
            y.data_ptr(),
        )
        out = self.o(y)
        if self.o_bias is not None:
            out += out.new_tensor(self.o_bias)
        return out


def attention_kernel(
    spec: AttentionSpec,
    context: int,
    kv_type: str,
    norm_eps: float,
    isa: str | None,
    bias: Floats | None,
    q_norm: Floats | None,
    k_norm: Floats | None,
    sinks: Floats | None,
) -> _native.Attention:
    """bias, q_norm, k_norm: in the order of rows that makes rotated pairs neighbours; each None where there is none."""
    temperature = spec.temperature
    return _native.Attention(
        heads=spec.heads,
        kv_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        rotated=0 if spec.rope is None else spec.rope.dim,
        context=context,
        scale=spec.score_scale,
        kv_type=kv_type,
        bias=bias,
        q_norm=q_norm,
        k_norm=k_norm,
        norm_eps=norm_eps,
        isa=isa,
        qk_norm=spec.qk_norm or "head",
        norm_after_rope=spec.norm_after_rope,
        v_norm=spec.v_norm,
        clip=spec.clip_qkv or 0.0,
        window=spec.window or 0,
        chunk=spec.chunk or 0,
        rollback=spec.rollback(context),
        sinks=sinks,
        temperature_interval=0 if temperature is None else temperature.interval,
        temperature_strength=0.0 if temperature is None else temperature.strength,
    )
