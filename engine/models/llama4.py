"""Llama 4 text (Scout, Maverick): three chunked rotated layers to one that sees all and knows no positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.checkpoints.checkpoint import Checkpoint
from engine.models.header import Header
from engine.models.moe import moe_spec
from engine.models.spec import LayerSpec, MlpSpec, ModelSpec, TemperatureSpec
from engine.models.trunk import attention_spec, build_spec, read_trunk
from engine.models.weights import ATTENTION_NAMES, MLP_NAMES, MOE_NAMES, WeightMap, merge_names

FAMILY = "llama4"
TITLE = "Llama 4"
ARCHITECTURES = {"safetensors": ("llama4", "llama4_text"), "gguf": ("llama4",)}

KEYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "safetensors": {
        "intermediate": ("intermediate_size_mlp",),
        "expert_intermediate": ("intermediate_size",),
        "sparse_layers": ("moe_layers",),
        "sparse_step": ("interleave_moe_layer_step",),
        "rotated": ("no_rope_layers",),
        "rotated_step": ("no_rope_layer_interval",),
        "chunk": ("attention_chunk_size",),
        "qk_norm": ("use_qk_norm",),
        "tempered": ("attn_temperature_tuning",),
        "temperature_interval": ("floor_scale",),
        "temperature_strength": ("attn_scale",),
    },
    "gguf": {"sparse_step": ("{arch}.interleave_moe_layer_step",)},
}

_PROJECTIONS = {
    f"{role}.{part}": f"model.layers.{{i}}.feed_forward.{prefix}{part}_proj.weight"
    for role, prefix in (("ffn", ""), ("moe.shared", "shared_expert."), ("moe.expert", "experts.{e}."))
    for part in ("gate", "up", "down")
}
NAMES = merge_names(
    ATTENTION_NAMES,
    MLP_NAMES,
    MOE_NAMES,
    {
        "safetensors": {
            **_PROJECTIONS,
            "moe.router": "model.layers.{i}.feed_forward.router.weight",
            "moe.stack.gate_up": "model.layers.{i}.feed_forward.experts.gate_up_proj",
            "moe.stack.down": "model.layers.{i}.feed_forward.experts.down_proj",
        },
    },
)

#: What GGUF has no keys for.
THETA, CHUNK, STEP = 5e5, 8192, 4
TEMPERATURE_INTERVAL, TEMPERATURE_STRENGTH = 8192, 0.1
#: The larger model, of so many experts, has no norm on queries and keys.
UNNORMED_EXPERTS = 128


def model_spec(checkpoint: Checkpoint) -> ModelSpec:
    header = Header(checkpoint, KEYS)
    weights = WeightMap(header, NAMES, transposed=checkpoint.form == "safetensors")
    trunk = read_trunk(header, weights)
    attention = attention_spec(header, weights, trunk, interleaved=True, theta=THETA)
    temperature = TemperatureSpec(
        header.integer("temperature_interval", TEMPERATURE_INTERVAL, limit=1 << 28),
        header.number("temperature_strength", 0.0, 100.0, TEMPERATURE_STRENGTH),
    )
    whole = replace(attention, rope=None, temperature=None if header.get("tempered") in (False, 0) else temperature)
    normed = header.flag("qk_norm", header.integer("experts") != UNNORMED_EXPERTS)
    rotated = replace(attention, qk_norm="l2" if normed else None, norm_after_rope=normed)
    chunk = header.integer("chunk", CHUNK, limit=1 << 28)
    types = header.layer_types(("chunked_attention", "full_attention"), trunk.layers)
    rotates = _rotates(header, trunk.layers)
    sparse = _sparse(header, trunk.layers)

    def layer(i: int) -> LayerSpec:
        mixer = rotated if rotates[i] else whole
        if rotates[i] if types is None else types[i] == "chunked_attention":
            mixer = replace(mixer, chunk=chunk)
        if i not in sparse:
            return LayerSpec(mixer, MlpSpec(header.integer("intermediate")))
        moe = moe_spec(header, weights, i, renormalise=False)
        return LayerSpec(mixer, replace(moe, score="sigmoid", weigh_input=True, shared=MlpSpec(moe.intermediate)))

    return build_spec(FAMILY, header, weights, trunk, layer)


def _rotates(header: Header, layers: int) -> tuple[bool, ...]:
    """Which layers rotate. config.json lists a one for each of them, or nothing."""
    listed = header.get("rotated")
    if listed:
        return tuple(bool(one) for one in header.integers("rotated", layers))
    step = header.integer("rotated_step", STEP, limit=1024)
    return tuple((i + 1) % step != 0 for i in range(layers))


def _sparse(header: Header, layers: int) -> frozenset[int]:
    """Which layers have routed experts."""
    listed = header.get("sparse_layers")
    if listed is None:
        step = header.integer("sparse_step", 1, limit=1024)
        return frozenset(range(step - 1, layers, step))
    if not isinstance(listed, list) or not all(isinstance(i, int) for i in listed):
        raise header.fail(f'its header\'s "{header.key("sparse_layers")}" is not a list of layer numbers')
    return frozenset(listed)
