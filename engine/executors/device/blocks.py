"""Norms and MLPs on a torch device."""

from __future__ import annotations

import torch
from torch.nn.functional import gelu, layer_norm, rms_norm, silu

from engine.executors.linear import Linear
from engine.models.spec import MlpSpec

#: gpt-oss' approximation of gelu: x sigmoid(1.702 x) (Hendrycks and Gimpel 2016).
OAI_GAIN = 1.702


class TorchRmsNorm:
    """x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019), on a torch device. weight float32 [hidden]."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        self._weight = weight
        self._eps = eps

    def __call__(self, x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        if added is not None:
            x += added
        return rms_norm(x, self._weight.shape, self._weight, self._eps)


class TorchLayerNorm:
    """(x - mean) / sqrt(variance + eps) * weight + bias (Ba et al. 2016). weight, bias float32 [hidden]."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> None:
        self._weight, self._bias = weight, bias
        self._eps = eps

    def __call__(self, x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        if added is not None:
            x += added
        return layer_norm(x, self._weight.shape, self._weight, self._bias, self._eps)


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
