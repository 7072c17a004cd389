"""MiniMax-M2 to M2.7: RMS norm over all query heads together, part-rotated heads, sigmoid routing with a bias."""

from __future__ import annotations

from collections.abc import Mapping

from engine.checkpoints.checkpoint import Checkpoint
from engine.models.header import Header
from engine.models.moe import grouped_sigmoid, moe_spec
from engine.models.spec import LayerSpec, ModelSpec
from engine.models.trunk import attention_spec, build_spec, read_trunk
from engine.models.weights import ATTENTION_NAMES, BLOCK_SPARSE_NAMES, MOE_NAMES, WeightMap, merge_names

FAMILY = "minimax_m2"
TITLE = "MiniMax-M2"
#: M2's first files called themselves "minimax", like the unrelated MiniMax-01.
ARCHITECTURES = {"safetensors": ("minimax_m2", "minimax"), "gguf": ("minimax-m2",)}

KEYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {"safetensors": {"expert_intermediate": ("intermediate_size",)}}

NAMES = merge_names(ATTENTION_NAMES, MOE_NAMES, BLOCK_SPARSE_NAMES)

THETA = 5e6


def accepts(checkpoint: Checkpoint) -> bool:
    return checkpoint.architecture != "minimax" or "MiniMaxM2ForCausalLM" in checkpoint.config.get("architectures", ())


def model_spec(checkpoint: Checkpoint) -> ModelSpec:
    header = Header(checkpoint, KEYS)
    weights = WeightMap(header, NAMES)
    trunk = read_trunk(header, weights)
    attention = attention_spec(header, weights, trunk, theta=THETA, qk_norm="full")

    def layer(i: int) -> LayerSpec:
        return LayerSpec(attention, grouped_sigmoid(header, moe_spec(header, weights, i, renormalise=True)))

    return build_spec(FAMILY, header, weights, trunk, layer)
