"""Rotary positions, always on neighbouring pairs.

Models that rotate halves get the rows of q and k reordered at load instead: pairs (i, i + dim/2) become neighbours,
q.k stays the same, and rotating is one complex product.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine import _native
from engine.models.spec import AttentionSpec, ModelSpec, RopeSpec


class Rope:
    """Turns positions into complex numbers of size `magnitude`; spec without `long`."""

    def __init__(self, spec: RopeSpec) -> None:
        exponents = np.arange(0, spec.dim, 2, dtype=np.float64) / spec.dim
        #: Angle from one position to the next, of each pair.
        self.frequencies = spec.theta**-exponents / spec.scale
        if spec.frequency_factors is not None:
            self.frequencies /= np.asarray(spec.frequency_factors, dtype=np.float64)
        self.magnitude = spec.magnitude

    def turns(self, start: int, tokens: int) -> npt.NDArray[np.complex64]:
        """complex64 [tokens, 1, dim/2]: magnitude e^(i position frequency) for positions start..start+tokens-1."""
        turns = _native.rope_turns(self.frequencies, self.magnitude, start, tokens).view(np.complex64)
        return turns.reshape(tokens, 1, -1)


def pair_order(spec: AttentionSpec, heads: int) -> npt.NDArray[np.int64] | None:
    """The order of the rows of q or k [heads * head_dim] that makes rotated pairs neighbours; None when they are."""
    if spec.rope is None or spec.rope.interleaved:
        return None
    dim = spec.rope.dim
    head = np.arange(spec.head_dim)
    head[:dim] = head[:dim].reshape(2, dim // 2).T.reshape(-1)
    return (np.arange(heads)[:, None] * spec.head_dim + head).reshape(-1)


def ropes_of(spec: ModelSpec, context: int) -> dict[RopeSpec, Rope]:
    """Every rotation of the model, settled for the context."""
    settled = {attention.rope.at_context(context) for attention in spec.attentions if attention.rope is not None}
    return {rope: Rope(rope) for rope in settled}
