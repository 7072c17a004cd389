"""Gated MLPs: the dense layers' and the shared experts'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from engine import _native
from engine.executors.loading import Loader
from engine.models.spec import MlpSpec

if TYPE_CHECKING:
    import torch


class Mlp(Protocol):
    def add(self, x: torch.Tensor, out: torch.Tensor, factors: torch.Tensor | None = None) -> None:
        """out += factors * down(act(gate x, up x)).

        x, out float32 [T, hidden]; factors float32 [T, 1], None for 1.
        """

    @property
    def nbytes(self) -> int: ...


class NativeMlp:
    """One call of our expert kernels, which fuse the three products: the MLP is a layer of a single expert."""

    def __init__(
        self,
        pool: _native.ThreadPool,
        loader: Loader,
        role: str,
        spec: MlpSpec,
        recode: str | None = None,
        isa: str | None = None,
    ) -> None:
        """role: "layers.3.ffn" or "layers.3.moe.shared"."""
        self._pool = pool
        parts = {part: f"{role}.{part}" for part in ("gate", "up", "down")}
        hidden = loader.shape(parts["gate"])[-1]
        gate, up, down = (loader.format(name) for name in parts.values())
        try:
            self.expert = native_experts(spec, 1, hidden, (gate, up, down), recode, isa)
            for part in parts:
                loader.pack_expert(role, pool, self.expert, 0, part, bias=spec.bias)
        except ValueError as error:
            raise loader.refuse(parts["gate"], error) from error
        self._ids, self._ones = np.zeros(1, np.int32), np.ones(1, np.float32)

    @property
    def nbytes(self) -> int:
        return self.expert.nbytes

    @property
    def kernel(self) -> str:
        return kernel_name(self.expert)

    def add(self, x: torch.Tensor, out: torch.Tensor, factors: torch.Tensor | None = None) -> None:
        tokens = x.shape[0]
        if tokens > len(self._ids):
            self._ids, self._ones = np.zeros(tokens, np.int32), np.ones(tokens, np.float32)
        weights = self._ones.ctypes.data if factors is None else factors.data_ptr()
        self.expert.forward(self._pool, x.data_ptr(), tokens, self._ids.ctypes.data, weights, 1, out.data_ptr(), True)


def native_experts(
    spec: MlpSpec,
    experts: int,
    hidden: int,
    formats: tuple[str, str, str],
    recode: str | None,
    isa: str | None,
    nodes: Sequence[int] = (),
) -> _native.Experts:
    """Room for so many MLPs of one kind. formats: of gate, up and down; nodes: memory nodes to spread over.

    Raises ValueError as the kernel does.
    """
    return _native.Experts(
        experts,
        hidden,
        spec.intermediate,
        *formats,
        recode,
        isa,
        nodes,
        activation=spec.activation,
        limit=spec.limit or 0.0,
        bias=spec.bias,
    )


def kernel_name(experts: _native.Experts) -> str:
    """ "int4 avx512vnni", or "int4/int8 avx2" when the parts are coded differently."""
    return f"{'/'.join(dict.fromkeys(experts.codes))} {experts.tier}"
