"""Bytes per role, from tensor headers alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from engine.checkpoints.checkpoint import Checkpoint
from engine.checkpoints.formats import FORMATS
from engine.checkpoints.widened import WIDENED
from engine.models.roles import counted
from engine.models.spec import AttentionSpec, Mixer, MlpSpec, ModelSpec, MoeSpec, TensorRef
from engine.placement.packing import packed_nbytes

GB = 1_000_000_000
T = TypeVar("T")

#: What may be re-coded to int8 or int4 when asked: plain numbers, and types that are held in more room than stored.
RECODABLE = frozenset({"F32", "F16", "BF16", *WIDENED})
DENSE_BYTES = {"float32": 4, "bfloat16": 2}
#: Formats whose values torch multiplies as they are; a device holds them in the type it computes in.
FLOATS = frozenset({"F32", "F16", "BF16"})
#: Columns that share a scale and a zero point in "int4" on a device.
INT4_GROUP = 32
#: What a device needs for a moment per weight of a matrix that it dequantises: codes, values in float32 and their
#: products with scales, the result.
DEQUANTISED_BYTES = 10
#: Weights of experts, and of other matrices, dequantised at a time.
DEQUANTISED_AT_ONCE = 1 << 24
DENSE_AT_ONCE = 1 << 22

#: Widest head that our attention kernel takes.
MAX_HEAD_DIM = 512

#: CUDA context, cuBLAS workspace and loaded kernels of a torch process. An estimate until measured per driver.
CUDA_CONTEXT_BYTES = 600_000_000
#: RAM a CUDA build of torch takes on top once its libraries are initialised. An estimate likewise.
CUDA_PROGRAM_BYTES = 1_200_000_000
#: Page-locked buffers of the largest expert's size on the way to a GPU: so many, in so many bytes, but two at least.
STAGING_BUFFERS, STAGING_BYTES = 8, 256 << 20
#: Slots at the end that prompts are streamed through: one in so many; at least so many, else prompts are not streamed.
RING_SHARE, LEAST_RING = 8, 2
#: Tokens per forward call while a prompt is read, and while every position is scored. With 128 experts and top-8 a
#: chunk gives each expert 32 rows, enough for the kernels to be bound by arithmetic; stopping and progress are granted
#: between chunks.
PREFILL_CHUNK = 512
SCORING_CHUNK = 128
#: Most scores held at once where torch computes attention with sinks, for which it has no fused kernel.
SINK_SCORES = 1 << 25


#: Weights of a router, by the last part of their role.
ROUTER_PARTS = ("router", "router_bias", "router_scale", "choice_bias", "expert_scale")


class Shape(NamedTuple):
    """One weight as read: rows x columns in `format`; a vector has no rows.

    widened: the type that the file stores it as, where its values are read in blocks that take more room; else ""
    """

    rows: int
    columns: int
    format: str
    widened: str = ""

    @property
    def values(self) -> int:
        return max(1, self.rows) * self.columns

    @property
    def stored_bytes(self) -> int:
        """What it takes in the file."""
        record = WIDENED[self.widened] if self.widened else FORMATS[self.format]
        return self.values // record.block_values * record.block_bytes

    @property
    def read_bytes(self) -> int:
        """What it takes once read."""
        return self._replace(widened="").stored_bytes


Shapes = Counter[Shape]


@dataclass(frozen=True)
class Inventory:
    """How many weights of which shape each role has.

    roles:   everything but the routed experts, keys as in PlanBytes
    experts: per layer with routed experts: (its MoeSpec, shapes of all experts together)
    tied:    the output head is the embedding; its shapes are there under both roles
    sums:    what was added up already, because a plan asks for the same sums over and over
    others:  the same model in other formats, likewise
    """

    roles: Mapping[str, Shapes]
    experts: tuple[tuple[MoeSpec, Shapes], ...]
    tied: bool = False
    sums: dict[tuple[str, Layout], Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    others: dict[str, Inventory | None] = field(default_factory=dict, init=False, compare=False, repr=False)

    def expert_formats(self) -> set[str]:
        """As the file stores them."""
        return {shape.widened or shape.format for _, shapes in self.experts for shape in shapes}

    def stored_as(self, name: str) -> Inventory | None:
        """The same model with its matrices stored in another format; None when that format cannot hold its shapes."""
        if name not in self.others:
            self.others[name] = self._stored_as(name)
        return self.others[name]

    def _stored_as(self, name: str) -> Inventory | None:
        block = FORMATS[name].block_values

        def convert(shapes: Shapes) -> Shapes:
            changed: Shapes = Counter()
            for shape, count in shapes.items():
                changed[shape._replace(format=name, widened="") if shape.rows else shape] += count
            return changed

        roles = {role: shapes if role == "router_and_norms" else convert(shapes) for role, shapes in self.roles.items()}
        experts = tuple((moe, convert(shapes)) for moe, shapes in self.experts)
        changed = [shape for shapes in (*roles.values(), *(s for _, s in experts)) for shape in shapes]
        if any(shape.format == name and shape.columns % block for shape in changed):
            return None
        return replace(self, roles=roles, experts=experts)


def has_kernel(mixer: Mixer) -> bool:
    """Whether our own code computes it on the CPU."""
    return not isinstance(mixer, AttentionSpec) or mixer.head_dim <= MAX_HEAD_DIM


def all_native(spec: ModelSpec, dense_dtype: str) -> bool:
    """Whether our kernels compute everything on the CPU: torch is not even imported then."""
    return dense_dtype == "quantised" and all(has_kernel(layer.mixer) for layer in spec.layers)


def take_inventory(spec: ModelSpec, checkpoint: Checkpoint) -> Inventory:
    """Sort every weight of the spec under its role."""
    roles: dict[str, Shapes] = {}
    experts: list[Shapes] = [Counter() for _ in spec.layers]
    for name, ref, count in counted(spec.weights):
        shape = weight_shape(checkpoint, ref)
        if name.endswith("conv.kernel"):
            shape = Shape(0, math.prod(checkpoint.tensors[ref.name].shape), shape.format)  # float32 everywhere
        role = role_of(name)
        if role == "experts":
            experts[int(name.split(".")[1])][shape] += count
        else:
            roles.setdefault(role, Counter())[shape] += 2 * count if _loaded_twice(spec, name) else count
    tied = "lm_head" not in roles
    if tied:
        # One tensor in the file. Our kernels look rows up in the matrix they multiply with; torch needs another copy.
        roles["lm_head"] = Counter(roles.get("embeddings", Counter()))
    per_layer = tuple(
        (layer.ffn, shapes)
        for layer, shapes in zip(spec.layers, experts, strict=True)
        if isinstance(layer.ffn, MoeSpec)
    )
    return Inventory(roles, per_layer, tied)


def _loaded_twice(spec: ModelSpec, name: str) -> bool:
    """Whether it is the k projection of a layer whose values are its output: keys take it in another order of rows."""
    parts = name.split(".")
    if parts[0] != "layers" or parts[2:] != ["attention", "k"]:
        return False
    mixer = spec.layers[int(parts[1])].mixer
    return isinstance(mixer, AttentionSpec) and mixer.keys_as_values


def weight_shape(checkpoint: Checkpoint, ref: TensorRef) -> Shape:
    info = checkpoint.tensors[ref.name]
    axes = ref.shape(info.shape)
    if len(axes) < 2:
        return Shape(0, axes[0] if axes else 1, info.format)
    return Shape(axes[-2], axes[-1], info.format, info.origin if info.origin in WIDENED else "")


def role_of(weight: str) -> str:
    """PlanBytes role of a ModelSpec weight name."""
    parts = weight.split(".")
    if parts[0] != "layers":
        return {"embed": "embeddings", "lm_head": "lm_head"}.get(parts[0], "router_and_norms")
    block, rest = parts[2], parts[3:]
    if block == "output_scale" or rest[-1] in ROUTER_PARTS or rest[-1].endswith(("norm", "norm_bias")):
        return "router_and_norms"
    if block == "moe":
        return {"shared": "shared_experts", "dense": "dense_mlp"}.get(rest[0], "experts")
    return "attention" if block in ("attention", "conv") else "dense_mlp"


@dataclass(frozen=True)
class Layout:
    """How weights are held in one memory.

    values: "packed" (codes of our kernels); or torch tensors: "float32", "bfloat16", "int8" (a scale per row), "int4"
            (groups of INT4_GROUP), "blocks" (as the file has them, but floats as `floats`)
    recode: for packed weights, as `_native.Matrix` takes it
    floats: "float32" or "bfloat16"
    """

    values: str
    recode: str | None = None
    isa: str | None = None
    floats: str = "bfloat16"

    def nbytes(self, shape: Shape) -> int:
        if shape.rows == 0:
            return shape.columns * 4  # norms and biases are float32 everywhere
        if self.values == "packed":
            return packed_nbytes(shape.rows, shape.columns, shape.format, self.recode, self.isa)
        if self.values == "int8":
            return shape.values + 2 * shape.rows
        if self.values == "int4" and shape.columns % INT4_GROUP == 0:
            return shape.values // 2 + 4 * shape.values // INT4_GROUP
        if self.values == "blocks" and shape.format not in FLOATS:
            return shape.read_bytes
        return shape.values * DENSE_BYTES.get(self.values, DENSE_BYTES[self.floats])

    def total(self, shapes: Shapes) -> int:
        return sum(self.nbytes(shape) * count for shape, count in shapes.items())


def _remembered(inventory: Inventory, what: str, layout: Layout, add_up: Callable[[], T]) -> T:
    key = what, layout
    if key not in inventory.sums:
        inventory.sums[key] = add_up()
    found: T = inventory.sums[key]
    return found


def expert_bytes(inventory: Inventory, layout: Layout) -> int:
    return _remembered(
        inventory, "experts", layout, lambda: sum(layout.total(shapes) for _, shapes in inventory.experts)
    )


def largest_expert_bytes(inventory: Inventory, layout: Layout) -> int:
    def add_up() -> int:
        return max((-(-layout.total(shapes) // moe.experts) for moe, shapes in inventory.experts), default=0)

    return _remembered(inventory, "largest expert", layout, add_up)


def active_expert_bytes(inventory: Inventory, layout: Layout) -> int:
    """Expert bytes one token reads, over all layers."""
    return sum(layout.total(shapes) * moe.top_k // moe.experts for moe, shapes in inventory.experts)


def active_expert_values(inventory: Inventory) -> int:
    """Expert weights one token is multiplied with."""
    totals = ((moe, sum(s.values * n for s, n in shapes.items())) for moe, shapes in inventory.experts)
    return sum(values * moe.top_k // moe.experts for moe, values in totals)


def dense_bytes(inventory: Inventory, layout: Layout) -> dict[str, int]:
    """Bytes per role of everything but the routed experts.

    Embeddings stay as stored, in RAM, whatever the layout: a token needs one row of them. Packed, a tied head has them.
    Routers and norms are float32 everywhere, so that no rounding picks another expert.
    """
    return dict(_remembered(inventory, "dense", layout, lambda: _dense_bytes(inventory, layout)))


def _dense_bytes(inventory: Inventory, layout: Layout) -> dict[str, int]:
    sizes = {}
    for role, shapes in inventory.roles.items():
        if role == "embeddings" and inventory.tied and layout.values == "packed":
            sizes[role] = 0
        elif role == "embeddings":
            sizes[role] = sum(shape.read_bytes * count for shape, count in shapes.items())
        elif role == "router_and_norms":
            sizes[role] = sum(4 * shape.values * count for shape, count in shapes.items())
        else:
            sizes[role] = layout.total(shapes)
    return sizes


def staging_bytes(inventory: Inventory, layout: Layout) -> int:
    """RAM that loading needs for a moment on top: the largest matrix as stored, or as float32 on its way to torch."""
    return _remembered(inventory, "staging", layout, lambda: _staging_bytes(inventory, layout))


def _staging_bytes(inventory: Inventory, layout: Layout) -> int:
    shapes = {shape for group in (*inventory.roles.values(), *(s for _, s in inventory.experts)) for shape in group}
    if layout.values == "packed":
        return max((shape.read_bytes for shape in shapes), default=0)
    return max((shape.read_bytes + 4 * shape.values for shape in shapes), default=0)


def dense_values(inventory: Inventory) -> int:
    """Weights every token is multiplied with; of the embeddings it only looks one row up."""
    return sum(
        shape.values * count
        for role, shapes in inventory.roles.items()
        if role != "embeddings"
        for shape, count in shapes.items()
    )


def head_values(inventory: Inventory) -> int:
    """The output head's share of `dense_values`."""
    return sum(shape.values * count for shape, count in inventory.roles["lm_head"].items())


