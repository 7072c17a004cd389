"""`greenroom probe`: what this PC is."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from engine.cli.terminal import Terminal
from engine.cli.text import plural
from engine.units import size_text

if TYPE_CHECKING:
    from engine.hardware.report import DeviceSpeed, GpuReport, HardwareReport

HELP = "say what this PC is and what Greenroom can use of it"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--calibrate", action="store_true", help="measure RAM, kernels and graphics cards, and remember it"
    )


def run(args: argparse.Namespace, terminal: Terminal) -> dict[str, Any]:
    from engine.hardware.probe import probe

    report = probe(calibrate=args.calibrate, progress=terminal.progress)
    for line in describe(report):
        terminal.say(line)
    return report.to_json()


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
    yield f"RAM      {size_text(memory.total_bytes)}, {size_text(memory.available_bytes)} free"
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
    free = f"{size_text(report.disk.free_bytes)} free" if report.disk.known else "free space not known"
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
    return f"{gpu.name}, {size_text(gpu.total_bytes)}, {size_text(gpu.free_bytes)} free{link}{driver}"


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
