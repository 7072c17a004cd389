"""From a ModelSpec and a plan to loaded blocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from engine import _native
from engine.executors.attention import Attention
from engine.executors.devices import DenseDevice
from engine.executors.linear import Linear, NativeLinear, RowOrder, TorchLinear
from engine.executors.loading import Loader
from engine.executors.mlp import Mlp, NativeMlp, TorchMlp
from engine.executors.moe import Moe, RoutedExperts
from engine.executors.norms import RmsNorm
from engine.executors.rope import pair_order
from engine.models.spec import LayerSpec, MoeSpec


class Builder:
    """Loads the dense parts: each projection either native, on stored codes, or as a torch tensor."""

    def __init__(self, loader: Loader, device: DenseDevice, pool: _native.ThreadPool, isa: str | None) -> None:
        self._loader = loader
        self._device = device
        self._pool = pool
        self._isa = isa
        self._eps = loader.spec.norm_eps

    def norm(self, role: str) -> RmsNorm:
        return RmsNorm(self.vector(role), self._eps)

    def vector(self, role: str) -> torch.Tensor:
        """A weight of a norm, or a bias: float32 on the device."""
        return self._to_device(self._loader.float32(role).reshape(-1))

    def linear(self, roles: Sequence[str], orders: Sequence[RowOrder] | None = None) -> Linear:
        """The roles' matrices stacked in rows."""
        if self._device.native:
            return NativeLinear(self._pool, self._loader, roles, orders, isa=self._isa)
        return TorchLinear(self._device.device, self._device.dtype, self._loader, roles, orders)

    def attention(self, i: int) -> Attention:
        loader, spec = self._loader, self._loader.spec.layers[i].attention
        prefix = f"layers.{i}.attention"
        orders = [pair_order(spec, spec.heads), pair_order(spec, spec.kv_heads), None]
        biases = None
        if spec.qkv_bias:
            values = [loader.float32(f"{prefix}.{part}_bias").reshape(-1) for part in "qkv"]
            ordered = [v if order is None else v[order] for v, order in zip(values, orders, strict=True)]
            biases = self._to_device(np.concatenate(ordered))
        norms = None
        if spec.qk_norm == "head":
            order = pair_order(spec, 1)
            rows = []
            for part, heads in (("q", spec.heads), ("k", spec.kv_heads)):
                weight = loader.float32(f"{prefix}.{part}_norm").reshape(-1)
                rows.append(np.tile(weight if order is None else weight[order], (heads, 1)))
            norms = self._to_device(np.concatenate(rows))
        elif spec.qk_norm is not None:
            raise ValueError(f"qk_norm {spec.qk_norm}")
        return Attention(
            i,
            spec,
            self._eps,
            qkv=self.linear([f"{prefix}.{part}" for part in "qkv"], orders),
            o=self.linear([f"{prefix}.o"]),
            qkv_bias=biases,
            o_bias=self.vector(f"{prefix}.o_bias") if spec.output_bias else None,
            qk_norm=norms,
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

    def _to_device(self, values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._device.device)
