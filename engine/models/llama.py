"""Llama and Mistral: dense decoders, grouped-query attention, SwiGLU.

GGUF's converter reorders the rows of q and k, so that its files rotate neighbouring pairs where config.json models
rotate halves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.checkpoints.checkpoint import Checkpoint
from engine.models.header import Header
from engine.models.spec import LayerSpec, MlpSpec, ModelSpec
from engine.models.trunk import attention_spec, build_spec, read_trunk
from engine.models.weights import ATTENTION_NAMES, MLP_NAMES, WeightMap, merge_names

FAMILY = "llama"
TITLE = "Llama and Mistral"
ARCHITECTURES = {"safetensors": ("llama", "mistral"), "gguf": ("llama",)}

KEYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {"safetensors": {"mlp_bias": ("mlp_bias",)}}

NAMES = merge_names(ATTENTION_NAMES, MLP_NAMES)


def model_spec(checkpoint: Checkpoint) -> ModelSpec:
    header = Header(checkpoint, KEYS)
    weights = WeightMap(header, NAMES)
    trunk = read_trunk(header, weights)
    attention = attention_spec(header, weights, trunk, interleaved=checkpoint.form == "gguf")
    mlp = MlpSpec(header.integer("intermediate"), bias=header.flag("mlp_bias", weights.has("ffn.gate_bias")))
    layer = LayerSpec(replace(attention, window=trunk.window), mlp)
    return build_spec(FAMILY, header, weights, trunk, lambda _: layer)
