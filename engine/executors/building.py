"""From a ModelSpec and a plan to loaded blocks: our kernels where they have what a block asks for, torch elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from engine import _native
from engine.errors import GreenroomError
from engine.executors.attention import TorchAttention
from engine.executors.devices import KV_DTYPES, DenseDevice
from engine.executors.kv_cache import ConvState, LayerState, NativeKv, TorchKv
from engine.executors.layer import Layer, Mixer
from engine.executors.linear import Linear, NativeLinear, RowOrder, TorchLinear
from engine.executors.loading import Loader
from engine.executors.mlp import Mlp, NativeMlp, TorchMlp
from engine.executors.moe import Moe, ParallelMoe, RoutedExperts, Router
from engine.executors.native_attention import MAX_HEAD_DIM, NativeAttention, attention_kernel
from engine.executors.native_router import NativeRouter
from engine.executors.norms import NativeLayerNorm, NativeRmsNorm, Norm, TorchLayerNorm, TorchRmsNorm
from engine.executors.rope import pair_order
from engine.executors.short_conv import ShortConv
from engine.models.spec import AttentionSpec, LayerSpec, MlpSpec, MoeSpec, ShortConvSpec
from engine.placement.plan import OffloadPlan

Floats = npt.NDArray[np.float32]


class Builder:
    """Loads the dense parts: each projection either native, on stored codes, or as a torch tensor.

    states:    of the layers built so far
    fallbacks: what torch computes although the plan would have our kernels do it
    """

    def __init__(self, loader: Loader, device: DenseDevice, pool: _native.ThreadPool, plan: OffloadPlan) -> None:
        self.states: list[LayerState] = []
        self.fallbacks: set[str] = set()
        self._loader = loader
        self._device = device
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
        weight = self._norm_weight(role)
        if self._spec.norm != "layer":
            return self._rms_norm(weight)
        bias = self.vector(f"{role}_bias")
        if self._device.own_attention:
            return NativeLayerNorm(self._pool, weight, bias, self._spec.norm_eps)
        return TorchLayerNorm(weight, bias, self._spec.norm_eps)

    def vector(self, role: str) -> torch.Tensor:
        """A bias or the like: float32 on the device."""
        return self._to_device(self._loader.float32(role).reshape(-1))

    def linear(self, roles: Sequence[str], orders: Sequence[RowOrder] | None = None) -> Linear:
        """The roles' matrices stacked in rows."""
        if self._device.native:
            return NativeLinear(self._pool, self._loader, roles, orders, isa=self._isa)
        return TorchLinear(self._device.device, self._device.dtype, self._loader, roles, orders)

    def _mixer(self, prefix: str, layer: LayerSpec) -> Mixer:
        spec = layer.mixer
        if isinstance(spec, AttentionSpec):
            return self._attention(f"{prefix}.attention", spec)
        return self._short_conv(f"{prefix}.conv", spec)

    def _attention(self, prefix: str, spec: AttentionSpec) -> NativeAttention | TorchAttention:
        loader = self._loader
        # Where values are the keys' projection, that is loaded twice: once in rope's order, once as it is.
        roles = [f"{prefix}.{part}" for part in (("q", "k", "k") if spec.keys_as_values else ("q", "k", "v"))]
        orders = [pair_order(spec, spec.heads), pair_order(spec, spec.kv_heads), None]
        bias = None
        if spec.qkv_bias:
            values = [loader.float32(f"{role}_bias").reshape(-1) for role in roles]
            bias = np.concatenate([_ordered(v, order) for v, order in zip(values, orders, strict=True)])
        q_norm, k_norm = self._qk_norms(prefix, spec, orders)
        qkv, o = self.linear(roles, orders), self.linear([f"{prefix}.o"])
        o_bias = self.vector(f"{prefix}.o_bias") if spec.output_bias else None
        context = self._plan.context
        rope = spec.rope and spec.rope.at_context(context)
        if self._device.own_attention and spec.head_dim <= MAX_HEAD_DIM:
            sinks = loader.float32(f"{prefix}.sinks").reshape(-1) if spec.sinks else None
            kernel = attention_kernel(
                spec, context, self._plan.kv_type, self._spec.norm_eps, self._isa, bias, q_norm, k_norm, sinks
            )
            state = NativeKv(spec, context, self._plan.kv_type)
            self.states.append(state)
            return NativeAttention(self._pool, kernel, rope, state, spec.heads * spec.head_dim, qkv, o, o_bias)
        if self._device.own_attention:
            self.fallbacks.add("attention")
        if self._plan.kv_type not in KV_DTYPES:
            raise GreenroomError(
                f"A KV cache in {self._plan.kv_type} cannot be used with this model here",
                f"only our own attention reads it, which runs on the CPU with heads of up to {MAX_HEAD_DIM} numbers",
                "Choose f16.",
            )
        torch_state = TorchKv(spec, context, KV_DTYPES[self._plan.kv_type], self._device.device)
        self.states.append(torch_state)
        qk_norm = None
        if q_norm is not None and k_norm is not None:
            shapes = (spec.heads, spec.head_dim), (spec.kv_heads, spec.head_dim)
            rows = [
                np.broadcast_to(v.reshape(-1, spec.head_dim), s) for v, s in zip((q_norm, k_norm), shapes, strict=True)
            ]
            qk_norm = self._to_device(np.concatenate(rows))
        return TorchAttention(
            replace(spec, rope=rope),
            self._spec.norm_eps,
            torch_state,
            qkv,
            o,
            None if bias is None else self._to_device(bias),
            o_bias,
            qk_norm,
            self.vector(f"{prefix}.sinks") if spec.sinks else None,
        )

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

    def _short_conv(self, prefix: str, spec: ShortConvSpec) -> ShortConv:
        state = ConvState(spec, self._plan.context, self._device.device)
        self.states.append(state)
        kernel = self._loader.float32(f"{prefix}.kernel").reshape(spec.channels, spec.width)
        biases = [self.vector(f"{prefix}.{part}_bias") if spec.bias else None for part in ("in", "kernel", "out")]
        inputs, out = self.linear([f"{prefix}.in"]), self.linear([f"{prefix}.out"])
        return ShortConv(state, inputs, self._to_device(kernel.T), out, *biases)

    def _mlp(self, role: str, spec: MlpSpec) -> Mlp:
        if self._device.native:
            return NativeMlp(self._pool, self._loader, role, spec, isa=self._isa)
        biases = None
        if spec.bias:
            gate, up, down = (self.vector(f"{role}.{part}_bias") for part in ("gate", "up", "down"))
            biases = torch.cat((gate, up)), down
        return TorchMlp(spec, self.linear([f"{role}.gate", f"{role}.up"]), self.linear([f"{role}.down"]), biases)

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

    def _router(self, prefix: str, spec: MoeSpec) -> Router | NativeRouter:
        norm = None
        if spec.router_norm:
            norm = self._rms_norm(self.vector(f"{prefix}.router_scale") * self._spec.hidden**-0.5)
        roles = [f"{prefix}.router"]
        if spec.shared is not None and spec.shared_gated:
            roles.append(f"{prefix}.shared.router")
        kind = NativeRouter if self._device.own_attention else Router
        return kind(
            spec,
            self._router_logits(roles),
            norm,
            self.vector(f"{prefix}.router_bias") if spec.router_bias else None,
            self.vector(f"{prefix}.choice_bias") if spec.choice_bias else None,
            self.vector(f"{prefix}.expert_scale") if spec.expert_scale else None,
        )

    def _router_logits(self, roles: Sequence[str]) -> Linear:
        """In float32 everywhere: it is small, and a rounded logit may pick another expert."""
        if self._device.native:
            return NativeLinear(self._pool, self._loader, roles, recode="float32", isa=self._isa)
        return TorchLinear(self._device.device, torch.float32, self._loader, roles)

    def _rms_norm(self, weight: torch.Tensor) -> Norm:
        if self._device.own_attention:
            return NativeRmsNorm(self._pool, weight, self._spec.norm_eps)
        return TorchRmsNorm(weight, self._spec.norm_eps)

    @property
    def _offset(self) -> np.float32:
        return np.float32(self._spec.norm_offset)

    def _norm_weight(self, role: str) -> torch.Tensor:
        return self._to_device(self._loader.float32(role).reshape(-1) + self._offset)

    def _to_device(self, values: Floats) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._device.device)


def _ordered(values: Floats, order: RowOrder) -> Floats:
    return np.ascontiguousarray(values if order is None else values[order])
