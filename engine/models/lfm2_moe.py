"""LFM2 MoE (LFM2-8B-A1B): short convolutions with attention every few layers, sigmoid routing chosen with a bias."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.checkpoints.checkpoint import Checkpoint
from engine.models.header import Header
from engine.models.moe import grouped_sigmoid, moe_spec
from engine.models.spec import LayerSpec, MlpSpec, ModelSpec, ShortConvSpec
from engine.models.trunk import attention_spec, build_spec, read_trunk
from engine.models.weights import ATTENTION_NAMES, MLP_NAMES, MOE_NAMES, WeightMap, merge_names

FAMILY = "lfm2_moe"
TITLE = "LFM2 MoE"
ARCHITECTURES = {"safetensors": ("lfm2_moe",), "gguf": ("lfm2moe",)}

KEYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "safetensors": {
        "norm_eps": ("norm_eps",),
        "width": ("conv_L_cache",),
        "conv_bias": ("conv_bias",),
        "dense_first": ("num_dense_layers",),
        "choice_bias": ("use_expert_bias",),
    },
    "gguf": {"width": ("{arch}.shortconv.l_cache",)},
}

_PARTS = {
    "attention.norm": "operator_norm.weight",
    "attention.o": "self_attn.out_proj.weight",
    "attention.q_norm": "self_attn.q_layernorm.weight",
    "attention.k_norm": "self_attn.k_layernorm.weight",
    "conv.in": "conv.in_proj.weight",
    "conv.kernel": "conv.conv.weight",
    "conv.out": "conv.out_proj.weight",
    "conv.in_bias": "conv.in_proj.bias",
    "conv.kernel_bias": "conv.conv.bias",
    "conv.out_bias": "conv.out_proj.bias",
    "ffn.norm": "ffn_norm.weight",
    "ffn.gate": "feed_forward.w1.weight",
    "ffn.up": "feed_forward.w3.weight",
    "ffn.down": "feed_forward.w2.weight",
    "moe.router": "feed_forward.gate.weight",
    "moe.choice_bias": "feed_forward.expert_bias",
    "moe.expert.gate": "feed_forward.experts.{e}.w1.weight",
    "moe.expert.up": "feed_forward.experts.{e}.w3.weight",
    "moe.expert.down": "feed_forward.experts.{e}.w2.weight",
}
NAMES = merge_names(
    ATTENTION_NAMES,
    MLP_NAMES,
    MOE_NAMES,
    {
        "safetensors": {
            "norm": "model.embedding_norm.weight",
            **{role: f"model.layers.{{i}}.{name}" for role, name in _PARTS.items()},
        },
        "gguf": {
            # llama.cpp's name for what is the last norm here too.
            "norm": "token_embd_norm.weight",
            "conv.in": "blk.{i}.shortconv.in_proj.weight",
            "conv.kernel": "blk.{i}.shortconv.conv.weight",
            "conv.out": "blk.{i}.shortconv.out_proj.weight",
        },
    },
)

THETA = 1e6
RENORMALISE_EPS = 1e-6


def model_spec(checkpoint: Checkpoint) -> ModelSpec:
    header = Header(checkpoint, KEYS)
    weights = WeightMap(header, NAMES)
    layers = header.integer("layers")
    types = header.layer_types(("conv", "full_attention"), layers)
    # GGUF counts no key-value heads in layers that do not attend.
    kv_heads = header.integers("kv_heads", layers)
    attends = tuple(bool(n) for n in kv_heads) if types is None else tuple(kind != "conv" for kind in types)
    trunk = read_trunk(header, weights, kv_heads=max(kv_heads) or 1)
    attention = attention_spec(header, weights, trunk, theta=THETA, qkv_bias=False, output_bias=False, qk_norm="head")
    conv = ShortConvSpec(trunk.hidden, header.integer("width", limit=64), header.flag("conv_bias", False))
    dense = header.integer("dense_first", 0, low=0)

    def layer(i: int) -> LayerSpec:
        mixer = attention if attends[i] else conv
        if i < dense:
            return LayerSpec(mixer, MlpSpec(header.integer("intermediate")))
        moe = grouped_sigmoid(header, moe_spec(header, weights, i, renormalise=True))
        bias = header.flag("choice_bias", weights.has("moe.choice_bias", i))
        return LayerSpec(mixer, replace(moe, choice_bias=bias, renormalise_eps=RENORMALISE_EPS))

    return build_spec(FAMILY, header, weights, trunk, layer)
