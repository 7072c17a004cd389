"""How fast this machine's memory and our kernels are, measured once and remembered for this hardware."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import engine
from engine.errors import GreenroomError
from engine.folders import make_private
from engine.hardware.busy import MUCH_DISTURBED, OtherPrograms
from engine.hardware.child import Reply, ask
from engine.hardware.kernel_speed import STEP_SECONDS, STEPS, kept_readings, measure_kernels, usual_reading
from engine.hardware.report import Calibration, DeviceSpeed, HardwareReport, KernelSpeed
from engine.progress import Progress, ProgressCallback, ignore_progress
from engine.whole_file import write_whole
from engine.words import say

logger = logging.getLogger(__name__)

#: Larger than any last-level cache of one socket, small enough to fit beside a running desktop.
BUFFER_BYTES = 768 << 20
#: Below this the caches answer instead of the RAM.
SMALLEST_BUFFER_BYTES = 128 << 20
REPEATS = 4
#: Short reads, so that some of them run undisturbed on a busy PC.
QUICK_BUFFER_BYTES = 256 << 20
QUICK_REPEATS = 24
#: A quick measurement is repeated, when one is asked for, once it is this old.
REPEAT_AFTER_SECONDS = 600
#: Every thread count is measured once; further rounds start only before this many seconds are over.
ROUNDS = 3
BUDGET_SECONDS = 2.5
#: What a step usually takes, to say how long the rest will.
READ_SECONDS, DEVICE_SECONDS = 0.2, 12.0
FILE_NAME = "calibration.json"
#: Seconds for a graphics card: torch and a driver start first.
DEVICE_TIMEOUT = 60.0
Ask = Callable[[str, float, Callable[[], None]], Reply]


def ask_child(part: str, timeout: float, waiting: Callable[[], None]) -> Reply:
    return ask(part, timeout, waiting=waiting)


def thread_counts(report: HardwareReport) -> list[int]:
    """Powers of two up to the usable CPUs, plus the performance cores and all usable CPUs themselves."""
    usable = max(1, report.cpu.usable_cores)
    counts = {1 << bit for bit in range(usable.bit_length()) if 1 << bit <= usable}
    return sorted(counts | {usable, max(1, min(usable, report.cpu.performance_cores))})


def usable_devices(report: HardwareReport) -> list[str]:
    """The cards a plan may use, by torch's names."""
    if report.os.get("torch_cuda", "none") == "none":
        return []
    nvidia = [gpu for gpu in report.gpus if gpu.vendor == "nvidia"]
    return [
        f"cuda:{index}"
        for index, gpu in enumerate(nvidia)
        if not gpu.integrated and gpu.total_bytes > 0 and not gpu.unusable
    ]


