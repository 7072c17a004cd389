"""Routed experts on the device itself, for plans that keep the whole model there."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn.functional import silu

from engine.executors.devices import DenseDevice
from engine.executors.loading import Loader
from engine.models.spec import MoeSpec


class DeviceExperts:
    """Dequantised weights per layer: gate above up [E, 2 I, H], down [E, H, I], in the device's dtype."""

    overlaps = False

    def __init__(self, layers: Mapping[int, tuple[torch.Tensor, torch.Tensor]], kernel: str) -> None:
        self._layers = dict(layers)
        self.kernel = kernel

    @classmethod
    def load(cls, device: DenseDevice, loader: Loader) -> DeviceExperts:
        layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        hidden = loader.spec.hidden
        for i, layer in enumerate(loader.spec.layers):
            spec = layer.ffn
            if not isinstance(spec, MoeSpec):
                continue
            inner = spec.intermediate
            gate_up = torch.empty((spec.experts, 2 * inner, hidden), dtype=device.dtype, device=device.device)
            down = torch.empty((spec.experts, hidden, inner), dtype=device.dtype, device=device.device)
            for e in range(spec.experts):
                loader.report(f"Reading experts of layer {i + 1} of {len(loader.spec.layers)}")
                role = f"layers.{i}.moe.experts.{e}"
                gate_up[e, :inner].copy_(torch.from_numpy(loader.float32(f"{role}.gate")))
                gate_up[e, inner:].copy_(torch.from_numpy(loader.float32(f"{role}.up")))
                down[e].copy_(torch.from_numpy(loader.float32(f"{role}.down")))
            layers[i] = gate_up, down
        return cls(layers, f"{str(device.dtype).removeprefix('torch.')} on {device.device}")

    @property
    def nbytes(self) -> int:
        return sum(gate_up.nbytes + down.nbytes for gate_up, down in self._layers.values())

    def forward(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, out: torch.Tensor) -> None:
        """out += sum over slots of weight * expert(x). All on the device; shapes as in RoutedExperts."""
        gate_up, down = self._layers[layer]
        y = self._one(gate_up, down, x, ids) if x.shape[0] == 1 else self._many(gate_up, down, x, ids)
        out += torch.bmm(weights[:, None], y)[:, 0]

    def submit(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> None:
        raise RuntimeError("experts on the device are computed at once")

    def wait(self, out: torch.Tensor) -> None:
        raise RuntimeError("experts on the device are computed at once")

    def drain(self) -> None:
        """Nothing runs beside the device."""

    def close(self) -> None:
        self._layers.clear()

    @staticmethod
    def _one(gate_up: torch.Tensor, down: torch.Tensor, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """One token: gather its experts, no waiting for the device. -> float32 [1, top_k, H]."""
        chosen = ids[0].long()
        gate, up = torch.matmul(gate_up[chosen], x[0].to(gate_up.dtype)).float().chunk(2, -1)
        inner = silu(gate).mul_(up).to(down.dtype)
        return torch.bmm(down[chosen], inner[:, :, None])[None, :, :, 0].float()

    @staticmethod
    def _many(gate_up: torch.Tensor, down: torch.Tensor, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Several tokens: expert by expert, each over its own tokens. -> float32 [T, top_k, H]."""
        y = torch.empty((*ids.shape, x.shape[1]), device=x.device)
        narrow = x.to(gate_up.dtype)
        for expert in sorted(set(ids.flatten().tolist())):
            tokens, slots = torch.where(ids == expert)
            gate, up = torch.mm(narrow[tokens], gate_up[expert].T).float().chunk(2, -1)
            inner = silu(gate).mul_(up).to(down.dtype)
            y[tokens, slots] = torch.mm(inner, down[expert].T).float()
        return y
