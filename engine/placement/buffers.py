"""RAM that a plan on the CPU takes beside weights and KV cache: the program, work space, staging while loading."""

from __future__ import annotations

from engine.models.spec import AttentionSpec, MlpSpec, ModelSpec
from engine.placement import sizes
from engine.placement.packing import code_of
from engine.placement.sizes import Inventory, Layout, Shapes

#: Private memory of the process with its Python packages, and what torch (2.13, CPU build) adds: measured 30 to 37 MB
#: and 139 MB.
PROGRAM_BYTES = 36_000_000
TORCH_BYTES = 140_000_000
#: A tokenizer's tables: 20 MB measured for 49,152 entries with their merges.
TOKENIZER_ENTRY_BYTES = 400
#: What a file is read in at a time on the way into our kernels' layout.
PIECE = 16 << 20
#: Bytes of one activation on its way into a product: codes with their scale and sums, or a float.
CODE_BYTES, FLOAT_BYTES = 2, 4


def cpu_buffers(spec: ModelSpec, inventory: Inventory, context: int, dense: Layout, experts: Layout) -> int:
    """Bytes of all of it. Reading is over before the first token is computed, so the larger of the two counts."""
    program = PROGRAM_BYTES + TOKENIZER_ENTRY_BYTES * spec.vocab
    if dense.values != "packed" or not sizes.all_native(spec, "quantised"):
        work = sizes.activation_bytes(spec, context)
        return program + TORCH_BYTES + max(work, sizes.staging_bytes(inventory, dense))
    return program + max(work_bytes(spec, inventory, context, experts), _staging(inventory))


def work_bytes(spec: ModelSpec, inventory: Inventory, context: int, experts: Layout) -> int:
    """Work space of our own kernels for one prefill chunk, or the logits of one scoring chunk with it.

    Per token of the chunk, in float32: the residual stream, its normalised copy and the mixer's result, queries, keys
    and values, the heads' results; then the widest feed-forward's activations as its kernels take them.
    """
    floats = codes = 0
    wide = _wide_activations(inventory, experts)
    for layer in spec.layer_kinds:
        mixer, ffn = layer.mixer, layer.ffn
        mixed = 0
        if isinstance(mixer, AttentionSpec):
            mixed = (2 * mixer.heads + 2 * mixer.kv_heads) * mixer.head_dim
        inner = [ffn.intermediate] if isinstance(ffn, MlpSpec) else [ffn.intermediate * ffn.top_k]
        beside = 0
        if not isinstance(ffn, MlpSpec):
            inner += [mlp.intermediate for mlp in (ffn.shared, ffn.dense) if mlp is not None]
            beside = 2 * spec.hidden if ffn.dense is not None else 0
        floats = max(floats, 3 * spec.hidden + mixed + beside)
        codes = max(codes, spec.hidden + max(inner))
    chunk = min(sizes.PREFILL_CHUNK, context)
    scored = min(sizes.SCORING_CHUNK, context)
    each = 4 * floats + (FLOAT_BYTES if wide else CODE_BYTES) * codes
    return max(chunk * each, scored * (each + 4 * spec.vocab))


def _wide_activations(inventory: Inventory, experts: Layout) -> bool:
    """Whether most weights of the feed-forward are multiplied as floating point numbers."""
    groups: list[Shapes] = [shapes for _, shapes in inventory.experts]
    recode = experts.recode if groups else None
    groups = groups or [inventory.roles.get("dense_mlp", Shapes())]
    values = {True: 0, False: 0}
    for shapes in groups:
        for shape, count in shapes.items():
            if shape.rows:
                values[not code_of(shape.format, recode).name.startswith("int")] += shape.values * count
    return values[True] > values[False]


def _staging(inventory: Inventory) -> int:
    """Matrices come in pieces, but those whose rows take another order come whole, and once more in order."""
    whole = inventory.roles.get("attention", Shapes())
    largest = max((2 * shape.read_bytes for shape in whole), default=0)
    return max(PIECE, largest)
