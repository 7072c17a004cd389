"""The hardware report as a list of findings, one plain sentence each. Knows no widgets."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from app.language import mark, told, tr
from app.words import home_path
from engine.hardware.report import CpuReport, DeviceSpeed, GpuReport, HardwareReport
from engine.units import size_text

#: Less free disk than this is worth a warning: it is about one mid-sized model.
LOW_DISK = 20_000_000_000
#: Less free RAM than this runs little more than the demo.
LOW_MEMORY = 4_000_000_000
#: Of the catalogue only the smallest mixture runs in less RAM than this.
TOO_LITTLE_MEMORY = 6_000_000_000

#: What is looked at, and the field of the report that tells.
SUBJECTS = {
    mark("CPU"): "cpu",
    mark("Instructions"): "cpu",
    mark("Memory"): "memory",
    mark("GPU"): "gpus",
    mark("Disk"): "disk",
}
_NOISE = re.compile(
    r"\((R|TM)\)|(?<!Virtual )\bCPU\b|@ [\d.]+ ?GHz|\b\d+-Core Processor\b|\bProcessor\b", re.IGNORECASE
)
_DISKS = {
    "nvme": "NVMe",
    "ssd": "SSD",
    "hdd": mark("hard disk"),
    "network": mark("network"),
    "memory": mark("RAM disk"),
}

_WORDS = {
    "avx2": "AVX2",
    "f16c": "F16C",
    "fma": "FMA",
    "avx512f": "AVX-512",
    "avx512vnni": "AVX-512 VNNI",
    "avx512_vnni": "AVX-512 VNNI",
    "avx512bf16": "AVX-512 BF16",
    "avx512_bf16": "AVX-512 BF16",
    "avxvnni": "AVX-VNNI",
    "avx_vnni": "AVX-VNNI",
    "amx": "AMX",
    "amx_int8": "AMX",
    "amx_tile": "AMX",
}


@dataclass(frozen=True)
class Check:
    """state: "good" | "warn" | "bad" | "note" | "wait"; title: translated when it is shown; note: a short figure shown
    at the right.
    """

    state: str
    title: str
    sentence: str
    note: str = ""


def waiting() -> list[Check]:
    return [_wait(title) for title in SUBJECTS]


def so_far(report: HardwareReport, known: Collection[str]) -> list[Check]:
    """What these fields of a report say, and what is still being looked at in its place; warnings come at the end."""
    found = {check.title: check for check in reversed(checks(replace(report, warnings=[])))}
    return [found[title] if field in known and title in found else _wait(title) for title, field in SUBJECTS.items()]


def _wait(title: str) -> Check:
    return Check("wait", title, tr("Checking…"))


def checks(report: HardwareReport) -> list[Check]:
    """In the order in which they matter to a mixture-of-experts model. Every warning says what to do about it."""
    warnings = list(report.warnings)
    found = [
        _processor(report.cpu, _take(warnings, "logical CPUs")),
        _instructions(report.cpu, _take(warnings, "AVX2 is missing", "does not let programs use")),
        _memory(report, _take(warnings, "GB of RAM;")),
    ]
    counted = [gpu for gpu in report.gpus if not gpu.integrated]
    nvidia = [gpu for gpu in report.gpus if gpu.vendor == "nvidia"]
    speeds = report.calibration.devices if report.calibration is not None else {}
    for gpu in counted:
        speed = speeds.get(f"cuda:{nvidia.index(gpu)}") if gpu in nvidia else None
        unused = [f"{gpu.name} stays unused", *(["NVIDIA GPU stays unused"] if gpu in nvidia else [])]
        found.append(_graphics(gpu, _take(warnings, *unused), speed))
    if not counted:
        found.append(
            Check(
                "note",
                "GPU",
                tr("No GPU with its own memory was found. Models run on the CPU."),
            )
        )
    found += [
        Check(
            "note",
            mark("Not counted"),
            tr("{name} shares the system's RAM, so its memory is not counted as VRAM.", name=gpu.name),
        )
        for gpu in report.gpus
        if gpu.integrated
    ]
    if len(report.numa) > 1:
        found.append(
            Check(
                "note",
                mark("Memory nodes"),
                tr("RAM is split across {count} NUMA nodes, each close to some cores.", count=len(report.numa)),
            )
        )
    found.append(_disk(report))
    found += [Check("warn", mark("Note"), told(warning)) for warning in warnings]
    return found


def _take(warnings: list[str], *marks: str) -> str:
    """The warning with one of these words, out of the list: it stands in its own row then. "" when there is none."""
    for warning in warnings:
        if any(mark in warning for mark in marks):
            warnings.remove(warning)
            return warning
    return ""


def plain_name(name: str) -> str:
    """A CPU as people call it: without trade marks, clock and what is said beside it anyway."""
    return " ".join(_NOISE.sub(" ", name).split()) or name


def _processor(cpu: CpuReport, warning: str) -> Check:
    cores = tr("%n cores", n=cpu.physical_cores)
    if cpu.performance_cores and cpu.efficiency_cores:
        fast, slow = cpu.performance_cores, cpu.efficiency_cores
        cores = tr("{fast} and {slow}", fast=tr("%n fast cores", n=fast), slow=tr("%n slower cores", n=slow))
    if cpu.sockets > 1:
        cores = tr("{cores} in {sockets} sockets", cores=cores, sockets=cpu.sockets)
    more = cpu.logical_cores != cpu.physical_cores
    note = cpu.generation or (tr("%n threads", n=cpu.logical_cores) if more else "")
    sentence = tr("{name}, {cores}.", name=plain_name(told(cpu.name)), cores=cores)
    if not warning and cpu.usable_cores < cpu.physical_cores:
        warning = tr(
            "Greenroom may use only {count} of them. Raise the container or system limit to use more.",
            count=cpu.usable_cores,
        )
    return (
        Check("warn", "CPU", f"{sentence} {told(warning)}", note) if warning else Check("good", "CPU", sentence, note)
    )


def _instructions(cpu: CpuReport, warning: str) -> Check:
    kernels = list(dict.fromkeys((cpu.kernels.int4, cpu.kernels.int8, cpu.kernels.bf16)))
    note = tr("kernels: {names}", names=", ".join(kernels))
    usable = list(dict.fromkeys(_WORDS[name] for name in cpu.isa.usable if name in _WORDS))
    blocked = list(dict.fromkeys(_WORDS[n] for n in cpu.isa.cpu if n in _WORDS and n not in cpu.isa.usable))
    if "avx2" not in cpu.isa.usable:
        otherwise = tr(
            "AVX2 is missing, or turned off in the BIOS or the virtual machine. Models run, but slowly. Turn "
            "it on there, or choose the smallest models."
        )
        return Check("bad", "Instructions", told(warning) or otherwise, note)
    sentence = f"{', '.join(usable)}."
    if blocked:
        otherwise = tr(
            "The system does not let programs use {names}. Update the system, or allow it in the virtual machine.",
            names=", ".join(blocked),
        )
        return Check("warn", "Instructions", f"{sentence} {told(warning) or otherwise}", note)
    return Check("good", "Instructions", sentence, note)


def _read_speed(report: HardwareReport) -> tuple[float, int]:
    """GB/s and with how many threads, as predictions take it: where our kernels read faster, that was no mistake."""
    from engine.placement.machines import ram_bandwidth

    counts = [int(threads) for threads in report.memory.bandwidth_gbs or {}]
    return max(((ram_bandwidth(report, threads).likely, threads) for threads in counts), default=(0.0, 0))


def _memory(report: HardwareReport, warning: str) -> Check:
    memory = report.memory
    total, free = size_text(memory.total_bytes), size_text(memory.available_bytes)
    sentence = tr("{total}, {free} free.", total=total, free=free)
    if memory.kind:
        speed = f"-{memory.speed_mts}" if memory.speed_mts else ""
        kind = f"{memory.kind}{speed}"
        sentence = tr("{total} of {kind}, {free} free.", total=total, kind=kind, free=free)
        if memory.channels > 1:
            sentence = tr(
                "{total} of {kind}, {count} channels, {free} free.",
                total=total,
                kind=kind,
                count=memory.channels,
                free=free,
            )
    note = ""
    if memory.bandwidth_gbs:
        fastest, threads = _read_speed(report)
        note = tr("{speed} GB/s with %n threads", n=threads, speed=f"{fastest:.1f}")
    if memory.total_bytes < TOO_LITTLE_MEMORY:
        little = tr("This is enough for the smallest models only. Add RAM to run larger ones.")
        return Check("bad", "Memory", f"{sentence} {told(warning) or little}", note)
    if memory.available_bytes < LOW_MEMORY:
        little = tr("Little RAM is free. Close other programs before you load a model.")
        return Check("warn", "Memory", f"{sentence} {little}", note)
    if warning:
        return Check("warn", "Memory", f"{sentence} {told(warning)}", note)
    if not memory.bandwidth_gbs:
        return Check("note", "Memory", f"{sentence} {tr('Its speed has not been measured yet.')}", note)
    return Check("good", "Memory", sentence, note)


def _graphics(gpu: GpuReport, warning: str, speed: DeviceSpeed | None) -> Check:
    """speed: what was measured of its link."""
    note = tr("driver {version}", version=gpu.driver) if gpu.driver else ""
    if gpu.pcie_generation and gpu.pcie_width:
        note = f"PCIe {gpu.pcie_generation} ×{gpu.pcie_width}"
    if speed is not None and (link := speed.to_pinned_gbs or speed.to_pageable_gbs):
        note = f"{note}, {link:.0f} GB/s".removeprefix(", ")
    amounts = tr("{total}, {free} free", total=size_text(gpu.total_bytes), free=size_text(gpu.free_bytes))
    facts = {"name": gpu.name, "amounts": amounts}
    if gpu.unusable or warning:
        why = told(warning) or tr("{gpu} {unusable}.", gpu=gpu.name, unusable=told(gpu.unusable))
        said = f"{why} {amounts}." if gpu.name in why else f"{gpu.name}, {amounts}. {why}"
        return Check("warn", "GPU", said, note)
    if gpu.vendor.lower() != "nvidia":
        unused = tr("{name}, {amounts}. Not used: this version supports NVIDIA GPUs only.", **facts)
        return Check("note", "GPU", unused, note)
    return Check("good", "GPU", f"{gpu.name}, {amounts}.", note)


def _disk(report: HardwareReport) -> Check:
    disk = report.disk
    note = tr(_DISKS[disk.kind]) if disk.kind in _DISKS else ""
    if not disk.known:
        unread = tr(
            "{folder}: the free space could not be read. Check the folder's permissions, or choose another "
            "folder in the settings.",
            folder=home_path(Path(disk.path)),
        )
        return Check("warn", "Disk", unread, note)
    sentence = tr("{folder}: {amount} free.", folder=home_path(Path(disk.path)), amount=size_text(disk.free_bytes))
    if disk.free_bytes < LOW_DISK:
        remedy = tr("Larger models will not fit there. Free some space, or choose another folder in the settings.")
        return Check("warn", "Disk", f"{sentence} {remedy}", note)
    return Check("good", "Disk", sentence, note)
