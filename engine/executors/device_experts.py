"""Routed experts on the device itself, for plans that keep the whole model there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from engine.executors.devices import DenseDevice
from engine.executors.loading import Loader
from engine.executors.torch_blocks import activate
from engine.models.spec import MlpSpec, MoeSpec
from engine.runtime.status import ExpertUsage


@dataclass(frozen=True)
class ExpertWeights:
    """One layer's: gate above up [E, 2 I, H], down [E, H, I], in the device's dtype; biases float32 [E, 2 I] and
    [E, H], or None.
    """

    spec: MlpSpec
    gate_up: torch.Tensor
    down: torch.Tensor
    biases: tuple[torch.Tensor, torch.Tensor] | None = None

    def one(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """One token: gather its experts, no waiting for the device. -> float32 [1, top_k, H]."""
        chosen = ids[0].long()
        gate_up = torch.matmul(self.gate_up[chosen], x[0].to(self.gate_up.dtype)).float()
        if self.biases is not None:
            gate_up += self.biases[0][chosen]
        inner = activate(self.spec, gate_up).to(self.down.dtype)
        y = torch.bmm(self.down[chosen], inner[:, :, None])[:, :, 0].float()
        if self.biases is not None:
            y += self.biases[1][chosen]
        return y[None]

    def many(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Several tokens: expert by expert, each over its own tokens. -> float32 [T, top_k, H]."""
        y = torch.empty((*ids.shape, x.shape[1]), device=x.device)
        narrow = x.to(self.gate_up.dtype)
        for expert in sorted(set(ids.flatten().tolist())):
            tokens, slots = torch.where(ids == expert)
            gate_up = torch.mm(narrow[tokens], self.gate_up[expert].T).float()
            if self.biases is not None:
                gate_up += self.biases[0][expert]
            inner = activate(self.spec, gate_up).to(self.down.dtype)
            part = torch.mm(inner, self.down[expert].T).float()
            y[tokens, slots] = part if self.biases is None else part + self.biases[1][expert]
        return y


class DeviceExperts:
    """Dequantised weights per layer."""

    overlaps = False

    def __init__(self, layers: Mapping[int, ExpertWeights], kernel: str) -> None:
        self._layers = dict(layers)
        self._counts = {
            layer: torch.zeros(len(weights.down), dtype=torch.int64, device=weights.down.device)
            for layer, weights in self._layers.items()
        }
        self.kernel = kernel

    @classmethod
    def load(cls, device: DenseDevice, loader: Loader) -> DeviceExperts:
        layers: dict[int, ExpertWeights] = {}
        for i, layer in enumerate(loader.spec.layers):
            if isinstance(layer.ffn, MoeSpec):
                layers[i] = _load_layer(device, loader, i, layer.ffn)
        return cls(layers, f"{str(device.dtype).removeprefix('torch.')} on {device.device.name}")

    @property
    def nbytes(self) -> int:
        return sum(weights.gate_up.nbytes + weights.down.nbytes for weights in self._layers.values())

    def usage(self) -> ExpertUsage | None:
        """Any thread may ask."""
        return ExpertUsage.of({layer: counts.cpu().numpy() for layer, counts in list(self._counts.items())}, True)

    def forward(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, out: torch.Tensor) -> None:
        """out += sum over slots of weight * expert(x). All on the device; shapes as in RoutedExperts."""
        experts = self._layers[layer]
        chosen = ids.flatten().long()
        self._counts[layer].index_add_(0, chosen, torch.ones_like(chosen))
        y = experts.one(x, ids) if x.shape[0] == 1 else experts.many(x, ids)
        out += torch.bmm(weights[:, None], y)[:, 0]

    def submit(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> None:
        raise RuntimeError("experts on the device are computed at once")

    def wait(self, out: torch.Tensor) -> None:
        raise RuntimeError("experts on the device are computed at once")

    def drain(self) -> None:
        """Nothing runs beside the device."""

    def close(self) -> None:
        self._layers.clear()
        self._counts.clear()


def _load_layer(device: DenseDevice, loader: Loader, layer: int, spec: MoeSpec) -> ExpertWeights:
    on, hidden, inner = device.device, loader.spec.hidden, spec.intermediate
    gate_up = on.empty(spec.experts, 2 * inner, hidden, dtype=device.dtype)
    down = on.empty(spec.experts, hidden, inner, dtype=device.dtype)
    biases = None
    if spec.bias:
        biases = (
            on.empty(spec.experts, 2 * inner),
            on.empty(spec.experts, hidden),
        )
    for e in range(spec.experts):
        loader.report(f"Reading experts of layer {layer + 1} of {len(loader.spec.layers)}")
        role = f"layers.{layer}.moe.experts.{e}"
        targets = [("gate", gate_up[e, :inner]), ("up", gate_up[e, inner:]), ("down", down[e])]
        if biases is not None:
            wide, narrow = biases[0][e], biases[1][e]
            targets += [("gate_bias", wide[:inner]), ("up_bias", wide[inner:]), ("down_bias", narrow)]
        for part, target in targets:
            target.copy_(torch.from_numpy(loader.float32(f"{role}.{part}")))
    return ExpertWeights(spec.expert, gate_up, down, biases)
