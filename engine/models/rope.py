"""Rotary positions from a header: where the base and the scaling live in each file form.

Every way of stretching a context comes down to divisors of the inverse frequencies and a factor on cosine and sine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.header import Header
from engine.models.spec import LongRope, RopeSpec

DEFAULT_THETA = 10000.0
_MIN_THETA, _MAX_THETA = 1.01, 1e12
_MAX_FACTOR = 1e4
_MAX_CONTEXT = 1 << 28


def rope_spec(
    header: Header,
    head_dim: int,
    interleaved: bool,
    *,
    theta: float = DEFAULT_THETA,
    share: float = 1.0,
    layer_type: str | None = None,
    suffix: str = "",
    truncate: bool = True,
) -> RopeSpec:
    """Raises GreenroomError for a scaling that Greenroom does not compute.

    theta, share: base and rotated share of the head that hold when the header does not say
    layer_type:   the part of config.json's rope_parameters to read, where they differ by layer type
    suffix:       likewise in GGUF: appended to its keys ("_swa"); `rope_freqs.weight` then is for other layers
    truncate:     YaRN's corrections are rounded to whole dimensions; GGUF has no key for models that do not
    """
    if header.checkpoint.form == "gguf":
        return _Gguf(header, head_dim, interleaved, theta, share, suffix, truncate).rope()
    return _Config(header, head_dim, interleaved, theta, share, layer_type).rope()


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
        kept = min(1.0, max(0.0, (turns - low) / (high - low))) if high > low else float(turns >= high)
        factors.append(1.0 / ((1.0 - kept) / factor + kept))
    return tuple(factors)


def yarn_factors(
    theta: float,
    dim: int,
    factor: float,
    original_context: float,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
) -> tuple[float, ...]:
    """Divisors [dim/2] of the inverse frequencies in YaRN (Peng et al. 2023).

    Pairs that turn more than beta_fast times within the original context stay, those that turn less than beta_slow
    times are stretched by factor, and between them the inverse frequencies are blended linearly by index.
    """

    def index(turns: float) -> float:
        return dim * math.log(original_context / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = index(beta_fast), index(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    width = high - low if high != low else 0.001
    factors = []
    for i in range(dim // 2):
        stretched = min(1.0, max(0.0, (i - low) / width))
        factors.append(1.0 / (stretched / factor + 1.0 - stretched))
    return tuple(factors)


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """YaRN's factor on cosine and sine: 1 + 0.1 weight ln(factor)."""
    return 1.0 if factor <= 1.0 else 1.0 + 0.1 * weight * math.log(factor)


def longrope_magnitude(factor: float, original_context: float) -> float:
    """LongRoPE's factor on cosine and sine (Ding et al. 2024)."""
    return 1.0 if factor <= 1.0 else math.sqrt(1.0 + math.log(factor) / math.log(original_context))


