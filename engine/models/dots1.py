"""dots.llm1: RMS norm on every head, sigmoid routing chosen with a bias, shared experts, dense first layers."""

from __future__ import annotations

from dataclasses import replace

from engine.checkpoints.checkpoint import Checkpoint
from engine.models.header import Header
from engine.models.moe import grouped_sigmoid, moe_spec
from engine.models.spec import LayerSpec, MlpSpec, ModelSpec
from engine.models.trunk import attention_spec, build_spec, read_trunk, windowed_layers
from engine.models.weights import ATTENTION_NAMES, MLP_NAMES, MOE_NAMES, WeightMap, merge_names

FAMILY = "dots1"
TITLE = "dots.llm1"
ARCHITECTURES = {"safetensors": ("dots1",), "gguf": ("dots1",)}

NAMES = merge_names(ATTENTION_NAMES, MLP_NAMES, MOE_NAMES)


def model_spec(checkpoint: Checkpoint) -> ModelSpec:
    header = Header(checkpoint)
    weights = WeightMap(header, NAMES)
    trunk = read_trunk(header, weights)
    attention = attention_spec(header, weights, trunk, qk_norm="head")
    windowed = windowed_layers(header, trunk.layers, lambda _: False)
    dense = header.integer("dense_first", 0, low=0)

    def layer(i: int) -> LayerSpec:
        mixer = replace(attention, window=trunk.window) if windowed[i] else attention
        if i < dense:
            return LayerSpec(mixer, MlpSpec(header.integer("intermediate")))
        moe = grouped_sigmoid(header, moe_spec(header, weights, i, renormalise=False))
        shared = header.integer("shared_experts", 0, low=0)
        return LayerSpec(mixer, replace(moe, shared=MlpSpec(moe.intermediate * shared) if shared else None))

    return build_spec(FAMILY, header, weights, trunk, layer)
