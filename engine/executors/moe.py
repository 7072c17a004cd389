"""A mixture-of-experts layer: router, routed experts, shared expert."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from engine.executors.mlp import Mlp
from engine.executors.norms import Norm
from engine.models.spec import MoeSpec

if TYPE_CHECKING:
    import torch


class RoutedExperts(Protocol):
    """Whoever computes the routed experts.

    x float32 [T, hidden], ids int32 [T, top_k], weights float32 [T, top_k], out float32 [T, hidden], which the
    weighted sum of each token's experts, in the order of their numbers, is added to. All contiguous.
    """

    #: True when `submit` returns before the experts are computed, so that the device can go on meanwhile.
    overlaps: bool

    def forward(
        self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, out: torch.Tensor
    ) -> None: ...

    def submit(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> None: ...

    def wait(self, out: torch.Tensor) -> None: ...


class ChooseExperts(Protocol):
    """A router."""

    def __call__(
        self, x: torch.Tensor, residual: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """x: the experts' input, float32 [T, hidden] -> weights float32 [T, top_k], ids int32 [T, top_k], and the
        shared expert's factors float32 [T, 1] or None.
        """


class Moe:
    """The routed experts, and the shared one beside them."""

    def __init__(
        self, layer: int, spec: MoeSpec, router: ChooseExperts, experts: RoutedExperts, shared: Mlp | None
    ) -> None:
        self.layer = layer
        self.weigh_input = spec.weigh_input
        self.router = router
        self.experts = experts
        self.shared = shared

    def add(self, x: torch.Tensor, out: torch.Tensor, residual: torch.Tensor | None = None) -> None:
        """out += the layer's result. x, out float32 [T, hidden]; residual for a router that reads it, else x."""
        experts, layer = self.experts, self.layer
        weights, ids, factors = self.router(x, x if residual is None else residual)
        if self.weigh_input:
            self._add_weighed(x, ids, weights, out)
        elif experts.overlaps:
            experts.submit(layer, x, ids, weights)
        else:
            experts.forward(layer, x, ids, weights, out)
        if self.shared is not None:
            self.shared.add(x, out, factors)
        if experts.overlaps and not self.weigh_input:
            experts.wait(out)

    def _add_weighed(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, out: torch.Tensor) -> None:
        """Slot by slot, because each expert has an input of its own. Models that do so use one expert per token."""
        ones = weights.new_ones((len(weights), 1))
        for slot in range(ids.shape[1]):
            one = slice(slot, slot + 1)
            weighed, chosen = x * weights[:, one], ids[:, one].contiguous()
            if self.experts.overlaps:
                self.experts.submit(self.layer, weighed, chosen, ones)
                self.experts.wait(out)
            else:
                self.experts.forward(self.layer, weighed, chosen, ones, out)


class ParallelMoe:
    """A dense MLP and routed experts side by side, each with norms of its own (Gemma 4)."""

    def __init__(self, dense: Mlp, dense_post_norm: Norm, norm: Norm, experts: Moe, post_norm: Norm) -> None:
        self.dense, self.dense_post_norm = dense, dense_post_norm
        self.norm, self.experts, self.post_norm = norm, experts, post_norm

    def add(self, x: torch.Tensor, out: torch.Tensor, residual: torch.Tensor) -> None:
        """out += both. x, the MLP's input, residual and out float32 [T, hidden]."""
        beside = out.new_zeros(out.shape)
        self.dense.add(x, beside)
        out += self.dense_post_norm(beside)
        routed = out.new_zeros(out.shape)
        self.experts.add(self.norm(residual), routed, residual)
        out += self.post_norm(routed)
