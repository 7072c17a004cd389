"""Gated MLPs: the dense layers' and the shared experts'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch.nn.functional import gelu, silu

from engine import _native
from engine.executors.linear import Linear
from engine.executors.loading import Loader
from engine.models.spec import MlpSpec

#: gpt-oss' approximation of gelu: x sigmoid(1.702 x) (Hendrycks and Gimpel 2016).
OAI_GAIN = 1.702


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
        self._ids = torch.zeros(1, dtype=torch.int32)
        self._ones = torch.ones(1)

    @property
    def nbytes(self) -> int:
        return self.expert.nbytes

    @property
    def kernel(self) -> str:
        return kernel_name(self.expert)

    def add(self, x: torch.Tensor, out: torch.Tensor, factors: torch.Tensor | None = None) -> None:
        tokens = x.shape[0]
        if tokens > self._ids.shape[0]:
            self._ids = torch.zeros(tokens, dtype=torch.int32)
            self._ones = torch.ones(tokens)
        weights = self._ones if factors is None else factors
        self.expert.forward(
            self._pool, x.data_ptr(), tokens, self._ids.data_ptr(), weights.data_ptr(), 1, out.data_ptr(), True
        )


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


class TorchMlp:
    """Two products on a torch device, or in our kernels, and everything between them in torch.

    gate_up: gate above up, [2 intermediate, hidden]
    biases:  of gate above up [2 intermediate], and of down [hidden], or None
    """

    def __init__(
        self, spec: MlpSpec, gate_up: Linear, down: Linear, biases: tuple[torch.Tensor, torch.Tensor] | None = None
    ) -> None:
        self._spec = spec
        self._gate_up, self._down = gate_up, down
        self._biases = biases

    @property
    def nbytes(self) -> int:
        return self._gate_up.nbytes + self._down.nbytes

    def add(self, x: torch.Tensor, out: torch.Tensor, factors: torch.Tensor | None = None) -> None:
        y = self(x)
        out += y if factors is None else y.mul_(factors)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x float32 [T, hidden] -> float32 [T, hidden]."""
        gate_up = self._gate_up(x)
        if self._biases is not None:
            gate_up += self._biases[0]
        y = self._down(activate(self._spec, gate_up))
        if self._biases is not None:
            y += self._biases[1]
        return y


def activate(spec: MlpSpec, gate_up: torch.Tensor) -> torch.Tensor:
    """Gate beside up, float32 [.., 2 intermediate], which may be overwritten -> contiguous [.., intermediate]."""
    gate, up = gate_up.chunk(2, -1)
    if spec.limit is not None:
        gate, up = gate.clamp(max=spec.limit), up.clamp(-spec.limit, spec.limit)
    if spec.activation == "silu":
        return silu(gate).mul_(up)
    if spec.activation == "gelu_tanh":
        return gelu(gate, approximate="tanh").mul_(up)
    if spec.activation == "oai":
        return torch.sigmoid(OAI_GAIN * gate).mul_(gate).mul_(up + 1.0)
    raise ValueError(f"activation {spec.activation}")
