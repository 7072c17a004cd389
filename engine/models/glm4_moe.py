"""GLM-4.5, 4.6 and 4.7: half-rotated heads, sigmoid routing chosen with a bias, shared expert, dense first layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.checkpoints.checkpoint import Checkpoint
from engine.models.header import Header
from engine.models.moe import grouped_sigmoid, moe_spec
from engine.models.spec import LayerSpec, MlpSpec, ModelSpec
from engine.models.trunk import attention_spec, build_spec, read_trunk, without_next_layers
from engine.models.weights import ATTENTION_NAMES, MLP_NAMES, MOE_NAMES, WeightMap, merge_names

FAMILY = "glm4_moe"
TITLE = "GLM-4.5 to 4.7"
ARCHITECTURES = {"safetensors": ("glm4_moe",), "gguf": ("glm4moe",)}

KEYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {"safetensors": {"qk_norm": ("use_qk_norm",)}}

NAMES = merge_names(ATTENTION_NAMES, MLP_NAMES, MOE_NAMES, {"gguf": {"ffn.norm": "blk.{i}.post_attention_norm.weight"}})


def model_spec(checkpoint: Checkpoint) -> ModelSpec:
    header = Header(checkpoint, KEYS)
    weights = WeightMap(header, NAMES)
    trunk = without_next_layers(header, read_trunk(header, weights))
    normed = header.flag("qk_norm", weights.has("attention.q_norm"))
    attention = attention_spec(header, weights, trunk, share=0.5, output_bias=False, qk_norm="head" if normed else None)
    dense = header.integer("dense_first", 0, low=0)

    def layer(i: int) -> LayerSpec:
        if i < dense:
            return LayerSpec(attention, MlpSpec(header.integer("intermediate")))
        moe = grouped_sigmoid(header, moe_spec(header, weights, i, renormalise=True))
        return LayerSpec(
            attention, replace(moe, shared=MlpSpec(moe.intermediate * header.integer("shared_experts", 1)))
        )

    return build_spec(FAMILY, header, weights, trunk, layer)
