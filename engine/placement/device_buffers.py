"""What a plan with a GPU takes beside weights and KV cache: work space there, and RAM of the program."""

from __future__ import annotations

from engine.models.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec
from engine.placement.buffers import CODE_BYTES, PIECE, PROGRAM_BYTES, TOKENIZER_ENTRY_BYTES
from engine.placement.sizes import (
    DENSE_AT_ONCE,
    DEQUANTISED_AT_ONCE,
    DEQUANTISED_BYTES,
    FLOATS,
    PREFILL_CHUNK,
    SCORING_CHUNK,
    SINK_SCORES,
    Inventory,
)

#: What torch adds to the program where it does nothing heavy on the CPU: 134 MB measured. Plans on the CPU take more,
#: for the kernels that its library keeps.
DEVICE_TORCH_BYTES = 134_000_000
#: Pieces of a matrix, in float32, that stand in RAM at once: while it is read and its rows are brought into torch's
#: order, stored as floats or in codes; and while it is turned into a precision.
READ_AT_ONCE = {True: 2.1, False: 2.6}
TURNED_AT_ONCE = {"float32": 1.0, "bfloat16": 1.75, "int8": 2.25, "int4": 4.0}
#: Bytes per weight of a dense matrix that is turned into numbers in pieces.
RECODED_BYTES = {"int8": 2, "int4": 6}
#: Bytes per weight of an expert's copy that is turned into numbers, beside the copy; where codes stand beside values.
COPIED_BYTES = {False: 8.2, True: 9.6}
COPIED_BESIDE_FORMATS = frozenset({"Q4_K", "Q5_K"})
#: Bytes per weight of several experts that are turned into numbers together, in formats that take less than others.
FEW_BYTES, FEW_BYTES_FORMATS = 7, frozenset({"Q4_0", "Q4_1", "Q4_K"})
#: How many times as many tokens as the mean an expert of a streamed prompt is taken to have.
POPULAR = 3


def torch_program_bytes(spec: ModelSpec) -> int:
    """Private memory of a process with torch, before it loads anything."""
    return PROGRAM_BYTES + DEVICE_TORCH_BYTES + TOKENIZER_ENTRY_BYTES * spec.vocab


def torch_staging_bytes(inventory: Inventory, dense_dtype: str, *, experts_there: bool) -> int:
    """RAM that loading takes for a moment: matrices come in pieces, experts for a device one by one."""
    shapes = {shape for group in inventory.roles.values() for shape in group}
    pieces = [
        min(4 * shape.values, PIECE) * max(READ_AT_ONCE[shape.format in FLOATS], TURNED_AT_ONCE[dense_dtype])
        for shape in shapes
        if shape.rows
    ]
    expert = 0
    if experts_there:
        matrices = {shape for _, group in inventory.experts for shape in group if shape.rows}
        expert = max((shape.read_bytes + (6 * shape.values if shape.format in FLOATS else 0) for shape in matrices),
                     default=0)  # fmt: skip
    return max(round(max(pieces, default=0.0)), expert)


def device_ram_bytes(
    spec: ModelSpec, inventory: Inventory, context: int, dense_dtype: str, *, experts_there: bool, chunk: int
) -> int:
    """RAM of the program with torch, without what a GPU's libraries take; then loading, or answering."""
    tokens = min(chunk, context)
    ffns = [layer.ffn for layer in spec.layer_kinds if isinstance(layer.ffn, MoeSpec)]
    handed = 0
    if ffns and not experts_there:
        # Page-locked: what goes to the experts and comes back. Beside it, what they make of it.
        most = max(ffn.top_k for ffn in ffns)
        inner = max(ffn.intermediate * ffn.top_k for ffn in ffns)
        handed = 4 * tokens * (2 * spec.hidden + 2 * most) + CODE_BYTES * tokens * (spec.hidden + inner)
    # Embeddings of a chunk; logits of one where every position is scored.
    answering = handed + max(8 * tokens * spec.hidden, 4 * min(SCORING_CHUNK, context) * spec.vocab)
    loading = torch_staging_bytes(inventory, dense_dtype, experts_there=experts_there)
    return torch_program_bytes(spec) + max(loading, answering)


