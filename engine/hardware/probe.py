"""One look at the machine: every part answers or says why not, and nothing it touches can take the program down."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import platformdirs

from engine.hardware import calibrate as calibration
from engine.hardware.child import Reply
from engine.hardware.cpu import read_cpu
from engine.hardware.disk import read_disk, read_disks
from engine.hardware.gpu import read_gpus
from engine.hardware.memory import read_memory
from engine.hardware.numa import read_numa
from engine.hardware.report import (
    Calibration,
    CpuReport,
    DiskReport,
    GpuReport,
    HardwareReport,
    Isa,
    Kernels,
    MemoryReport,
)
from engine.hardware.sources import Sources
from engine.progress import ProgressCallback, ignore_progress

logger = logging.getLogger(__name__)
T = TypeVar("T")

#: What to do about a part that could not be read.
AGAIN = "probe again, and report it with the log if it stays so"


def probe(
    timeout: float = 10,
    *,
    calibrate: bool = False,
    quick: bool = False,
    progress: ProgressCallback = ignore_progress,
    sources: Sources | None = None,
    models_folder: Path | None = None,
    remembered_in: Path | None = None,
) -> HardwareReport:
    """What this machine is.

    timeout:   seconds for the parts that run in child processes; a part that crashes or hangs becomes a warning
    calibrate: measure memory and kernels now (up to 10 s, see `engine.hardware.calibrate.measure`) and remember it;
               otherwise a remembered measurement of this hardware is used when there is one
    quick:     where none is remembered, measure for about half a second and remember that
    models_folder: where models will be kept, for the free disk space
    remembered_in: the folder of remembered measurements; None takes the user's

    Raises GreenroomError when a calibration is asked for and cannot be done, Cancelled when progress says so.
    """
    sources = sources or Sources()
    deadline = time.monotonic() + timeout
    parts = ["native", "nvml"] + (["system"] if sources.system in ("Windows", "Darwin") else [])
    with ThreadPoolExecutor(len(parts), thread_name_prefix="probe") as pool:
        asked = {part: pool.submit(sources.ask, part, timeout) for part in parts}
        replies = {part: reply.result() for part, reply in asked.items()}
    native, nvml, system = replies["native"], replies["nvml"], replies.get("system", Reply({}))
    warnings: list[str] = []
    if system.failure:
        warnings.append(f"{sources.system} could not be asked about its cores and graphics: {system.failure}; {AGAIN}.")

    def left() -> float:
        # What the later parts tell is worth a second at least once the first ones have used up the time.
        return max(1.0, deadline - time.monotonic())

    def part(what: str, read: Callable[[], tuple[T, list[str]]], otherwise: T) -> T:
        """One part of the report; whatever goes wrong in it costs only this part."""
        try:
            value, said = read()
        except Exception as error:
            logger.exception("probe: %s", what)
            warnings.append(f"{what} could not be read ({type(error).__name__}: {error}); {AGAIN}.")
            return otherwise
        warnings.extend(said)
        return value

    folder = models_folder or _own_folder(platformdirs.user_data_dir) / "models"
    nothing = Kernels("none", "none", "none")
    cpu = part(
        "The processor",
        lambda: read_cpu(sources, native, system, left()),
        CpuReport("unknown CPU", "", 1, 1, 1, Isa(), nothing, 1),
    )
    memory = part("The memory", lambda: read_memory(sources, system), MemoryReport(0, 0))
    unknown: dict[str, str] = {}
    torch = part("The installed torch", lambda: (sources.torch_build(), []), unknown)
    no_gpus: list[GpuReport] = []
    gpus = part("The graphics cards", lambda: read_gpus(sources, nvml, system, torch, cpu.name, left()), no_gpus)
    disk = part("The models' disk", lambda: read_disk(sources, folder), DiskReport(str(folder), 0, 0))
    if torch.get("torch_cuda") == "none" and any(gpu.vendor == "nvidia" and not gpu.integrated for gpu in gpus):
        warnings.append(
            "The installed torch is a CPU build, so the NVIDIA GPU stays unused; run the set-up again for CUDA."
        )
    report = HardwareReport(
        cpu=cpu,
        memory=memory,
        gpus=gpus,
        numa=part("The memory nodes", lambda: (read_numa(sources), []), []),
        disk=disk,
        os={
            "system": sources.system,
            "release": sources.release,
            "name": _system_name(sources),
            "machine": sources.machine,
            "python": sources.python,
            "display": _display(sources),
            **torch,
        },
        warnings=warnings,
        disks=part("The disks", lambda: (read_disks(sources), []), []),
    )
    for warning in report.warnings:
        logger.info("probe: %s", warning)
    cache = remembered_in or cache_folder()
    if calibrate:
        measured: Calibration | None = calibration.measure(report, progress)
    else:
        measured = calibration.recall(cache, report)
    if calibrate or (quick and measured is None):
        measured = measured or calibration.measure_quickly(report)
        if measured is not None:
            report = replace(report, warnings=report.warnings + calibration.store(cache, report, measured))
    if measured is None:
        return report
    memory = replace(report.memory, bandwidth_gbs=measured.bandwidth_gbs)
    return replace(report, memory=memory, calibration=measured)


def _system_name(sources: Sources) -> str:
    """ "Ubuntu 24.04.1 LTS" where a file says it, else system and release."""
    for line in sources.text("etc/os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip("\"'")
    return f"{sources.system} {sources.release}".strip()


def _display(sources: Sources) -> str:
    if sources.system in ("Windows", "Darwin"):
        return {"Windows": "windows", "Darwin": "macos"}[sources.system]
    if sources.environment.get("WAYLAND_DISPLAY"):
        return "wayland"
    return "x11" if sources.environment.get("DISPLAY") else "none"


def cache_folder() -> Path:
    """Where measurements of this machine are remembered."""
    return _own_folder(platformdirs.user_cache_dir)


def _own_folder(place: Callable[..., str]) -> Path:
    """The program's folder of this kind; GREENROOM_DATA puts all of them into one."""
    chosen = os.environ.get("GREENROOM_DATA")
    return Path(chosen) if chosen else Path(place("greenroom", appauthor=False))
