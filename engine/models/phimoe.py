"""Phi-3.5-MoE: layer norms with biases, LongRoPE, and sparsemixer routing to two experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.checkpoints.checkpoint import Checkpoint
from engine.models.header import Header
from engine.models.moe import moe_spec
from engine.models.spec import LayerSpec, ModelSpec
from engine.models.trunk import attention_spec, build_spec, read_trunk
from engine.models.weights import ATTENTION_NAMES, BLOCK_SPARSE_NAMES, MOE_NAMES, WeightMap, merge_names

FAMILY = "phimoe"
TITLE = "Phi-3.5-MoE"
ARCHITECTURES = {"safetensors": ("phimoe",), "gguf": ("phimoe",)}

KEYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "safetensors": {
        "head_bias": ("lm_head_bias",),
        "expert_intermediate": ("intermediate_size",),
        "jitter": ("router_jitter_noise",),
    },
    "gguf": {"expert_intermediate": ("{arch}.expert_feed_forward_length", "{arch}.feed_forward_length")},
}

NAMES = merge_names(ATTENTION_NAMES, MOE_NAMES, BLOCK_SPARSE_NAMES)

#: What GGUF has no key for.
JITTER = 0.01


def model_spec(checkpoint: Checkpoint) -> ModelSpec:
    header = Header(checkpoint, KEYS)
    weights = WeightMap(header, NAMES, norm="layer")
    trunk = read_trunk(header, weights)
    attention = replace(attention_spec(header, weights, trunk), window=trunk.window)
    if header.integer("top_k") != 2:
        raise header.fail("its sparsemixer chooses other than two experts per token", "Choose another model.")
    jitter = header.number("jitter", 0.0, 1.0, JITTER)

    def layer(i: int) -> LayerSpec:
        moe = moe_spec(header, weights, i, renormalise=False)
        return LayerSpec(attention, replace(moe, score="sparsemixer", jitter=jitter))

    head_bias = header.flag("head_bias", weights.has("lm_head_bias"))
    return build_spec(FAMILY, header, weights, trunk, layer, head_bias=head_bias)
