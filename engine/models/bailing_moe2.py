"""Ling 2 and Ring 2: half-rotated normed heads, experts chosen from the best groups with a bias, shared expert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.checkpoints.checkpoint import Checkpoint
from engine.models.header import Header
from engine.models.moe import grouped_sigmoid, moe_spec
from engine.models.spec import LayerSpec, MlpSpec, ModelSpec
from engine.models.trunk import attention_spec, build_spec, read_trunk, without_next_layers
from engine.models.weights import ATTENTION_NAMES, MLP_NAMES, MOE_NAMES, WeightMap, merge_names

FAMILY = "bailing_moe2"
TITLE = "Ling 2"
#: Files of the second generation bear the first one's name too.
ARCHITECTURES = {"safetensors": ("bailing_moe_v2", "bailing_moe"), "gguf": ("bailingmoe2",)}

KEYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "safetensors": {
        "qkv_bias": ("use_qkv_bias",),
        "output_bias": ("use_bias",),
        "qk_norm": ("use_qk_norm",),
        "choice_bias": ("moe_router_enable_expert_bias",),
        "shared_intermediate": ("moe_shared_expert_intermediate_size",),
    },
    "gguf": {"shared_intermediate": ("{arch}.expert_shared_feed_forward_length",)},
}

NAMES = merge_names(
    ATTENTION_NAMES,
    MLP_NAMES,
    MOE_NAMES,
    {
        "safetensors": {
            "embed": "model.word_embeddings.weight",
            "attention.qkv": "model.layers.{i}.attention.query_key_value.weight",
            "attention.qkv_bias": "model.layers.{i}.attention.query_key_value.bias",
            "attention.o": "model.layers.{i}.attention.dense.weight",
            "attention.o_bias": "model.layers.{i}.attention.dense.bias",
            "attention.q_norm": "model.layers.{i}.attention.query_layernorm.weight",
            "attention.k_norm": "model.layers.{i}.attention.key_layernorm.weight",
            "moe.choice_bias": "model.layers.{i}.mlp.gate.expert_bias",
        },
    },
)


def accepts(checkpoint: Checkpoint) -> bool:
    return checkpoint.architecture != "bailing_moe" or checkpoint.config.get("score_function") == "sigmoid"


def model_spec(checkpoint: Checkpoint) -> ModelSpec:
    header = Header(checkpoint, KEYS)
    weights = WeightMap(header, NAMES)
    trunk = without_next_layers(header, read_trunk(header, weights))
    attention = attention_spec(
        header,
        weights,
        trunk,
        share=0.5,
        qkv_bias=header.flag("qkv_bias", weights.has("attention.qkv_bias")),
        output_bias=header.flag("output_bias", weights.has("attention.o_bias")),
        qk_norm="head" if header.flag("qk_norm", weights.has("attention.q_norm")) else None,
    )
    dense = header.integer("dense_first", 0, low=0)
    shared = header.integer("shared_experts", 0, low=0)

    def layer(i: int) -> LayerSpec:
        if i < dense:
            return LayerSpec(attention, MlpSpec(header.integer("intermediate")))
        moe = grouped_sigmoid(header, moe_spec(header, weights, i, renormalise=True))
        width = header.integer("shared_intermediate", moe.intermediate * max(1, shared), limit=1 << 20)
        moe = replace(
            moe,
            choice_bias=header.flag("choice_bias", weights.has("moe.choice_bias", i)),
            shared=MlpSpec(width) if shared else None,
        )
        return LayerSpec(attention, moe)

    return build_spec(FAMILY, header, weights, trunk, layer)
