"""Mixtral: Mistral's attention, eight routed experts of which two work. GGUF calls it llama like the dense models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.checkpoints.checkpoint import Checkpoint
from engine.models.header import Header
from engine.models.moe import moe_spec
from engine.models.spec import LayerSpec, ModelSpec
from engine.models.trunk import attention_spec, build_spec, read_trunk
from engine.models.weights import ATTENTION_NAMES, BLOCK_SPARSE_NAMES, MOE_NAMES, WeightMap, merge_names

FAMILY = "mixtral"
TITLE = "Mixtral"
ARCHITECTURES = {"safetensors": ("mixtral",), "gguf": ("llama",)}

KEYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "safetensors": {"expert_intermediate": ("intermediate_size",)},
    # The converter writes no key of its own for the experts' width.
    "gguf": {"expert_intermediate": ("{arch}.expert_feed_forward_length", "{arch}.feed_forward_length")},
}

#: Before April 2024 the converter wrote a tensor for every expert.
OLD_NAMES = {"gguf": {f"moe.expert.{part}": f"blk.{{i}}.ffn_{part}.{{e}}.weight" for part in ("gate", "up", "down")}}
NAMES = merge_names(ATTENTION_NAMES, MOE_NAMES, BLOCK_SPARSE_NAMES, OLD_NAMES)

THETA = 1e6


def accepts(checkpoint: Checkpoint) -> bool:
    return checkpoint.form == "safetensors" or bool(checkpoint.config.get("llama.expert_count"))


def model_spec(checkpoint: Checkpoint) -> ModelSpec:
    header = Header(checkpoint, KEYS)
    weights = WeightMap(header, NAMES)
    trunk = read_trunk(header, weights)
    # The converter reorders q and k, as for llama.
    attention = attention_spec(header, weights, trunk, interleaved=checkpoint.form == "gguf", theta=THETA)
    attention = replace(attention, window=trunk.window)
    return build_spec(
        FAMILY, header, weights, trunk, lambda i: LayerSpec(attention, moe_spec(header, weights, i, renormalise=True))
    )
