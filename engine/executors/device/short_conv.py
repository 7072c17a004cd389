"""Gated short convolution: a layer that mixes a token with the few before it (LFM2)."""

from __future__ import annotations

import torch

from engine.executors.device.states import ConvState
from engine.executors.linear import Linear
from engine.executors.step import Step


class ShortConv:
    """out(c * conv(b * x)), where b, c and x are the thirds of in(hidden).

    inputs, out: [3 hidden, hidden] and [hidden, hidden]; their biases or None
    kernel:      float32 [width, hidden], the oldest token's weights first; bias [hidden] or None
    """

    def __init__(
        self,
        state: ConvState,
        inputs: Linear,
        kernel: torch.Tensor,
        out: Linear,
        in_bias: torch.Tensor | None = None,
        kernel_bias: torch.Tensor | None = None,
        out_bias: torch.Tensor | None = None,
    ) -> None:
        self.state = state
        self._in, self._kernel, self._out = inputs, kernel, out
        self._in_bias, self._kernel_bias, self._out_bias = in_bias, kernel_bias, out_bias

    def __call__(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        """x float32 [T, hidden] -> float32 [T, hidden]."""
        projected = self._in(x)
        if self._in_bias is not None:
            projected += self._in_bias
        b, c, values = projected.chunk(3, -1)
        joined = self.state.append(step.start, b * values)
        # Few taps: a sum of shifted products, which has the same bits however the tokens are cut into chunks.
        mixed = joined[: step.tokens] * self._kernel[0]
        for tap in range(1, len(self._kernel)):
            mixed += joined[tap : tap + step.tokens] * self._kernel[tap]
        if self._kernel_bias is not None:
            mixed += self._kernel_bias
        out = self._out(mixed.mul_(c))
        if self._out_bias is not None:
            out += self._out_bias
        return out