def kv_traffic(spec: ModelSpec, tokens: int, kv_type: str) -> int:
    """Bytes of keys and values that the last of `tokens` tokens reads."""
    return sum(attention.token_bytes(kv_type) * min(tokens, attention.reach or tokens) for attention in spec.attentions)


def attention_ops(spec: ModelSpec, tokens: int) -> int:
    """Operations of attention in a prompt of `tokens` tokens, per token and half of the prompt.

    Scores, then the weighted sum: a multiplication and an addition each per value. A layer with a window counts by the
    share of the prompt before it that a token sees.
    """
    total = 0.0
    for attention in spec.attentions:
        reach = min(tokens, attention.reach or tokens)
        seen = reach * (reach + 1) / 2 + (tokens - reach) * reach
        total += 4 * attention.heads * attention.head_dim * seen / (tokens * (tokens + 1) / 2)
    return round(total)


def passing_values(spec: ModelSpec) -> tuple[int, int]:
    """Numbers that a token of a prompt reads or writes between matrices: (of routed experts, of all the rest).

    Each matrix takes a row in and gives one out. Attention looks at its heads once more to rotate and store them.
    """
    routed = rest = 0
    for layer in spec.layers:
        mixer, ffn = layer.mixer, layer.ffn
        if isinstance(mixer, AttentionSpec):
            heads = (mixer.heads + 2 * mixer.kv_heads) * mixer.head_dim
            mixed = 3 * heads + mixer.heads * mixer.head_dim
        else:
            mixed = 8 * mixer.channels
        rest += mixed + 4 * spec.hidden
        if isinstance(ffn, MlpSpec):
            dense = [ffn]
        else:
            dense = [mlp for mlp in (ffn.shared, ffn.dense) if mlp is not None]
            routed += spec.hidden + ffn.top_k * (3 * ffn.intermediate + spec.hidden)
            rest += spec.hidden + ffn.experts
        rest += sum(2 * spec.hidden + 3 * mlp.intermediate for mlp in dense)
    return routed, rest


