"""Gated MLPs: the dense layers' and the shared experts'."""

from __future__ import annotations

from typing import Protocol

import torch
from torch.nn.functional import silu

from engine import _native
from engine.executors.linear import Linear
from engine.executors.loading import Loader


class Mlp(Protocol):
    def add(self, x: torch.Tensor, out: torch.Tensor, factors: torch.Tensor | None = None) -> None:
        """out += factors * down(silu(gate x) * up x).

        x, out float32 [T, hidden]; factors float32 [T, 1], None for 1.
        """

    @property
    def nbytes(self) -> int: ...


class NativeMlp:
    """One call of our expert kernels, which fuse the three products: the MLP is a layer of a single expert."""

    def __init__(
        self, pool: _native.ThreadPool, loader: Loader, role: str, recode: str | None = None, isa: str | None = None
    ) -> None:
        """role: "layers.3.ffn" or "layers.3.moe.shared"."""
        self._pool = pool
        parts = {part: f"{role}.{part}" for part in ("gate", "up", "down")}
        intermediate, hidden = loader.shape(parts["gate"])
        gate, up, down = (loader.format(name) for name in parts.values())
        try:
            self._expert = _native.Experts(1, hidden, intermediate, gate, up, down, recode, isa)
            for part, name in parts.items():
                self._expert.load(pool, 0, part, loader.stored(name))
        except ValueError as error:
            raise loader.refuse(parts["gate"], error) from error
        self._ids = torch.zeros(1, dtype=torch.int32)
        self._ones = torch.ones(1)

    @property
    def nbytes(self) -> int:
        return self._expert.nbytes

    @property
    def kernel(self) -> str:
        return kernel_name(self._expert)

    def add(self, x: torch.Tensor, out: torch.Tensor, factors: torch.Tensor | None = None) -> None:
        tokens = x.shape[0]
        if tokens > self._ids.shape[0]:
            self._ids = torch.zeros(tokens, dtype=torch.int32)
            self._ones = torch.ones(tokens)
        weights = self._ones if factors is None else factors
        self._expert.forward(
            self._pool, x.data_ptr(), tokens, self._ids.data_ptr(), weights.data_ptr(), 1, out.data_ptr(), True
        )


def kernel_name(experts: _native.Experts) -> str:
    """ "int4 avx512vnni", or "int4/int8 avx2" when the parts are coded differently."""
    return f"{'/'.join(dict.fromkeys(experts.codes))} {experts.tier}"


class TorchMlp:
    """Two products on a torch device. gate_up: gate above up, [2 intermediate, hidden]."""

    def __init__(self, gate_up: Linear, down: Linear) -> None:
        self._gate_up, self._down = gate_up, down

    @property
    def nbytes(self) -> int:
        return self._gate_up.nbytes + self._down.nbytes

    def add(self, x: torch.Tensor, out: torch.Tensor, factors: torch.Tensor | None = None) -> None:
        gate, up = self._gate_up(x).chunk(2, -1)
        y = self._down(silu(gate).mul_(up))
        out += y if factors is None else y.mul_(factors)
