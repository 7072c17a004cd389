"""Figures of a machine and of a plan in words, as the command line prints them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.hardware.report import HardwareReport
    from engine.placement.plan import OffloadPlan, Range


def describe(report: HardwareReport) -> Iterator[str]:
    cpu, memory = report.cpu, report.memory
    yield f"CPU      {cpu.name}"
    yield f"         {cpu.physical_cores} cores, {cpu.logical_cores} threads, {cpu.usable_cores} usable here"
    yield f"         {' '.join(cpu.isa.usable) or 'no known instruction sets'}"
    yield f"Kernels  int4 {cpu.kernels.int4}, int8 {cpu.kernels.int8}, bf16 {cpu.kernels.bf16}"
    yield f"RAM      {gigabytes(memory.total_bytes)}, {gigabytes(memory.available_bytes)} free"
    if memory.bandwidth_gbs:
        speeds = (f"{gbs:.0f} GB/s with {plural(int(count), 'thread')}" for count, gbs in memory.bandwidth_gbs.items())
        yield f"         reads {', '.join(speeds)}"
    else:
        yield "         speed not measured yet (greenroom probe --calibrate)"
    for gpu in report.gpus:
        total, free = gigabytes(gpu.total_bytes), gigabytes(gpu.free_bytes)
        yield f"GPU      {gpu.name}, {'shares the RAM' if gpu.integrated else f'{total}, {free} free'}"
    if not report.gpus:
        yield "GPU      none found"
    yield f"Disk     {gigabytes(report.disk.free_bytes)} free at {report.disk.path}"
    for warning in report.warnings:
        yield f"Note     {warning}"


def predicted_speeds(plan: OffloadPlan) -> Iterator[str]:
    said = plan.prediction
    grown = ""
    # Not worth a word where a long conversation hardly costs anything.
    if said.full_context_tps and said.full_context_tps < 0.8 * said.decode_tps.likely:
        grown = f", {_rate(said.full_context_tps)} with all {plan.context} tokens"
    yield f"Answers at {speed_range(said.decode_tps)}{grown}: {said.bottleneck}."
    yield f"Reads prompts at {speed_range(said.prefill_tps)}."


def gigabytes(nbytes: int) -> str:
    return f"{nbytes / 1e9:.1f} GB" if nbytes >= 1e9 else f"{nbytes / 1e6:.0f} MB"


def speed_range(speed: Range) -> str:
    return f"about {_rate(speed.likely)} tok/s ({_rate(speed.low)} to {_rate(speed.high)})"


def plural(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _rate(speed: float) -> str:
    """Two digits, which is more than a prediction knows: "2.4", "92", "2300"."""
    if speed < 10:
        return f"{speed:.1f}"
    unit = 10 ** (len(f"{speed:.0f}") - 2)
    return f"{round(speed / unit) * unit:.0f}"
