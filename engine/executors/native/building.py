"""From a ModelSpec and a plan to loaded blocks of our kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine import _native
from engine.executors.kv_cache import LayerState, NativeKv
from engine.executors.layer import Layer, Mixer
from engine.executors.linear import Linear, NativeLinear, RowOrder
from engine.executors.loading import Loader
from engine.executors.mlp import Mlp, NativeMlp
from engine.executors.moe import ChooseExperts, Moe, ParallelMoe, RoutedExperts
from engine.executors.native.blocks import (
    NativeAttention,
    NativeConvState,
    NativeRouter,
    NativeShortConv,
    attention_kernel,
)
from engine.executors.norms import NativeLayerNorm, NativeRmsNorm, Norm
from engine.executors.rope import pair_order
from engine.models.spec import AttentionSpec, LayerSpec, MlpSpec, MoeSpec, ShortConvSpec
from engine.placement.plan import OffloadPlan

Floats = npt.NDArray[np.float32]


class Builder:
    """Loads the dense parts, on stored codes.

    states: of the layers built so far
    """

    def __init__(self, loader: Loader, pool: _native.ThreadPool, plan: OffloadPlan) -> None:
        self.states: list[LayerState] = []
        self._loader = loader
        self._pool = pool
        self._plan = plan
        self._isa = plan.isa
        self._spec = loader.spec

    def layer(self, i: int, spec: LayerSpec, experts: RoutedExperts) -> Layer:
        prefix = f"layers.{i}"
        post_norms = None
        if spec.post_norms:
            post_norms = self.norm(f"{prefix}.attention.post_norm"), self.norm(f"{prefix}.ffn.post_norm")
        scale = float(self._loader.float32(f"{prefix}.output_scale").reshape(-1)[0]) if spec.output_scale else None
        return Layer(
            self.norm(f"{prefix}.attention.norm"),
            self._mixer(prefix, spec),
            self.norm(f"{prefix}.ffn.norm"),
            self._ffn(i, spec, experts),
            post_norms,
            self._spec.residual_multiplier,
            scale,
        )

    def norm(self, role: str) -> Norm:
        weight = self.values(role) + self._offset
        if self._spec.norm != "layer":
            return self._rms_norm(weight)
        return self._layer_norm(weight, self.values(f"{role}_bias"))

    def values(self, role: str) -> Floats:
        """A bias or the like, in one row."""
        return np.ascontiguousarray(self._loader.float32(role).reshape(-1))

    def linear(self, roles: Sequence[str], orders: Sequence[RowOrder] | None = None) -> Linear:
        """The roles' matrices stacked in rows."""
        return NativeLinear(self._pool, self._loader, roles, orders, isa=self._isa)

    def _rms_norm(self, weight: Floats) -> Norm:
        return NativeRmsNorm(self._pool, weight, self._spec.norm_eps)

    def _layer_norm(self, weight: Floats, bias: Floats) -> Norm:
        return NativeLayerNorm(self._pool, weight, bias, self._spec.norm_eps)

    def _mixer(self, prefix: str, layer: LayerSpec) -> Mixer:
        if isinstance(layer.mixer, AttentionSpec):
            return self._attention(f"{prefix}.attention", layer.mixer)
        return self._short_conv(f"{prefix}.conv", layer.mixer)

    def _short_conv(self, prefix: str, spec: ShortConvSpec) -> Mixer:
        kernel = self._loader.float32(f"{prefix}.kernel").reshape(spec.channels, spec.width)
        biases = [self.values(f"{prefix}.{part}_bias") if spec.bias else None for part in ("in", "kernel", "out")]
        return self._conv_block(spec, self.linear([f"{prefix}.in"]), kernel.T, self.linear([f"{prefix}.out"]), biases)

    def _conv_block(
        self, spec: ShortConvSpec, inputs: Linear, kernel: Floats, out: Linear, biases: Sequence[Floats | None]
    ) -> Mixer:
        """kernel: [width, channels]; biases: of inputs, kernel and out"""
        state = NativeConvState(spec, self._plan.context)
        self.states.append(state)
        return NativeShortConv(self._pool, spec, state, inputs, kernel, out, *biases)

    def _attention(self, prefix: str, spec: AttentionSpec) -> Mixer:
        # Where values are the keys' projection, that is loaded twice: once in rope's order, once as it is.
        roles = [f"{prefix}.{part}" for part in (("q", "k", "k") if spec.keys_as_values else ("q", "k", "v"))]
        orders = [pair_order(spec, spec.heads), pair_order(spec, spec.kv_heads), None]
        bias = None
        if spec.qkv_bias:
            values = [self.values(f"{role}_bias") for role in roles]
            bias = np.concatenate([_ordered(v, order) for v, order in zip(values, orders, strict=True)])
        return self._attention_block(
            spec,
            self._qk_norms(prefix, spec, orders),
            self.linear(roles, orders),
            bias,
            self.linear([f"{prefix}.o"]),
            self.values(f"{prefix}.o_bias") if spec.output_bias else None,
            self.values(f"{prefix}.sinks") if spec.sinks else None,
        )

    def _attention_block(
        self,
        spec: AttentionSpec,
        qk_norms: tuple[Floats | None, Floats | None],
        qkv: Linear,
        bias: Floats | None,
        o: Linear,
        o_bias: Floats | None,
        sinks: Floats | None,
    ) -> Mixer:
        context, kv_type = self._plan.context, self._plan.kv_type
        kernel = attention_kernel(spec, context, kv_type, self._spec.norm_eps, self._isa, bias, *qk_norms, sinks)
        state = NativeKv(spec, context, kv_type)
        self.states.append(state)
        rope = spec.rope and spec.rope.at_context(context)
        return NativeAttention(self._pool, kernel, rope, state, spec.heads * spec.head_dim, qkv, o, o_bias)

    def _qk_norms(
        self, prefix: str, spec: AttentionSpec, orders: Sequence[RowOrder]
    ) -> tuple[Floats | None, Floats | None]:
        """Weights in rope's order: [head_dim] each, or as wide as q and k where they are normed whole."""
        if spec.qk_norm in (None, "l2"):
            return None, None
        if spec.qk_norm == "head":
            orders = [pair_order(spec, 1)] * 2
        elif spec.qk_norm != "full":
            raise ValueError(f"qk_norm {spec.qk_norm}")
        q, k = (
            _ordered(self._loader.float32(f"{prefix}.{part}_norm").reshape(-1) + self._offset, order)
            for part, order in zip("qk", orders, strict=False)
        )
        return q, k

    def _mlp(self, role: str, spec: MlpSpec) -> Mlp:
        return NativeMlp(self._pool, self._loader, role, spec, isa=self._isa)

    def _ffn(self, i: int, layer: LayerSpec, experts: RoutedExperts) -> Mlp | Moe | ParallelMoe:
        spec, prefix = layer.ffn, f"layers.{i}"
        if isinstance(spec, MlpSpec):
            return self._mlp(f"{prefix}.ffn", spec)
        prefix = f"{prefix}.moe"
        shared = None if spec.shared is None else self._mlp(f"{prefix}.shared", spec.shared)
        moe = Moe(i, spec, self._router(prefix, spec), experts, shared)
        if spec.dense is None:
            return moe
        return ParallelMoe(
            self._mlp(f"{prefix}.dense", spec.dense),
            self.norm(f"{prefix}.dense.post_norm"),
            self.norm(f"{prefix}.norm"),
            moe,
            self.norm(f"{prefix}.post_norm"),
        )

    def _router(self, prefix: str, spec: MoeSpec) -> ChooseExperts:
        norm = None
        if spec.router_norm:
            norm = self._rms_norm(self.values(f"{prefix}.router_scale") * np.float32(self._spec.hidden**-0.5))
        roles = [f"{prefix}.router"]
        if spec.shared is not None and spec.shared_gated:
            roles.append(f"{prefix}.shared.router")
        return self._router_block(
            spec,
            self._router_logits(roles),
            norm,
            self.values(f"{prefix}.router_bias") if spec.router_bias else None,
            self.values(f"{prefix}.choice_bias") if spec.choice_bias else None,
            self.values(f"{prefix}.expert_scale") if spec.expert_scale else None,
        )

    def _router_block(
        self,
        spec: MoeSpec,
        logits: Linear,
        norm: Norm | None,
        bias: Floats | None,
        choice_bias: Floats | None,
        expert_scale: Floats | None,
    ) -> ChooseExperts:
        return NativeRouter(spec, logits, norm, bias, choice_bias, expert_scale)

    def _router_logits(self, roles: Sequence[str]) -> Linear:
        """In float32 everywhere: it is small, and a rounded logit may pick another expert."""
        return NativeLinear(self._pool, self._loader, roles, recode="float32", isa=self._isa)

    @property
    def _offset(self) -> np.float32:
        return np.float32(self._spec.norm_offset)


def _ordered(values: Floats, order: RowOrder) -> Floats:
    return np.ascontiguousarray(values if order is None else values[order])
