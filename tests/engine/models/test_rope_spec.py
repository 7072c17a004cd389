"""Rotary settings from both file forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from header_only import D, HeaderOnly, gguf_config, gguf_shapes, hf_config, hf_shapes

from engine.errors import GreenroomError
from engine.models import model_spec
from engine.models.rope import llama3_factors
from engine.models.spec import RopeSpec

LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def config_rope(**changes: Any) -> RopeSpec:
    config = hf_config(num_experts=None, **changes)
    spec = model_spec(HeaderOnly("safetensors", "llama", config, hf_shapes(moe=False)))
    return spec.layers[0].mixer.rope


def gguf_rope(factors: Any = None, **changes: Any) -> RopeSpec:
    shapes = gguf_shapes(moe=False)
    if factors is not None:
        shapes["rope_freqs.weight"] = np.shape(factors)
    values = {"rope_freqs.weight": factors}
    spec = model_spec(HeaderOnly("gguf", "llama", gguf_config("llama", **changes), shapes, values))
    return spec.layers[0].mixer.rope


def test_plain_rope_in_old_and_new_configs() -> None:
    assert config_rope(rope_theta=5e5) == RopeSpec(5e5, D)
    assert config_rope(rope_theta=None) == RopeSpec(1e4, D)
    assert config_rope(rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 1e6}) == RopeSpec(1e6, D)
    assert gguf_rope(rope__freq_base=5e5) == RopeSpec(5e5, D, interleaved=True)


def test_partial_rotation() -> None:
    assert config_rope(partial_rotary_factor=0.5).dim == D // 2
    assert gguf_rope(rope__dimension_count=8).dim == 8
    with pytest.raises(GreenroomError, match="rotates"):
        gguf_rope(rope__dimension_count=7)
    with pytest.raises(GreenroomError, match="dimension_count"):
        gguf_rope(rope__dimension_count=2 * D)


def test_linear_scaling() -> None:
    assert config_rope(rope_scaling={"type": "linear", "factor": 4.0}).scale == 4.0
    assert gguf_rope(rope__scaling__type="linear", rope__scaling__factor=4.0).scale == 4.0
    with pytest.raises(GreenroomError, match="factor"):
        gguf_rope(rope__scaling__type="linear")


def test_llama3_scaling_keeps_short_waves_and_stretches_long_ones() -> None:
    factors = llama3_factors(1e4, 128, 8.0, 1.0, 4.0, 8192)
    waves = [2 * math.pi * 1e4 ** (2 * i / 128) for i in range(64)]
    assert all(factor == 1.0 for factor, wave in zip(factors, waves, strict=True) if wave < 8192 / 4)
    assert all(factor == pytest.approx(8.0) for factor, wave in zip(factors, waves, strict=True) if wave > 8192)
    assert list(factors) == sorted(factors)


def test_llama3_scaling_matches_transformers() -> None:
    import torch
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}
    config = LlamaConfig(hidden_size=512, num_attention_heads=4, rope_parameters=rope)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = 5e5 ** (-np.arange(0, 128, 2) / 128)
    factors = llama3_factors(5e5, 128, 8.0, 1.0, 4.0, 64)
    np.testing.assert_allclose(plain / np.asarray(factors), scaled.numpy(), rtol=1e-5)


def test_llama3_settings_in_old_and_new_configs() -> None:
    expected = RopeSpec(1e4, D, frequency_factors=llama3_factors(1e4, D, 8.0, 1.0, 4.0, 64))
    assert config_rope(rope_scaling={"rope_type": "llama3", **LLAMA3}) == expected
    new = {"rope_type": "llama3", "rope_theta": 1e4, **LLAMA3}
    assert config_rope(rope_theta=None, rope_parameters=new) == expected
    for key in ("factor", "low_freq_factor", "high_freq_factor"):
        with pytest.raises(GreenroomError, match=key):
            config_rope(rope_scaling={"rope_type": "llama3", **{k: v for k, v in LLAMA3.items() if k != key}})
    with pytest.raises(GreenroomError, match="high_freq_factor"):
        config_rope(rope_scaling={"rope_type": "llama3", **LLAMA3, "high_freq_factor": 0.5})


def test_llama3_scaling_may_leave_nothing_between_kept_and_stretched_waves() -> None:
    """As in Llama 4 Scout, whose two limits are the same."""
    factors = llama3_factors(5e5, 128, 16.0, 1.0, 1.0, 8192)
    waves = [2 * math.pi * 5e5 ** (2 * i / 128) for i in range(64)]
    assert factors == tuple(1.0 if wave <= 8192 else 16.0 for wave in waves)
    same = config_rope(rope_scaling={"rope_type": "llama3", **LLAMA3, "low_freq_factor": 4.0})
    assert set(same.frequency_factors or ()) == {1.0, 8.0}


def test_gguf_frequency_factors() -> None:
    assert gguf_rope([1.0] * 7 + [8.0]).frequency_factors == (1.0,) * 7 + (8.0,)
    with pytest.raises(GreenroomError, match="shape"):
        gguf_rope([1.0] * 5)
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(GreenroomError, match="above zero"):
            gguf_rope([1.0] * 7 + [bad])
