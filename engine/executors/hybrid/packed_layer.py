"""The routed experts of one layer computed on a device from their packed bytes, wherever those came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from engine.executors.device.blocks import activate
from engine.executors.devices import Device
from engine.executors.hybrid.packed_codes import PackedExpert
from engine.models.spec import MoeSpec
from engine.placement.packing import STRIP_ROWS
from engine.placement.sizes import DEQUANTISED_AT_ONCE

if TYPE_CHECKING:
    from engine import _native


@dataclass(frozen=True)
class PackedLayer:
    """factors: float32 [E, 3] of gate, up and down on the device, biases float32 [E, 2 I] and [E, H]; None without."""

    spec: MoeSpec
    packed: PackedExpert
    factors: torch.Tensor | None
    biases: tuple[torch.Tensor, torch.Tensor] | None

    @classmethod
    def of(cls, experts: _native.Experts, spec: MoeSpec, hidden: int, device: Device) -> PackedLayer:
        """What the bytes alone do not say goes to the device."""
        factors = np.stack([experts.factors(part) for part in ("gate", "up", "down")], 1)
        gate, up, down = (experts.biases(part) for part in ("gate", "up", "down"))
        biases = None
        if gate is not None and up is not None and down is not None:
            wide = np.concatenate([gate, up], 1)
            biases = device.upload(torch.from_numpy(wide)), device.upload(torch.from_numpy(down))
        return cls(
            spec,
            PackedExpert.of(experts, hidden, spec.intermediate, device.upload),
            None if (factors == 1.0).all() else device.upload(torch.from_numpy(factors)),
            biases,
        )

    def compute(self, experts: Sequence[int], packed: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """packed uint8 [N, at least an expert's bytes] of the N experts; x [N, T, H], in whose type it is computed
        -> float32 [N, T, H], not yet weighted.
        """
        packed = packed[:, : self.packed.nbytes]
        inner, hidden = self.spec.intermediate, self.packed.hidden
        parts = [
            torch.matmul(x, self.packed.gate_up(packed, some).to(x.dtype).transpose(1, 2)).float()
            for some in _in_turn(inner, 2 * len(packed) * hidden)
        ]
        gate_up = parts[0]
        if len(parts) > 1:
            halves = [part.chunk(2, -1) for part in parts]
            gate_up = torch.cat([gate for gate, _ in halves] + [up for _, up in halves], -1)
        # Rows are picked by number: a list of indices would have to be copied to the device.
        factors = None if self.factors is None else torch.stack([self.factors[e] for e in experts])[:, None]
        if factors is not None:
            gate_up[..., :inner] *= factors[..., :1]
            gate_up[..., inner:] *= factors[..., 1:2]
        if self.biases is not None:
            gate_up += torch.stack([self.biases[0][e] for e in experts])[:, None]
        acted = activate(self.spec.expert, gate_up).to(x.dtype)
        sums = [
            torch.matmul(acted, self.packed.down(packed, some).to(x.dtype).transpose(1, 2)).float()
            for some in _in_turn(hidden, len(packed) * inner)
        ]
        y = sums[0] if len(sums) == 1 else torch.cat(sums, -1)
        if factors is not None:
            y *= factors[..., 2:]
        if self.biases is not None:
            y += torch.stack([self.biases[1][e] for e in experts])[:, None]
        return y


def _in_turn(rows: int, columns: int) -> list[slice]:
    """Strips of a matrix of so many rows, as many at a time as may be dequantised at once."""
    strips = -(-rows // STRIP_ROWS)
    some = max(1, DEQUANTISED_AT_ONCE // (STRIP_ROWS * columns))
    return [slice(first, min(first + some, strips)) for first in range(0, strips, some)]
