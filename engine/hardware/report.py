"""What this machine is, as a plain record that travels as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Isa:
    """Instruction sets by their short names ("avx2", "avx512vnni", "amx", ...).

    cpu:    what CPUID reports
    usable: what the operating system lets a program use (XCR0, AMX permission)
    """

    cpu: list[str] = field(default_factory=list)
    usable: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Kernels:
    """The kernel tier each weight code runs on here, e.g. int4 = "avx512vnni"; "none" without the compiled kernels."""

    int4: str
    int8: str
    bf16: str


@dataclass(frozen=True)
class CpuReport:
    name: str
    vendor: str
    physical_cores: int
    logical_cores: int
    #: CPUs this process may use (affinity mask and cgroup quota), at least 1.
    usable_cores: int
    isa: Isa
    kernels: Kernels
    #: Physical performance cores among the usable ones: the default number of threads. 0 = not known.
    performance_cores: int = 0


@dataclass(frozen=True)
class MemoryReport:
    """Bytes; total and available respect a cgroup limit, swap never counts as RAM.

    bandwidth_gbs: {threads: GB/s} of a plain read loop, None until measured.
    """

    total_bytes: int
    available_bytes: int
    bandwidth_gbs: dict[str, float] | None = None
    swap_total_bytes: int = 0
    swap_free_bytes: int = 0


@dataclass(frozen=True)
class GpuReport:
    """integrated GPUs share system RAM: their memory never counts as VRAM (total_bytes and free_bytes are 0 then)."""

    name: str
    vendor: str
    total_bytes: int
    free_bytes: int
    integrated: bool
    driver: str = ""


@dataclass(frozen=True)
class DiskReport:
    path: str
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class HardwareReport:
    cpu: CpuReport
    memory: MemoryReport
    gpus: list[GpuReport]
    #: One entry per NUMA node: {"node": int, "cpus": [int], "total_bytes": int}.
    numa: list[dict[str, Any]]
    disk: DiskReport
    #: {"system": "Linux", "release": ..., "python": ..., "torch": "2.13.0", "torch_cuda": "13.0" or "none"}
    os: dict[str, str]
    #: Parts that could not be read, or that the user should know, one plain sentence each.
    warnings: list[str]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
