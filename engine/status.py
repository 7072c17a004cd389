"""What a loaded model really does, and which experts its router has called: plain records, for any thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

#: Where a plan's work is done: everything in our kernels or torch on the CPU, dense part on the device and experts in
#: RAM, or everything on the device.
PATHS = ("cpu", "hybrid", "all_gpu")
#: Where the routed experts of a prompt's chunk are computed: on the CPU, on the device from weights streamed layer by
#: layer, or on the device that holds them.
PREFILLS = ("cpu", "streamed", "device")


@dataclass(frozen=True)
class ExpertUsage:
    """How often the router has chosen each expert since the model was loaded.

    layers:  the model's numbers, from 0, of the layers that have routed experts
    counts:  uint64 [L, E], row i for layers[i]; E is the largest number of experts of a layer
    in_vram: bool [L, E], experts that lie in VRAM now
    """

    layers: tuple[int, ...]
    counts: npt.NDArray[np.uint64]
    in_vram: npt.NDArray[np.bool_]

    @classmethod
    def of(
        cls, counts: Mapping[int, npt.NDArray[np.integer]], in_vram: npt.NDArray[np.bool_] | bool = False
    ) -> ExpertUsage | None:
        """counts: by layer, [experts]; in_vram: bool [L, E], or the same for all. None without layers."""
        if not counts:
            return None
        table = np.zeros((len(counts), max(len(row) for row in counts.values())), np.uint64)
        for i, (_, row) in enumerate(sorted(counts.items())):
            table[i, : len(row)] = row
        return cls(tuple(sorted(counts)), table, np.broadcast_to(in_vram, table.shape))


@dataclass(frozen=True)
class EngineStatus:
    """The path actually in use, as opposed to the planned one. Counts and bytes are since the model was loaded.

    device:         what runs the dense part: "cpu", "cuda:0", "sim"
    kernel:         what computes the routed experts
    path:           one of PATHS
    graphs:         decode steps are replayed from captured graphs
    pinned:         buffers between RAM and the device are page-locked, so that copies run beside the work
    locked:         the experts are locked in RAM, safe from being paged out
    ram_bytes, vram_bytes: of the model's weights, KV cache and buffers
    cache_slots:    experts that VRAM has room for, over all layers
    hits, misses:   routed experts of decoded tokens that were, and were not, found there
    bytes_uploaded: copied into cache slots, or streamed for prompts
    handoff_s:      mean seconds per layer between handing the experts of a token over and having their result, without
                    the computing itself; 0.0 where nothing is handed over
    prefill:        one of PREFILLS: where the last prompt's experts were computed
    notes:          what does not go as planned, and why, one sentence each
    stepped_down:   those of them that say what was given up for want of memory, and what it costs
    """

    device: str = "cpu"
    kernel: str = ""
    path: str = "cpu"
    graphs: bool = False
    pinned: bool = False
    locked: bool = False
    ram_bytes: int = 0
    vram_bytes: int = 0
    cache_slots: int = 0
    hits: int = 0
    misses: int = 0
    bytes_uploaded: int = 0
    handoff_s: float = 0.0
    prefill: str = "cpu"
    notes: tuple[str, ...] = ()
    stepped_down: tuple[str, ...] = ()

    @property
    def hit_rate(self) -> float | None:
        """Share of the routed experts found in VRAM; None before any was asked for."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else None

    def since(self, before: EngineStatus) -> EngineStatus:
        """The same with only what was counted after an earlier status of the same model."""
        counted = ("hits", "misses", "bytes_uploaded")
        return replace(self, **{name: getattr(self, name) - getattr(before, name) for name in counted})

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "notes": list(self.notes),
            "stepped_down": list(self.stepped_down),
            "hit_rate": self.hit_rate,
        }
