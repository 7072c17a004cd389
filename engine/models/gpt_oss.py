"""gpt-oss (20b, 120b): a sink in every head, every other layer windowed, biases everywhere, clamped SwiGLU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.checkpoints.checkpoint import Checkpoint
from engine.models.header import Header
from engine.models.moe import moe_spec
from engine.models.spec import LayerSpec, ModelSpec
from engine.models.trunk import attention_spec, build_spec, read_trunk, windowed_layers
from engine.models.weights import ATTENTION_NAMES, MOE_NAMES, WeightMap, merge_names

FAMILY = "gpt_oss"
TITLE = "gpt-oss"
ARCHITECTURES = {"safetensors": ("gpt_oss",), "gguf": ("gpt-oss",)}

KEYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "safetensors": {
        "expert_intermediate": ("intermediate_size",),
        "alpha": ("swiglu_alpha",),
        "limit": ("swiglu_limit",),
    }
}

NAMES = merge_names(
    ATTENTION_NAMES,
    MOE_NAMES,
    {
        "safetensors": {
            "attention.sinks": "model.layers.{i}.self_attn.sinks",
            "moe.router": "model.layers.{i}.mlp.router.weight",
            "moe.router_bias": "model.layers.{i}.mlp.router.bias",
            "moe.stack.gate_up_bias": "model.layers.{i}.mlp.experts.gate_up_proj_bias",
            "moe.stack.down_bias": "model.layers.{i}.mlp.experts.down_proj_bias",
        },
        "gguf": {
            "attention.sinks": "blk.{i}.attn_sinks.weight",
            "ffn.norm": "blk.{i}.post_attention_norm.weight",
        },
    },
)

#: GGUF names neither: its readers know the family.
LIMIT, ALPHA = 7.0, 1.702
THETA = 150000.0


def model_spec(checkpoint: Checkpoint) -> ModelSpec:
    header = Header(checkpoint, KEYS)
    config_form = checkpoint.form == "safetensors"
    stack = checkpoint.tensors.get("model.layers.0.mlp.experts.down_proj")
    # Published files keep MXFP4, whose blocks run along a row's inputs; transformers writes floats the other way.
    plain = stack is not None and stack.format in ("F32", "F16", "BF16")
    weights = WeightMap(header, NAMES, interleaved=config_form, transposed=config_form and plain)
    trunk = read_trunk(header, weights)
    alpha, limit = header.number("alpha", 0.0, 100.0, ALPHA), header.number("limit", 1e-3, 1e6, LIMIT)
    if alpha != ALPHA:
        raise header.fail(f"its experts use a SwiGLU of gain {alpha:g}, not {ALPHA}", "Choose another model.")
    # Other readers round YaRN's corrections for GGUF; the model was made without.
    attention = replace(attention_spec(header, weights, trunk, theta=THETA, truncate=False), sinks=True)
    windowed = windowed_layers(header, trunk.layers, lambda i: i % 2 == 0)

    def layer(i: int) -> LayerSpec:
        moe = moe_spec(header, weights, i, renormalise=False)
        moe = replace(moe, score="topk_softmax", router_bias=True, activation="oai", limit=limit, bias=True)
        return LayerSpec(replace(attention, window=trunk.window) if windowed[i] else attention, moe)

    return build_spec(FAMILY, header, weights, trunk, layer)
