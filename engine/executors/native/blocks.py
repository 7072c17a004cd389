"""Blocks of a layer in our own kernels: attention, the short convolution with what it remembers, the router.

Executed one by one they give the same bits as in the native decoder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine import _native
from engine.executors.kv_cache import NativeKv, no_room
from engine.executors.linear import Linear
from engine.executors.norms import Norm
from engine.models.spec import CHECKPOINT_INTERVAL, DRAFT, AttentionSpec, MoeSpec, RopeSpec, ShortConvSpec

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


class NativeConvState:
    """The last width - 1 inputs of a causal convolution and earlier ones, float32, at addresses that stay.

    It goes back to every CHECKPOINT_INTERVAL-th position, and to those of a last call of at most DRAFT tokens.

    past:   [width - 1, channels] before the next token
    recent: [width - 1 + DRAFT, channels]: what the last call left
    saved:  [1 + context // CHECKPOINT_INTERVAL, width - 1, channels]
    """

    def __init__(self, spec: ShortConvSpec, context: int) -> None:
        before = spec.width - 1
        try:
            self.past = np.zeros((before, spec.channels), np.float32)
            self.recent = np.zeros((before + DRAFT, spec.channels), np.float32)
            self.saved = np.zeros((1 + context // CHECKPOINT_INTERVAL, before, spec.channels), np.float32)
        except (MemoryError, ValueError) as error:
            raise no_room(context) from error
        self._before = before
        #: Rows of `recent` that belong to the sequence, the last of them being `past`; and those that a call leaves.
        self._rows = self._coming = before
        self._length = 0

    @property
    def nbytes(self) -> int:
        return self.past.nbytes + self.recent.nbytes + self.saved.nbytes

    def reserve(self, start: int, end: int, *, draft: bool = False) -> None:
        """Positions start..end-1 are about to be computed, which overwrites `recent`."""
        self._rows = self._before
        self._coming = self._before + (end - start if end - start <= DRAFT else 0)

    def advance(self, length: int) -> None:
        self._rows, self._length = self._coming, length
        self._take_past()

    def restorable(self, length: int) -> int:
        return length if self._remembers(length) else length // CHECKPOINT_INTERVAL * CHECKPOINT_INTERVAL

    def truncate(self, length: int) -> None:
        if length == self._length:
            return
        if self._remembers(length):
            self._rows -= self._length - length
            self._take_past()
        else:
            self.past[:] = self.saved[length // CHECKPOINT_INTERVAL]
            self._rows = self._before
        self._length = length

    def _take_past(self) -> None:
        self.past[:] = self.recent[self._rows - self._before : self._rows]

    def _remembers(self, length: int) -> bool:
        return self._length - length <= self._rows - self._before


class NativeShortConv:
    """out(c * conv(b * x)), where b, c and x are the thirds of inputs(hidden).

    kernel:      float32 [width, channels], the oldest token's weights first; kernel_bias [channels] or None
    inputs, out: [3 channels, hidden] and [hidden, channels]; their biases or None
    """

    def __init__(
        self,
        pool: _native.ThreadPool,
        spec: ShortConvSpec,
        state: NativeConvState,
        inputs: Linear,
        kernel: Floats,
        out: Linear,
        in_bias: Floats | None = None,
        kernel_bias: Floats | None = None,
        out_bias: Floats | None = None,
    ) -> None:
        self._pool = pool
        self._channels = spec.channels
        self.state = state
        self.kernel = _native.ShortConv(
            spec.channels, spec.width, CHECKPOINT_INTERVAL, DRAFT, np.ascontiguousarray(kernel), kernel_bias
        )
        self.inputs, self.out = inputs, out
        self.in_bias, self.out_bias = in_bias, out_bias

    @property
    def addresses(self) -> tuple[int, int, int]:
        """Of the state's past, recent and saved."""
        state = self.state
        return state.past.ctypes.data, state.recent.ctypes.data, state.saved.ctypes.data

    def __call__(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        """x float32 [T, hidden] -> float32 [T, hidden]."""
        projected = self.inputs(x)
        if self.in_bias is not None:
            projected += projected.new_tensor(self.in_bias)
        y = x.new_empty((step.tokens, self._channels))
        self.state.reserve(step.start, step.start + step.tokens, draft=step.draft)
        self.kernel.forward(self._pool, projected.data_ptr(), step.tokens, step.start, *self.addresses, y.data_ptr())
        out = self.out(y)
        if self.out_bias is not None:
            out += out.new_tensor(self.out_bias)
        return out


class NativeRouter:
    """On the CPU. Arguments and results as those of `engine.executors.device.router.Router`."""

    def __init__(
        self,
        spec: MoeSpec,
        logits: Linear,
        norm: Norm | None = None,
        bias: Floats | None = None,
        choice_bias: Floats | None = None,
        expert_scale: Floats | None = None,
    ) -> None:
        self.logits = logits
        self.norm = norm
        self.kernel = _native.Router(
            spec.experts,
            spec.top_k,
            spec.score,
            groups=spec.groups,
            top_groups=spec.top_groups,
            group_score=spec.group_score,
            renormalise=spec.renormalise,
            renormalise_eps=spec.renormalise_eps,
            renormalise_min=spec.renormalise_min,
            scale=spec.scale,
            jitter=spec.jitter,
            shared_gate=spec.shared_gated,
            bias=bias,
            choice_bias=choice_bias,
            expert_scale=expert_scale,
        )
        self._top_k = spec.top_k
        self._gated = spec.shared_gated

    def __call__(
        self, x: torch.Tensor, residual: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        tokens = x.shape[0]
        logits = self.logits(x if self.norm is None else self.norm(residual))
        ids = x.new_zeros((tokens, self._top_k)).int()
        weights = x.new_empty((tokens, self._top_k))
        factors = x.new_empty((tokens, 1)) if self._gated else None
        gates = 0 if factors is None else factors.data_ptr()
        self.kernel.choose(logits.data_ptr(), tokens, ids.data_ptr(), weights.data_ptr(), gates)
        return weights, ids, factors
