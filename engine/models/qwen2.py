"""Qwen2 and Qwen2.5, dense: biases on queries, keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.checkpoints.checkpoint import Checkpoint
from engine.models.header import Header
from engine.models.spec import LayerSpec, MlpSpec, ModelSpec
from engine.models.trunk import attention_spec, build_spec, late_windows, read_trunk
from engine.models.weights import ATTENTION_NAMES, MLP_NAMES, WeightMap, merge_names

FAMILY = "qwen2"
TITLE = "Qwen2"
ARCHITECTURES = {"safetensors": ("qwen2",), "gguf": ("qwen2",)}

KEYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "safetensors": {"windowed": ("use_sliding_window",), "first_windowed": ("max_window_layers",)}
}

NAMES = merge_names(ATTENTION_NAMES, MLP_NAMES)


def model_spec(checkpoint: Checkpoint) -> ModelSpec:
    header = Header(checkpoint, KEYS)
    weights = WeightMap(header, NAMES)
    trunk = read_trunk(header, weights)
    attention = attention_spec(header, weights, trunk, qkv_bias=True, output_bias=False)
    windowed = late_windows(header, trunk)
    mlp = MlpSpec(header.integer("intermediate"))

    def layer(i: int) -> LayerSpec:
        return LayerSpec(replace(attention, window=trunk.window) if windowed[i] else attention, mlp)

    return build_spec(FAMILY, header, weights, trunk, layer)
