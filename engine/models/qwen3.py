"""Qwen3, dense: RMS norm on every query and key head."""

from __future__ import annotations

from dataclasses import replace

from engine.checkpoints.checkpoint import Checkpoint
from engine.models.header import Header
from engine.models.spec import LayerSpec, MlpSpec, ModelSpec
from engine.models.trunk import attention_spec, build_spec, read_trunk, windowed_layers
from engine.models.weights import ATTENTION_NAMES, MLP_NAMES, WeightMap, merge_names

FAMILY = "qwen3"
TITLE = "Qwen3"
ARCHITECTURES = {"safetensors": ("qwen3",), "gguf": ("qwen3",)}

NAMES = merge_names(ATTENTION_NAMES, MLP_NAMES)


def model_spec(checkpoint: Checkpoint) -> ModelSpec:
    header = Header(checkpoint)
    weights = WeightMap(header, NAMES)
    trunk = read_trunk(header, weights)
    attention = attention_spec(header, weights, trunk, qk_norm="head")
    windowed = windowed_layers(header, trunk.layers, lambda _: False)
    mlp = MlpSpec(header.integer("intermediate"))

    def layer(i: int) -> LayerSpec:
        return LayerSpec(replace(attention, window=trunk.window) if windowed[i] else attention, mlp)

    return build_spec(FAMILY, header, weights, trunk, layer)
