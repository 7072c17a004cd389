"""What every decoder shares: sizes, embedding, final norm, output head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.models.header import LIMITS, Header
from engine.models.rope import rope_spec
from engine.models.spec import AttentionSpec, LayerSpec, ModelSpec
from engine.models.weights import WeightMap, layer_refs


@dataclass(frozen=True)
class Trunk:
    """The sizes of a decoder, checked.

    context: tokens the model was made for; a sliding window shorter than that limits it, because inside the window
             windowed and full attention are the same.
    """

    hidden: int
    vocab: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    norm_eps: float


def read_trunk(header: Header, weights: WeightMap, windowed: bool) -> Trunk:
    """windowed: the header's sliding window, if it has one, is in use."""
    hidden = header.integer("hidden")
    heads = header.integer("heads")
    kv_heads = header.integer("kv_heads", heads)
    if heads % kv_heads:
        raise header.fail(f"its {heads} attention heads cannot share {kv_heads} key-value heads evenly")
    if header.get("head_dim") is None and hidden % heads:
        raise header.fail(f"its width {hidden} cannot be split into {heads} heads")
    head_dim = header.integer("head_dim", max(1, hidden // heads))
    activation = header.get("activation")
    if activation not in (None, "silu", "swish"):
        raise header.fail(
            f'it uses the activation "{activation}", which Greenroom does not compute for this family',
            "Choose another model.",
        )
    context = header.integer("context")
    if windowed and header.get("sliding_window") is not None:
        context = min(context, header.integer("sliding_window"))
    return Trunk(
        hidden=hidden,
        vocab=_vocab(header, weights),
        layers=header.integer("layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        context=context,
        norm_eps=header.number("norm_eps", 1e-12, 1e-1),
    )


def attention_spec(
    header: Header, trunk: Trunk, *, interleaved: bool, qkv_bias: bool, output_bias: bool, qk_norm: str | None = None
) -> AttentionSpec:
    """Grouped-query attention as this header describes it."""
    return AttentionSpec(
        heads=trunk.heads,
        kv_heads=trunk.kv_heads,
        head_dim=trunk.head_dim,
        rope=rope_spec(header, trunk.head_dim, interleaved),
        qkv_bias=qkv_bias,
        output_bias=output_bias,
        qk_norm=qk_norm,
    )


def build_spec(
    family: str, header: Header, weights: WeightMap, trunk: Trunk, layer: Callable[[int], LayerSpec]
) -> ModelSpec:
    """Put the parts together; layer(i) describes layer i. Raises GreenroomError for a missing or misshapen tensor."""
    layers = tuple(layer(i) for i in range(trunk.layers))
    weights.add("embed", (trunk.vocab, trunk.hidden))
    weights.add("norm", (trunk.hidden,))
    if not _tied(header, weights):
        weights.add("lm_head", (trunk.vocab, trunk.hidden))
    layer_refs(weights, trunk.hidden, layers)
    return ModelSpec(
        family=family,
        hidden=trunk.hidden,
        vocab=trunk.vocab,
        context_length=trunk.context,
        norm_eps=trunk.norm_eps,
        layers=layers,
        weights=weights.refs,
    )


def _vocab(header: Header, weights: WeightMap) -> int:
    """config.json states it; GGUF files often leave it to the embedding's shape."""
    rows = weights.shape("embed")[0]
    if not 1 <= rows <= LIMITS["vocab"]:
        raise header.fail(f"its embedding has {rows} rows, not 1 to {LIMITS['vocab']}")
    return header.integer("vocab", rows)


def _tied(header: Header, weights: WeightMap) -> bool:
    """Whether the embedding also serves as output head: config.json says so; in GGUF the head is simply absent."""
    if header.checkpoint.form == "gguf":
        return not weights.has("lm_head")
    stated = header.checkpoint.config.get("tie_word_embeddings")
    return not weights.has("lm_head") if stated is None else bool(stated)
