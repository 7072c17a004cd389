"""How fast a machine's memory is, measured or by its parts, and machines that are not here."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from engine.errors import GreenroomError
from engine.hardware.report import CpuReport, GpuReport, HardwareReport, Isa, Kernels, MemoryReport
from engine.placement.parts import find_cpu, known_gpu
from engine.words import say

GB = 1_000_000_000

#: What a plain read loop reaches of the theoretical figure when all channels are filled.
SUSTAINED_SHARE = 0.85
#: Two sockets give this much of one in an engine that does not place pages by node (published runs: 1.4 to 1.55).
TWO_SOCKETS = 1.45
#: What boards have.
SOCKETS = (1, 2, 4, 8)
VIRTUAL_SPREAD = (0.6, 1.6)
#: A lane of each PCIe generation, one way, and what copies reach of it (published: 24 to 26 of 31.5 GB/s).
PCIE_LANE_GBS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.97, 5: 3.94, 6: 7.88}
LINK_SHARE = 0.78
#: One core cannot keep more reads in flight than this, whatever the channels give.
CORE_GBS = 16.0


@dataclass(frozen=True)
class Bandwidth:
    """GB/s of plain reads, with its range. source: "measured", a memory generation, or "" when guessed."""

    low: float
    likely: float
    high: float
    source: str


def ram_bandwidth(report: HardwareReport, threads: int) -> Bandwidth:
    """What reads from RAM reach here with this many threads."""
    measured = report.memory.bandwidth_gbs
    if measured:
        likely = _interpolate({int(count): speed for count, speed in measured.items()}, threads)
        likely = max(likely, _kernels(report, threads))
        low, high = _spread(report, threads)
        low, high = min(low, 0.9 * likely), max(high, 1.05 * likely)
        # What is true at this moment is likely to stay true for the next answer, what was true once may come back.
        likely = (report.memory.present_gbs or {}).get(str(threads), likely)
        low, high = min(low, 0.9 * likely), max(high, 1.05 * likely)
        if report.cpu.virtual and threads > 1:
            # The host may move a virtual machine's cores under one cache or apart: 34 to 52 and 73 to 89 GB/s were seen
            # of two threads on one machine.
            low, high = min(low, VIRTUAL_SPREAD[0] * likely), max(high, VIRTUAL_SPREAD[1] * likely)
        return Bandwidth(low, likely, high, "measured")
    model = find_cpu(report.cpu.name)
    # Nodes are sockets where the number of sockets is not known; one socket may be split into several nodes.
    count = report.cpu.sockets or len(report.numa)
    sockets = TWO_SOCKETS ** math.log2(count) if count > 1 else 1.0
    memory = report.memory
    if memory.channels and memory.speed_mts:
        peak = memory.channels * 8 * memory.speed_mts / 1000 / max(1, count) * sockets
        likely = min(peak * SUSTAINED_SHARE, CORE_GBS * threads)
        source = _modules(memory)
        return Bandwidth(0.7 * likely, likely, 1.15 * likely, source)
    if model is None:
        # Two channels of DDR4-3200 is the commonest PC; a server without a name may have six times that.
        likely = min(40.0 * sockets, CORE_GBS * threads)
        return Bandwidth(0.4 * likely, likely, 2.5 * likely, "")
    likely = min(model.peak_gbs * SUSTAINED_SHARE * sockets, CORE_GBS * threads)
    # Half of the channels empty is common in servers; laptops and cheap modules run below the platform's rate.
    return Bandwidth(0.5 * likely, likely, 1.2 * likely, _in_channels(model.memory, model.channels))


def _modules(memory: MemoryReport) -> str:
    kind = memory.kind or say("modules")
    return _in_channels(say("{kind} at {speed}", kind=kind, speed=memory.speed_mts), memory.channels)


def _in_channels(what: str, channels: int) -> str:
    return say("{what} in %n channels", n=channels, one="{what} in %n channel", what=what)


def _spread(report: HardwareReport, threads: int) -> tuple[float, float]:
    """(least, most) GB/s seen with about this many threads; (infinity, 0) where nobody kept them."""
    found = report.calibration.spread_gbs if report.calibration is not None else {}
    if not found:
        return math.inf, 0.0
    low, high = found[min(found, key=lambda count: abs(int(count) - threads))]
    return low, high


def _kernels(report: HardwareReport, threads: int) -> float:
    """GB/s that our kernels reached with as many threads: reads that seem slower were disturbed. 0 = not measured."""
    found = report.calibration
    if found is None or found.threads != threads:
        return 0.0
    return max((kernel.decode_gbs for kernel in found.kernels.values()), default=0.0)


def _interpolate(points: dict[int, float], threads: int) -> float:
    """Between measured thread counts linearly; beyond them the nearest."""
    counts = sorted(points)
    below = max((count for count in counts if count <= threads), default=counts[0])
    above = min((count for count in counts if count >= threads), default=counts[-1])
    if above == below or threads < counts[0]:
        return points[below]
    return points[below] + (points[above] - points[below]) * (threads - below) / (above - below)


def link_bandwidth(gpu: GpuReport) -> float:
    """GB/s from page-locked RAM to the card, by its link; where that is not known, of the fourth generation."""
    lane = PCIE_LANE_GBS.get(gpu.pcie_generation, PCIE_LANE_GBS[4])
    return lane * (gpu.pcie_width or 16) * LINK_SHARE


def what_if(
    report: HardwareReport,
    *,
    ram: int | None = None,
    vram: int | None = None,
    ram_bandwidth: float | None = None,
    cpu: str | None = None,
    gpu: str | None = None,
    threads: int | None = None,
    sockets: int | None = None,
) -> HardwareReport:
    """The same machine with other parts.

    ram, vram:     bytes built in; a tenth of the RAM (at most 6 GB) is taken to be in use, of the VRAM nothing.
                   vram 0 takes the GPU out
    ram_bandwidth: GB/s of plain reads
    cpu:           a name as sold ("Ryzen 9 7950X", "2x EPYC 9355"); threads tells its cores when the name does not
    sockets:       how many of that CPU; needs cpu
    gpu:           a name as sold, for its memory and bandwidth; needs vram where the name is not known

    Raises GreenroomError for impossible amounts and for a CPU whose generation is not known.
    """
    for name, value in (("ram", ram), ("ram_bandwidth", ram_bandwidth), ("threads", threads)):
        if value is not None and not 0 < value < 1 << 60:
            raise GreenroomError(
                say("{name} {value} cannot be planned with", name=name, value=value),
                say("it is not an amount above zero"),
                say("Correct it."),
            )
    if vram is not None and not 0 <= vram < 1 << 60:
        raise GreenroomError(
            say("vram {vram} cannot be planned with", vram=vram), say("it is not an amount"), say("Correct it.")
        )
    if sockets is not None and (sockets not in SOCKETS or cpu is None):
        why, remedy = say("boards have 1, 2, 4 or 8"), say("Correct it.")
        if cpu is None:
            why, remedy = say("it needs the CPU's name"), say("Name the CPU as well.")
        raise GreenroomError(
            say("%n sockets cannot be planned with", n=sockets, one="%n socket cannot be planned with"), why, remedy
        )
    if cpu is not None:
        report = _with_cpu(report, cpu, threads, sockets)
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
        memory = replace(report.memory, bandwidth_gbs=given, present_gbs=None)
        # A figure that was given is of no host that moves cores about.
        report = replace(report, memory=memory, calibration=None, cpu=replace(report.cpu, virtual=False))
    if vram is not None or gpu is not None:
        report = _with_gpu(report, vram, gpu)
    return report


def _with_cpu(report: HardwareReport, name: str, threads: int | None, sockets: int | None) -> HardwareReport:
    said = re.match(r"\s*([248])\s*x\s", name.lower())
    sockets = sockets or (int(said[1]) if said else 1)
    model = find_cpu(name)
    if model is None:
        raise GreenroomError(
            say('The CPU "{name}" cannot be planned with', name=name),
            say("its generation is not in the table of known CPUs"),
            say(
                'Write it as sold, for example "Ryzen 9 7950X", "Core i9-14900K", "Xeon Gold 6454S" or "2x EPYC 9355".'
            ),
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
        sockets=sockets,
    )
    # What was measured and read here says nothing about another machine.
    memory = replace(
        report.memory, bandwidth_gbs=None, present_gbs=None, kind="", speed_mts=0, channels=0, limit_bytes=None
    )
    report = replace(report, calibration=None)
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
    if report.calibration is not None:
        # What was measured of a card says nothing about another one.
        report = replace(report, calibration=replace(report.calibration, devices={}))
    if vram == 0:
        return replace(report, gpus=[gpu for gpu in report.gpus if gpu.integrated])
    model = known_gpu(name) if name is not None else None
    if vram is not None:
        size = vram
    elif model is not None:
        size = model.vram_bytes
    elif here is not None:
        size = here.total_bytes
    else:
        raise GreenroomError(
            say('The GPU "{name}" cannot be planned with', name=name),
            say("its memory is not known"),
            say("Say how much VRAM it has."),
        )
    imagined = GpuReport(
        name=name or (here.name if here else say("an NVIDIA GPU")),
        vendor="nvidia",
        total_bytes=size,
        free_bytes=size,
        integrated=False,
    )
    # An imagined GPU comes with a torch that can use it.
    facts = {key: value for key, value in report.os.items() if key != "torch_cuda"}
    return replace(report, gpus=[imagined], os=facts)
