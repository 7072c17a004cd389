"""The short convolution in our own kernel, and what it remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine import _native
from engine.executors.kv_cache import no_room
from engine.executors.linear import Linear
from engine.models.spec import CHECKPOINT_INTERVAL, DRAFT, ShortConvSpec

if TYPE_CHECKING:
    import torch

    from engine.executors.step import Step

Floats = npt.NDArray[np.float32]


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
