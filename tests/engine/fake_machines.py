"""Machines to plan for."""

from __future__ import annotations

from collections.abc import Callable

from engine.hardware.report import CpuReport, DiskReport, GpuReport, HardwareReport, Isa, Kernels, MemoryReport

GB = 1_000_000_000
MakeReport = Callable[..., HardwareReport]


def make_report(
    *,
    ram: int = 64 * GB,
    free: int | None = None,
    vram: int = 0,
    vram_free: int | None = None,
    cores: int = 8,
    bandwidth: dict[str, float] | None = None,
    cpu: str = "AMD Ryzen 7 7700X 8-Core Processor",
    gpus: list[GpuReport] | None = None,
) -> HardwareReport:
    """A PC. vram > 0 puts an RTX 4090 with that much memory in it."""
    if gpus is None:
        free_vram = vram if vram_free is None else vram_free
        gpus = [GpuReport("NVIDIA GeForce RTX 4090", "nvidia", vram, free_vram, False, "580.1")] if vram else []
    return HardwareReport(
        cpu=CpuReport(
            name=cpu,
            vendor="AuthenticAMD",
            physical_cores=cores,
            logical_cores=2 * cores,
            usable_cores=2 * cores,
            isa=Isa(["avx2", "avx512vnni"], ["avx2", "avx512vnni"]),
            kernels=Kernels("avx512vnni", "avx512vnni", "avx512bf16"),
            performance_cores=cores,
        ),
        memory=MemoryReport(ram, ram * 7 // 8 if free is None else free, bandwidth),
        gpus=gpus,
        numa=[],
        disk=DiskReport("/models", 10**12, 2 * 10**12),
        os={"system": "Linux"},
        warnings=[],
    )
