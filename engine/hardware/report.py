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
    #: Physical cores of the slower kind among the usable ones.
    efficiency_cores: int = 0
    #: "Zen 4", "Sapphire Rapids"; "" = not known.
    generation: str = ""
    #: 0 = not known.
    sockets: int = 0
    #: Whether cores run two threads each; None = not known.
    smt: bool | None = None
    #: Bytes of "l1d", "l2" and "l3" of the whole machine, as far as they are known.
    caches: dict[str, int] = field(default_factory=dict)
    #: It is a virtual machine's.
    virtual: bool = False


@dataclass(frozen=True)
class MemoryReport:
    """Bytes; total and available respect a cgroup limit, swap never counts as RAM.

    bandwidth_gbs: {threads: GB/s} of a plain read loop, None until measured.
    present_gbs:   the same as it was a moment ago, of the usual number of threads alone; None = not looked at
    limit_bytes:   what a container lets this process have, None without a limit
    kind, speed_mts, channels: "DDR5", millions of transfers per second, filled channels; "" and 0 = not known
    memlock_bytes: what may be kept from being swapped out, None without a limit or where the system has none
    """

    total_bytes: int
    available_bytes: int
    bandwidth_gbs: dict[str, float] | None = None
    present_gbs: dict[str, float] | None = None
    swap_total_bytes: int = 0
    swap_free_bytes: int = 0
    limit_bytes: int | None = None
    kind: str = ""
    speed_mts: int = 0
    channels: int = 0
    memlock_bytes: int | None = None


@dataclass(frozen=True)
class GpuReport:
    """integrated GPUs share system RAM: their memory never counts as VRAM (total_bytes and free_bytes are 0 then).

    pcie_generation, pcie_width: of the link at its best, 0 = not known
    compute_capability: "8.9" (NVIDIA), "" = not known
    drives_display: a screen hangs on it; None = not known
    unusable: "" or why the program cannot compute on it, in words that go on after its name
    """

    name: str
    vendor: str
    total_bytes: int
    free_bytes: int
    integrated: bool
    driver: str = ""
    pcie_generation: int = 0
    pcie_width: int = 0
    compute_capability: str = ""
    drives_display: bool | None = None
    unusable: str = ""


@dataclass(frozen=True)
class DiskReport:
    """kind: "nvme", "ssd", "hdd", "network", "memory" or "" = not known. A disk that could not be read has 0 bytes."""

    path: str
    free_bytes: int
    total_bytes: int
    kind: str = ""

    @property
    def known(self) -> bool:
        return self.total_bytes > 0


@dataclass(frozen=True)
class KernelSpeed:
    """One shape of experts: GB/s of weights at one token with the range seen, 1e9 operations per second of a prompt."""

    decode_gbs: float
    spread_gbs: list[float]
    prefill_gops: float


@dataclass(frozen=True)
class DeviceSpeed:
    """Of a graphics card, as far as it could be measured, else None.

    to_*, from_*: GB/s of copies between RAM and the card, from page-locked memory and from other
    memory_gbs:   of its own memory
    teraflops:    of bfloat16 matrix products
    code_gweights: 1e9 weights a second that are stored in four-bit codes and multiplied with one token
    """

    to_pinned_gbs: float | None = None
    to_pageable_gbs: float | None = None
    from_pinned_gbs: float | None = None
    from_pageable_gbs: float | None = None
    memory_gbs: float | None = None
    teraflops: float | None = None
    code_gweights: float | None = None


@dataclass(frozen=True)
class Calibration:
    """What was measured here.

    bandwidth_gbs, spread_gbs: {threads: GB/s} of plain reads (the upper quartile), {threads: [least, most]}
    threads:     of what follows, 0 = not measured
    kernels:     {"small", "large": our expert kernels at 2048 x 768 and 7168 x 2048}
    narrow_gops: 1e9 operations per second of a prompt in an MLP of 576 x 1536
    region_us:   from handing the pool some work that is over at once until it is done
    handover_us: a cache line from one thread to another
    devices:     graphics cards by the names torch has for them, "cuda:0"
    disturbed:   share of the CPU that other programs took meanwhile
    """

    bandwidth_gbs: dict[str, float]
    spread_gbs: dict[str, list[float]] = field(default_factory=dict)
    threads: int = 0
    kernels: dict[str, KernelSpeed] = field(default_factory=dict)
    narrow_gops: float | None = None
    region_us: float | None = None
    handover_us: float | None = None
    devices: dict[str, DeviceSpeed] = field(default_factory=dict)
    disturbed: float = 0.0


@dataclass(frozen=True)
class HardwareReport:
    cpu: CpuReport
    memory: MemoryReport
    gpus: list[GpuReport]
    #: One entry per NUMA node: {"node": int, "cpus": [int], "total_bytes": int}.
    numa: list[dict[str, Any]]
    disk: DiskReport
    #: {"system": "Linux", "release": ..., "name": "Ubuntu 24.04", "machine": "x86_64", "python": ...,
    #: "display": "wayland", "x11", "windows", "macos" or "none", "torch": "2.13.0", "torch_cuda": "13.0" or "none"}
    os: dict[str, str]
    #: Parts that could not be read, or that the user should know, each with what to do about it.
    warnings: list[str]
    #: Every local disk with its free space; `disk` is the one the models lie on.
    disks: list[DiskReport] = field(default_factory=list)
    #: None until measured; its bandwidth is in `memory` too.
    calibration: Calibration | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
