"""From a ModelSpec and a plan to loaded blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from engine import _native
from engine.errors import GreenroomError
from engine.executors.attention import Attention, TorchAttention
from engine.executors.devices import DenseDevice
from engine.executors.linear import Linear, NativeLinear, RowOrder, TorchLinear
from engine.executors.loading import Loader
from engine.executors.mlp import Mlp, NativeMlp, TorchMlp
from engine.executors.moe import Moe, RoutedExperts
from engine.executors.native_attention import NativeAttention, can_attend
from engine.executors.norms import NativeRmsNorm, RmsNorm, TorchRmsNorm
from engine.executors.rope import pair_order
from engine.models.spec import AttentionSpec, LayerSpec, MoeSpec
from engine.placement.plan import OffloadPlan

Floats = npt.NDArray[np.float32]


class Builder:
    """Loads the dense parts: each projection either native, on stored codes, or as a torch tensor."""

    def __init__(self, loader: Loader, device: DenseDevice, pool: _native.ThreadPool, plan: OffloadPlan) -> None:
        self._loader = loader
        self._device = device
        self._pool = pool
        self._plan = plan
        self._isa = plan.isa
        self._eps = loader.spec.norm_eps

    def norm(self, role: str) -> RmsNorm:
        if self._device.own_attention:
            return NativeRmsNorm(self._pool, self.vector(role), self._eps)
        return TorchRmsNorm(self.vector(role), self._eps)

    def vector(self, role: str) -> torch.Tensor:
        """A weight of a norm, or a bias: float32 on the device."""
        return self._to_device(self._loader.float32(role).reshape(-1))

    def linear(self, roles: Sequence[str], orders: Sequence[RowOrder] | None = None) -> Linear:
        """The roles' matrices stacked in rows."""
        if self._device.native:
            return NativeLinear(self._pool, self._loader, roles, orders, isa=self._isa)
        return TorchLinear(self._device.device, self._device.dtype, self._loader, roles, orders)

    def attention(self, i: int) -> Attention:
        loader, spec = self._loader, self._loader.spec.layers[i].mixer
        if not isinstance(spec, AttentionSpec) or not can_attend(replace(spec, window=None, chunk=None)):
            raise self._not_yet()
        if spec.reach is not None and self._plan.context > spec.reach:
            raise self._not_yet()
        prefix = f"layers.{i}.attention"
        orders = [pair_order(spec, spec.heads), pair_order(spec, spec.kv_heads), None]
        bias = q_norm = k_norm = None
        if spec.qkv_bias:
            values = [loader.float32(f"{prefix}.{part}_bias").reshape(-1) for part in "qkv"]
            bias = np.concatenate([_ordered(v, order) for v, order in zip(values, orders, strict=True)])
        if spec.qk_norm == "head":
            order = pair_order(spec, 1)
            q_norm, k_norm = (_ordered(loader.float32(f"{prefix}.{part}_norm").reshape(-1), order) for part in "qk")
        elif spec.qk_norm is not None:
            raise ValueError(f"qk_norm {spec.qk_norm}")
        qkv, o = self.linear([f"{prefix}.{part}" for part in "qkv"], orders), self.linear([f"{prefix}.o"])
        o_bias = self.vector(f"{prefix}.o_bias") if spec.output_bias else None
        if self._device.own_attention:
            kernel = self._attention_kernel(spec, bias, q_norm, k_norm)
            return NativeAttention(i, self._pool, kernel, spec.heads * spec.head_dim, qkv, o, o_bias)
        qkv_bias = None if bias is None else self._to_device(bias)
        qk_norm = None
        if q_norm is not None and k_norm is not None:
            rows = [np.tile(q_norm, (spec.heads, 1)), np.tile(k_norm, (spec.kv_heads, 1))]
            qk_norm = self._to_device(np.concatenate(rows))
        return TorchAttention(i, spec, self._eps, qkv, o, qkv_bias, o_bias, qk_norm)

    def _attention_kernel(
        self, spec: AttentionSpec, bias: Floats | None, q_norm: Floats | None, k_norm: Floats | None
    ) -> _native.Attention:
        return _native.Attention(
            heads=spec.heads,
            kv_heads=spec.kv_heads,
            head_dim=spec.head_dim,
            rotated=spec.rope.dim,
            context=self._plan.context,
            scale=spec.head_dim**-0.5 if spec.scale is None else spec.scale,
            kv_type=self._plan.kv_type,
            bias=bias,
            q_norm=q_norm,
            k_norm=k_norm,
            norm_eps=self._eps,
            isa=self._isa,
        )

    def mlp(self, role: str) -> Mlp:
        if self._device.native:
            return NativeMlp(self._pool, self._loader, role, isa=self._isa)
        return TorchMlp(self.linear([f"{role}.gate", f"{role}.up"]), self.linear([f"{role}.down"]))

    def ffn(self, i: int, layer: LayerSpec, experts: RoutedExperts) -> Mlp | Moe:
        spec, prefix = layer.ffn, f"layers.{i}"
        if not isinstance(spec, MoeSpec):
            return self.mlp(f"{prefix}.ffn")
        roles = [f"{prefix}.moe.router"]
        if spec.shared is not None and spec.shared_gated:
            roles.append(f"{prefix}.moe.shared.router")
        shared = None if spec.shared is None else self.mlp(f"{prefix}.moe.shared")
        return Moe(i, spec, self._router(roles), experts, shared)

    def _router(self, roles: Sequence[str]) -> Linear:
        """In float32 everywhere: it is small, and a rounded logit may pick another expert."""
        if self._device.native:
            return NativeLinear(self._pool, self._loader, roles, recode="float32", isa=self._isa)
        return TorchLinear(self._device.device, torch.float32, self._loader, roles)

    def _not_yet(self) -> GreenroomError:
        return GreenroomError(
            f"{self._loader.checkpoint.name} cannot be loaded",
            "it has layers of a kind that Greenroom does not compute yet",
            "Choose another model.",
        )

    def _to_device(self, values: Floats) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._device.device)


def _ordered(values: Floats, order: RowOrder) -> Floats:
    return np.ascontiguousarray(values if order is None else values[order])
