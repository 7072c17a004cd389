"""What our kernels can compute, in one place: whatever they cannot, the torch blocks do.

A kernel that learns a switch is widened here, and nowhere else.
"""

from __future__ import annotations

from engine.models.spec import AttentionSpec, MlpSpec

#: Widest head our attention takes.
MAX_HEAD_DIM = 512


def can_attend(spec: AttentionSpec) -> bool:
    """Whether `_native.Attention` has every switch that this attention turns on."""
    return (
        spec.rope is not None
        and spec.head_dim <= MAX_HEAD_DIM
        and spec.qk_norm in (None, "head")
        and not spec.norm_after_rope
        and not spec.v_norm
        and not spec.sinks
        and spec.clip_qkv is None
        and spec.temperature is None
        and spec.reach is None
    )


def can_feed_forward(spec: MlpSpec) -> bool:
    """Whether `_native.Experts` has this MLP's activation, limit and biases."""
    return spec.activation == "silu" and spec.limit is None and not spec.bias
