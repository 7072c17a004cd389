"""Every way of stretching a context against transformers' own tables, and what headers may get wrong about it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from header_only import D, HeaderOnly, gguf_config, gguf_shapes, hf_config, hf_shapes
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from engine.errors import GreenroomError
from engine.models.header import Header
from engine.models.rope import rope_spec
from engine.models.spec import RopeSpec

#: Dimensions of a head; the header's own heads are too narrow for a scaling to show.
HEAD = 64
SHORT = [1.0 + 0.05 * i for i in range(HEAD // 2)]
LONG = [1.0 + 0.9 * i for i in range(HEAD // 2)]


def from_config(rope: dict[str, Any], **changes: Any) -> RopeSpec:
    config = hf_config(num_experts=None, rope_parameters=rope, **changes)
    header = Header(HeaderOnly("safetensors", "llama", config, hf_shapes(moe=False)))
    return rope_spec(header, HEAD, interleaved=False)


def from_gguf(tensors: dict[str, Any] | None = None, **changes: Any) -> RopeSpec:
    shapes = {**gguf_shapes(moe=False), **{name: np.shape(values) for name, values in (tensors or {}).items()}}
    config = gguf_config("llama", rope__dimension_count=HEAD, **changes)
    return rope_spec(Header(HeaderOnly("gguf", "llama", config, shapes, tensors or {})), HEAD, interleaved=True)


def frequencies(rope: RopeSpec) -> np.ndarray:
    plain = rope.theta ** (-np.arange(0, rope.dim, 2) / rope.dim) / rope.scale
    return plain / np.asarray(rope.frequency_factors or (1.0,) * (rope.dim // 2))


YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 64}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": SHORT,
    "long_factor": LONG,
    "original_max_position_embeddings": 64,
}


@pytest.mark.parametrize(
    "rope",
    [
        YARN,
        {**YARN, "beta_fast": 16.0, "beta_slow": 2.0},
        {**YARN, "truncate": False},
        {**YARN, "mscale": 0.7, "mscale_all_dim": 1.4},
        {**YARN, "attention_factor": 1.7},
        {**YARN, "factor": 1.0},
        {**YARN, "partial_rotary_factor": 0.5},
        LONGROPE,
        {**LONGROPE, "factor": 3.0},
        {**LONGROPE, "attention_factor": 1.25},
        {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
        {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0},
        {"rope_type": "proportional", "rope_theta": 1e4, "partial_rotary_factor": 0.25},
        {"rope_type": "proportional", "rope_theta": 1e4, "partial_rotary_factor": 0.5, "factor": 2.0},
        {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        | {"original_max_position_embeddings": 64},
    ],
)
def test_config_scalings_equal_transformers(rope: dict[str, Any]) -> None:
    config = LlamaConfig(hidden_size=4 * HEAD, num_attention_heads=4, max_position_embeddings=512, rope_parameters=rope)
    expected, magnitude = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config)
    spec = from_config(rope)
    np.testing.assert_allclose(frequencies(spec), expected.numpy(), rtol=2e-6)
    assert spec.magnitude == pytest.approx(magnitude)
    if rope["rope_type"] == "longrope":
        expected, magnitude = ROPE_INIT_FUNCTIONS["longrope"](config, seq_len=65)
        np.testing.assert_allclose(frequencies(spec.at_context(65)), expected.numpy(), rtol=2e-6)
        assert spec.at_context(65).magnitude == pytest.approx(magnitude)
        assert spec.at_context(64).magnitude == spec.magnitude


def test_a_fixed_alpha_stretches_the_base() -> None:
    """Hunyuan's "dynamic" scaling: theta alpha^(d / (d - 2))."""
    spec = from_config({"rope_type": "dynamic", "rope_theta": 1e4, "factor": 1.0, "alpha": 1000.0})
    assert spec.theta == pytest.approx(1e4 * 1000 ** (HEAD / (HEAD - 2)))
    assert spec.frequency_factors is None


def test_magnitudes_of_phi() -> None:
    spec = from_config({**LONGROPE, "short_mscale": 1.1, "long_mscale": 1.3})
    assert (spec.at_context(64).magnitude, spec.at_context(65).magnitude) == (1.1, 1.3)