def device_work_bytes(
    spec: ModelSpec,
    inventory: Inventory,
    context: int,
    dense_dtype: str,
    kv_type: str,
    experts: str = "ram",
    chunk: int = PREFILL_CHUNK,
    copy_bytes: int = 0,
) -> int:
    """Bytes for one chunk of a prompt behind a conversation that fills the context, to score a chunk, or for a token.

    experts: "ram", "few" (copies of some there), "cached" (and of so many that prompts may be streamed), "device" (all)
    chunk:   tokens
    copy_bytes: of an expert's copy
    """
    tokens = min(chunk, context)
    width = 1.0 if dense_dtype == "float32" else 0.5
    attentions = {layer.mixer for layer in spec.layer_kinds if isinstance(layer.mixer, AttentionSpec)}
    masks = {(mixer.window, mixer.chunk) for mixer in attentions}
    ropes = {mixer.rope for mixer in attentions if mixer.rope is not None}
    shared = tokens * (4 * width * context * len(masks) + sum(4 * rope.dim for rope in ropes))
    piece = min(largest_matrix(inventory), DENSE_AT_ONCE) * RECODED_BYTES.get(dense_dtype, 0)
    # Of a chunk; results of a piece stand beside the whole.
    recoded = piece + 2 * tokens * min(DENSE_AT_ONCE // spec.hidden, spec.hidden) if piece else 0
    phases = [_scoring(spec, context, width, piece)]
    for layer in spec.layer_kinds:
        mixer, ffn = layer.mixer, layer.ffn
        if isinstance(mixer, AttentionSpec):
            phases += _attending(spec, mixer, context, tokens, width, kv_type, recoded)
        else:
            phases.append(4 * tokens * (2 * spec.hidden + 5 * mixer.channels) + recoded)
        # The residual stream, the mixer's result, their norm.
        beside = 3.0 * spec.hidden
        if layer.post_norms or spec.residual_multiplier != 1.0 or (isinstance(ffn, MoeSpec) and ffn.dense is not None):
            beside += 2 * spec.hidden
        for mlp in (ffn,) if isinstance(ffn, MlpSpec) else (ffn.shared, ffn.dense):
            if mlp is not None:
                phases.append(4 * tokens * (beside + _mlp(mlp, spec.hidden, width)) + recoded)
        if isinstance(ffn, MoeSpec):
            phases.append(4 * tokens * (beside + _experts(ffn, spec.hidden, experts)) + _one_expert(inventory, experts))
    return round(max(shared + max(phases), _token_experts(inventory, experts, copy_bytes, width)))


def largest_matrix(inventory: Inventory) -> int:
    """Weights of the dense part's largest matrix."""
    return max((s.values for shapes in inventory.roles.values() for s in shapes if s.rows), default=0)


def _scoring(spec: ModelSpec, context: int, width: float, piece: int) -> float:
    """Logits of a chunk in the device's arithmetic and as float32; beside them the residual stream, its norm, and that
    as the head takes it.
    """
    tokens = min(SCORING_CHUNK, context)
    held = 4 * tokens * spec.hidden * (2 + (width if width < 1 else 0))
    if piece:
        # A piece's results beside it, then these as float32.
        rows = min(spec.vocab, DENSE_AT_ONCE // spec.hidden)
        return held + 4 * tokens * spec.vocab + max(piece + 2 * tokens * rows, 6 * tokens * rows)
    return held + 4 * tokens * spec.vocab * (1 + width)


def _attending(
    spec: ModelSpec, mixer: AttentionSpec, context: int, tokens: int, width: float, kv_type: str, recoded: float
) -> list[float]:
    """Per token the residual stream and its norm, queries, keys and values; then what attention makes of them."""
    hidden, queries = spec.hidden, mixer.heads * mixer.head_dim
    held = 2 * hidden + queries + 2 * mixer.kv_heads * mixer.head_dim
    besides = 0.0
    if kv_type == "q8":
        besides = mixer.token_bytes("bf16") * mixer.kept(context)
    if mixer.sinks:
        # Scores, and these as the device takes them.
        besides += (6 if width < 1 else 4) * min(
            max(SINK_SCORES, mixer.heads * context), tokens * mixer.heads * context
        )
    # Queries as attention takes them, its result, and that as float32; the same as the output matrix takes it.
    attended = 2 * queries if width < 1 else queries
    out = max(1.5 * queries + 0.5 * hidden, queries + 1.5 * hidden) if width < 1 else queries + hidden
    phases = [4 * tokens * (held + attended) + besides, 4 * tokens * (held + out)]
    if recoded:
        phases.append(4 * tokens * (held + 1.5 * queries + hidden) + recoded)
    return phases


def _mlp(mlp: MlpSpec, hidden: int, width: float) -> float:
    """Numbers per token: gate and up, their product and that as the last matrix takes it, and its result."""
    inner = 2.0 + (2.0 if mlp.limit is not None else 0.0) + (2.0 if mlp.activation == "oai" else 1.0)
    return (inner + (width if width < 1 else 0.0)) * mlp.intermediate + hidden


def _experts(ffn: MoeSpec, hidden: int, experts: str) -> float:
    """Numbers per token of a prompt."""
    if experts == "device":
        # Every slot's result, and one expert that all tokens may have chosen.
        return (ffn.top_k + 3) * hidden + 5 * ffn.intermediate
    if experts == "cached":
        # The tokens as the device takes them, in the order of their experts; and of those that chose the same one
        # their rows, its results, and these weighted.
        share = min(1.0, POPULAR * ffn.top_k / ffn.experts)
        return 0.5 * hidden + 5 * ffn.top_k + share * (3 * hidden + 5 * ffn.intermediate)
    return 0.0


def _largest_expert_matrix(inventory: Inventory) -> int:
    return max((s.values for _, shapes in inventory.experts for s in shapes if s.rows), default=0)


def _one_expert(inventory: Inventory, experts: str) -> int:
    """A matrix of one expert as numbers; from a copy gate and up together."""
    values = _largest_expert_matrix(inventory)
    if experts == "cached":
        return DEQUANTISED_BYTES * min(2 * values, DEQUANTISED_AT_ONCE)
    return DEQUANTISED_BYTES * values if experts == "device" and not _expert_formats(inventory) <= FLOATS else 0


def _expert_formats(inventory: Inventory) -> set[str]:
    """Of matrices, as they are read."""
    return {s.format for _, shapes in inventory.experts for s in shapes if s.rows}


def _token_experts(inventory: Inventory, experts: str, copy_bytes: int, width: float) -> int:
    """A token's experts as numbers, as many together as have room: of copies, which are brought together first, with
    room for all their parts.
    """
    values = _largest_expert_matrix(inventory)
    most = max((moe.top_k for moe, _ in inventory.experts), default=0)
    if experts in ("few", "cached"):
        together = min(most, max(1, DEQUANTISED_AT_ONCE // max(1, 3 * values)))
        numbers = min(2 * values * together, DEQUANTISED_AT_ONCE)
        beside = any(s.format in COPIED_BESIDE_FORMATS for _, shapes in inventory.experts for s in shapes)
        return round(COPIED_BYTES[beside] * numbers) + together * copy_bytes
    if experts == "device":
        formats = _expert_formats(inventory)
        each: float = FEW_BYTES if formats <= FEW_BYTES_FORMATS else DEQUANTISED_BYTES
        if formats <= FLOATS:
            each = 4 * width  # floats are only brought together
        return round(each * max(values, min(most * values, DEQUANTISED_AT_ONCE)))
    return 0
