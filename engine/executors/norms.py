"""Norms over a token's hidden values, on the residual stream or beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from engine import _native

if TYPE_CHECKING:
    import torch

Floats = npt.NDArray[np.float32]


class Norm(Protocol):
    def __call__(self, x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        """x float32 [T, hidden] -> the same, contiguous; `added` is added to x itself before."""


class NativeRmsNorm:
    """x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019), on the CPU in our kernel: the same bits for a token
    whatever tokens are beside it. weight float32 [hidden].
    """

    def __init__(self, pool: _native.ThreadPool, weight: Floats, eps: float) -> None:
        self._pool = pool
        self.weight = weight
        self.eps = eps

    def __call__(self, x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        tokens, hidden = x.shape
        y = x.new_empty(x.shape)
        more = 0 if added is None else added.data_ptr()
        weight = self.weight.ctypes.data
        _native.rms_norm(self._pool, x.data_ptr(), more, tokens, hidden, weight, self.eps, y.data_ptr())
        return y


class NativeLayerNorm:
    """(x - mean) / sqrt(variance + eps) * weight + bias (Ba et al. 2016), likewise. weight, bias float32 [hidden]."""

    def __init__(self, pool: _native.ThreadPool, weight: Floats, bias: Floats, eps: float) -> None:
        self._pool = pool
        self.weight, self.bias = weight, bias
        self.eps = eps

    def __call__(self, x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        tokens, hidden = x.shape
        y = x.new_empty(x.shape)
        more = 0 if added is None else added.data_ptr()
        weight, bias = self.weight.ctypes.data, self.bias.ctypes.data
        _native.layer_norm(self._pool, x.data_ptr(), more, tokens, hidden, weight, bias, self.eps, y.data_ptr())
        return y
