"""Rotary positions, always on neighbouring pairs.

Models that rotate halves get the rows of q and k reordered at load instead: pairs (i, i + dim/2) become neighbours,
q.k stays the same, and rotating is one complex product.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from engine import _native
from engine.models.spec import AttentionSpec, RopeSpec


class Rope:
    """Turns positions into complex numbers of size `magnitude`; spec without `long`."""

    def __init__(self, spec: RopeSpec, device: torch.device) -> None:
        exponents = np.arange(0, spec.dim, 2, dtype=np.float64) / spec.dim
        #: Angle from one position to the next, of each pair.
        self.frequencies = spec.theta**-exponents / spec.scale
        if spec.frequency_factors is not None:
            self.frequencies /= np.asarray(spec.frequency_factors, dtype=np.float64)
        self.magnitude = spec.magnitude
        self._device = device

    def turns(self, start: int, tokens: int) -> torch.Tensor:
        """complex64 [tokens, 1, dim/2]: magnitude e^(i position frequency) for positions start..start+tokens-1."""
        turns = _native.rope_turns(self.frequencies, self.magnitude, start, tokens).view(np.complex64)
        return torch.from_numpy(turns.reshape(tokens, 1, -1)).to(self._device)


def rotate(heads: torch.Tensor, turns: torch.Tensor) -> None:
    """Rotate float32 [T, n, head_dim] in place; the dimensions beyond the rotated ones stay."""
    dim = 2 * turns.shape[-1]
    part = heads if dim == heads.shape[-1] else heads[..., :dim]
    torch.view_as_complex(part.view(*part.shape[:-1], -1, 2)).mul_(turns)


def pair_order(spec: AttentionSpec, heads: int) -> npt.NDArray[np.int64] | None:
    """The order of the rows of q or k [heads * head_dim] that makes rotated pairs neighbours; None when they are."""
    if spec.rope is None or spec.rope.interleaved:
        return None
    dim = spec.rope.dim
    head = np.arange(spec.head_dim)
    head[:dim] = head[:dim].reshape(2, dim // 2).T.reshape(-1)
    return (np.arange(heads)[:, None] * spec.head_dim + head).reshape(-1)
