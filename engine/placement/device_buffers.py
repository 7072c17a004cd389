"""Work space on a GPU: what torch's operations of one forward call hold at once."""

from __future__ import annotations

from engine.models.spec import AttentionSpec, MlpSpec, ModelSpec
from engine.placement.sizes import DENSE_AT_ONCE, PREFILL_CHUNK, SCORING_CHUNK, SINK_SCORES


def device_work_bytes(
    spec: ModelSpec, context: int, dense_dtype: str, kv_type: str, *, experts_there: bool, chunk: int = PREFILL_CHUNK
) -> int:
    """Bytes for one chunk of a prompt behind a conversation that fills the context, or to score a chunk.

    experts_there: the device computes the routed experts
    chunk: tokens
    """
    # Of a number in the device's arithmetic; what lies between products is float32.
    float_bytes = 4 if dense_dtype == "float32" else 2
    tokens = min(chunk, context)
    widest, kinds = 0, set()
    for layer in spec.layer_kinds:
        mixer, ffn = layer.mixer, layer.ffn
        scores = widened = 0
        if isinstance(mixer, AttentionSpec):
            queries = mixer.heads * mixer.head_dim
            # Queries, keys and values; then queries as attention takes them, its result, that in order, and as float32.
            mixed = queries + 2 * mixer.kv_heads * mixer.head_dim + 2.5 * queries
            kinds.add((mixer.window, mixer.chunk))
            if kv_type == "q8":
                widened = mixer.token_bytes("bf16") * mixer.kept(context)
            if mixer.sinks:
                scores = 2 * min(max(SINK_SCORES, mixer.heads * context), tokens * mixer.heads * context)
        else:
            mixed = 5 * mixer.channels
        if isinstance(ffn, MlpSpec):
            inner = 4.0 * ffn.intermediate
        else:
            inner = max([4.0 * mlp.intermediate for mlp in (ffn.shared, ffn.dense) if mlp is not None], default=0.0)
            if experts_there:
                # Every slot's result, and one expert that all tokens may have chosen.
                inner = max(inner, (ffn.top_k + 2) * spec.hidden + 5 * ffn.intermediate)
        # The residual stream, its norm, a block's result.
        attending = 4 * tokens * (3 * spec.hidden + mixed) + 4 * scores + widened
        widest = max(widest, round(attending), round(4 * tokens * (4 * spec.hidden + inner)))
    masks = len(kinds) * tokens * context * float_bytes
    logits = min(SCORING_CHUNK, context) * spec.vocab * (4 + float_bytes)
    if dense_dtype in ("int8", "int4"):
        # Pieces of results stand beside the whole.
        logits += min(SCORING_CHUNK * spec.vocab, DENSE_AT_ONCE // spec.hidden * SCORING_CHUNK) * 4
    return masks + max(widest, logits)
