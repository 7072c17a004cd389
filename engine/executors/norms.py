"""Norms over a token's hidden values, on the residual stream or beside it."""

from __future__ import annotations

from typing import Protocol

import torch
from torch.nn.functional import layer_norm, rms_norm

from engine import _native


class Norm(Protocol):
    def __call__(self, x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        """x float32 [T, hidden] -> the same, contiguous; `added` is added to x itself before."""


class TorchRmsNorm:
    """x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019), on a torch device. weight float32 [hidden]."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        self._weight = weight
        self._eps = eps

    def __call__(self, x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        if added is not None:
            x += added
        return rms_norm(x, self._weight.shape, self._weight, self._eps)


class NativeRmsNorm:
    """On the CPU, in our kernel: the same bits for a token whatever tokens are beside it."""

    def __init__(self, pool: _native.ThreadPool, weight: torch.Tensor, eps: float) -> None:
        self._pool = pool
        self.weight = weight
        self.eps = eps

    def __call__(self, x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        tokens, hidden = x.shape
        y = torch.empty_like(x)
        more = 0 if added is None else added.data_ptr()
        _native.rms_norm(self._pool, x.data_ptr(), more, tokens, hidden, self.weight.data_ptr(), self.eps, y.data_ptr())
        return y


class NativeLayerNorm:
    """(x - mean) / sqrt(variance + eps) * weight + bias (Ba et al. 2016), likewise."""

    def __init__(self, pool: _native.ThreadPool, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> None:
        self._pool = pool
        self.weight, self.bias = weight, bias
        self.eps = eps

    def __call__(self, x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        tokens, hidden = x.shape
        y = torch.empty_like(x)
        more = 0 if added is None else added.data_ptr()
        weight, bias = self.weight.data_ptr(), self.bias.data_ptr()
        _native.layer_norm(self._pool, x.data_ptr(), more, tokens, hidden, weight, bias, self.eps, y.data_ptr())
        return y


class TorchLayerNorm:
    """(x - mean) / sqrt(variance + eps) * weight + bias (Ba et al. 2016). weight, bias float32 [hidden]."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> None:
        self._weight, self._bias = weight, bias
        self._eps = eps

    def __call__(self, x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        if added is not None:
            x += added
        return layer_norm(x, self._weight.shape, self._weight, self._bias, self._eps)
