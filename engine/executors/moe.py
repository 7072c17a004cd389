"""A mixture-of-experts layer: router, routed experts, shared expert."""

from __future__ import annotations

from typing import Protocol

import torch

from engine.executors.linear import Linear
from engine.executors.mlp import Mlp
from engine.models.spec import MoeSpec


class RoutedExperts(Protocol):
    """Whoever computes the routed experts.

    x float32 [T, hidden], ids int32 [T, top_k], weights float32 [T, top_k], out float32 [T, hidden], which the
    weighted sum in slot order is added to.
    """

    #: True when `submit` returns before the experts are computed, so that the device can go on meanwhile.
    overlaps: bool

    def forward(
        self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, out: torch.Tensor
    ) -> None: ...

    def submit(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> None: ...

    def wait(self, out: torch.Tensor) -> None: ...


class Moe:
    """router: [experts, hidden], with the shared expert's gate as one more row when that is gated."""

    def __init__(self, layer: int, spec: MoeSpec, router: Linear, experts: RoutedExperts, shared: Mlp | None) -> None:
        self._layer = layer
        self._spec = spec
        self._router = router
        self._experts = experts
        self._shared = shared

    def add(self, x: torch.Tensor, out: torch.Tensor) -> None:
        """out += the layer's result. x, out float32 [T, hidden]."""
        spec = self._spec
        logits = self._router(x)
        weights, ids = route(spec, logits[:, : spec.experts])
        if self._experts.overlaps:
            self._experts.submit(self._layer, x, ids, weights)
        else:
            self._experts.forward(self._layer, x, ids, weights, out)
        if self._shared is not None:
            factors = logits[:, spec.experts :].sigmoid().contiguous() if spec.shared_gated else None
            self._shared.add(x, out, factors)
        if self._experts.overlaps:
            self._experts.wait(out)


def route(spec: MoeSpec, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """logits float32 [T, experts] -> weights float32 [T, top_k] and ids int32 [T, top_k], best first."""
    if spec.score != "softmax":
        raise ValueError(f"router score {spec.score}")
    if spec.renormalise:
        # Softmax over the chosen logits is softmax over all, divided by the chosen sum.
        best, ids = logits.topk(spec.top_k)
        weights = best.softmax(-1)
    else:
        weights, ids = logits.softmax(-1).topk(spec.top_k)
    if spec.scale != 1.0:
        weights = weights * spec.scale
    return weights, ids.int()
