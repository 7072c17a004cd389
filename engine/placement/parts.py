"""What is generally known of CPUs, their memory and GPUs by their names: assets/machines.json.

Channels and transfer rates are the makers' published maxima for the platform. A machine with fewer or slower modules
is slower, which is why predictions from this table have a wide range.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from engine.resources import asset

GB = 1_000_000_000


@dataclass(frozen=True)
class CpuModel:
    """One generation. pattern matches the CPU's name; cores is a usual count when the name does not tell it."""

    pattern: str
    memory: str
    channels: int
    megatransfers: int
    tier: str
    cores: int
    source: str

    @property
    def peak_gbs(self) -> float:
        """Of one socket: channels x 8 bytes x transfers per second."""
        return self.channels * 8 * self.megatransfers / 1000


@dataclass(frozen=True)
class GpuModel:
    """vram_gb, bandwidth_gbs: of its own memory; teraflops of dense 16-bit matrix products."""

    pattern: str
    vram_gb: float
    bandwidth_gbs: float
    teraflops: float
    source: str

    @property
    def vram_bytes(self) -> int:
        """Makers count this memory in powers of two."""
        return round(self.vram_gb * (1 << 30))


UNKNOWN_GPU = GpuModel("", 0, 250, 15, "")
#: The lower end of what cards of the last generations have for each gigabyte of memory.
GUESSED_GBS_PER_GB, MOST_GUESSED_GBS = 28.0, 800.0
GUESSED_TERAFLOPS_PER_GB, MOST_GUESSED_TERAFLOPS = 3.0, 80.0


def cpus() -> tuple[CpuModel, ...]:
    """First match wins: names that contain another name stand before it."""
    return tuple(CpuModel(**row) for row in _table()["cpus"])


def gpus() -> tuple[GpuModel, ...]:
    """First match wins, likewise."""
    return tuple(GpuModel(**row) for row in _table()["gpus"])


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(asset("machines.json").read_text(encoding="utf-8"))
    return table


@cache
def find_cpu(name: str) -> CpuModel | None:
    return next((model for model in cpus() if re.search(model.pattern, name.lower())), None)


@cache
def known_gpu(name: str) -> GpuModel | None:
    return next((model for model in gpus() if re.search(model.pattern, name.lower())), None)


def find_gpu(name: str, vram: int = 0) -> GpuModel:
    """For a name that is not known a cautious stand-in by its bytes of memory: larger cards have faster memory."""
    size = vram / (1 << 30)
    guessed = replace(
        UNKNOWN_GPU,
        bandwidth_gbs=min(MOST_GUESSED_GBS, max(UNKNOWN_GPU.bandwidth_gbs, GUESSED_GBS_PER_GB * size)),
        teraflops=min(MOST_GUESSED_TERAFLOPS, max(UNKNOWN_GPU.teraflops, GUESSED_TERAFLOPS_PER_GB * size)),
    )
    return known_gpu(name) or guessed
