"""Rotary positions from a header: where the base and the scaling live in each file form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from engine.models.header import Header
from engine.models.spec import RopeSpec

DEFAULT_THETA = 10000.0
_MAX_THETA = 1e12


def rope_spec(header: Header, head_dim: int, interleaved: bool) -> RopeSpec:
    """Raises GreenroomError for a scaling that Greenroom does not compute."""
    if header.checkpoint.form == "gguf":
        return _from_gguf(header, head_dim, interleaved)
    return _from_config(header, head_dim, interleaved)


def llama3_factors(
    theta: float, dim: int, factor: float, low: float, high: float, original_context: float
) -> tuple[float, ...]:
    """Divisors [dim/2] of the inverse frequencies, as Llama 3.1 stretches its context.

    Wavelengths beyond original_context/low are stretched by factor, those below original_context/high stay,
    and between them the inverse frequencies are blended linearly.
    """
    factors = []
    for i in range(dim // 2):
        turns = original_context / (2 * math.pi * theta ** (2 * i / dim))
        kept = min(1.0, max(0.0, (turns - low) / (high - low)))
        factors.append(1.0 / ((1.0 - kept) / factor + kept))
    return tuple(factors)


def _from_config(header: Header, head_dim: int, interleaved: bool) -> RopeSpec:
    config = header.checkpoint.config
    # transformers 5 keeps everything in rope_parameters; older files have rope_theta and rope_scaling side by side.
    nested = config.get("rope_parameters")
    if nested is None:
        nested = config.get("rope_scaling")
    if nested is None:
        nested = {}
    if not isinstance(nested, Mapping):
        raise header.fail('its header\'s "rope_parameters" is not a set of named values')
    values: dict[str, Any] = {**config, **nested}
    theta = header.bounded("rope_theta", values.get("rope_theta", DEFAULT_THETA), 1.0, _MAX_THETA)
    share = header.bounded("partial_rotary_factor", values.get("partial_rotary_factor", 1.0), 0.0, 1.0)
    dim = _checked_dim(header, int(head_dim * share), head_dim)
    kind = nested.get("rope_type", nested.get("type", "default"))
    if kind in ("default", None):
        return RopeSpec(theta, dim, interleaved)
    if kind == "linear":
        return RopeSpec(theta, dim, interleaved, scale=header.bounded("factor", nested.get("factor"), 1.0, 1e4))
    if kind == "llama3":
        factor = header.bounded("factor", nested.get("factor"), 1.0, 1e4)
        low = header.bounded("low_freq_factor", nested.get("low_freq_factor"), 1e-3, 1e4)
        high = header.bounded("high_freq_factor", nested.get("high_freq_factor"), 1e-3, 1e4)
        if high <= low:
            raise header.fail('its header has "high_freq_factor" not above "low_freq_factor"')
        original = values.get("original_max_position_embeddings", config.get("max_position_embeddings"))
        context = header.bounded("original_max_position_embeddings", original, 1, 1 << 28)
        return RopeSpec(theta, dim, interleaved, llama3_factors(theta, dim, factor, low, high, context))
    raise _unknown_scaling(header, kind)


def _from_gguf(header: Header, head_dim: int, interleaved: bool) -> RopeSpec:
    checkpoint = header.checkpoint
    prefix = f"{checkpoint.architecture}.rope."
    config = checkpoint.config
    theta = header.bounded(f"{prefix}freq_base", config.get(f"{prefix}freq_base", DEFAULT_THETA), 1.0, _MAX_THETA)
    stated = header.bounded(f"{prefix}dimension_count", config.get(f"{prefix}dimension_count", head_dim), 1, head_dim)
    dim = _checked_dim(header, int(stated), head_dim)
    kind = config.get(f"{prefix}scaling.type", "none")
    if kind not in ("none", "linear"):
        raise _unknown_scaling(header, kind)
    scale = 1.0
    if kind == "linear":
        key = f"{prefix}scaling.factor"
        scale = header.bounded(key, config.get(key), 1.0, 1e4)
    factors = None
    info = checkpoint.tensors.get("rope_freqs.weight")
    if info is not None:
        if info.shape != (dim // 2,):
            raise header.fail(f'its "rope_freqs.weight" has shape {list(info.shape)} instead of [{dim // 2}]')
        factors = tuple(float(x) for x in checkpoint.read_float32("rope_freqs.weight"))
        if not all(math.isfinite(x) and x > 0 for x in factors):
            raise header.fail('its "rope_freqs.weight" holds values that are not above zero')
    return RopeSpec(theta, dim, interleaved, factors, scale)


def _checked_dim(header: Header, dim: int, head_dim: int) -> int:
    if dim < 2 or dim % 2 or dim > head_dim:
        raise header.fail(f"it rotates {dim} of each head's {head_dim} dimensions, which is not an even part of them")
    return dim


def _unknown_scaling(header: Header, kind: object) -> Exception:
    return header.fail(
        f'it stretches its context by "{kind}", which Greenroom does not compute yet',
        "Choose a file of this model without that stretching.",
    )