class _Config:
    """transformers 5 keeps everything in rope_parameters; older files have rope_theta and rope_scaling side by side."""

    def __init__(
        self, header: Header, head_dim: int, interleaved: bool, theta: float, share: float, layer_type: str | None
    ) -> None:
        config = header.config
        nested = config.get("rope_parameters")
        if nested is None:
            nested = config.get("rope_scaling")
        if isinstance(nested, Mapping) and layer_type is not None:
            nested = nested.get(layer_type, nested)
        if nested is None:
            nested = {}
        if not isinstance(nested, Mapping):
            raise header.fail('its header\'s "rope_parameters" is not a set of named values')
        self._header = header
        self._config = config
        self._nested = nested
        self._values: dict[str, Any] = {**config, **nested}
        self._kind = nested.get("rope_type", nested.get("type", "default"))
        theta = self._number("rope_theta", _MIN_THETA, _MAX_THETA, theta)
        share = self._number("partial_rotary_factor", 0.0, 1.0, share)
        dim = int(head_dim * share)
        if self._values.get("rotary_dim") is not None:
            dim = int(self._number("rotary_dim", 2, head_dim))
        self._head_dim = head_dim
        self._share = share
        # A "proportional" rope spans the whole head; only its frequencies stop early.
        dim = head_dim if self._kind == "proportional" else dim
        self._rope = RopeSpec(theta, _checked_dim(header, dim, head_dim), interleaved)

    def rope(self) -> RopeSpec:
        rope, kind = self._rope, self._kind
        if kind in ("default", None):
            return rope
        if kind == "linear":
            return replace(rope, scale=self._factor())
        if kind == "proportional":
            turned = int(self._share * self._head_dim // 2)
            factors = (1.0,) * turned + (math.inf,) * (rope.dim // 2 - turned)
            return replace(rope, frequency_factors=factors, scale=self._number("factor", 1.0, _MAX_FACTOR, 1.0))
        if kind == "dynamic":
            # Without a fixed alpha the base only grows beyond the context the model was made for.
            alpha = self._number("alpha", 1.0, 1e6, 1.0)
            return replace(rope, theta=rope.theta * alpha ** (rope.dim / max(1, rope.dim - 2)))
        if kind == "llama3":
            low = self._number("low_freq_factor", 1e-3, _MAX_FACTOR)
            high = self._number("high_freq_factor", 1e-3, _MAX_FACTOR)
            if high < low:
                raise self._header.fail('its header has "high_freq_factor" below "low_freq_factor"')
            factors = llama3_factors(rope.theta, rope.dim, self._factor(), low, high, self._original_context())
            return replace(rope, frequency_factors=factors)
        if kind == "yarn":
            return self._yarn()
        if kind in ("longrope", "su"):
            return self._longrope()
        raise _unknown_scaling(self._header, kind)

    def _yarn(self) -> RopeSpec:
        rope, original = self._rope, self._original_context()
        factor = self._stretch(original)
        factors = yarn_factors(
            rope.theta,
            rope.dim,
            factor,
            original,
            self._number("beta_fast", 1e-3, _MAX_FACTOR, 32.0),
            self._number("beta_slow", 1e-3, _MAX_FACTOR, 1.0),
            bool(self._nested.get("truncate", True)),
        )
        weight, overall = (self._number(key, 0.0, 1e2, 0.0) for key in ("mscale", "mscale_all_dim"))
        magnitude = yarn_magnitude(factor)
        if weight and overall:
            magnitude = yarn_magnitude(factor, weight) / yarn_magnitude(factor, overall)
        magnitude = self._number("attention_factor", 1e-3, 1e3, magnitude)
        return replace(rope, frequency_factors=factors, magnitude=magnitude)

    def _longrope(self) -> RopeSpec:
        original = self._original_context()
        usual = longrope_magnitude(self._stretch(original), original)
        usual = self._number("attention_factor", 1e-3, 1e3, usual)
        short, long = (self._list(f"{name}_factor") for name in ("short", "long"))
        long_rope = LongRope(int(original), long, self._number("long_mscale", 1e-3, 1e3, usual))
        return replace(
            self._rope,
            frequency_factors=short,
            magnitude=self._number("short_mscale", 1e-3, 1e3, usual),
            long=long_rope,
        )

    def _number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        value = self._values.get(key)
        return default if value is None and default is not None else self._header.bounded(key, value, low, high)

    def _factor(self) -> float:
        return self._number("factor", 1.0, _MAX_FACTOR)

    def _original_context(self) -> float:
        usual = self._config.get("max_position_embeddings")
        value = self._values.get("original_max_position_embeddings", usual)
        return self._header.bounded("original_max_position_embeddings", value, 2, _MAX_CONTEXT)

    def _stretch(self, original: float) -> float:
        """How many times the original context the model is made for."""
        if self._nested.get("factor") is not None:
            return self._factor()
        context = self._header.bounded(
            "max_position_embeddings", self._config.get("max_position_embeddings"), 1, _MAX_CONTEXT
        )
        return context / original

    def _list(self, key: str) -> tuple[float, ...]:
        values = self._nested.get(key)
        if not isinstance(values, list) or len(values) != self._rope.dim // 2:
            raise self._header.fail(f'its header\'s "{key}" is not a list of {self._rope.dim // 2} numbers')
        return tuple(self._header.bounded(key, value, 1e-3, 1e6) for value in values)


class _Gguf:
    def __init__(
        self,
        header: Header,
        head_dim: int,
        interleaved: bool,
        theta: float,
        share: float,
        suffix: str,
        truncate: bool,
    ) -> None:
        self._header = header
        self._checkpoint = header.checkpoint
        self._prefix = f"{header.checkpoint.architecture}.rope."
        self._suffix = suffix
        self._truncate = truncate
        theta = self._number(f"freq_base{suffix}", _MIN_THETA, _MAX_THETA, theta)
        dim = int(self._number(f"dimension_count{suffix}", 1, head_dim, int(head_dim * share)))
        self._rope = RopeSpec(theta, _checked_dim(header, dim, head_dim), interleaved)

    def rope(self) -> RopeSpec:
        rope = self._rope
        # Files from before the key was there stretch linearly.
        stretched = self._checkpoint.config.get(f"{self._prefix}scaling.factor") is not None
        kind = self._checkpoint.config.get(f"{self._prefix}scaling.type", "linear" if stretched else "none")
        if self._suffix:
            return rope
        factors = self._tensor("rope_freqs.weight")
        # llama.cpp's converter of Phi-3.5-MoE writes the factors but not the kind.
        if kind == "longrope" or "rope_factors_short.weight" in self._checkpoint.tensors:
            return self._longrope()
        if kind == "none":
            return replace(rope, frequency_factors=factors)
        if kind == "linear":
            return replace(rope, frequency_factors=factors, scale=self._factor())
        if kind == "yarn":
            return self._yarn()
        raise _unknown_scaling(self._header, kind)

    def _yarn(self) -> RopeSpec:
        rope, factor, original = self._rope, self._factor(), self._original_context()
        factors = yarn_factors(
            rope.theta,
            rope.dim,
            factor,
            original,
            self._number("scaling.yarn_beta_fast", 1e-3, _MAX_FACTOR, 32.0),
            self._number("scaling.yarn_beta_slow", 1e-3, _MAX_FACTOR, 1.0),
            self._truncate,
        )
        magnitude = self._number("scaling.yarn_attn_factor", 1e-3, 1e3, yarn_magnitude(factor))
        magnitude *= self._number("scaling.attn_factor", 1e-3, 1e3, 1.0)
        return replace(rope, frequency_factors=factors, magnitude=magnitude)

    def _longrope(self) -> RopeSpec:
        short, long = (self._tensor(f"rope_factors_{name}.weight") for name in ("short", "long"))
        if short is None or long is None:
            raise self._header.fail('it stretches its context but lacks "rope_factors_short.weight" or the long ones')
        magnitude = self._number("scaling.attn_factor", 1e-3, 1e3, 1.0)
        long_rope = LongRope(int(self._original_context()), long, magnitude)
        return replace(self._rope, frequency_factors=short, magnitude=magnitude, long=long_rope)

    def _number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        key = f"{self._prefix}{key}"
        value = self._checkpoint.config.get(key)
        return default if value is None and default is not None else self._header.bounded(key, value, low, high)

    def _factor(self) -> float:
        return self._number("scaling.factor", 1.0, _MAX_FACTOR)

    def _original_context(self) -> float:
        usual = self._checkpoint.config.get(f"{self._checkpoint.architecture}.context_length")
        stated = isinstance(usual, int) and not isinstance(usual, bool)
        return self._number("scaling.original_context_length", 2, _MAX_CONTEXT, usual if stated else None)

    def _tensor(self, name: str) -> tuple[float, ...] | None:
        """Divisors that the file keeps as a tensor [dim/2]; None when it has none."""
        info = self._checkpoint.tensors.get(name)
        if info is None:
            return None
        if info.shape != (self._rope.dim // 2,):
            raise self._header.fail(f'its "{name}" has shape {list(info.shape)} instead of [{self._rope.dim // 2}]')
        factors = tuple(float(x) for x in self._checkpoint.read_float32(name))
        if not all(math.isfinite(x) and x > 0 for x in factors):
            raise self._header.fail(f'its "{name}" holds values that are not above zero')
        return factors


def _checked_dim(header: Header, dim: int, head_dim: int) -> int:
    if dim < 2 or dim % 2 or dim > head_dim:
        raise header.fail(f"it rotates {dim} of each head's {head_dim} dimensions, which is not an even part of them")
    return dim


def _unknown_scaling(header: Header, kind: object) -> Exception:
    return header.fail(
        f'it stretches its context by "{kind}", which Greenroom does not compute yet',
        "Choose a file of this model without that stretching.",
    )
