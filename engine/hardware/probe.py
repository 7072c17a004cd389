"""One look at the machine: every part answers or says why not, and nothing it touches can take the program down."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import platformdirs

from engine.hardware import calibrate as calibration
from engine.hardware.cpu import read_cpu
from engine.hardware.disk import read_disk
from engine.hardware.gpu import read_gpus
from engine.hardware.memory import read_memory
from engine.hardware.numa import read_numa
from engine.hardware.report import HardwareReport
from engine.hardware.sources import Sources
from engine.progress import ProgressCallback, ignore_progress

logger = logging.getLogger(__name__)


def probe(
    timeout: float = 10,
    *,
    calibrate: bool = False,
    quick: bool = False,
    progress: ProgressCallback = ignore_progress,
    sources: Sources | None = None,
    models_folder: Path | None = None,
    cache_folder: Path | None = None,
) -> HardwareReport:
    """What this machine is.

    timeout:   seconds for the parts that run in child processes; a part that crashes or hangs becomes a warning
    calibrate: measure RAM bandwidth now (a few seconds, see `engine.hardware.calibrate.measure`) and remember it;
               otherwise a remembered measurement of this hardware is used when there is one
    quick:     where none is remembered, measure for about half a second and remember that
    models_folder: where models will be kept, for the free disk space

    Raises GreenroomError when a calibration is asked for and cannot be done, Cancelled when progress says so.
    """
    sources = sources or Sources()
    deadline = time.monotonic() + timeout
    with ThreadPoolExecutor(2, thread_name_prefix="probe") as pool:
        asked = {part: pool.submit(sources.ask, part, timeout) for part in ("native", "nvml")}
        native, nvml = asked["native"].result(), asked["nvml"].result()
    # The name of the CPU is worth a second at most once the others have used up the time.
    cpu, warnings = read_cpu(sources, native, max(1.0, deadline - time.monotonic()))
    memory, memory_warnings = read_memory(sources)
    gpus, gpu_warnings = read_gpus(sources, nvml, cpu.name)
    folder = models_folder or _own_folder(platformdirs.user_data_dir) / "models"
    disk, disk_warnings = read_disk(sources, folder)
    torch = sources.torch_build()
    if torch.get("torch_cuda") == "none" and any(gpu.vendor == "nvidia" and not gpu.integrated for gpu in gpus):
        gpu_warnings.append(
            "The installed torch is a CPU build, so the NVIDIA GPU stays unused; run the set-up again for CUDA."
        )
    report = HardwareReport(
        cpu=cpu,
        memory=memory,
        gpus=gpus,
        numa=read_numa(sources),
        disk=disk,
        os={"system": sources.system, "release": sources.release, "python": sources.python, **torch},
        warnings=warnings + memory_warnings + gpu_warnings + disk_warnings,
    )
    for warning in report.warnings:
        logger.info("probe: %s", warning)
    cache = cache_folder or _own_folder(platformdirs.user_cache_dir)
    if calibrate:
        measured = calibration.measure(report, progress)
        report = replace(report, warnings=report.warnings + calibration.store(cache, report, measured))
        return replace(report, memory=replace(report.memory, bandwidth_gbs=measured))
    measured = calibration.recall(cache, report) or {}
    if quick and not measured and (measured := calibration.measure_quickly(report)):
        report = replace(report, warnings=report.warnings + calibration.store(cache, report, measured))
    return replace(report, memory=replace(report.memory, bandwidth_gbs=measured or None))


def _own_folder(place: Callable[..., str]) -> Path:
    """The program's folder of this kind; GREENROOM_DATA puts all of them into one."""
    chosen = os.environ.get("GREENROOM_DATA")
    return Path(chosen) if chosen else Path(place("greenroom", appauthor=False))
