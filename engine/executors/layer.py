"""One layer of a decoder: a mixer and a feed-forward block on the residual stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from engine.executors.mlp import Mlp
from engine.executors.moe import Moe, ParallelMoe
from engine.executors.norms import Norm

if TYPE_CHECKING:
    import torch

    from engine.executors.step import Step


class Mixer(Protocol):
    """What lets tokens see each other: attention, a convolution; projections included."""

    def __call__(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        """x float32 [T, hidden] -> float32 [T, hidden]. Writes the layer's state."""


class Layer:
    """x += m * mixer(norm x); x += m * ffn(norm x).

    post_norms: of the two results, or None
    multiplier: m
    output_scale: multiplies x last, or None
    """

    def __init__(
        self,
        mixer_norm: Norm,
        mixer: Mixer,
        ffn_norm: Norm,
        ffn: Mlp | Moe | ParallelMoe,
        post_norms: tuple[Norm, Norm] | None = None,
        multiplier: float = 1.0,
        output_scale: float | None = None,
    ) -> None:
        self.mixer_norm, self.mixer = mixer_norm, mixer
        self.ffn_norm, self.ffn = ffn_norm, ffn
        self.post_norms = post_norms
        self.multiplier = multiplier
        self.output_scale = output_scale

    def __call__(self, x: torch.Tensor, step: Step) -> None:
        """x float32 [T, hidden], changed in place."""
        mixed = self.mixer(self.mixer_norm(x), step)
        if self.post_norms is not None:
            mixed = self.post_norms[0](mixed)
        if self.multiplier != 1.0:
            mixed *= self.multiplier
        self._feed_forward(self.ffn_norm(x, mixed), x)
        if self.output_scale is not None:
            x *= self.output_scale

    def _feed_forward(self, normed: torch.Tensor, x: torch.Tensor) -> None:
        if self.post_norms is None and self.multiplier == 1.0 and not isinstance(self.ffn, ParallelMoe):
            self.ffn.add(normed, x)
            return
        result = x.new_zeros(x.shape)
        if isinstance(self.ffn, ParallelMoe):
            self.ffn.add(normed, result, x)
        else:
            self.ffn.add(normed, result)
        if self.post_norms is not None:
            result = self.post_norms[1](result)
        if self.multiplier != 1.0:
            result *= self.multiplier
        x += result