def test_gguf_yarn_equals_config_yarn() -> None:
    scaling = {
        "rope__scaling__type": "yarn",
        "rope__scaling__factor": 8.0,
        "rope__scaling__original_context_length": 64,
    }
    got, expected = from_gguf(**scaling), from_config(YARN)
    assert got.frequency_factors == expected.frequency_factors
    assert got.magnitude == expected.magnitude
    changed = from_gguf(**scaling, rope__scaling__yarn_beta_fast=16.0, rope__scaling__attn_factor=0.5)
    assert changed.frequency_factors == from_config({**YARN, "beta_fast": 16.0}).frequency_factors
    assert changed.magnitude == pytest.approx(0.5 * expected.magnitude)
    stated = from_gguf(**scaling, rope__scaling__yarn_attn_factor=1.7)
    assert stated.magnitude == from_config({**YARN, "attention_factor": 1.7}).magnitude == 1.7


def test_a_gguf_factor_without_a_type_is_linear() -> None:
    assert from_gguf(rope__scaling__factor=4.0).scale == 4.0
    assert from_gguf(rope__scaling__factor=4.0, rope__scaling__type="none").scale == 1.0


def test_gguf_longrope_keeps_its_factors_in_tensors() -> None:
    tensors = {"rope_factors_short.weight": SHORT, "rope_factors_long.weight": LONG}
    scaling = {"rope__scaling__type": "longrope", "rope__scaling__original_context_length": 64}
    spec = from_gguf(tensors, **scaling, rope__scaling__attn_factor=1.2)
    np.testing.assert_allclose(spec.at_context(64).frequency_factors, SHORT, rtol=1e-6)
    np.testing.assert_allclose(spec.at_context(65).frequency_factors, LONG, rtol=1e-6)
    assert spec.magnitude == spec.at_context(65).magnitude == 1.2
    with pytest.raises(GreenroomError, match="rope_factors_short"):
        from_gguf({"rope_factors_long.weight": LONG}, **scaling)
    with pytest.raises(GreenroomError, match="shape"):
        from_gguf({**tensors, "rope_factors_long.weight": LONG[:3]}, **scaling)


@pytest.mark.parametrize(
    ("rope", "named"),
    [
        ({**LONGROPE, "short_factor": SHORT[:-1]}, "short_factor"),
        ({**LONGROPE, "long_factor": [*LONG[:-1], 0.0]}, "long_factor"),
        ({**LONGROPE, "long_factor": None}, "long_factor"),
        ({**YARN, "factor": math.inf}, "factor"),
        ({**YARN, "beta_slow": -1.0}, "beta_slow"),
        ({**YARN, "original_max_position_embeddings": 0}, "original_max_position_embeddings"),
        ({**YARN, "rope_theta": 1.0}, "rope_theta"),
        ({"rope_type": "proportional", "partial_rotary_factor": "half"}, "partial_rotary_factor"),
        ({"rope_type": "dynamic", "factor": 1.0, "alpha": 0.0}, "alpha"),
    ],
)
def test_a_bad_scaling_is_one_clear_sentence(rope: dict[str, Any], named: str) -> None:
    with pytest.raises(GreenroomError, match=named) as caught:
        from_config(rope)
    assert len(str(caught.value)) < 300


def test_layer_types_have_rotations_of_their_own() -> None:
    rope = {"near": {"rope_type": "default", "rope_theta": 1e4}, "far": {"rope_type": "default", "rope_theta": 1e6}}
    header = Header(HeaderOnly("safetensors", "llama", hf_config(rope_parameters=rope), {}))
    thetas = [rope_spec(header, D, interleaved=False, layer_type=kind).theta for kind in ("near", "far")]
    assert thetas == [1e4, 1e6]
    values = {"rope__freq_base": 1e6, "rope__freq_base_swa": 1e4}
    header = Header(HeaderOnly("gguf", "llama", gguf_config("llama", **values), {}))
    thetas = [rope_spec(header, D, interleaved=False, suffix=suffix).theta for suffix in ("_swa", "")]
    assert thetas == [1e4, 1e6]
