"""Granite MoE, with and without a shared expert: four multipliers, softmax over the chosen experts only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.checkpoints.checkpoint import Checkpoint
from engine.models.header import Header
from engine.models.moe import moe_spec
from engine.models.spec import LayerSpec, MlpSpec, ModelSpec
from engine.models.trunk import attention_spec, build_spec, read_trunk
from engine.models.weights import ATTENTION_NAMES, MOE_NAMES, WeightMap, merge_names

FAMILY = "granitemoe"
TITLE = "Granite MoE"
ARCHITECTURES = {"safetensors": ("granitemoe", "granitemoeshared"), "gguf": ("granitemoe",)}

KEYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "safetensors": {
        "expert_intermediate": ("intermediate_size",),
        "shared_intermediate": ("shared_intermediate_size",),
        "embedding_multiplier": ("embedding_multiplier",),
        "attention_multiplier": ("attention_multiplier",),
        "residual_multiplier": ("residual_multiplier",),
        "logits_divisor": ("logits_scaling",),
    },
    "gguf": {
        "expert_intermediate": ("{arch}.expert_feed_forward_length", "{arch}.feed_forward_length"),
        "shared_intermediate": ("{arch}.expert_shared_feed_forward_length",),
        "embedding_multiplier": ("{arch}.embedding_scale",),
        "attention_multiplier": ("{arch}.attention.scale",),
        "residual_multiplier": ("{arch}.residual_scale",),
        "logits_divisor": ("{arch}.logit_scale",),
    },
}

NAMES = merge_names(
    ATTENTION_NAMES,
    MOE_NAMES,
    {
        "safetensors": {
            "moe.router": "model.layers.{i}.block_sparse_moe.router.layer.weight",
            "moe.stack.gate_up": "model.layers.{i}.block_sparse_moe.input_linear.weight",
            "moe.stack.down": "model.layers.{i}.block_sparse_moe.output_linear.weight",
            "moe.shared.gate_up": "model.layers.{i}.shared_mlp.input_linear.weight",
            "moe.shared.down": "model.layers.{i}.shared_mlp.output_linear.weight",
        },
    },
)


def model_spec(checkpoint: Checkpoint) -> ModelSpec:
    header = Header(checkpoint, KEYS)
    weights = WeightMap(header, NAMES)
    trunk = read_trunk(header, weights)

    def factor(name: str) -> float:
        return header.number(name, 1e-6, 1e6, 1.0)

    # The converter reorders q and k, as for llama.
    attention = attention_spec(header, weights, trunk, interleaved=checkpoint.form == "gguf")
    attention = replace(attention, scale=factor("attention_multiplier"))
    shared = header.integer("shared_intermediate", 0, limit=1 << 20, low=0)

    def layer(i: int) -> LayerSpec:
        moe = moe_spec(header, weights, i, renormalise=False, shared=MlpSpec(shared) if shared else None)
        return LayerSpec(attention, replace(moe, score="topk_softmax"))

    return replace(
        build_spec(FAMILY, header, weights, trunk, layer),
        embedding_multiplier=factor("embedding_multiplier"),
        residual_multiplier=factor("residual_multiplier"),
        logit_multiplier=1.0 / factor("logits_divisor"),
    )
