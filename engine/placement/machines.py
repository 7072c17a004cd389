"""What is generally known of CPUs, their memory and GPUs, for plans without a measurement and for machines not here.

Channels and transfer rates are the makers' published maxima for the platform. A machine with fewer or slower modules
is slower, which is why predictions from this table have a wide range.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from engine.errors import GreenroomError
from engine.hardware.report import CpuReport, GpuReport, HardwareReport, Isa, Kernels

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

    @property
    def peak_gbs(self) -> float:
        """Of one socket: channels x 8 bytes x transfers per second."""
        return self.channels * 8 * self.megatransfers / 1000


#: First match wins. Client cores come from the name, see `_client_cores`.
CPUS = (
    CpuModel(r"epyc\s*9\w\w5", "DDR5-6000", 12, 6000, "avx512bf16", 32),
    CpuModel(r"epyc\s*9\w\w4", "DDR5-4800", 12, 4800, "avx512bf16", 32),
    CpuModel(r"epyc\s*7\w\w[23]", "DDR4-3200", 8, 3200, "avx2", 32),
    CpuModel(r"epyc\s*7\w\w1", "DDR4-2666", 8, 2666, "avx2", 24),
    CpuModel(r"threadripper\s*pro\s*9\d\d\d", "DDR5-6400", 8, 6400, "avx512bf16", 32),
    CpuModel(r"threadripper\s*pro\s*7\d\d\d", "DDR5-5200", 8, 5200, "avx512bf16", 32),
    CpuModel(r"threadripper\s*9\d\d\d", "DDR5-6400", 4, 6400, "avx512bf16", 32),
    CpuModel(r"threadripper\s*7\d\d\d", "DDR5-5200", 4, 5200, "avx512bf16", 32),
    CpuModel(r"threadripper\s*pro\s*[35]\d\d\d", "DDR4-3200", 8, 3200, "avx2", 32),
    CpuModel(r"threadripper\s*3\d\d\d", "DDR4-3200", 4, 3200, "avx2", 32),
    CpuModel(r"threadripper\s*[12]\d\d\d", "DDR4-2933", 4, 2933, "avx2", 16),
    CpuModel(r"ryzen\s*ai\s*max", "LPDDR5X-8000", 4, 8000, "avx512bf16", 16),
    CpuModel(r"ryzen\s*ai", "DDR5-5600", 2, 5600, "avx512bf16", 10),
    CpuModel(r"ryzen.*\b9\d\d\d", "DDR5-5600", 2, 5600, "avx512bf16", 8),
    CpuModel(r"ryzen.*\b[78]\d[34]\d|ryzen.*\b[78][5-9]00|ryzen.*\b79[05]0", "DDR5-5200", 2, 5200, "avx512bf16", 8),
    CpuModel(r"ryzen.*\b[3-7]\d\d\d|^\s*[35]\d00x(3d)?$|\b5950x\b", "DDR4-3200", 2, 3200, "avx2", 8),
    CpuModel(r"ryzen.*\b[12]\d\d\d", "DDR4-2666", 2, 2666, "avx2", 8),
    CpuModel(r"xeon.*\b69\d\d[pe]", "DDR5-6400", 12, 6400, "amx", 64),
    CpuModel(r"xeon.*\b6[57]\d\d[pe]", "DDR5-6400", 8, 6400, "amx", 32),
    CpuModel(r"xeon.*\b[3-8]5\d\d", "DDR5-5600", 8, 5600, "amx", 32),
    CpuModel(r"xeon.*\b[3-8]4\d\d", "DDR5-4800", 8, 4800, "amx", 32),
    CpuModel(r"xeon.*\b[3-8]3\d\d", "DDR4-3200", 8, 3200, "avx512vnni", 28),
    CpuModel(r"xeon.*\b[3-9]2\d\d", "DDR4-2933", 6, 2933, "avx512vnni", 20),
    CpuModel(r"xeon.*\b[3-8]1\d\d", "DDR4-2666", 6, 2666, "avx2", 18),
    CpuModel(r"xeon.*\be5-\d{4}\w*\s*v4", "DDR4-2400", 4, 2400, "avx2", 14),
    CpuModel(r"xeon.*\be5-\d{4}\w*\s*v3", "DDR4-2133", 4, 2133, "avx2", 12),
    CpuModel(r"xeon.*\be5-\d{4}", "DDR3-1600", 4, 1600, "portable", 8),
    CpuModel(r"core.*ultra\s*[3579]\s*2\d\d", "DDR5-6400", 2, 6400, "avx2", 8),
    CpuModel(r"core.*ultra\s*[3579]\s*1\d\d", "DDR5-5600", 2, 5600, "avx2", 6),
    CpuModel(r"\bi[3579]-1[34]\d\d\d", "DDR5-5600", 2, 5600, "avx2", 8),
    CpuModel(r"\bi[3579]-12\d\d\d", "DDR5-4800", 2, 4800, "avx2", 8),
    CpuModel(r"\bi[3579]-11\d\d\d?", "DDR4-3200", 2, 3200, "avx512vnni", 8),
    CpuModel(r"\bi[3579]-10\d\d\d", "DDR4-2933", 2, 2933, "avx2", 8),
    CpuModel(r"\bi[3579]-[89]\d\d\d", "DDR4-2666", 2, 2666, "avx2", 6),
    CpuModel(r"\bi[357]-[67]\d\d\d", "DDR4-2400", 2, 2400, "avx2", 4),
    CpuModel(r"\bi[357]-[45]\d\d\d", "DDR3-1600", 2, 1600, "avx2", 4),
    CpuModel(r"\bi[357]-[23]\d\d\d", "DDR3-1600", 2, 1600, "portable", 4),
)
#: What a plain read loop reaches of the theoretical figure when all channels are filled.
SUSTAINED_SHARE = 0.85
#: Two sockets give this much of one in an engine that does not place pages by node (published runs: 1.4 to 1.55).
TWO_SOCKETS = 1.45
#: One core cannot keep more reads in flight than this, whatever the channels give.
CORE_GBS = 16.0


@dataclass(frozen=True)
class GpuModel:
    """bandwidth_gbs of its own memory; teraflops of dense 16-bit matrix products."""

    pattern: str
    bandwidth_gbs: float
    teraflops: float


#: First match wins: names that contain another name stand before it. Makers' published figures.
GPUS = (
    GpuModel(r"b200", 8000, 2250),
    GpuModel(r"h200", 4800, 990),
    GpuModel(r"h100.*pcie", 2000, 756),
    GpuModel(r"h100|h800", 3350, 990),
    GpuModel(r"a100.*80", 1935, 312),
    GpuModel(r"a100", 1555, 312),
    GpuModel(r"l40s?\b", 864, 362),
    GpuModel(r"l4\b", 300, 121),
    GpuModel(r"rtx pro 6000", 1792, 500),
    GpuModel(r"rtx 6000 ada", 960, 364),
    GpuModel(r"a6000", 768, 155),
    GpuModel(r"a10\b", 600, 125),
    GpuModel(r"\bt4\b", 320, 65),
    GpuModel(r"v100", 900, 125),
    GpuModel(r"5090.*laptop", 896, 100),
    GpuModel(r"5090", 1792, 209),
    GpuModel(r"5080", 960, 113),
    GpuModel(r"5070 ti", 896, 88),
    GpuModel(r"5070", 672, 62),
    GpuModel(r"5060", 448, 47),
    GpuModel(r"5050", 320, 33),
    GpuModel(r"4090.*laptop", 576, 83),
    GpuModel(r"4090", 1008, 165),
    GpuModel(r"4080 super", 736, 104),
    GpuModel(r"4080", 717, 97),
    GpuModel(r"4070 ti super", 672, 88),
    GpuModel(r"4070", 504, 58),
    GpuModel(r"4060 ti", 288, 44),
    GpuModel(r"4060", 272, 30),
    GpuModel(r"4050", 192, 24),
    GpuModel(r"3090", 936, 71),
    GpuModel(r"3080 ti", 912, 68),
    GpuModel(r"3080", 760, 60),
    GpuModel(r"3070 ti", 608, 44),
    GpuModel(r"3070", 448, 41),
    GpuModel(r"3060 ti", 448, 32),
    GpuModel(r"3060", 360, 26),
    GpuModel(r"3050", 224, 18),
    GpuModel(r"2080 ti", 616, 54),
    GpuModel(r"2080|2070", 448, 36),
    GpuModel(r"2060", 336, 26),
    GpuModel(r"16[56]0", 192, 9),
    GpuModel(r"1080 ti", 484, 11),
)
UNKNOWN_GPU = GpuModel("", 250, 15)


@dataclass(frozen=True)
class Bandwidth:
    """GB/s of plain reads, with its range. source: "measured", a memory generation, or "" when guessed."""

    low: float
    likely: float
    high: float
    source: str


def find_cpu(name: str) -> CpuModel | None:
    return next((model for model in CPUS if re.search(model.pattern, name.lower())), None)


def find_gpu(name: str) -> GpuModel:
    return next((model for model in GPUS if re.search(model.pattern, name.lower())), UNKNOWN_GPU)


def ram_bandwidth(report: HardwareReport, threads: int) -> Bandwidth:
    """What reads from RAM reach here with this many threads."""
    measured = report.memory.bandwidth_gbs
    if measured:
        likely = _interpolate({int(count): speed for count, speed in measured.items()}, threads)
        return Bandwidth(0.9 * likely, likely, 1.05 * likely, "measured")
    model = find_cpu(report.cpu.name)
    sockets = TWO_SOCKETS if len(report.numa) > 1 else 1.0
    if model is None:
        # Two channels of DDR4-3200 is the commonest PC; a server without a name may have six times that.
        likely = min(40.0 * sockets, CORE_GBS * threads)
        return Bandwidth(0.4 * likely, likely, 2.5 * likely, "")
    likely = min(model.peak_gbs * SUSTAINED_SHARE * sockets, CORE_GBS * threads)
    # Half of the channels empty is common in servers; laptops and cheap modules run below the platform's rate.
    return Bandwidth(0.5 * likely, likely, 1.2 * likely, f"{model.memory} in {model.channels} channels")


def _interpolate(points: dict[int, float], threads: int) -> float:
    """Between measured thread counts linearly; beyond them the nearest."""
    counts = sorted(points)
    below = max((count for count in counts if count <= threads), default=counts[0])
    above = min((count for count in counts if count >= threads), default=counts[-1])
    if above == below or threads < counts[0]:
        return points[below]
    return points[below] + (points[above] - points[below]) * (threads - below) / (above - below)


def what_if(
    report: HardwareReport,
    *,
    ram: int | None = None,
    vram: int | None = None,
    ram_bandwidth: float | None = None,
    cpu: str | None = None,
    gpu: str | None = None,
    threads: int | None = None,
) -> HardwareReport:
    """The same machine with other parts.

    ram, vram:     bytes built in; a tenth of the RAM (at most 6 GB) is taken to be in use, of the VRAM nothing.
                   vram 0 takes the GPU out
    ram_bandwidth: GB/s of plain reads
    cpu:           a name as sold ("Ryzen 9 7950X", "2x EPYC 9355"); threads tells its cores when the name does not
    gpu:           a name as sold, for its memory bandwidth; needs vram, or a GPU that is here

    Raises GreenroomError for impossible amounts and for a CPU whose generation is not known.
    """
    for name, value in (("ram", ram), ("ram_bandwidth", ram_bandwidth), ("threads", threads)):
        if value is not None and not 0 < value < 1 << 60:
            raise GreenroomError(
                f"{name} {value} cannot be planned with", "it is not an amount above zero", "Correct it."
            )
    if vram is not None and not 0 <= vram < 1 << 60:
        raise GreenroomError(f"vram {vram} cannot be planned with", "it is not an amount", "Correct it.")
    if cpu is not None:
        report = _with_cpu(report, cpu, threads)
    elif threads is not None:
        cores = replace(
            report.cpu,
            physical_cores=threads,
            logical_cores=max(threads, report.cpu.logical_cores),
            usable_cores=threads,
            performance_cores=threads,
        )
        report = replace(report, cpu=cores)
    if ram is not None:
        memory = replace(report.memory, total_bytes=ram, available_bytes=ram - min(ram // 10, 6 * GB))
        report = replace(report, memory=memory)
    if ram_bandwidth is not None:
        given = {str(report.cpu.performance_cores or report.cpu.physical_cores): float(ram_bandwidth)}
        report = replace(report, memory=replace(report.memory, bandwidth_gbs=given))
    if vram is not None or gpu is not None:
        report = _with_gpu(report, vram, gpu)
    return report


def _with_cpu(report: HardwareReport, name: str, threads: int | None) -> HardwareReport:
    sockets = 2 if re.match(r"\s*2\s*x\s", name.lower()) else 1
    model = find_cpu(name)
    if model is None:
        raise GreenroomError(
            f'The CPU "{name}" cannot be planned with',
            "its generation is not in the table of known CPUs",
            'Write it as sold, for example "Ryzen 9 7950X", "Core i9-14900K", "Xeon Gold 6454S" or "2x EPYC 9355".',
        )
    cores = threads or (_client_cores(name) or model.cores) * sockets
    sixteen_bit = {"amx": "avx512bf16", "avx512vnni": "avx512vnni", "avx512bf16": "avx512bf16"}.get(
        model.tier, model.tier
    )
    integer = "avx512vnni" if model.tier in ("amx", "avx512bf16", "avx512vnni") else model.tier
    replaced = CpuReport(
        name=name,
        vendor="",
        physical_cores=cores,
        logical_cores=2 * cores,
        usable_cores=2 * cores,
        isa=Isa([model.tier], [model.tier]),
        kernels=Kernels(int4=integer, int8=integer, bf16=sixteen_bit),
        performance_cores=cores,
    )
    # The bandwidth measured here says nothing about another machine.
    memory = replace(report.memory, bandwidth_gbs=None)
    nodes = [{"node": node, "cpus": [], "total_bytes": memory.total_bytes // sockets} for node in range(sockets)]
    return replace(report, cpu=replaced, memory=memory, numa=nodes)


def _client_cores(name: str) -> int:
    """Performance cores by the makers' numbering; 0 when the name does not tell."""
    text = name.lower()
    if any(family in text for family in ("threadripper", "epyc", "xeon", "ultra", "ryzen ai")):
        return 0
    if match := re.search(r"\bi([3579])-(\d\d?)\d\d\d", text):
        generation = int(match[2])
        if generation < 8:
            return 2 if match[1] == "3" else 4
        return {"3": 4, "5": 6, "7": 8, "9": 10 if generation == 10 else 8}[match[1]]
    if match := re.search(r"\b\d(\d)(\d)\d", text):
        by_digit = {"1": 4, "2": 4, "3": 4, "4": 6, "5": 6, "6": 6, "7": 8, "8": 8}
        return by_digit.get(match[1], 16 if match[2] == "5" else 12)
    return 0


def _with_gpu(report: HardwareReport, vram: int | None, name: str | None) -> HardwareReport:
    here = next((gpu for gpu in report.gpus if gpu.vendor == "nvidia" and not gpu.integrated), None)
    if vram is None and here is None:
        raise GreenroomError(
            f'The GPU "{name}" cannot be planned with', "its memory is not known", "Say how much VRAM it has."
        )
    if vram == 0:
        return replace(report, gpus=[gpu for gpu in report.gpus if gpu.integrated])
    size = vram if vram is not None else (here.total_bytes if here else 0)
    imagined = GpuReport(
        name=name or (here.name if here else "an NVIDIA GPU"),
        vendor="nvidia",
        total_bytes=size,
        free_bytes=size,
        integrated=False,
    )
    # An imagined GPU comes with a torch that can use it.
    facts = {key: value for key, value in report.os.items() if key != "torch_cuda"}
    return replace(report, gpus=[imagined], os=facts)
