"""ERNIE 4.5 MoE: softmax routing chosen with a bias, shared experts, dense first layers, neighbouring pairs rotated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.checkpoints.checkpoint import Checkpoint
from engine.models.header import Header
from engine.models.moe import moe_spec
from engine.models.spec import LayerSpec, MlpSpec, ModelSpec
from engine.models.trunk import attention_spec, build_spec, read_trunk
from engine.models.weights import ATTENTION_NAMES, MLP_NAMES, MOE_NAMES, WeightMap, merge_names

FAMILY = "ernie4_5_moe"
TITLE = "ERNIE 4.5 MoE"
ARCHITECTURES = {"safetensors": ("ernie4_5_moe",), "gguf": ("ernie4_5-moe",)}

KEYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "safetensors": {
        "bias": ("use_bias",),
        "experts": ("moe_num_experts",),
        "top_k": ("moe_k",),
        "shared_experts": ("moe_num_shared_experts",),
        "first": ("moe_layer_start_index",),
        "last": ("moe_layer_end_index",),
        "step": ("moe_layer_interval",),
        "smallest_sum": ("moe_norm_min",),
    },
    "gguf": {"first": ("{arch}.leading_dense_block_count",), "step": ("{arch}.interleave_moe_layer_step",)},
}

NAMES = merge_names(
    ATTENTION_NAMES,
    MLP_NAMES,
    MOE_NAMES,
    {"safetensors": {"moe.choice_bias": "model.layers.{i}.mlp.moe_statics.e_score_correction_bias"}},
)

THETA = 5e5


def model_spec(checkpoint: Checkpoint) -> ModelSpec:
    header = Header(checkpoint, KEYS)
    if header.flag("bias", False):
        raise header.fail("it is an ERNIE with biases, which Greenroom does not compute yet", "Choose another model.")
    weights = WeightMap(header, NAMES)
    trunk = read_trunk(header, weights)
    attention = attention_spec(header, weights, trunk, interleaved=True, theta=THETA)
    first = header.integer("first", 0, limit=1024, low=0)
    last = header.integer("last", -1, limit=1024, low=-1)
    step = header.integer("step", 1, limit=1024)
    shared = header.integer("shared_experts", 0, low=0)

    def layer(i: int) -> LayerSpec:
        if (i + 1) % step or i < first or (last >= 0 and i > last):
            return LayerSpec(attention, MlpSpec(header.integer("intermediate")))
        moe = moe_spec(header, weights, i, renormalise=True)
        moe = replace(
            moe,
            choice_bias=True,
            renormalise_min=header.number("smallest_sum", 0.0, 1.0, 1e-12),
            shared=MlpSpec(moe.intermediate * shared) if shared else None,
        )
        return LayerSpec(attention, moe)

    return build_spec(FAMILY, header, weights, trunk, layer)
