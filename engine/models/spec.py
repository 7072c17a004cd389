"""What a model computes, as a record without torch.

A family file turns a checkpoint's header into a `ModelSpec`; placement adds up its bytes, executors run it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RopeSpec:
    """Rotary positions.

    dim:        rotated dimensions of each head (the first `dim`)
    interleaved: pairs (0,1),(2,3).. (GGUF arch llama) instead of halves (HF "rotate half")
    frequency_factors: divisors of the inverse frequencies [dim/2] (llama-3 scaling), or None
    scale:      linear position scaling divisor (1.0 = none)
    """

    theta: float
    dim: int
    interleaved: bool = False
    frequency_factors: tuple[float, ...] | None = None
    scale: float = 1.0


@dataclass(frozen=True)
class AttentionSpec:
    """Grouped-query attention with switches.

    qk_norm: None, or "head" (RMS norm over each head before rope)
    """

    heads: int
    kv_heads: int
    head_dim: int
    rope: RopeSpec
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: str | None = None
    #: Multiplies q.k; None means head_dim ** -0.5.
    scale: float | None = None


@dataclass(frozen=True)
class MlpSpec:
    """down(act(gate(x)) * up(x)); activation "silu"."""

    intermediate: int
    activation: str = "silu"


@dataclass(frozen=True)
class MoeSpec:
    """Routed experts, each an MLP, plus an optional shared expert.

    score:       "softmax" over all experts, before top-k
    renormalise: divide the chosen weights by their sum
    scale:       multiplies the chosen weights
    shared:      the shared expert, always computed; shared_gated multiplies it by sigmoid(w . x)
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


@dataclass(frozen=True)
class LayerSpec:
    attention: AttentionSpec
    ffn: MlpSpec | MoeSpec


@dataclass(frozen=True)
class TensorRef:
    """Where a role's values lie: a checkpoint tensor, or one slice of it (see `Checkpoint.read`)."""

    name: str
    index: int | None = None
    rows: tuple[int, int] | None = None


@dataclass(frozen=True)
class ModelSpec:
    """weights maps roles to tensors. Roles ("layers.{i}." abbreviated L):

    embed, norm, lm_head (absent when tied to embed)
    L.attention.norm, L.attention.{q,k,v,o}, L.attention.{q,k,v,o}_bias, L.attention.{q,k}_norm
    L.ffn.norm
    L.ffn.{gate,up,down}                            dense MLP
    L.moe.router                                    [experts, hidden]
    L.moe.experts.{e}.{gate,up,down}                gate, up [intermediate, hidden], down [hidden, intermediate]
    L.moe.shared.{gate,up,down}, L.moe.shared.router [1, hidden]
    """

    family: str
    hidden: int
    vocab: int
    context_length: int
    norm_eps: float
    layers: tuple[LayerSpec, ...]
    weights: Mapping[str, TensorRef]

    @property
    def is_moe(self) -> bool:
        return any(isinstance(layer.ffn, MoeSpec) for layer in self.layers)

    def kv_bytes(self, context: int, bytes_per_value: int = 2) -> int:
        """KV cache bytes for `context` tokens: 2 x layers x kv_heads x head_dim x context x bytes."""
        return sum(
            2 * layer.attention.kv_heads * layer.attention.head_dim * context * bytes_per_value for layer in self.layers
        )
