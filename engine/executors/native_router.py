"""The router's choice in our own kernel: the same bits in block by block execution and in the native decoder."""

from __future__ import annotations

import numpy as np
import torch

from engine import _native
from engine.executors.linear import Linear
from engine.executors.norms import Norm
from engine.models.spec import MoeSpec


class NativeRouter:
    """On the CPU. Arguments and results as those of `engine.executors.moe.Router`."""

    def __init__(
        self,
        spec: MoeSpec,
        logits: Linear,
        norm: Norm | None = None,
        bias: torch.Tensor | None = None,
        choice_bias: torch.Tensor | None = None,
        expert_scale: torch.Tensor | None = None,
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
            bias=_values(bias),
            choice_bias=_values(choice_bias),
            expert_scale=_values(expert_scale),
        )
        self._top_k = spec.top_k
        self._gated = spec.shared_gated

    def __call__(
        self, x: torch.Tensor, residual: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        tokens = x.shape[0]
        logits = self.logits(x if self.norm is None else self.norm(residual))
        ids = torch.empty((tokens, self._top_k), dtype=torch.int32)
        weights = torch.empty((tokens, self._top_k))
        factors = torch.empty((tokens, 1)) if self._gated else None
        gates = 0 if factors is None else factors.data_ptr()
        self.kernel.choose(logits.data_ptr(), tokens, ids.data_ptr(), weights.data_ptr(), gates)
        return weights, ids, factors


def _values(tensor: torch.Tensor | None) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]] | None:
    return None if tensor is None else tensor.numpy()
