"""RAM read bandwidth against the number of threads, measured once and remembered for this hardware."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import statistics
import tempfile
import time
from pathlib import Path

import engine
from engine.errors import GreenroomError
from engine.hardware.report import HardwareReport
from engine.progress import Progress, ProgressCallback, ignore_progress

logger = logging.getLogger(__name__)

#: Larger than any last-level cache of one socket, small enough to fit beside a running desktop.
BUFFER_BYTES = 768 << 20
#: Below this the caches answer instead of the RAM.
SMALLEST_BUFFER_BYTES = 128 << 20
REPEATS = 4
#: Short reads, so that some of them run undisturbed on a busy PC.
QUICK_BUFFER_BYTES = 256 << 20
QUICK_REPEATS = 24
#: Every thread count is measured once; further rounds start only before this many seconds are over.
ROUNDS = 3
BUDGET_SECONDS = 2.5
FILE_NAME = "calibration.json"


def thread_counts(report: HardwareReport) -> list[int]:
    """Powers of two up to the usable CPUs, plus the performance cores and all usable CPUs themselves."""
    usable = max(1, report.cpu.usable_cores)
    counts = {1 << bit for bit in range(usable.bit_length()) if 1 << bit <= usable}
    return sorted(counts | {usable, max(1, min(usable, report.cpu.performance_cores))})


def measure(report: HardwareReport, progress: ProgressCallback = ignore_progress) -> dict[str, float]:
    """{threads: GB/s}, the median of several reads, thread counts interleaved so that a slow moment hits all alike.

    Takes about 3 to 5 s, one round at least. Raises GreenroomError without the compiled kernels or with too little free
    RAM; Cancelled when progress raises it (between reads, so within about a second).
    """
    try:
        from engine import _native
    except ImportError as error:
        raise GreenroomError(
            "RAM bandwidth cannot be measured",
            f"the compiled kernels are not installed ({error})",
            "Run the set-up again, then calibrate.",
        ) from error
    nbytes = min(BUFFER_BYTES, report.memory.available_bytes // 4)
    if nbytes < SMALLEST_BUFFER_BYTES:
        raise GreenroomError(
            "RAM bandwidth cannot be measured",
            f"only {report.memory.available_bytes / 1e6:.0f} MB of RAM is free, and less would measure the caches",
            "Close other programs and calibrate again.",
        )
    counts = thread_counts(report)
    speeds: dict[int, list[float]] = {threads: [] for threads in counts}
    total = ROUNDS * len(counts)
    started = time.monotonic()
    for step in range(total):
        if step >= len(counts) and step % len(counts) == 0 and time.monotonic() - started > BUDGET_SECONDS:
            break
        threads = counts[step % len(counts)]
        progress(Progress(step, total, f"Reading RAM with {threads} thread{'s' if threads > 1 else ''}"))
        pool = _native.ThreadPool(threads)
        try:
            speeds[threads] += _native.read_bandwidth(pool, nbytes, REPEATS)
        finally:
            pool.close()
    progress(Progress(total, total, "RAM bandwidth measured"))
    return {str(threads): round(statistics.median(values) / 1e9, 1) for threads, values in speeds.items()}


def measure_quickly(report: HardwareReport) -> dict[str, float]:
    """{threads: GB/s} for the usual number of threads alone, in about half a second; enough for a prediction.

    The best of a few reads counts: programs running beside can only make one slower. Empty when it cannot be measured.
    """
    try:
        from engine import _native
    except ImportError:
        return {}
    nbytes = min(QUICK_BUFFER_BYTES, report.memory.available_bytes // 4)
    if nbytes < SMALLEST_BUFFER_BYTES:
        return {}
    threads = max(1, report.cpu.performance_cores or min(report.cpu.physical_cores, report.cpu.usable_cores))
    pool = _native.ThreadPool(threads)
    try:
        return {str(threads): round(max(_native.read_bandwidth(pool, nbytes, QUICK_REPEATS)) / 1e9, 1)}
    finally:
        pool.close()


def fingerprint(report: HardwareReport) -> str:
    """Changes when a measurement would: another CPU, core count, amount of RAM, NUMA layout or program version."""
    facts = [
        engine.__version__,
        report.cpu.name,
        report.cpu.physical_cores,
        report.cpu.usable_cores,
        # In whole gigabytes: firmware reserves a little more or less at each boot.
        round(report.memory.total_bytes / 1e9),
        len(report.numa),
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def recall(folder: Path, report: HardwareReport) -> dict[str, float] | None:
    """The remembered measurement of this hardware by this version, or None."""
    try:
        stored = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
        if stored["fingerprint"] != fingerprint(report):
            return None
        bandwidth = {str(int(threads)): float(speed) for threads, speed in stored["bandwidth_gbs"].items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        logger.warning("calibration ignored: %s", error)
        return None
    sane = all(math.isfinite(speed) and speed > 0 for speed in bandwidth.values())
    return bandwidth if bandwidth and sane else None


def store(folder: Path, report: HardwareReport, bandwidth: dict[str, float]) -> list[str]:
    """Remember a measurement. A folder that cannot be written costs only a warning, which is returned."""
    record = {"fingerprint": fingerprint(report), "cpu": report.cpu.name, "bandwidth_gbs": bandwidth}
    text = json.dumps(record, indent=1)
    temporary = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=FILE_NAME)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, folder / FILE_NAME)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        return [f"The measured bandwidth could not be remembered: {folder} cannot be written ({error.strerror})."]
    return []
