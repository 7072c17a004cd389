"""The router's choice in our own kernel: the same bits in block by block execution and in the native decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine import _native
from engine.executors.linear import Linear
from engine.executors.norms import Norm
from engine.models.spec import MoeSpec

if TYPE_CHECKING:
    import torch

Floats = npt.NDArray[np.float32]


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
