"""Gemma 4 text (26B-A4B, 31B): two kinds of attention, and in the MoE form experts beside a dense MLP in every layer.

Left out: the small models with an embedding for every layer (E2B, E4B).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.checkpoints.checkpoint import Checkpoint
from engine.models.header import Header
from engine.models.moe import moe_spec
from engine.models.rope import rope_spec
from engine.models.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec
from engine.models.trunk import build_spec, read_trunk, windowed_layers
from engine.models.weights import ATTENTION_NAMES, MLP_NAMES, MOE_NAMES, WeightMap, merge_names

FAMILY = "gemma4"
TITLE = "Gemma 4"
ARCHITECTURES = {"safetensors": ("gemma4", "gemma4_text"), "gguf": ("gemma4",)}

KEYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "safetensors": {
        "activation": ("hidden_activation",),
        "top_k": ("top_k_experts",),
        "softcap": ("final_logit_softcapping",),
        "full_head_dim": ("global_head_dim",),
        "full_kv_heads": ("num_global_key_value_heads",),
        "keys_as_values": ("attention_k_eq_v",),
        "layer_embedding": ("hidden_size_per_layer_input",),
        "shared_kv_layers": ("num_kv_shared_layers",),
        "by_layer": ("per_layer_config",),
        "sparse": ("enable_moe_block",),
    },
    "gguf": {
        "softcap": ("{arch}.final_logit_softcapping",),
        "head_dim": ("{arch}.attention.key_length_swa",),
        "full_head_dim": ("{arch}.attention.key_length",),
        "layer_embedding": ("{arch}.embedding_length_per_layer_input",),
        "shared_kv_layers": ("{arch}.attention.shared_kv_layers",),
    },
}

_ROLES = {
    "safetensors": {
        "attention.post_norm": "post_attention_layernorm.weight",
        "ffn.norm": "pre_feedforward_layernorm.weight",
        "ffn.post_norm": "post_feedforward_layernorm.weight",
        "output_scale": "layer_scalar",
        "moe.norm": "pre_feedforward_layernorm_2.weight",
        "moe.post_norm": "post_feedforward_layernorm_2.weight",
        "moe.dense.post_norm": "post_feedforward_layernorm_1.weight",
        "moe.dense.gate": "mlp.gate_proj.weight",
        "moe.dense.up": "mlp.up_proj.weight",
        "moe.dense.down": "mlp.down_proj.weight",
        "moe.router": "router.proj.weight",
        "moe.router_scale": "router.scale",
        "moe.expert_scale": "router.per_expert_scale",
        "moe.stack.gate_up": "experts.gate_up_proj",
        "moe.stack.down": "experts.down_proj",
        "moe.expert.gate": "experts.{e}.gate_proj.weight",
        "moe.expert.up": "experts.{e}.up_proj.weight",
        "moe.expert.down": "experts.{e}.down_proj.weight",
    },
    "gguf": {
        "attention.post_norm": "post_attention_norm.weight",
        "ffn.post_norm": "post_ffw_norm.weight",
        "output_scale": "layer_output_scale.weight",
        "moe.norm": "pre_ffw_norm_2.weight",
        "moe.post_norm": "post_ffw_norm_2.weight",
        "moe.dense.post_norm": "post_ffw_norm_1.weight",
        "moe.dense.gate": "ffn_gate.weight",
        "moe.dense.up": "ffn_up.weight",
        "moe.dense.down": "ffn_down.weight",
        "moe.router_scale": "ffn_gate_inp.scale",
        "moe.expert_scale": "ffn_down_exps.scale",
    },
}

NAMES = merge_names(
    ATTENTION_NAMES,
    MLP_NAMES,
    MOE_NAMES,
    {"safetensors": {role: f"model.layers.{{i}}.{name}" for role, name in _ROLES["safetensors"].items()}},
    {"gguf": {role: f"blk.{{i}}.{name}" for role, name in _ROLES["gguf"].items()}},
)

WINDOW_THETA, FULL_THETA = 1e4, 1e6
ACTIVATION = "gelu_tanh"


def model_spec(checkpoint: Checkpoint) -> ModelSpec:
    header = Header(checkpoint, KEYS)
    for name, part in (("layer_embedding", "an embedding for every layer"), ("shared_kv_layers", "shared keys")):
        if header.get(name):
            raise header.fail(
                f"it is a Gemma 4 with {part}, which Greenroom does not compute yet", "Choose another model."
            )
    weights = WeightMap(header, NAMES)
    narrow = header.integer("head_dim")
    wide = header.integer("full_head_dim", _of_full_layers(header, "head_dim", 512), limit=4096)
    trunk = read_trunk(header, weights, activations=("gelu_pytorch_tanh",), kv_heads=1, head_dim=narrow)
    windowed = windowed_layers(header, trunk.layers, lambda i: (i + 1) % 6 != 0)
    kv_heads = _kv_heads(header, windowed)
    window = AttentionSpec(
        heads=trunk.heads,
        kv_heads=1,
        head_dim=narrow,
        rope=rope_spec(header, narrow, False, theta=WINDOW_THETA, layer_type="sliding_attention", suffix="_swa"),
        qkv_bias=header.flag("attention_bias", False),
        output_bias=header.flag("attention_bias", False),
        qk_norm="head",
        scale=1.0,
        v_norm=True,
        window=trunk.window,
    )
    rope = rope_spec(header, wide, False, theta=FULL_THETA, layer_type="full_attention")
    full = replace(window, head_dim=wide, rope=rope, window=None)
    mlp = MlpSpec(header.integer("intermediate"), ACTIVATION)
    sparse = header.flag("sparse", bool(header.get("experts")))

    def layer(i: int) -> LayerSpec:
        attention = replace(window if windowed[i] else full, kv_heads=kv_heads[i])
        if not windowed[i]:
            missing = not weights.has("attention.v", i)
            attention = replace(attention, keys_as_values=header.flag("keys_as_values", missing))
        parts = LayerSpec(attention, mlp, post_norms=True, output_scale=weights.has("output_scale", i))
        if not sparse:
            return parts
        moe = moe_spec(header, weights, i, renormalise=True)
        # GGUF in NVFP4 has the scale in the factors of the experts' own matrices.
        scaled = checkpoint.form == "safetensors" or weights.has("moe.expert_scale", i)
        moe = replace(moe, activation=ACTIVATION, router_norm=True, expert_scale=scaled, dense=mlp)
        return replace(parts, ffn=moe)

    spec = build_spec(FAMILY, header, weights, trunk, layer)
    softcap = header.number("softcap", 1e-3, 1e6) if header.get("softcap") is not None else None
    return replace(spec, embedding_multiplier=trunk.hidden**0.5, logit_softcap=softcap)


def _of_full_layers(header: Header, key: str, usual: int) -> int:
    """What config.json says of the full layers, in files where it says it layer by layer."""
    by_layer = header.get("by_layer")
    for values in by_layer.values() if isinstance(by_layer, Mapping) else ():
        if isinstance(values, Mapping) and key in values:
            return int(header.bounded(f"per_layer_config.{key}", values[key], 1, 4096))
    return usual


def _kv_heads(header: Header, windowed: tuple[bool, ...]) -> tuple[int, ...]:
    counts = header.integers("kv_heads", len(windowed), low=1)
    if header.checkpoint.form == "safetensors" and header.flag("keys_as_values", False):
        of_full = header.integer("full_kv_heads", _of_full_layers(header, "num_key_value_heads", counts[0]), limit=4096)
        counts = tuple(count if narrow else of_full for count, narrow in zip(counts, windowed, strict=True))
    heads = header.integer("heads")
    for count in counts:
        if heads % count:
            raise header.fail(f"its {heads} attention heads cannot share {count} key-value heads evenly")
    return counts
