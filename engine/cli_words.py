"""Figures of a machine and of a plan in words, as the command line prints them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.hardware.report import DeviceSpeed, GpuReport, HardwareReport
    from engine.placement.plan import OffloadPlan, Range


def describe(report: HardwareReport) -> Iterator[str]:
    cpu, memory = report.cpu, report.memory
    made = f", {cpu.generation}" if cpu.generation else ""
    yield f"CPU      {cpu.name}{made}"
    kinds = f" ({cpu.performance_cores} fast, {cpu.efficiency_cores} slow)" if cpu.efficiency_cores else ""
    sockets = f" in {cpu.sockets} sockets" if cpu.sockets > 1 else ""
    yield (
        f"         {cpu.physical_cores} cores{kinds}{sockets}, {cpu.logical_cores} threads, "
        f"{cpu.usable_cores} usable here{', a virtual machine' if cpu.virtual else ''}"
    )
    yield f"         {' '.join(cpu.isa.usable) or 'no known instruction sets'}"
    if cpu.caches:
        yield f"         caches {', '.join(f'{name} {_binary(size)}' for name, size in cpu.caches.items())}"
    yield f"Kernels  int4 {cpu.kernels.int4}, int8 {cpu.kernels.int8}, bf16 {cpu.kernels.bf16}"
    yield f"RAM      {gigabytes(memory.total_bytes)}, {gigabytes(memory.available_bytes)} free"
    modules = f"{memory.kind} {memory.speed_mts or ''}".strip() or "modules of unknown speed"
    channels = plural(memory.channels, "channel") if memory.channels else "channels unknown"
    nodes = f", {len(report.numa)} memory nodes" if len(report.numa) > 1 else ""
    yield f"         {modules}, {channels}{nodes}"
    if memory.bandwidth_gbs:
        speeds = (f"{gbs:.0f} GB/s with {plural(int(count), 'thread')}" for count, gbs in memory.bandwidth_gbs.items())
        yield f"         reads {', '.join(speeds)}"
    else:
        yield "         speed not measured yet (greenroom probe --calibrate)"
    if (measured := report.calibration) is not None and measured.kernels:
        kernels = (f"{name} experts {speed.decode_gbs:.0f} GB/s" for name, speed in measured.kernels.items())
        yield f"         int4 kernels with {plural(measured.threads, 'thread')}: {', '.join(kernels)}"
    for gpu in report.gpus:
        yield f"GPU      {_card(gpu)}"
    for name, speed in (measured.devices if measured is not None else {}).items():
        yield f"         {name} measured: {', '.join(_speeds(speed)) or 'nothing'}"
    if not report.gpus:
        yield "GPU      none found"
    kind = {"nvme": "NVMe, ", "ssd": "SSD, ", "hdd": "hard disk, ", "network": "network, "}.get(report.disk.kind, "")
    free = f"{gigabytes(report.disk.free_bytes)} free" if report.disk.known else "free space not known"
    yield f"Disk     {kind}{free} at {report.disk.path}"
    system = report.os
    yield f"System   {system.get('name', '')}, Python {system.get('python', '')}, display {system.get('display', '')}"
    for warning in report.warnings:
        yield f"Note     {warning}"


def _card(gpu: GpuReport) -> str:
    if gpu.integrated:
        return f"{gpu.name}, shares the RAM"
    link = f", PCIe {gpu.pcie_generation}.0 x{gpu.pcie_width}" if gpu.pcie_generation and gpu.pcie_width else ""
    driver = f", driver {gpu.driver}" if gpu.driver else ""
    return f"{gpu.name}, {gigabytes(gpu.total_bytes)}, {gigabytes(gpu.free_bytes)} free{link}{driver}"


def _speeds(speed: DeviceSpeed) -> Iterator[str]:
    to, back = speed.to_pinned_gbs, speed.from_pinned_gbs
    if to and back:
        yield f"{to:.1f} GB/s there and {back:.1f} back from page-locked RAM"
    to, back = speed.to_pageable_gbs, speed.from_pageable_gbs
    if to and back:
        yield f"{to:.1f} and {back:.1f} from other"
    if speed.memory_gbs:
        yield f"own memory {speed.memory_gbs:.0f} GB/s"
    if speed.teraflops:
        yield f"{speed.teraflops:.0f} TFLOP/s"
    if speed.code_gweights:
        yield f"{speed.code_gweights:.0f}e9 coded weights/s"


def _binary(nbytes: int) -> str:
    """Caches are counted in powers of two, as their makers do."""
    return f"{nbytes / (1 << 20):.3g} MiB" if nbytes >= 1 << 20 else f"{nbytes >> 10} KiB"


def predicted_speeds(plan: OffloadPlan) -> Iterator[str]:
    said = plan.prediction
    grown = ""
    # Not worth a word where a long conversation hardly costs anything.
    if said.full_context_tps and said.full_context_tps < 0.8 * said.decode_tps.likely:
        grown = f", {rate(said.full_context_tps)} with all {plan.context} tokens"
    if said.learned is not None:
        before, times = said.learned.predicted_decode_tps.likely, said.learned.answers
        yield f"Corrected by {plural(times, 'answer')} measured here; predicted from the parts: {rate(before)} tok/s."
    yield f"Answers at {speed_range(said.decode_tps)}{grown}: {said.bottleneck}."
    for line in plan.time_sum():
        yield f"  {line}"
    yield f"Reads prompts at {speed_range(said.prefill_tps)}."


def gigabytes(nbytes: int) -> str:
    if nbytes >= 1e9:
        return f"{nbytes / 1e9:.1f} GB"
    if nbytes >= 1e7 or nbytes == 0:
        return f"{nbytes / 1e6:.0f} MB"
    return f"{nbytes / 1e6:.1f} MB" if nbytes >= 1e5 else f"{nbytes / 1e3:.1f} kB"


def speed_range(speed: Range) -> str:
    return f"about {rate(speed.likely)} tok/s ({rate(speed.low)} to {rate(speed.high)})"


def plural(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def rate(speed: float) -> str:
    """Two digits, which is more than a prediction knows: "2.4", "92", "2300"."""
    if speed < 10:
        return f"{speed:.1f}"
    unit = 10 ** (len(f"{speed:.0f}") - 2)
    return f"{round(speed / unit) * unit:.0f}"
