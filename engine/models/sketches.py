"""Models that Greenroom does not compute, sketched as far as a plan needs: what they take and how fast they would be.

For whoever decides about a machine. `load` refuses them, because no family reads them.
"""

from __future__ import annotations

from engine.checkpoints.checkpoint import Checkpoint
from engine.models.header import Header
from engine.models.roles import WeightRoles
from engine.models.spec import LatentAttentionSpec, LayerSpec, MlpSpec, ModelSpec, MoeSpec, TensorRef

#: config.json's model_type of models with DeepSeek-V2's attention and experts.
LATENT = ("deepseek_v2", "deepseek_v3", "kimi_k2")
_KEYS = {
    "safetensors": {
        "kv_rank": ("kv_lora_rank",),
        "rope_dim": ("qk_rope_head_dim",),
    }
}
_ATTENTION = ("q_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
_NORMS = ("input_layernorm", "post_attention_layernorm", "self_attn.q_a_layernorm", "self_attn.kv_a_layernorm")
_PARTS = ("gate", "up", "down")


def sketch(checkpoint: Checkpoint) -> ModelSpec | None:
    """None for a model of which no more is known than its name. Raises GreenroomError for a header that lacks sizes."""
    if checkpoint.form != "safetensors" or checkpoint.architecture not in LATENT:
        return None
    header = Header(checkpoint, _KEYS)
    heads, latent = header.integer("heads"), header.integer("kv_rank", limit=1 << 16)
    rotated = header.integer("rope_dim", limit=1 << 12)
    attention = LatentAttentionSpec(
        heads=heads,
        kv_heads=1,
        # Keys and values are multiplied out of the latent vector with the queries, which are as wide then.
        head_dim=latent + rotated,
        rope=None,
        latent=latent,
        rotated=rotated,
    )
    dense = header.integer("dense_first", 0, low=0)
    wide = header.integer("expert_intermediate")
    moe = MoeSpec(
        experts=header.integer("experts"),
        top_k=header.integer("top_k"),
        intermediate=wide,
        shared=MlpSpec(wide * header.integer("shared_experts", 1)),
    )
    mlp = MlpSpec(header.integer("intermediate"))
    layers = tuple(LayerSpec(attention, mlp if i < dense else moe) for i in range(header.integer("layers")))
    return ModelSpec(
        family=checkpoint.architecture,
        hidden=header.integer("hidden"),
        vocab=header.integer("vocab"),
        context_length=header.integer("context"),
        norm_eps=1e-6,
        layers=layers,
        weights=_weights(checkpoint, layers),
    )


def _weights(checkpoint: Checkpoint, layers: tuple[LayerSpec, ...]) -> WeightRoles:
    weights = WeightRoles()

    def add(role: str, name: str) -> None:
        if name in checkpoint.tensors:
            weights.add(role, TensorRef(name))

    add("embed", "model.embed_tokens.weight")
    add("norm", "model.norm.weight")
    add("lm_head", "lm_head.weight")
    for i, layer in enumerate(layers):
        prefix, role = f"model.layers.{i}", f"layers.{i}"
        for part in _ATTENTION:
            add(f"{role}.attention.{part}", f"{prefix}.self_attn.{part}.weight")
        for part in _NORMS:
            add(f"{role}.{part}.norm", f"{prefix}.{part}.weight")
        if isinstance(layer.ffn, MlpSpec):
            for part in _PARTS:
                add(f"{role}.ffn.{part}", f"{prefix}.mlp.{part}_proj.weight")
            continue
        add(f"{role}.moe.router", f"{prefix}.mlp.gate.weight")
        for part in _PARTS:
            add(f"{role}.moe.shared.{part}", f"{prefix}.mlp.shared_experts.{part}_proj.weight")
        for part in ("gate_up_proj", "down_proj"):
            name = f"{prefix}.mlp.experts.{part}"
            if name in checkpoint.tensors:
                weights.add_experts(i, part, TensorRef(name), layer.ffn.experts)
    return weights
