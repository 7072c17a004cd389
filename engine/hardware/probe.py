"""One look at the machine: every part answers or says why not, and nothing it touches can take the program down."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from engine.folders import MODELS, cache_folder, data_folder
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
    HardwareReport,
    Isa,
    Kernels,
    MemoryReport,
)
from engine.hardware.sources import Sources
from engine.progress import ProgressCallback, ignore_progress
from engine.words import say

logger = logging.getLogger(__name__)

#: What to do about a part that could not be read.
AGAIN = say("probe again, and report it with the log if it stays so")


def probe(
    timeout: float = 10,
    *,
    calibrate: bool = False,
    quick: bool = False,
    present: bool = False,
    progress: ProgressCallback = ignore_progress,
    sources: Sources | None = None,
    models_folder: Path | None = None,
    remembered_in: Path | None = None,
    found: Callable[[str, HardwareReport], None] = lambda part, report: None,
) -> HardwareReport:
    """What this machine is.

    timeout:   seconds for the parts that run in child processes; a part that crashes or hangs becomes a warning
    calibrate: measure memory and kernels now (up to 10 s, see `engine.hardware.calibrate.measure`) and remember it;
               otherwise a remembered measurement of this hardware is used when there is one
    quick:     where none is remembered, measure for about half a second and remember that
    present:   where one is remembered, look for a quarter of a second at how fast the RAM is at this moment
    models_folder: where models will be kept, for the free disk space
    remembered_in: the folder of remembered measurements; None takes the user's
    found:     called as each field of the report is known, with its name and the report so far

    Raises GreenroomError when a calibration is asked for and cannot be done, Cancelled when progress says so.
    """
    sources = sources or Sources()
    deadline = time.monotonic() + timeout
    parts = ["native", "nvml"] + (["system"] if sources.system in ("Windows", "Darwin") else [])
    #: By field, in the order in which they are told.
    warnings: dict[str, list[str]] = {
        name: [] for name in ("system", "cpu", "memory", "os", "gpus", "disk", "numa", "disks")
    }
    report = _nothing_yet(sources, models_folder or data_folder() / MODELS)

    def left() -> float:
        # What the later parts tell is worth a second at least once the first ones have used up the time.
        return max(1.0, deadline - time.monotonic())

    def part(name: str, what: str, read: Callable[[], tuple[Any, list[str]]]) -> None:
        """One field of the report; whatever goes wrong in it costs only this one."""
        nonlocal report
        try:
            value, said = read()
        except Exception as error:
            logger.exception("probe: %s", what)
            warnings[name].append(
                say(
                    "{what} could not be read ({kind}: {error}); {again}.",
                    what=what,
                    kind=type(error).__name__,
                    error=error,
                    again=AGAIN,
                )
            )
        else:
            warnings[name] += said
            report = replace(report, **{name: value})
        report = replace(report, warnings=list(chain(*warnings.values())))
        found(name, report)

    with ThreadPoolExecutor(len(parts), thread_name_prefix="probe") as pool:
        asked = {name: pool.submit(sources.ask, name, timeout) for name in parts}

        def reply(name: str) -> Reply:
            return asked[name].result() if name in asked else Reply({})

        part("disk", say("The models' disk"), lambda: read_disk(sources, Path(report.disk.path)))
        part("disks", say("The disks"), lambda: (read_disks(sources), []))
        part("numa", say("The memory nodes"), lambda: (read_numa(sources), []))
        system = reply("system")
        if system.failure:
            warnings["system"].append(
                say(
                    "{system} could not be asked about its cores and graphics: {why}; {again}.",
                    system=sources.system,
                    why=system.failure,
                    again=AGAIN,
                )
            )
        part("memory", say("The memory"), lambda: read_memory(sources, system))
        part("cpu", say("The processor"), lambda: read_cpu(sources, reply("native"), system, left()))
        part("os", say("The installed torch"), lambda: ({**report.os, **sources.torch_build()}, []))
        part(
            "gpus",
            say("The graphics cards"),
            lambda: read_gpus(sources, reply("nvml"), system, report.os, report.cpu.name, left()),
        )
    nvidia = any(gpu.vendor == "nvidia" and not gpu.integrated for gpu in report.gpus)
    if report.os.get("torch_cuda") == "none" and nvidia:
        unused = say(
            "The installed torch is a CPU build, so the NVIDIA GPU stays unused; run the set-up again for CUDA."
        )
        report = replace(report, warnings=[*report.warnings, unused])
    for warning in report.warnings:
        logger.info("probe: %s", warning)
    cache = remembered_in or cache_folder()
    measured: Calibration | None
    fresh = None
    if calibrate:
        measured = fresh = calibration.measure(report, progress)
    else:
        measured = calibration.recall(cache, report)
        if quick and calibration.worth_measuring(cache, measured):
            measured = fresh = calibration.measure_quickly(report, measured)
    if fresh is not None:
        report = replace(report, warnings=report.warnings + calibration.store(cache, report, fresh))
    if measured is None:
        return report
    now = calibration.measure_present(report, measured) if present and fresh is None else None
    memory = replace(report.memory, bandwidth_gbs=measured.bandwidth_gbs, present_gbs=now)
    told = [*report.warnings, *calibration.disturbance(measured)]
    return replace(report, memory=memory, calibration=measured, warnings=told)


def _nothing_yet(sources: Sources, models_folder: Path) -> HardwareReport:
    """What stands in the report until it is known, or for good where it cannot be read."""
    return HardwareReport(
        cpu=CpuReport(say("unknown CPU"), "", 1, 1, 1, Isa(), Kernels("none", "none", "none"), 1),
        memory=MemoryReport(0, 0),
        gpus=[],
        numa=[],
        disk=DiskReport(str(models_folder), 0, 0),
        os={
            "system": sources.system,
            "release": sources.release,
            "name": _system_name(sources),
            "machine": sources.machine,
            "python": sources.python,
            "display": _display(sources),
        },
        warnings=[],
    )


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
