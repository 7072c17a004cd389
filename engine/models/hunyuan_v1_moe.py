"""Hunyuan-A13B: heads are normed after they are rotated; a shared expert beside the routed ones in every layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.checkpoints.checkpoint import Checkpoint
from engine.models.header import Header
from engine.models.moe import moe_spec
from engine.models.spec import LayerSpec, MlpSpec, ModelSpec
from engine.models.trunk import attention_spec, build_spec, read_trunk
from engine.models.weights import ATTENTION_NAMES, MOE_NAMES, WeightMap, merge_names

FAMILY = "hunyuan_v1_moe"
TITLE = "Hunyuan-A13B"
ARCHITECTURES = {"safetensors": ("hunyuan_v1_moe",), "gguf": ("hunyuan-moe",)}

KEYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "safetensors": {"expert_intermediate": ("intermediate_size",), "top_k": ("moe_topk",)}
}

NAMES = merge_names(
    ATTENTION_NAMES,
    MOE_NAMES,
    {
        "safetensors": {
            "attention.q_norm": "model.layers.{i}.self_attn.query_layernorm.weight",
            "attention.k_norm": "model.layers.{i}.self_attn.key_layernorm.weight",
            "moe.router": "model.layers.{i}.mlp.gate.wg.weight",
            "moe.shared.gate": "model.layers.{i}.mlp.shared_mlp.gate_proj.weight",
            "moe.shared.up": "model.layers.{i}.mlp.shared_mlp.up_proj.weight",
            "moe.shared.down": "model.layers.{i}.mlp.shared_mlp.down_proj.weight",
        },
    },
)


def model_spec(checkpoint: Checkpoint) -> ModelSpec:
    header = Header(checkpoint, KEYS)
    weights = WeightMap(header, NAMES)
    trunk = read_trunk(header, weights)
    attention = attention_spec(header, weights, trunk, qk_norm="head")
    attention = replace(attention, norm_after_rope=True)
    top_k = header.integers("top_k", trunk.layers, low=1)

    def layer(i: int) -> LayerSpec:
        shared = MlpSpec(weights.shape("moe.shared.gate", i)[0])
        return LayerSpec(attention, moe_spec(header, weights, i, top_k=top_k[i], renormalise=True, shared=shared))

    return build_spec(FAMILY, header, weights, trunk, layer)
