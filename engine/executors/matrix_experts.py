"""Routed experts as single matrices: for MLPs that our fused expert kernels do not have.

Weights stay in their stored codes and the products run in our kernels; biases and activation are torch's, expert by
expert, which is slower than the fused kernels.
"""

from __future__ import annotations

import torch

from engine import _native
from engine.executors.linear import NativeLinear
from engine.executors.loading import Loader
from engine.executors.mlp import TorchMlp
from engine.models.spec import MoeSpec


class MatrixExperts:
    """In RAM. Hidden states of an accelerator are fetched, and it waits."""

    overlaps = False

    def __init__(self, layers: dict[int, list[TorchMlp]], kernel: str) -> None:
        self._layers = layers
        self.kernel = kernel

    @classmethod
    def load(
        cls, pool: _native.ThreadPool, loader: Loader, recode: str | None = None, isa: str | None = None
    ) -> MatrixExperts:
        layers: dict[int, list[TorchMlp]] = {}
        code = ""
        for i, layer in enumerate(loader.spec.layers):
            spec = layer.ffn
            if not isinstance(spec, MoeSpec):
                continue
            layers[i] = []
            for e in range(spec.experts):
                loader.report(f"Reading experts of layer {i + 1} of {len(loader.spec.layers)}")
                role = f"layers.{i}.moe.experts.{e}"
                gate_up = NativeLinear(pool, loader, [f"{role}.gate", f"{role}.up"], recode=recode, isa=isa)
                down = NativeLinear(pool, loader, [f"{role}.down"], recode=recode, isa=isa)
                code = gate_up.code
                biases = None
                if spec.bias:
                    gate, up, down_bias = (
                        torch.from_numpy(loader.float32(f"{role}.{part}_bias")) for part in ("gate", "up", "down")
                    )
                    biases = torch.cat((gate, up)), down_bias
                layers[i].append(TorchMlp(spec.expert, gate_up, down, biases))
        return cls(layers, f"{code} {_native.kernel_tier(code, isa)}" if code else "")

    @property
    def nbytes(self) -> int:
        return sum(mlp.nbytes for experts in self._layers.values() for mlp in experts)

    def forward(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, out: torch.Tensor) -> None:
        """out += sum over slots of weight * expert(x); shapes as in RoutedExperts."""
        experts = self._layers[layer]
        x, ids, weights = x.cpu(), ids.cpu(), weights.cpu()
        y = torch.empty((*ids.shape, x.shape[1]))
        for expert in sorted(set(ids.flatten().tolist())):
            tokens, slots = torch.where(ids == expert)
            y[tokens, slots] = experts[expert](x[tokens])
        out += torch.bmm(weights[:, None], y)[:, 0].to(out.device)

    def submit(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> None:
        raise RuntimeError("these experts are computed at once")

    def wait(self, out: torch.Tensor) -> None:
        raise RuntimeError("these experts are computed at once")

    def drain(self) -> None:
        """Nothing runs beside the device."""

    def close(self) -> None:
        self._layers.clear()
