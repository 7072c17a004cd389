"""From roles to tensors: every tensor a model needs is looked up once and its shape checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.models.header import Header
from engine.models.roles import WeightRoles
from engine.models.spec import AttentionSpec, LayerSpec, MlpSpec, MoeSpec, ShortConvSpec, TensorRef

#: Per file form and role: the tensor's name, or several of which the first one present counts. "{i}" is the layer,
#: "{e}" the expert.
Names = Mapping[str, Mapping[str, str | tuple[str, ...]]]

#: Names that most families share; a family file lists what differs. q, k and v may lie above each other in one tensor:
#: "attention.qkv" (and "attention.qkv_bias").
ATTENTION_NAMES: Names = {
    "safetensors": {
        "embed": "model.embed_tokens.weight",
        "norm": "model.norm.weight",
        "norm_bias": "model.norm.bias",
        "lm_head": "lm_head.weight",
        "lm_head_bias": "lm_head.bias",
        "attention.norm": "model.layers.{i}.input_layernorm.weight",
        "attention.norm_bias": "model.layers.{i}.input_layernorm.bias",
        "attention.q": "model.layers.{i}.self_attn.q_proj.weight",
        "attention.k": "model.layers.{i}.self_attn.k_proj.weight",
        "attention.v": "model.layers.{i}.self_attn.v_proj.weight",
        "attention.o": "model.layers.{i}.self_attn.o_proj.weight",
        "attention.q_bias": "model.layers.{i}.self_attn.q_proj.bias",
        "attention.k_bias": "model.layers.{i}.self_attn.k_proj.bias",
        "attention.v_bias": "model.layers.{i}.self_attn.v_proj.bias",
        "attention.o_bias": "model.layers.{i}.self_attn.o_proj.bias",
        "attention.q_norm": "model.layers.{i}.self_attn.q_norm.weight",
        "attention.k_norm": "model.layers.{i}.self_attn.k_norm.weight",
        "ffn.norm": "model.layers.{i}.post_attention_layernorm.weight",
        "ffn.norm_bias": "model.layers.{i}.post_attention_layernorm.bias",
    },
    "gguf": {
        "embed": "token_embd.weight",
        "norm": "output_norm.weight",
        "norm_bias": "output_norm.bias",
        "lm_head": "output.weight",
        "lm_head_bias": "output.bias",
        "attention.norm": "blk.{i}.attn_norm.weight",
        "attention.norm_bias": "blk.{i}.attn_norm.bias",
        "attention.q": "blk.{i}.attn_q.weight",
        "attention.k": "blk.{i}.attn_k.weight",
        "attention.v": "blk.{i}.attn_v.weight",
        "attention.qkv": "blk.{i}.attn_qkv.weight",
        "attention.o": "blk.{i}.attn_output.weight",
        "attention.q_bias": "blk.{i}.attn_q.bias",
        "attention.k_bias": "blk.{i}.attn_k.bias",
        "attention.v_bias": "blk.{i}.attn_v.bias",
        "attention.qkv_bias": "blk.{i}.attn_qkv.bias",
        "attention.o_bias": "blk.{i}.attn_output.bias",
        "attention.q_norm": "blk.{i}.attn_q_norm.weight",
        "attention.k_norm": "blk.{i}.attn_k_norm.weight",
        "ffn.norm": "blk.{i}.ffn_norm.weight",
        "ffn.norm_bias": "blk.{i}.ffn_norm.bias",
    },
}

#: Gate may lie above up in one tensor: "ffn.gate_up" [2I, H], and likewise "moe.shared.gate_up", "moe.dense.gate_up".
MLP_NAMES: Names = {
    "safetensors": {
        "ffn.gate": "model.layers.{i}.mlp.gate_proj.weight",
        "ffn.up": "model.layers.{i}.mlp.up_proj.weight",
        "ffn.down": "model.layers.{i}.mlp.down_proj.weight",
        "ffn.gate_bias": "model.layers.{i}.mlp.gate_proj.bias",
        "ffn.up_bias": "model.layers.{i}.mlp.up_proj.bias",
        "ffn.down_bias": "model.layers.{i}.mlp.down_proj.bias",
    },
    "gguf": {
        "ffn.gate": "blk.{i}.ffn_gate.weight",
        "ffn.up": "blk.{i}.ffn_up.weight",
        "ffn.down": "blk.{i}.ffn_down.weight",
        "ffn.gate_bias": "blk.{i}.ffn_gate.bias",
        "ffn.up_bias": "blk.{i}.ffn_up.bias",
        "ffn.down_bias": "blk.{i}.ffn_down.bias",
    },
}

#: Routed experts come one tensor each ("moe.expert.*", [I, H]), stacked ("moe.stack.*", [E, I, H]),
#: or stacked with gate above up in one tensor ("moe.stack.gate_up", [E, 2I, H]). Their biases, where a model has them,
#: are named likewise: "moe.expert.gate_bias", "moe.stack.gate_bias" [E, I], "moe.stack.gate_up_bias" [E, 2I].
MOE_NAMES: Names = {
    "safetensors": {
        "moe.router": "model.layers.{i}.mlp.gate.weight",
        "moe.choice_bias": "model.layers.{i}.mlp.gate.e_score_correction_bias",
        "moe.expert.gate": "model.layers.{i}.mlp.experts.{e}.gate_proj.weight",
        "moe.expert.up": "model.layers.{i}.mlp.experts.{e}.up_proj.weight",
        "moe.expert.down": "model.layers.{i}.mlp.experts.{e}.down_proj.weight",
        "moe.stack.gate_up": "model.layers.{i}.mlp.experts.gate_up_proj",
        "moe.stack.down": "model.layers.{i}.mlp.experts.down_proj",
        "moe.shared.gate": "model.layers.{i}.mlp.shared_experts.gate_proj.weight",
        "moe.shared.up": "model.layers.{i}.mlp.shared_experts.up_proj.weight",
        "moe.shared.down": "model.layers.{i}.mlp.shared_experts.down_proj.weight",
    },
    "gguf": {
        "moe.router": "blk.{i}.ffn_gate_inp.weight",
        "moe.router_bias": "blk.{i}.ffn_gate_inp.bias",
        "moe.choice_bias": "blk.{i}.exp_probs_b.bias",
        "moe.stack.gate_bias": "blk.{i}.ffn_gate_exps.bias",
        "moe.stack.up_bias": "blk.{i}.ffn_up_exps.bias",
        "moe.stack.down_bias": "blk.{i}.ffn_down_exps.bias",
        "moe.shared.gate": "blk.{i}.ffn_gate_shexp.weight",
        "moe.shared.up": "blk.{i}.ffn_up_shexp.weight",
        "moe.shared.down": "blk.{i}.ffn_down_shexp.weight",
        "moe.stack.gate": "blk.{i}.ffn_gate_exps.weight",
        "moe.stack.up": "blk.{i}.ffn_up_exps.weight",
        "moe.stack.down": "blk.{i}.ffn_down_exps.weight",
        "moe.stack.gate_up": "blk.{i}.ffn_gate_up_exps.weight",
    },
}


#: Mixtral's names for the same, which transformers 5 gives up where it stacks the experts.
BLOCK_SPARSE_NAMES: Names = {
    "safetensors": {
        "moe.router": ("model.layers.{i}.block_sparse_moe.gate.weight", "model.layers.{i}.mlp.gate.weight"),
        "moe.choice_bias": (
            "model.layers.{i}.block_sparse_moe.e_score_correction_bias",
            "model.layers.{i}.mlp.e_score_correction_bias",
        ),
        "moe.expert.gate": "model.layers.{i}.block_sparse_moe.experts.{e}.w1.weight",
        "moe.expert.up": "model.layers.{i}.block_sparse_moe.experts.{e}.w3.weight",
        "moe.expert.down": "model.layers.{i}.block_sparse_moe.experts.{e}.w2.weight",
    },
}

#: Where a multimodal file keeps its text model, as what it has instead of "model." and of "lm_head.".
TEXT_ROOTS = (("model.language_model.", "lm_head."), ("language_model.model.", "language_model.lm_head."))


def merge_names(*parts: Names) -> dict[str, dict[str, str | tuple[str, ...]]]:
    """One table per file form from several; later parts win."""
    return {form: {k: v for part in parts for k, v in part.get(form, {}).items()} for form in ("safetensors", "gguf")}


def _moved(name: str, root: tuple[str, str]) -> str:
    for usual, other in zip(("model.", "lm_head."), root, strict=True):
        if name.startswith(usual):
            return other + name.removeprefix(usual)
    return name


class WeightMap:
    """Collects a model's roles; each `add` looks the tensor up and compares its shape.

    names:       as in the tables above, for both file forms
    norm:        the model's kind of norm: "layer" has biases
    transposed:  stacked experts have input features as rows: [E, H, I], [E, H, 2I] and [E, I, H]
    interleaved: gate and up rows take turns in "moe.stack.gate_up", starting with gate
    """

    def __init__(
        self,
        header: Header,
        names: Names,
        *,
        norm: str = "rms",
        transposed: bool = False,
        interleaved: bool = False,
    ) -> None:
        self.norm = norm
        self._header = header
        self._tensors = header.checkpoint.tensors
        usual = {k: (v,) if isinstance(v, str) else v for k, v in names[header.checkpoint.form].items()}
        moved = [{k: tuple(_moved(name, root) for name in v) for k, v in usual.items()} for root in TEXT_ROOTS]
        self._names = next((n for n in moved if n["embed"][0] in self._tensors), usual)
        self._transposed = transposed
        self._interleaved = interleaved
        self.refs = WeightRoles()

    def name(self, role: str, layer: int = 0, expert: int = 0) -> str | None:
        """The file's name for a role: the one present, or the usual one; None when this file form has none."""
        for name in self._names.get(role, ()):
            if (found := name.format(i=layer, e=expert)) in self._tensors:
                return found
        return self._names[role][0].format(i=layer, e=expert) if role in self._names else None

    def has(self, role: str, layer: int = 0, expert: int = 0) -> bool:
        return self.name(role, layer, expert) in self._tensors

    def shape(self, role: str, layer: int = 0, expert: int = 0) -> tuple[int, ...]:
        """Shape as stored. Raises GreenroomError when the tensor is missing."""
        return self._found(role, layer, expert)[1]

    def _found(self, role: str, layer: int, expert: int) -> tuple[str, tuple[int, ...]]:
        name = self.name(role, layer, expert)
        info = self._tensors.get(name) if name is not None else None
        if name is None or info is None:
            raise self._header.fail(f'its tensor "{name or role}" is missing')
        return name, info.shape

    def check(self, role: str, layer: int, expert: int, shapes: Iterable[tuple[int, ...]]) -> str:
        """The tensor's name, once it is there in one of the accepted shapes."""
        name, found = self._found(role, layer, expert)
        accepted = list(shapes)
        if found not in accepted:
            raise self._header.fail(
                f'its tensor "{name}" has shape {list(found)} where its header asks for {list(accepted[0])}'
            )
        return name

    def add(self, role: str, *shapes: tuple[int, ...]) -> None:
        """A role outside the layers."""
        self.refs.add(role, TensorRef(self.check(role, 0, 0, shapes)))

    def add_layer(self, layer: int, role: str, *shapes: tuple[int, ...]) -> None:
        self.refs.add(f"layers.{layer}.{role}", TensorRef(self.check(role, layer, 0, shapes)))

    def add_norm(self, role: str, width: int, layer: int | None = None) -> None:
        """A norm over the model's width, with a bias where the model's norms have one."""
        for name in (role, f"{role}_bias") if self.norm == "layer" else (role,):
            if layer is None:
                self.add(name, (width,))
            else:
                self.add_layer(layer, name, (width,))

    def add_mixer(self, i: int, hidden: int, layer: LayerSpec) -> None:
        """The norm before a layer's mixer, and the mixer."""
        self.add_norm("attention.norm", hidden, i)
        if isinstance(layer.mixer, AttentionSpec):
            self.add_attention(i, hidden, layer.mixer)
        else:
            self.add_short_conv(i, hidden, layer.mixer)
        if layer.post_norms:
            self.add_norm("attention.post_norm", hidden, i)

    def add_attention(self, i: int, hidden: int, spec: AttentionSpec) -> None:
        """Projections, and whatever the switches ask for."""
        q, kv = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        parts = {"q": q, "k": kv} if spec.keys_as_values else {"q": q, "k": kv, "v": kv}
        self._add_stacked_rows(i, "attention", "qkv", parts, "", (hidden,))
        if spec.qkv_bias:
            self._add_stacked_rows(i, "attention", "qkv", parts, "_bias", ())
        self.add_layer(i, "attention.o", (hidden, q))
        if spec.output_bias:
            self.add_layer(i, "attention.o_bias", (hidden,))
        if spec.qk_norm in ("head", "full"):
            whole = spec.qk_norm == "full"
            self.add_layer(i, "attention.q_norm", (q if whole else spec.head_dim,))
            self.add_layer(i, "attention.k_norm", (kv if whole else spec.head_dim,))
        if spec.sinks:
            self.add_layer(i, "attention.sinks", (spec.heads,))

    def add_short_conv(self, i: int, hidden: int, spec: ShortConvSpec) -> None:
        self.add_layer(i, "conv.in", (3 * hidden, hidden))
        # A convolution of one channel each: config.json models keep that axis.
        self.add_layer(i, "conv.kernel", (hidden, spec.width), (hidden, 1, spec.width))
        self.add_layer(i, "conv.out", (hidden, hidden))
        if spec.bias:
            self.add_layer(i, "conv.in_bias", (3 * hidden,))
            self.add_layer(i, "conv.kernel_bias", (hidden,))
            self.add_layer(i, "conv.out_bias", (hidden,))

    def add_mlp(self, i: int, hidden: int, spec: MlpSpec, role: str = "ffn") -> None:
        parts = dict.fromkeys(("gate", "up"), spec.intermediate)
        self._add_stacked_rows(i, role, "gate_up", parts, "", (hidden,))
        self.add_layer(i, f"{role}.down", (hidden, spec.intermediate))
        if spec.bias:
            self._add_stacked_rows(i, role, "gate_up", parts, "_bias", ())
            self.add_layer(i, f"{role}.down_bias", (hidden,))

    def add_moe(self, i: int, hidden: int, spec: MoeSpec) -> None:
        """Router, routed experts in whichever form the file has them, and what stands beside them."""
        self.add_layer(i, "moe.router", (spec.experts, hidden))
        if spec.router_bias:
            self.add_layer(i, "moe.router_bias", (spec.experts,))
        if spec.choice_bias:
            self.add_layer(i, "moe.choice_bias", (spec.experts,), (1, spec.experts))
        if spec.expert_scale:
            self.add_layer(i, "moe.expert_scale", (spec.experts,))
        if spec.router_norm:
            self.add_layer(i, "moe.router_scale", (hidden,))
        self._add_experts(i, hidden, spec, "")
        if spec.bias:
            self._add_experts(i, hidden, spec, "_bias")
        if spec.shared is not None:
            self.add_mlp(i, hidden, spec.shared, "moe.shared")
            if spec.shared_gated:
                self.add_layer(i, "moe.shared.router", (1, hidden), (hidden,))
        if spec.dense is not None:
            self.add_mlp(i, hidden, spec.dense, "moe.dense")
            for role in ("moe.norm", "moe.post_norm", "moe.dense.post_norm"):
                self.add_norm(role, hidden, i)

    def is_moe(self, i: int) -> bool:
        """Whether the file has routed experts in layer i."""
        return any(self.has(role, i) for role in ("moe.expert.down", "moe.stack.down"))

    def expert_intermediate(self, i: int) -> int:
        """Neurons of one expert, as layer i's down projection [.., hidden, intermediate] shows."""
        stacked = self.has("moe.stack.down", i)
        shape = self.shape("moe.stack.down" if stacked else "moe.expert.down", i)
        return shape[-2 if stacked and self._transposed else -1]

    def _add_stacked_rows(
        self, i: int, prefix: str, stack: str, parts: Mapping[str, int], ending: str, columns: tuple[int, ...]
    ) -> None:
        """Roles `prefix.part` + ending of so many rows each: a tensor each, or above each other in `prefix.stack`."""
        stacked = f"{prefix}.{stack}{ending}"
        if not self.has(stacked, i):
            for part, rows in parts.items():
                self.add_layer(i, f"{prefix}.{part}{ending}", (rows, *columns))
            return
        name = self.check(stacked, i, 0, [(sum(parts.values()), *columns)])
        first = 0
        for part, rows in parts.items():
            self.refs.add(f"layers.{i}.{prefix}.{part}{ending}", TensorRef(name, rows=(first, first + rows)))
            first += rows

    def _add_experts(self, i: int, hidden: int, spec: MoeSpec, ending: str) -> None:
        """The experts' weights (ending ""), or their biases ("_bias")."""
        experts, inner = spec.experts, spec.intermediate
        shapes: dict[str, tuple[int, ...]] = {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}
        if ending:
            shapes = {part: shape[:1] for part, shape in shapes.items()}
        if not self.has("moe.stack.down", i):
            for e in range(experts):
                for part, shape in shapes.items():
                    name = self.check(f"moe.expert.{part}{ending}", i, e, [shape])
                    self.refs.add(f"layers.{i}.moe.experts.{e}.{part}{ending}", TensorRef(name))
            return
        transposed = self._transposed and not ending
        stacks = {part: TensorRef(f"moe.stack.{part}{ending}") for part in shapes}
        if self.has("moe.stack.gate_up", i):
            both = f"moe.stack.gate_up{ending}"
            rows = ((0, 2 * inner), (1, 2 * inner)) if self._interleaved else ((0, inner), (inner, 2 * inner))
            step = 2 if self._interleaved else 1
            stacks |= {part: TensorRef(both, rows=r, step=step) for part, r in zip(("gate", "up"), rows, strict=True)}
        for part, ref in stacks.items():
            count = shapes[part][0] if ref.rows is None else 2 * inner
            shape = (count, *shapes[part][1:])
            name = self.check(ref.name, i, 0, [(experts, *(reversed(shape) if transposed else shape))])
            found = TensorRef(name, rows=ref.rows, step=ref.step, transposed=transposed)
            self.refs.add_experts(i, f"{part}{ending}", found, experts)


def layer_refs(weights: WeightMap, hidden: int, layers: Iterable[LayerSpec]) -> None:
    """Add every layer's roles."""
    for i, layer in enumerate(layers):
        weights.add_mixer(i, hidden, layer)
        weights.add_norm("ffn.norm", hidden, i)
        if isinstance(layer.ffn, MoeSpec):
            weights.add_moe(i, hidden, layer.ffn)
        else:
            weights.add_mlp(i, hidden, layer.ffn)
        if layer.post_norms:
            weights.add_norm("ffn.post_norm", hidden, i)
        if layer.output_scale:
            weights.add_layer(i, "output_scale", (1,), ())
