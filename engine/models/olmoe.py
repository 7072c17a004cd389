"""OLMoE: RMS norm over all heads of a query together, weights of the chosen experts as softmax gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.checkpoints.checkpoint import Checkpoint
from engine.models.header import Header
from engine.models.moe import moe_spec
from engine.models.spec import LayerSpec, ModelSpec
from engine.models.trunk import attention_spec, build_spec, read_trunk
from engine.models.weights import ATTENTION_NAMES, MOE_NAMES, WeightMap, merge_names

FAMILY = "olmoe"
TITLE = "OLMoE"
ARCHITECTURES = {"safetensors": ("olmoe",), "gguf": ("olmoe",)}

KEYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "safetensors": {
        "expert_intermediate": ("intermediate_size",),
        "clip": ("clip_qkv",),
    },
    "gguf": {
        "expert_intermediate": ("{arch}.expert_feed_forward_length", "{arch}.feed_forward_length"),
        "clip": ("{arch}.attention.clamp_kqv",),
    },
}

NAMES = merge_names(ATTENTION_NAMES, MOE_NAMES)


def model_spec(checkpoint: Checkpoint) -> ModelSpec:
    header = Header(checkpoint, KEYS)
    weights = WeightMap(header, NAMES)
    trunk = read_trunk(header, weights)
    attention = attention_spec(header, weights, trunk, qk_norm="full")
    if header.get("clip") is not None:
        attention = replace(attention, clip_qkv=header.number("clip", 1e-6, 1e6))
    return build_spec(
        FAMILY, header, weights, trunk, lambda i: LayerSpec(attention, moe_spec(header, weights, i, renormalise=False))
    )