def measure(
    report: HardwareReport,
    progress: ProgressCallback = ignore_progress,
    devices: Sequence[str] | None = None,
    ask_device: Ask = ask_child,
) -> Calibration:
    """Bandwidth by thread count, then our kernels and the pool at the usual count, then the graphics cards.

    devices: of the cards, by torch's names; None takes all that can be used. One that fails is left out.

    Reads are repeated with the thread counts interleaved, so that a slow moment hits all alike. Takes 5 to 10 s, and as
    long for a card. Raises GreenroomError without the compiled kernels or with too little free RAM; Cancelled when
    progress raises it (between steps, so within about a second).
    """
    try:
        from engine import _native
    except ImportError as error:
        raise GreenroomError(
            say("RAM bandwidth cannot be measured"),
            say("the compiled kernels are not installed ({error})", error=error),
            say("Run the set-up again, then calibrate."),
        ) from error
    nbytes = min(BUFFER_BYTES, report.memory.available_bytes // 4)
    if nbytes < SMALLEST_BUFFER_BYTES:
        raise GreenroomError(
            say("RAM bandwidth cannot be measured"),
            say(
                "only {available_bytes:.0f} MB of RAM is free, and less would measure the caches",
                available_bytes=report.memory.available_bytes / 1e6,
            ),
            say("Close other programs and calibrate again."),
        )
    counts = thread_counts(report)
    speeds: dict[int, list[float]] = {threads: [] for threads in counts}
    devices = usable_devices(report) if devices is None else devices
    reads = ROUNDS * len(counts)
    total = reads + STEPS + len(devices)
    progress = _with_seconds_left(progress, [READ_SECONDS] * reads + [*STEP_SECONDS] + [DEVICE_SECONDS] * len(devices))
    started, others = time.monotonic(), OtherPrograms()
    for step in range(reads):
        if step >= len(counts) and step % len(counts) == 0 and time.monotonic() - started > BUDGET_SECONDS:
            break
        threads = counts[step % len(counts)]
        what = say("Reading RAM with %n threads", n=threads, one="Reading RAM with %n thread")
        progress(Progress(step, total, what))
        pool = _native.ThreadPool(threads)
        try:
            speeds[threads] += _native.read_bandwidth(pool, nbytes, REPEATS)
        finally:
            pool.close()
    kept = {str(threads): [speed / 1e9 for speed in kept_readings(found)] for threads, found in speeds.items()}
    known = Calibration(
        bandwidth_gbs={threads: round(usual_reading(found), 1) for threads, found in kept.items()},
        spread_gbs={threads: [round(min(found), 1), round(max(found), 1)] for threads, found in kept.items()},
    )
    measured = measure_kernels(report, usual_threads(report), known, progress, reads, total)
    found = {}
    for step, device in enumerate(devices, reads + STEPS):

        def waiting(step: int = step) -> None:
            progress(Progress(step, total, say("Measuring the graphics card")))

        reply = ask_device(f"device={device}", DEVICE_TIMEOUT, waiting)
        try:
            if reply.failure:
                raise ValueError(reply.failure)
            found[device] = device_speed(reply.value)
        except (ValueError, TypeError) as error:
            logger.warning("calibration: %s is left out: %s", device, error)
    measured = replace(measured, devices=found, disturbed=others.share())
    progress(Progress(total, total, say("This PC is measured")))
    return measured


def disturbance(measured: Calibration) -> list[str]:
    """A warning where other programs were so busy that everything here may be faster than it was measured."""
    if measured.disturbed < MUCH_DISTURBED:
        return []
    return [
        say(
            "Other programs used {share:.0%} of the CPU while this PC was measured, so that it may be faster than "
            "predicted; close them and measure again.",
            share=measured.disturbed,
        )
    ]


def _with_seconds_left(progress: ProgressCallback, usual: list[float]) -> ProgressCallback:
    """Says with each step how long the rest will take: as usual, or longer where the steps before took longer.

    usual: seconds of each step
    """
    started = time.monotonic()

    def report(step: Progress) -> None:
        expected = sum(usual[: step.done])
        pace = (time.monotonic() - started) / expected if expected else 1.0
        left = sum(usual[step.done :]) * min(max(pace, 0.5), 10.0)
        progress(replace(step, seconds_left=left))

    return report


def device_speed(values: dict[str, Any]) -> DeviceSpeed:
    """Raises ValueError and its like for what is no speed."""
    known = {field.name for field in fields(DeviceSpeed)}
    return DeviceSpeed(**{name: _speed(value) for name, value in values.items() if name in known and value is not None})


def _speed(value: Any) -> float:
    if not math.isfinite(number := float(value)) or number <= 0:
        raise ValueError(f"{number} is no speed")
    return number


def usual_threads(report: HardwareReport) -> int:
    """As many as a plan takes when nobody says otherwise."""
    cpu = report.cpu
    return max(1, cpu.performance_cores or min(cpu.physical_cores, cpu.usable_cores))


def worth_measuring(folder: Path, known: Calibration | None) -> bool:
    """Whether a quick measurement may tell more: there is none, or a quick one that a busy moment may have spoiled."""
    if known is None:
        return True
    try:
        age = time.time() - (folder / FILE_NAME).stat().st_mtime
    except OSError:
        return False
    return known.threads == 0 and age > REPEAT_AFTER_SECONDS


def measure_quickly(report: HardwareReport, known: Calibration | None = None) -> Calibration | None:
    """The bandwidth of the usual number of threads alone, in about half a second; enough for a prediction.

    The best of a few reads counts, and of an earlier measurement: programs running beside can only make one slower.
    None (or what was known) when it cannot be measured.
    """
    try:
        from engine import _native
    except ImportError:
        return known
    nbytes = min(QUICK_BUFFER_BYTES, report.memory.available_bytes // 4)
    if nbytes < SMALLEST_BUFFER_BYTES:
        return known
    threads = usual_threads(report)
    pool = _native.ThreadPool(threads)
    try:
        best = round(max(_native.read_bandwidth(pool, nbytes, QUICK_REPEATS)) / 1e9, 1)
    except ValueError:
        return known  # a cap that names no kernels, which the plan refuses in words
    finally:
        pool.close()
    earlier = known.bandwidth_gbs.get(str(threads), 0.0) if known is not None else 0.0
    return Calibration({str(threads): max(best, earlier)})


def measure_present(report: HardwareReport, known: Calibration) -> dict[str, float] | None:
    """How fast the RAM is read at this moment, by a few reads of as much as `measure` reads, in a quarter of a second.

    A virtual machine's cores move about on their host, a laptop's clock follows its mains, so a measurement of last
    week may be of another state than a model meets that is loaded now. None where it cannot be measured, and for one
    thread, which no move makes slower.
    """
    try:
        from engine import _native
    except ImportError:
        return None
    threads = known.threads or usual_threads(report)
    nbytes = min(BUFFER_BYTES, report.memory.available_bytes // 4)
    if threads == 1 or nbytes < SMALLEST_BUFFER_BYTES:
        return None
    pool = _native.ThreadPool(threads)
    try:
        found = _native.read_bandwidth(pool, nbytes, REPEATS)
    except ValueError:
        return None  # as above
    finally:
        pool.close()
    return {str(threads): round(usual_reading(found) / 1e9, 1)}


def fingerprint(report: HardwareReport) -> str:
    """Changes when a measurement would: another CPU, core count, amount of RAM, NUMA layout, graphics card or program
    version.
    """
    facts = [
        engine.__version__,
        report.cpu.name,
        report.cpu.physical_cores,
        report.cpu.usable_cores,
        # In whole gigabytes: firmware reserves a little more or less at each boot.
        round(report.memory.total_bytes / 1e9),
        len(report.numa),
        [gpu.name for gpu in report.gpus if not gpu.integrated],
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def recall(folder: Path, report: HardwareReport) -> Calibration | None:
    """The remembered measurement of this hardware by this version, or None."""
    try:
        stored = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
        if stored["fingerprint"] != fingerprint(report):
            return None
        return _parse(stored["calibration"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        logger.warning("calibration ignored: %s", error)
        return None


def _parse(stored: dict[str, Any]) -> Calibration:
    """Raises ValueError and its like for anything that `store` cannot have written."""

    def spread(value: Any) -> list[float]:
        low, high = (_speed(bound) for bound in value)
        return [low, high]

    bandwidth = {str(int(threads)): _speed(found) for threads, found in stored["bandwidth_gbs"].items()}
    if not bandwidth:
        raise ValueError("no bandwidth")
    kernels = {
        str(name): KernelSpeed(_speed(found["decode_gbs"]), spread(found["spread_gbs"]), _speed(found["prefill_gops"]))
        for name, found in stored["kernels"].items()
    }
    narrow, region, handover = (stored[name] for name in ("narrow_gops", "region_us", "handover_us"))
    return Calibration(
        bandwidth_gbs=bandwidth,
        spread_gbs={str(int(threads)): spread(found) for threads, found in stored["spread_gbs"].items()},
        threads=int(stored["threads"]),
        kernels=kernels,
        narrow_gops=None if narrow is None else _speed(narrow),
        region_us=None if region is None else _speed(region),
        handover_us=None if handover is None else _speed(handover),
        devices={str(name): device_speed(found) for name, found in stored["devices"].items()},
        disturbed=min(1.0, max(0.0, float(stored["disturbed"]))),
    )


def store(folder: Path, report: HardwareReport, calibration: Calibration) -> list[str]:
    """Remember a measurement. A folder that cannot be written costs only a warning, which is returned."""
    record = {"fingerprint": fingerprint(report), "cpu": report.cpu.name, "calibration": asdict(calibration)}
    try:
        make_private(folder)
        write_whole(folder / FILE_NAME, json.dumps(record, indent=1).encode())
    except OSError as error:
        return [
            say(
                "What was measured could not be remembered: {folder} cannot be written ({why}); give it write "
                "permission or free some space.",
                folder=folder,
                why=error.strerror,
            )
        ]
    return []
