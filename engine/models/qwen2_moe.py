"""Qwen2-MoE (Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B): biased q, k, v; routed experts beside one gated shared expert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.checkpoints.checkpoint import Checkpoint
from engine.models.header import Header
from engine.models.moe import DENSE_LAYER_KEYS, dense_layers, moe_spec
from engine.models.spec import LayerSpec, MlpSpec, ModelSpec
from engine.models.trunk import attention_spec, build_spec, read_trunk, windowed_layers
from engine.models.weights import ATTENTION_NAMES, MLP_NAMES, MOE_NAMES, WeightMap, merge_names

FAMILY = "qwen2_moe"
TITLE = "Qwen2-MoE"
ARCHITECTURES = {"safetensors": ("qwen2_moe",), "gguf": ("qwen2moe",)}

KEYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "safetensors": {
        **DENSE_LAYER_KEYS,
        "qkv_bias": ("qkv_bias",),
        "windowed": ("use_sliding_window",),
        "windowed_layers": ("max_window_layers",),
        "shared_intermediate": ("shared_expert_intermediate_size",),
    },
    "gguf": {"shared_intermediate": ("{arch}.expert_shared_feed_forward_length",)},
}

NAMES = merge_names(
    ATTENTION_NAMES,
    MLP_NAMES,
    MOE_NAMES,
    {
        "safetensors": {
            "moe.shared.gate": "model.layers.{i}.mlp.shared_expert.gate_proj.weight",
            "moe.shared.up": "model.layers.{i}.mlp.shared_expert.up_proj.weight",
            "moe.shared.down": "model.layers.{i}.mlp.shared_expert.down_proj.weight",
            "moe.shared.router": "model.layers.{i}.mlp.shared_expert_gate.weight",
        },
        "gguf": {"moe.shared.router": "blk.{i}.ffn_gate_inp_shexp.weight"},
    },
)


def model_spec(checkpoint: Checkpoint) -> ModelSpec:
    header = Header(checkpoint, KEYS)
    weights = WeightMap(header, NAMES)
    trunk = read_trunk(header, weights)
    bias = header.flag("qkv_bias", checkpoint.form == "safetensors" or weights.has("attention.q_bias"))
    attention = attention_spec(header, weights, trunk, qkv_bias=bias, output_bias=False)
    # Every other one of the first layers, where the header turns windows on at all.
    first = header.integer("windowed_layers", trunk.layers, limit=1 << 20, low=0)
    on = trunk.window is not None and header.flag("windowed", False)
    windowed = windowed_layers(header, trunk.layers, lambda i: on and i % 2 == 0 and i < first)
    dense = dense_layers(header, weights, trunk.layers)

    def layer(i: int) -> LayerSpec:
        mixer = replace(attention, window=trunk.window if windowed[i] else None)
        if i in dense:
            return LayerSpec(mixer, MlpSpec(header.integer("intermediate")))
        shared = header.integer("shared_intermediate", weights.shape("moe.shared.gate", i)[0], limit=1 << 20)
        moe = moe_spec(header, weights, i, renormalise=False, shared=MlpSpec(shared), shared_gated=True)
        return LayerSpec(mixer, moe)

    return build_spec(FAMILY, header, weights, trunk, layer)
