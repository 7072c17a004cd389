"""Qwen3-MoE (Qwen3-30B-A3B, Qwen3-235B-A22B): RMS norm on every query and key head, no shared expert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.checkpoints.checkpoint import Checkpoint
from engine.models.header import Header
from engine.models.moe import DENSE_LAYER_KEYS, dense_layers, moe_spec
from engine.models.spec import LayerSpec, MlpSpec, ModelSpec
from engine.models.trunk import attention_spec, build_spec, read_trunk
from engine.models.weights import ATTENTION_NAMES, MLP_NAMES, MOE_NAMES, WeightMap, merge_names

FAMILY = "qwen3_moe"
TITLE = "Qwen3-MoE"
ARCHITECTURES = {"safetensors": ("qwen3_moe",), "gguf": ("qwen3moe",)}

KEYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "safetensors": {
        **DENSE_LAYER_KEYS,
        "windowed": ("use_sliding_window",),
    }
}

NAMES = merge_names(ATTENTION_NAMES, MLP_NAMES, MOE_NAMES)


def model_spec(checkpoint: Checkpoint) -> ModelSpec:
    header = Header(checkpoint, KEYS)
    weights = WeightMap(header, NAMES)
    trunk = read_trunk(header, weights)
    windowed = header.flag("windowed", False)
    attention = attention_spec(header, weights, trunk, qk_norm="head")
    attention = replace(attention, window=trunk.window if windowed else None)
    dense = dense_layers(header, weights, trunk.layers)

    def layer(i: int) -> LayerSpec:
        if i in dense:
            return LayerSpec(attention, MlpSpec(header.integer("intermediate")))
        # GGUF leaves the switch out: its converter only ever saw models that renormalise.
        return LayerSpec(attention, moe_spec(header, weights, i, renormalise=checkpoint.form == "gguf"))

    return build_spec(FAMILY, header, weights, trunk, layer)