def activation_bytes(spec: ModelSpec, context: int) -> int:
    """Float32 work space of one prefill chunk, or of one scoring chunk's logits, whichever is larger.

    Per token of the chunk: the residual stream and its normalised copies, q, k, v and the attention's output, and the
    widest feed-forward (gate, up and their product for each chosen expert).
    """
    widest = 0
    for layer in spec.layer_kinds:
        mixer, ffn = layer.mixer, layer.ffn
        if isinstance(mixer, AttentionSpec):
            mixed = (2 * mixer.heads + 2 * mixer.kv_heads) * mixer.head_dim
        else:
            mixed = 5 * mixer.channels
        if isinstance(ffn, MlpSpec):
            inner = 3 * ffn.intermediate
        else:
            beside = [mlp.intermediate for mlp in (ffn.shared, ffn.dense) if mlp is not None]
            inner = 3 * (ffn.intermediate * ffn.top_k + sum(beside))
        row = 6 * spec.hidden + max(mixed, inner)
        widest = max(widest, min(PREFILL_CHUNK, context) * row)
    logits = min(SCORING_CHUNK, context) * spec.vocab
    return 4 * max(widest, logits)


def ram_reserve(total: int) -> int:
    """Kept back for the system: 8 % of RAM, at least 2 GB and at most 16 GB, but never more than a quarter."""
    return min(max(2 * GB, min(total * 8 // 100, 16 * GB)), total // 4)


def vram_reserve(total: int) -> int:
    """Kept back for the desktop: 0.5 GB, but never more than a quarter."""
    return min(GB // 2, total // 4)
