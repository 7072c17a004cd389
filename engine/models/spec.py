"""What a model computes, as a record without torch.

A family file turns a checkpoint's header into a `ModelSpec`; placement adds up its bytes, executors run it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

#: Tokens that a layer with a window keeps beyond it: so many can be appended at once and taken back again.
ROLLBACK = 512
#: A layer whose state cannot be taken back token by token keeps a copy of it every so many tokens.
CHECKPOINT_INTERVAL = 256
#: Most tokens of a call that hold a guess of what comes, so that any number of them may be taken back at once.
DRAFT = 16
#: What the KV cache's numbers are held as: bytes of one, and of the scale that each head's share of a token has.
KV_TYPES = {"f32": (4, 0), "bf16": (2, 0), "f16": (2, 0), "q8": (1, 4)}


@dataclass(frozen=True)
class LongRope:
    """What takes over in a conversation planned for more tokens than the model was first made for (LongRoPE).

    original_context: up to this many tokens the RopeSpec's own factors hold
    """

    original_context: int
    frequency_factors: tuple[float, ...]
    magnitude: float


@dataclass(frozen=True)
class RopeSpec:
    """Rotary positions.

    dim:        rotated dimensions of each head (the first `dim`)
    interleaved: pairs (0,1),(2,3).. (GGUF arch llama) instead of halves (HF "rotate half")
    frequency_factors: divisors of the inverse frequencies [dim/2], infinite for a pair that stays; or None
    scale:      linear position scaling divisor (1.0 = none)
    magnitude:  multiplies cosine and sine, thus both q and k (YaRN's and LongRoPE's attention factor)
    long:       replaces factors and magnitude for long conversations, or None
    """

    theta: float
    dim: int
    interleaved: bool = False
    frequency_factors: tuple[float, ...] | None = None
    scale: float = 1.0
    magnitude: float = 1.0
    long: LongRope | None = None

    def at_context(self, context: int) -> RopeSpec:
        """The same with `long` settled for a conversation of at most `context` tokens.

        Settled once, because keys in the cache that were turned by other factors could not stay.
        """
        long = self.long
        if long is None or context <= long.original_context:
            return replace(self, long=None)
        return replace(self, frequency_factors=long.frequency_factors, magnitude=long.magnitude, long=None)


@dataclass(frozen=True)
class TemperatureSpec:
    """Queries grow with their position p: times 1 + strength * ln(1 + floor((p + 1) / interval))."""

    interval: int
    strength: float


@dataclass(frozen=True)
class AttentionSpec:
    """Grouped-query attention with switches, in the order they act.

    qkv_bias:        of the three projections
    clip_qkv:        q, k and v are clamped to +-clip_qkv; after a "full" norm, before anything else
    qk_norm:         RMS norm of q and k: None, "head" (over each head, one weight [head_dim] for all),
                     "full" (over all heads together, weight [heads * head_dim]), or "l2" (each head, no weight)
    v_norm:          RMS norm without weight over each value head
    keys_as_values:  there is no v projection: values are the k projection's output, before norm and rope
    rope:            None leaves positions out (NoPE)
    norm_after_rope: qk_norm acts on rotated q and k
    temperature:     scales queries by position, or None
    window:          a token sees the last `window` tokens, itself included; None sees all
    chunk:           a token sees its own chunk of so many positions (0..chunk-1, chunk..2 chunk-1, ...) up to itself
    sinks:           one logit per head joins the softmax and takes its share of the weight, but adds no value
    output_bias:     of the output projection
    """

    heads: int
    kv_heads: int
    head_dim: int
    rope: RopeSpec | None
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: str | None = None
    #: Multiplies q.k; None means head_dim ** -0.5.
    scale: float | None = None
    norm_after_rope: bool = False
    v_norm: bool = False
    keys_as_values: bool = False
    clip_qkv: float | None = None
    temperature: TemperatureSpec | None = None
    window: int | None = None
    chunk: int | None = None
    sinks: bool = False

    @property
    def reach(self) -> int | None:
        """Most tokens that one token sees, itself included; None for all."""
        return self.chunk if self.window is None else self.window

    @property
    def score_scale(self) -> float:
        return self.head_dim**-0.5 if self.scale is None else self.scale

    def kept(self, context: int) -> int:
        """Tokens whose keys and values the cache holds in a conversation of `context` tokens: all of them, or those
        within reach and ROLLBACK more. All where that and a copy of it, to go back to, would take as much.
        """
        some = context if self.reach is None else self.reach + ROLLBACK
        return context if context <= 2 * some else some

    def rollback(self, context: int) -> int:
        """Tokens kept beyond those within reach."""
        return self.kept(context) if self.reach is None else max(ROLLBACK, self.kept(context) - self.reach)

    def token_bytes(self, kv_type: str) -> int:
        """Of one token's keys and values."""
        number, scale = KV_TYPES[kv_type]
        return 2 * self.kv_heads * (self.head_dim * number + scale)

    def state_bytes(self, context: int, kv_type: str) -> int:
        """Cache bytes: keys and values of all tokens kept; twice where some are forgotten."""
        kept = self.kept(context)
        copies = 1 if kept == context else 2
        return self.token_bytes(kv_type) * kept * copies


