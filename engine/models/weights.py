"""From roles to tensors: every tensor a model needs is looked up once and its shape checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.models.header import Header
from engine.models.spec import AttentionSpec, LayerSpec, MlpSpec, MoeSpec, TensorRef

#: Names that most families share, per file form. "{i}" is the layer, "{e}" the expert.
#: A family file lists what differs.
ATTENTION_NAMES: Mapping[str, Mapping[str, str]] = {
    "safetensors": {
        "embed": "model.embed_tokens.weight",
        "norm": "model.norm.weight",
        "lm_head": "lm_head.weight",
        "attention.norm": "model.layers.{i}.input_layernorm.weight",
        "attention.q": "model.layers.{i}.self_attn.q_proj.weight",
        "attention.k": "model.layers.{i}.self_attn.k_proj.weight",
        "attention.v": "model.layers.{i}.self_attn.v_proj.weight",
        "attention.o": "model.layers.{i}.self_attn.o_proj.weight",
        "attention.q_bias": "model.layers.{i}.self_attn.q_proj.bias",
        "attention.k_bias": "model.layers.{i}.self_attn.k_proj.bias",
        "attention.v_bias": "model.layers.{i}.self_attn.v_proj.bias",
        "attention.o_bias": "model.layers.{i}.self_attn.o_proj.bias",
        "ffn.norm": "model.layers.{i}.post_attention_layernorm.weight",
    },
    "gguf": {
        "embed": "token_embd.weight",
        "norm": "output_norm.weight",
        "lm_head": "output.weight",
        "attention.norm": "blk.{i}.attn_norm.weight",
        "attention.q": "blk.{i}.attn_q.weight",
        "attention.k": "blk.{i}.attn_k.weight",
        "attention.v": "blk.{i}.attn_v.weight",
        "attention.o": "blk.{i}.attn_output.weight",
        "attention.q_bias": "blk.{i}.attn_q.bias",
        "attention.k_bias": "blk.{i}.attn_k.bias",
        "attention.v_bias": "blk.{i}.attn_v.bias",
        "attention.o_bias": "blk.{i}.attn_output.bias",
        "ffn.norm": "blk.{i}.ffn_norm.weight",
    },
}

MLP_NAMES: Mapping[str, Mapping[str, str]] = {
    "safetensors": {
        "ffn.gate": "model.layers.{i}.mlp.gate_proj.weight",
        "ffn.up": "model.layers.{i}.mlp.up_proj.weight",
        "ffn.down": "model.layers.{i}.mlp.down_proj.weight",
    },
    "gguf": {
        "ffn.gate": "blk.{i}.ffn_gate.weight",
        "ffn.up": "blk.{i}.ffn_up.weight",
        "ffn.down": "blk.{i}.ffn_down.weight",
    },
}

#: Routed experts come one tensor each ("moe.expert.*", [I, H]), stacked ("moe.stack.*", [E, I, H]),
#: or stacked with gate above up in one tensor ("moe.stack.gate_up", [E, 2I, H]).
MOE_NAMES: Mapping[str, Mapping[str, str]] = {
    "safetensors": {
        "moe.router": "model.layers.{i}.mlp.gate.weight",
        "moe.expert.gate": "model.layers.{i}.mlp.experts.{e}.gate_proj.weight",
        "moe.expert.up": "model.layers.{i}.mlp.experts.{e}.up_proj.weight",
        "moe.expert.down": "model.layers.{i}.mlp.experts.{e}.down_proj.weight",
        "moe.stack.gate_up": "model.layers.{i}.mlp.experts.gate_up_proj",
        "moe.stack.down": "model.layers.{i}.mlp.experts.down_proj",
    },
    "gguf": {
        "moe.router": "blk.{i}.ffn_gate_inp.weight",
        "moe.stack.gate": "blk.{i}.ffn_gate_exps.weight",
        "moe.stack.up": "blk.{i}.ffn_up_exps.weight",
        "moe.stack.down": "blk.{i}.ffn_down_exps.weight",
        "moe.stack.gate_up": "blk.{i}.ffn_gate_up_exps.weight",
    },
}


def merge_names(*parts: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """One table per file form from several; later parts win."""
    return {form: {k: v for part in parts for k, v in part.get(form, {}).items()} for form in ("safetensors", "gguf")}


class WeightMap:
    """Collects a model's roles; each `add` looks the tensor up and compares its shape.

    names: as in the tables above, for both file forms.
    """

    def __init__(self, header: Header, names: Mapping[str, Mapping[str, str]]) -> None:
        self._header = header
        self._names = names[header.checkpoint.form]
        self._tensors = header.checkpoint.tensors
        self.refs: dict[str, TensorRef] = {}

    def name(self, role: str, layer: int = 0, expert: int = 0) -> str | None:
        """The file's name for a role; None when this file form has none."""
        name = self._names.get(role)
        return None if name is None else name.format(i=layer, e=expert)

    def has(self, role: str, layer: int = 0, expert: int = 0) -> bool:
        return self.name(role, layer, expert) in self._tensors

    def shape(self, role: str, layer: int = 0, expert: int = 0) -> tuple[int, ...]:
        """Shape as stored. Raises GreenroomError when the tensor is missing."""
        name = self.name(role, layer, expert)
        info = self._tensors.get(name) if name is not None else None
        if info is None:
            raise self._header.fail(f'its tensor "{name or role}" is missing')
        return info.shape

    def check(self, role: str, layer: int, expert: int, shapes: Iterable[tuple[int, ...]]) -> str:
        """The tensor's name, once it is there in one of the accepted shapes."""
        found = self.shape(role, layer, expert)
        accepted = list(shapes)
        name = self.name(role, layer, expert)
        assert name is not None
        if found not in accepted:
            raise self._header.fail(
                f'its tensor "{name}" has shape {list(found)} where its header asks for {list(accepted[0])}'
            )
        return name

    def add(self, role: str, *shapes: tuple[int, ...]) -> None:
        """A role outside the layers."""
        self.refs[role] = TensorRef(self.check(role, 0, 0, shapes))

    def add_layer(self, layer: int, role: str, *shapes: tuple[int, ...]) -> None:
        self.refs[f"layers.{layer}.{role}"] = TensorRef(self.check(role, layer, 0, shapes))

    def add_attention(self, i: int, hidden: int, spec: AttentionSpec) -> None:
        """Norm, projections, and whatever the switches ask for."""
        q, kv = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        self.add_layer(i, "attention.norm", (hidden,))
        for part, width in (("q", q), ("k", kv), ("v", kv)):
            self.add_layer(i, f"attention.{part}", (width, hidden))
            if spec.qkv_bias:
                self.add_layer(i, f"attention.{part}_bias", (width,))
        self.add_layer(i, "attention.o", (hidden, q))
        if spec.output_bias:
            self.add_layer(i, "attention.o_bias", (hidden,))
        if spec.qk_norm == "head":
            self.add_layer(i, "attention.q_norm", (spec.head_dim,))
            self.add_layer(i, "attention.k_norm", (spec.head_dim,))

    def add_mlp(self, i: int, hidden: int, spec: MlpSpec, role: str = "ffn") -> None:
        self.add_layer(i, f"{role}.gate", (spec.intermediate, hidden))
        self.add_layer(i, f"{role}.up", (spec.intermediate, hidden))
        self.add_layer(i, f"{role}.down", (hidden, spec.intermediate))

    def add_moe(self, i: int, hidden: int, spec: MoeSpec) -> None:
        """Router, routed experts in whichever form the file has them, shared expert."""
        self.add_layer(i, "moe.router", (spec.experts, hidden))
        self._add_experts(i, hidden, spec)
        if spec.shared is not None:
            self.add_mlp(i, hidden, spec.shared, "moe.shared")
            if spec.shared_gated:
                self.add_layer(i, "moe.shared.router", (1, hidden), (hidden,))

    def is_moe(self, i: int) -> bool:
        """Whether the file has routed experts in layer i."""
        return any(self.has(role, i) for role in ("moe.expert.down", "moe.stack.down"))

    def expert_intermediate(self, i: int) -> int:
        """Neurons of one expert, as layer i's down projection [.., hidden, intermediate] shows."""
        return self.shape("moe.stack.down" if self.has("moe.stack.down", i) else "moe.expert.down", i)[-1]

    def _add_experts(self, i: int, hidden: int, spec: MoeSpec) -> None:
        experts, inner = spec.experts, spec.intermediate
        wide, narrow = (inner, hidden), (hidden, inner)
        prefix = f"layers.{i}.moe.experts"
        if not self.has("moe.stack.down", i):
            for e in range(experts):
                for part, shape in (("gate", wide), ("up", wide), ("down", narrow)):
                    name = self.check(f"moe.expert.{part}", i, e, [shape])
                    self.refs[f"{prefix}.{e}.{part}"] = TensorRef(name)
            return
        down = self.check("moe.stack.down", i, 0, [(experts, *narrow)])
        if self.has("moe.stack.gate_up", i):
            both = self.check("moe.stack.gate_up", i, 0, [(experts, 2 * inner, hidden)])
            gate, up, gate_rows, up_rows = both, both, (0, inner), (inner, 2 * inner)
            for e in range(experts):
                self.refs[f"{prefix}.{e}.gate"] = TensorRef(gate, e, gate_rows)
                self.refs[f"{prefix}.{e}.up"] = TensorRef(up, e, up_rows)
                self.refs[f"{prefix}.{e}.down"] = TensorRef(down, e)
            return
        gate = self.check("moe.stack.gate", i, 0, [(experts, *wide)])
        up = self.check("moe.stack.up", i, 0, [(experts, *wide)])
        for e in range(experts):
            self.refs[f"{prefix}.{e}.gate"] = TensorRef(gate, e)
            self.refs[f"{prefix}.{e}.up"] = TensorRef(up, e)
            self.refs[f"{prefix}.{e}.down"] = TensorRef(down, e)


def layer_refs(weights: WeightMap, hidden: int, layers: Iterable[LayerSpec]) -> None:
    """Add every layer's roles."""
    for i, layer in enumerate(layers):
        weights.add_attention(i, hidden, layer.attention)
        weights.add_layer(i, "ffn.norm", (hidden,))
        if isinstance(layer.ffn, MoeSpec):
            weights.add_moe(i, hidden, layer.ffn)
        else:
            weights.add_mlp(i, hidden, layer.ffn)
