"""The hardware report as a list of findings, one plain sentence each. Knows nothing of Qt."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from app.words import gigabytes, home_path
from engine.hardware.report import CpuReport, GpuReport, HardwareReport, MemoryReport

#: Less free disk than this is worth a warning: it is about one mid-sized model.
LOW_DISK = 20_000_000_000
#: Less free RAM than this runs little more than the demo.
LOW_MEMORY = 4_000_000_000

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
    """state: "good" | "warn" | "bad" | "note"; note: a short figure shown at the right."""

    state: str
    title: str
    sentence: str
    note: str = ""


def checks(report: HardwareReport) -> list[Check]:
    """In the order in which they matter to a mixture-of-experts model."""
    found = [_processor(report.cpu), _instructions(report.cpu), _memory(report.memory)]
    counted = [gpu for gpu in report.gpus if not gpu.integrated]
    found += [_graphics(gpu) for gpu in counted]
    if not counted:
        found.append(
            Check("note", "Graphics", "No graphics card with its own memory was found. Models run on the processor.")
        )
    found += [
        Check("note", "Not counted", f"{gpu.name} shares the system's RAM, so its memory is not counted as VRAM.")
        for gpu in report.gpus
        if gpu.integrated
    ]
    if len(report.numa) > 1:
        found.append(
            Check(
                "note", "Memory nodes", f"RAM is spread over {len(report.numa)} nodes (NUMA); each is near some cores."
            )
        )
    found.append(_disk(report))
    found += [Check("warn", "Note", sentence) for sentence in report.warnings]
    return found


def _processor(cpu: CpuReport) -> Check:
    cores = f"{cpu.physical_cores} {'core' if cpu.physical_cores == 1 else 'cores'}"
    note = "" if cpu.logical_cores == cpu.physical_cores else f"{cpu.logical_cores} threads"
    if cpu.usable_cores < cpu.physical_cores:
        return Check(
            "warn", "Processor", f"{cpu.name}, {cores}; this program may use only {cpu.usable_cores} of them.", note
        )
    return Check("good", "Processor", f"{cpu.name}, {cores}.", note)


def _instructions(cpu: CpuReport) -> Check:
    kernels = list(dict.fromkeys((cpu.kernels.int4, cpu.kernels.int8, cpu.kernels.bf16)))
    note = f"kernels: {', '.join(kernels)}"
    usable = list(dict.fromkeys(_WORDS[name] for name in cpu.isa.usable if name in _WORDS))
    blocked = list(dict.fromkeys(_WORDS[n] for n in cpu.isa.cpu if n in _WORDS and n not in cpu.isa.usable))
    if "avx2" not in cpu.isa.usable:
        return Check(
            "bad",
            "Instructions",
            "AVX2 is missing, or switched off in the BIOS or the virtual machine. Models run, but slowly.",
            note,
        )
    sentence = f"{', '.join(usable)}."
    if blocked:
        return Check("warn", "Instructions", f"{sentence} The system keeps {', '.join(blocked)} from programs.", note)
    return Check("good", "Instructions", sentence, note)


def _memory(memory: MemoryReport) -> Check:
    sentence = f"{gigabytes(memory.total_bytes)}, {gigabytes(memory.available_bytes)} free."
    note = ""
    if memory.bandwidth_gbs:
        threads, speed = max(memory.bandwidth_gbs.items(), key=lambda item: item[1])
        note = f"{speed:.1f} GB/s with {threads} {'thread' if threads == '1' else 'threads'}"
    if memory.available_bytes < LOW_MEMORY:
        return Check("warn", "Memory", f"{sentence} That is little: close other programs before loading.", note)
    if not memory.bandwidth_gbs:
        return Check("note", "Memory", f"{sentence} Its speed has not been measured yet.", note)
    return Check("good", "Memory", sentence, note)


def _graphics(gpu: GpuReport) -> Check:
    note = f"driver {gpu.driver}" if gpu.driver else ""
    return Check(
        "good", "Graphics", f"{gpu.name}, {gigabytes(gpu.total_bytes)}, {gigabytes(gpu.free_bytes)} free.", note
    )


def _disk(report: HardwareReport) -> Check:
    disk = report.disk
    sentence = f"{home_path(Path(disk.path))}: {gigabytes(disk.free_bytes)} free."
    if disk.free_bytes < LOW_DISK:
        return Check("warn", "Disk", f"{sentence} Larger models will not fit there.")
    return Check("good", "Disk", sentence)
