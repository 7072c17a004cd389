"""From a ModelSpec and a plan to loaded blocks: our kernels where they have what a block asks for, torch elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from engine import _native
from engine.executors.device.attention import TorchAttention
from engine.executors.device.blocks import TorchLayerNorm, TorchMlp, TorchRmsNorm
from engine.executors.device.linear import TorchLinear, device_linear
from engine.executors.device.router import Router
from engine.executors.device.short_conv import ShortConv
from engine.executors.device.states import ConvState, TorchKv, TorchKvQ8
from engine.executors.devices import KV_DTYPES, DenseDevice
from engine.executors.layer import Mixer
from engine.executors.linear import Linear, RowOrder
from engine.executors.loading import Loader
from engine.executors.mlp import Mlp
from engine.executors.moe import ChooseExperts
from engine.executors.native.building import Builder, Floats
from engine.executors.norms import Norm
from engine.models.spec import AttentionSpec, MlpSpec, MoeSpec, ShortConvSpec
from engine.placement.plan import OffloadPlan
from engine.placement.sizes import has_kernel


class TorchBuilder(Builder):
    """Each block either native or torch's.

    fallbacks: what torch computes although the plan would have our kernels do it
    """

    def __init__(self, loader: Loader, device: DenseDevice, pool: _native.ThreadPool, plan: OffloadPlan) -> None:
        super().__init__(loader, pool, plan)
        self.fallbacks: set[str] = set()
        self._device = device

    def linear(self, roles: Sequence[str], orders: Sequence[RowOrder] | None = None) -> Linear:
        if self._device.native:
            return super().linear(roles, orders)
        return device_linear(self._device, self._loader, roles, orders)

    def _rms_norm(self, weight: Floats) -> Norm:
        if self._device.own_attention:
            return super()._rms_norm(weight)
        return TorchRmsNorm(self._on_device(weight), self._spec.norm_eps)

    def _layer_norm(self, weight: Floats, bias: Floats) -> Norm:
        if self._device.own_attention:
            return super()._layer_norm(weight, bias)
        return TorchLayerNorm(self._on_device(weight), self._on_device(bias), self._spec.norm_eps)

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
        if self._device.own_attention:
            if has_kernel(spec):
                return super()._attention_block(spec, qk_norms, qkv, bias, o, o_bias, sinks)
            self.fallbacks.add("attention")
        context, kv_type, device = self._plan.context, self._plan.kv_type, self._device.device
        if kv_type == "q8":
            arithmetic = self._device.dtype if device.accelerator else torch.float32
            state: TorchKv = TorchKvQ8(spec, context, arithmetic, device)
        else:
            state = TorchKv(spec, context, KV_DTYPES[kv_type], device)
        self.states.append(state)
        q_norm, k_norm = qk_norms
        qk_norm = None
        if q_norm is not None and k_norm is not None:
            shapes = (spec.heads, spec.head_dim), (spec.kv_heads, spec.head_dim)
            rows = [
                np.broadcast_to(v.reshape(-1, spec.head_dim), s) for v, s in zip((q_norm, k_norm), shapes, strict=True)
            ]
            qk_norm = np.concatenate(rows)
        return TorchAttention(
            replace(spec, rope=spec.rope and spec.rope.at_context(context)),
            self._spec.norm_eps,
            state,
            qkv,
            o,
            self._if_any(bias),
            self._if_any(o_bias),
            self._if_any(qk_norm),
            self._if_any(sinks),
        )

    def _conv_block(
        self, spec: ShortConvSpec, inputs: Linear, kernel: Floats, out: Linear, biases: Sequence[Floats | None]
    ) -> Mixer:
        if self._device.native:
            return super()._conv_block(spec, inputs, kernel, out, biases)
        state = ConvState(spec, self._plan.context, self._device.device)
        self.states.append(state)
        return ShortConv(state, inputs, self._on_device(kernel), out, *map(self._if_any, biases))

    def _mlp(self, role: str, spec: MlpSpec) -> Mlp:
        if self._device.native:
            return super()._mlp(role, spec)
        biases = None
        if spec.bias:
            gate, up, down = (self._on_device(self.values(f"{role}.{part}_bias")) for part in ("gate", "up", "down"))
            biases = torch.cat((gate, up)), down
        return TorchMlp(spec, self.linear([f"{role}.gate", f"{role}.up"]), self.linear([f"{role}.down"]), biases)

    def _router_block(
        self,
        spec: MoeSpec,
        logits: Linear,
        norm: Norm | None,
        bias: Floats | None,
        choice_bias: Floats | None,
        expert_scale: Floats | None,
    ) -> ChooseExperts:
        if self._device.own_attention:
            return super()._router_block(spec, logits, norm, bias, choice_bias, expert_scale)
        return Router(spec, logits, norm, *map(self._if_any, (bias, choice_bias, expert_scale)))

    def _router_logits(self, roles: Sequence[str]) -> Linear:
        if self._device.native:
            return super()._router_logits(roles)
        return TorchLinear(self._device.device, torch.float32, self._loader, roles)

    def _on_device(self, values: Floats) -> torch.Tensor:
        return self._device.device.upload(torch.from_numpy(np.ascontiguousarray(values)))

    def _if_any(self, values: Floats | None) -> torch.Tensor | None:
        return None if values is None else self._on_device(values)
