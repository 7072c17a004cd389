"""What every decoder shares: sizes, embedding, final norm, output head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engine.models.header import LIMITS, Header
from engine.models.rope import DEFAULT_THETA, rope_spec
from engine.models.spec import AttentionSpec, LayerSpec, ModelSpec
from engine.models.weights import WeightMap, layer_refs


@dataclass(frozen=True)
class Trunk:
    """The sizes of a decoder, checked.

    context: tokens the model was made for
    window:  tokens a layer with a sliding window sees, None when the header names none
    """

    hidden: int
    vocab: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    norm_eps: float
    window: int | None


def read_trunk(
    header: Header,
    weights: WeightMap,
    *,
    activations: Sequence[str] = ("silu", "swish"),
    kv_heads: int | None = None,
    head_dim: int | None = None,
) -> Trunk:
    """activations: names in config.json of what the family computes
    kv_heads, head_dim: for families whose header gives them another way (or not for every layer)
    """
    hidden = header.integer("hidden")
    heads = header.integer("heads")
    kv_heads = header.integer("kv_heads", heads) if kv_heads is None else kv_heads
    if heads % kv_heads:
        raise header.fail(f"its {heads} attention heads cannot share {kv_heads} key-value heads evenly")
    if head_dim is None:
        if header.get("head_dim") is None and hidden % heads:
            raise header.fail(f"its width {hidden} cannot be split into {heads} heads")
        head_dim = header.integer("head_dim", max(1, hidden // heads))
    activation = header.get("activation")
    if activation is not None and activation not in activations:
        raise header.fail(
            f'it uses the activation "{activation}", which Greenroom does not compute for this family',
            "Choose another model.",
        )
    return Trunk(
        hidden=hidden,
        vocab=_vocab(header, weights),
        layers=header.integer("layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        context=header.integer("context"),
        norm_eps=header.number("norm_eps", 1e-12, 1e-1),
        window=header.integer("sliding_window") if header.get("sliding_window") else None,
    )


def without_next_layers(header: Header, trunk: Trunk) -> Trunk:
    """The trunk without the layers that predict a further token, which GGUF counts among its blocks."""
    extra = header.integer("next_layers", 0, low=0)
    if extra >= trunk.layers:
        raise header.fail(f"its header counts {extra} of its {trunk.layers} layers as predicting further tokens")
    return replace(trunk, layers=trunk.layers - extra)


def attention_spec(
    header: Header,
    weights: WeightMap,
    trunk: Trunk,
    *,
    interleaved: bool = False,
    theta: float = DEFAULT_THETA,
    share: float = 1.0,
    truncate: bool = True,
    qkv_bias: bool | None = None,
    output_bias: bool | None = None,
    qk_norm: str | None = None,
) -> AttentionSpec:
    """Grouped-query attention over everything, as this header describes it; families `replace` what differs.

    theta, share, truncate: as of `rope_spec`
    qkv_bias, output_bias:  None where "attention_bias" tells of both, or in GGUF the tensors
    """
    if qkv_bias is None:
        there = weights.has("attention.q_bias") or weights.has("attention.qkv_bias")
        qkv_bias = header.flag("attention_bias", there)
    if output_bias is None:
        output_bias = header.flag("attention_bias", weights.has("attention.o_bias"))
    return AttentionSpec(
        heads=trunk.heads,
        kv_heads=trunk.kv_heads,
        head_dim=trunk.head_dim,
        rope=rope_spec(header, trunk.head_dim, interleaved, theta=theta, share=share, truncate=truncate),
        qkv_bias=qkv_bias,
        output_bias=output_bias,
        qk_norm=qk_norm,
    )


def windowed_layers(header: Header, layers: int, usual: Callable[[int], bool]) -> tuple[bool, ...]:
    """Which layers see only the sliding window.

    usual: what holds where the header does not say (config.json's layer_types may, and GGUF's pattern: a flag for
           every layer, or n where every n-th layer sees all)
    """
    pattern = header.get("window_pattern")
    if isinstance(pattern, list):
        if len(pattern) < layers or not all(flag in (0, 1) for flag in pattern[:layers]):
            raise header.fail(
                f'its header\'s "{header.key("window_pattern")}" is not a flag for each of {layers} layers'
            )
        return tuple(bool(flag) for flag in pattern[:layers])
    if pattern is not None:
        step = header.integer("window_pattern", limit=1024)
        return tuple((i + 1) % step != 0 for i in range(layers))
    types = header.layer_types(("sliding_attention", "full_attention"), layers)
    if types is None:
        return tuple(usual(i) for i in range(layers))
    return tuple(kind == "sliding_attention" for kind in types)


def late_windows(header: Header, trunk: Trunk) -> tuple[bool, ...]:
    """Which layers see only the window in the dense Qwen: the later ones, where the header turns windows on at all."""
    on = trunk.window is not None and header.flag("windowed", False)
    first = header.integer("first_windowed", trunk.layers, limit=1 << 20, low=0)
    return windowed_layers(header, trunk.layers, lambda i: on and i >= first)


def build_spec(
    family: str,
    header: Header,
    weights: WeightMap,
    trunk: Trunk,
    layer: Callable[[int], LayerSpec],
    *,
    head_bias: bool = False,
) -> ModelSpec:
    """Put the parts together; layer(i) describes layer i. Families `replace` the multipliers and other model switches.

    Raises GreenroomError for a missing or misshapen tensor.
    """
    layers = tuple(layer(i) for i in range(trunk.layers))
    weights.add("embed", (trunk.vocab, trunk.hidden))
    weights.add_norm("norm", trunk.hidden)
    if not _tied(header, weights):
        weights.add("lm_head", (trunk.vocab, trunk.hidden))
    if head_bias:
        weights.add("lm_head_bias", (trunk.vocab,))
    layer_refs(weights, trunk.hidden, layers)
    return ModelSpec(
        family=family,
        hidden=trunk.hidden,
        vocab=trunk.vocab,
        context_length=trunk.context,
        norm_eps=trunk.norm_eps,
        layers=layers,
        weights=weights.refs,
        norm=weights.norm,
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
    stated = header.config.get("tie_word_embeddings")
    return not weights.has("lm_head") if stated is None else bool(stated)
