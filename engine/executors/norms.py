"""Root mean square norms."""

from __future__ import annotations

import torch
from torch.nn.functional import rms_norm


class RmsNorm:
    """x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019). weight float32 [hidden]."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        self._weight = weight
        self._eps = eps
        self._zero = torch.zeros((1, weight.shape[0]), device=weight.device)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """float32 [T, hidden] -> the same, contiguous."""
        hidden = self._weight.shape[0]
        if x.shape[0] > 1 or x.device.type != "cpu":
            return rms_norm(x, (hidden,), self._weight, self._eps)
        # torch's own takes six passes; on one token their start-up is all the time there is: 7 against 3 microseconds.
        length = torch.linalg.vector_norm(x).item()
        return torch.addcmul(self._zero, x, self._weight, value=(length * length / hidden + self._eps) ** -0.5)