@dataclass(frozen=True)
class LatentAttentionSpec(AttentionSpec):
    """Keys and values of all heads come from one vector that a token keeps: `latent` numbers, and a key of `rotated`
    that all heads share (DeepSeek-V2's attention). Known for plans only, no executor computes it.
    """

    latent: int = 0
    rotated: int = 0

    def token_bytes(self, kv_type: str) -> int:
        number, scale = KV_TYPES[kv_type]
        return (self.latent + self.rotated) * number + scale


@dataclass(frozen=True)
class ShortConvSpec:
    """Gated short convolution (LFM2): out(c * conv(b * x)), where (b, c, x) = in(hidden) are thirds of 3 hidden.

    conv is causal, depthwise, over the last `width` tokens.

    channels: the model's width
    bias: of all three weights
    """

    channels: int
    width: int
    bias: bool = False

    def state_bytes(self, context: int, kv_type: str) -> int:
        """Bytes of the last width - 1 inputs now and at every checkpoint, and of a draft's, float32 whatever the KV
        cache's type.
        """
        return 4 * self.channels * ((self.width - 1) * (2 + context // CHECKPOINT_INTERVAL) + DRAFT)


#: What mixes tokens in a layer. A new kind states its `state_bytes` and gets a block in the executor.
Mixer = AttentionSpec | ShortConvSpec


@dataclass(frozen=True)
class MlpSpec:
    """down(act(gate(x), up(x))).

    activation: "silu" silu(gate) * up, "gelu_tanh" gelu(gate) * up by the tanh formula, or
                "oai" gate * sigmoid(1.702 gate) * (up + 1) (gpt-oss)
    limit:      before that gate is cut above at limit, and up on both sides
    bias:       of all three projections
    """

    intermediate: int
    activation: str = "silu"
    limit: float | None = None
    bias: bool = False


@dataclass(frozen=True)
class MoeSpec:
    """Routed experts, each an MLP, plus an optional shared expert.

    The router, in the order it works:
    router_norm: its input is the residual stream through an RMS norm without weight, times L.moe.router_scale [hidden]
                 and hidden ** -0.5, instead of the experts' own input
    router_bias: added to the logits
    score:       "softmax" over all experts; "sigmoid" of each; "topk_softmax": softmax over the chosen logits only;
                 "sparsemixer": one by one, each by a softmax over the logits left that are within 2 jitter of the
                 best (Phi-3.5-MoE)
    choice_bias: added to the scores for choosing only; weights come from the plain scores
    groups, top_groups: experts lie in equal groups, of which only the best top_groups may be chosen from
    group_score: a group is as good as the sum of its two best ("top2") or its best ("max")
    renormalise: divide the chosen weights by their sum, which is first raised by renormalise_eps, then to at least
                 renormalise_min
    scale:       multiplies the chosen weights
    expert_scale: likewise, one factor per expert
    weigh_input: the weight multiplies the expert's input instead of its output

    The experts:
    activation, limit, bias: as in MlpSpec
    shared:      the shared expert, always computed; shared_gated multiplies it by sigmoid(w . x)
    dense:       a dense MLP beside the experts (Gemma 4), with norms for each of the two: the MLP reads the layer's
                 usual input, the experts the residual stream through L.moe.norm; L.moe.dense.post_norm and
                 L.moe.post_norm act on what they give, and the sum goes on
    """

    experts: int
    top_k: int
    intermediate: int
    score: str = "softmax"
    renormalise: bool = False
    scale: float = 1.0
    activation: str = "silu"
    shared: MlpSpec | None = None
    shared_gated: bool = False
    router_norm: bool = False
    router_bias: bool = False
    choice_bias: bool = False
    groups: int = 1
    top_groups: int = 1
    group_score: str = "top2"
    renormalise_eps: float = 0.0
    renormalise_min: float = 0.0
    expert_scale: bool = False
    weigh_input: bool = False
    jitter: float = 0.01
    limit: float | None = None
    bias: bool = False
    dense: MlpSpec | None = None

    @property
    def expert(self) -> MlpSpec:
        """One routed expert."""
        return MlpSpec(self.intermediate, self.activation, self.limit, self.bias)


@dataclass(frozen=True)
class LayerSpec:
    """x += m * mixer(norm x), then x += m * ffn(norm x), where m is the model's residual_multiplier.

    post_norms: a norm acts on the mixer's and the ffn's results before they are added
    output_scale: the layer's result is multiplied by the number L.output_scale
    """

    mixer: Mixer
    ffn: MlpSpec | MoeSpec
    post_norms: bool = False
    output_scale: bool = False


@dataclass(frozen=True)
class TensorRef:
    """Where a role's values lie: a checkpoint tensor, or a part of it. The parts are taken in this order.

    index:      one slice of the first axis (see `Checkpoint.read`)
    transposed: of that, the transposed matrix: the file has input features as rows
    rows:       a half-open range of its rows, or of values where it is a vector
    step:       every so many of that range (gate and up rows that take turns)
    """

    name: str
    index: int | None = None
    rows: tuple[int, int] | None = None
    step: int = 1
    transposed: bool = False

    def shape(self, stored: tuple[int, ...]) -> tuple[int, ...]:
        """The role's shape, given the tensor's."""
        shape = stored if self.index is None else stored[1:]
        if self.transposed:
            shape = (*shape[:-2], shape[-1], shape[-2])
        if self.rows is None:
            return shape
        axis = max(0, len(shape) - 2)
        count = len(range(*self.rows, self.step))
        return (*shape[:axis], count, *shape[axis + 1 :])


@dataclass(frozen=True)
class ModelSpec:
    """weights maps roles to tensors. Roles ("layers.{i}." abbreviated L):

    embed, norm, lm_head (absent when tied to embed), lm_head_bias
    L.attention.norm                                before the mixer, whatever its kind
    L.attention.{q,k,v,o}, L.attention.{q,k,v,o}_bias, L.attention.{q,k}_norm, L.attention.sinks [heads]
    L.conv.in [3 hidden, hidden], L.conv.kernel [hidden, width], L.conv.out, L.conv.{in,kernel,out}_bias
    L.attention.post_norm, L.ffn.post_norm          with post_norms
    L.ffn.norm
    L.ffn.{gate,up,down}, L.ffn.{gate,up,down}_bias dense MLP
    L.moe.router [experts, hidden], L.moe.router_bias, L.moe.choice_bias, L.moe.expert_scale [experts],
    L.moe.router_scale [hidden]
    L.moe.experts.{e}.{gate,up,down}                gate, up [intermediate, hidden], down [hidden, intermediate]
    L.moe.experts.{e}.{gate,up,down}_bias
    L.moe.shared.{gate,up,down}, L.moe.shared.router [1, hidden]
    L.moe.dense.{gate,up,down}, L.moe.norm, L.moe.post_norm, L.moe.dense.post_norm
    L.output_scale [1]
    Each of the norms of width `hidden` (not q_norm and k_norm) has a "_bias" beside it when norm is "layer".

    norm:        "rms", or "layer": the mean is taken off first and a bias added last
    norm_offset: added to the weight of every norm on loading: 1 for files that store w - 1 ("zero-centred")
    embedding_multiplier, residual_multiplier, logit_multiplier: factors on embeddings, on what each block adds to the
                 residual stream, and on the logits
    logit_softcap: last, logits become c * tanh(logits / c)
    """

    family: str
    hidden: int
    vocab: int
    context_length: int
    norm_eps: float
    layers: tuple[LayerSpec, ...]
    weights: Mapping[str, TensorRef]
    norm: str = "rms"
    norm_offset: float = 0.0
    embedding_multiplier: float = 1.0
    residual_multiplier: float = 1.0
    logit_multiplier: float = 1.0
    logit_softcap: float | None = None

    @property
    def is_moe(self) -> bool:
        return any(isinstance(layer.ffn, MoeSpec) for layer in self.layers)

    @property
    def attentions(self) -> tuple[AttentionSpec, ...]:
        """Of the layers that attend."""
        return tuple(layer.mixer for layer in self.layers if isinstance(layer.mixer, AttentionSpec))

    @cached_property
    def layer_kinds(self) -> Mapping[LayerSpec, int]:
        """How many layers are alike: the sums that plans ask for again and again need one of each."""
        return Counter(self.layers)

    def kv_bytes(self, context: int, kv_type: str = "f16") -> int:
        """Bytes of every layer's keys and values, or other state, for `context` tokens."""
        return sum(n * layer.mixer.state_bytes(context, kv_type) for layer, n in self.layer_kinds.items())
