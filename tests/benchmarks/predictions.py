"""Predicted beside measured speed of this machine, decode and prefill, model by model.

    python tests/benchmarks/predictions.py MODEL [MODEL ...] [--threads N] [--json OUT]

Everything is measured first (as `greenroom probe --calibrate` does, kept nowhere). Then each model is loaded and does
512 tokens of prompt and 64 of answer, five times; before and after each time the RAM's speed is looked at, as the
program does before it loads a model, because some machines change it within minutes ("now" beside "calibrated"). The
plan is asked with the median of these looks. What earlier answers taught is left out. A prediction is good when the
median of the runs lies in its range, and within 20 % of its likely figure.

On an idle machine; on a busy one `--cpu-time` with `--threads 1` counts the processor's time instead of the clock's,
and `--undisturbed` (as root) lets no other program run during each measurement, which takes seconds.

"demo" is the built-in model. Takes about 10 s, and 10 s and the loading per model.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import engine
from engine.hardware.calibrate import measure_present
from engine.hardware.probe import probe
from engine.hardware.report import HardwareReport
from engine.placement.plan import OffloadPlan, Range
from engine.placement.planner import plan
from engine.runtime.engine import Engine

PROMPT, ANSWER, REPEATS, WARM_UP = 512, 64, 5, 4
CLOSE = 0.2


@contextmanager
def undisturbed(wanted: bool) -> Iterator[None]:
    """All threads of this process before those of others."""

    def put(policy: int, priority: int) -> None:
        for thread in os.listdir("/proc/self/task"):
            with suppress(ProcessLookupError):
                os.sched_setscheduler(int(thread), policy, os.sched_param(priority))

    if not wanted:
        yield
        return
    put(os.SCHED_FIFO, 1)
    try:
        yield
    finally:
        put(os.SCHED_OTHER, 0)


def speeds(
    loaded: Engine, clock: Callable[[], float], look: Callable[[], float | None], alone: bool
) -> tuple[list[float], list[float], float | None]:
    """Tokens per second of every run: (prefill, decode), and the RAM's speed meanwhile in GB/s."""
    tokens = np.random.default_rng(0).integers(0, loaded.spec.vocab, PROMPT + ANSWER).tolist()
    prefill, decode, looks = [], [], []
    for run in range(REPEATS + 1):
        answer = tokens[PROMPT:] if run else tokens[PROMPT : PROMPT + WARM_UP]
        with undisturbed(alone):
            looks.append(look())
            loaded.reset()
            start = clock()
            loaded.append(tokens[:PROMPT])
            middle = clock()
            for token in answer:
                loaded.append([token])
            end = clock()
            looks.append(look())
        if run:
            prefill.append(PROMPT / (middle - start))
            decode.append(ANSWER / (end - middle))
    seen = [speed for speed in looks if speed is not None]
    return prefill, decode, median(seen) if seen else None


def measure(name: str, report: HardwareReport, args: argparse.Namespace) -> dict[str, Any]:
    if name == "demo":
        from engine.hub.demo import prepare_demo

        name = str(prepare_demo())
    clock = time.process_time if args.cpu_time else time.perf_counter
    assert report.calibration is not None
    threads = str(args.threads or report.calibration.threads)

    def look() -> float | None:
        found = measure_present(report, report.calibration)
        return found.get(threads) if found is not None else None

    with closing(engine.open_checkpoint(name)) as checkpoint:
        wishes = {"threads": args.threads, "isa": args.isa, "prompt": PROMPT}
        made: OffloadPlan = plan(checkpoint, report, **wishes)
        with engine.load(checkpoint, made) as loaded:
            prefill, decode, now = speeds(loaded, clock, look, args.undisturbed)
            kernel = loaded.kernel
        if now is not None:
            present = replace(report.memory, present_gbs={threads: now})
            made = plan(checkpoint, replace(report, memory=present), **wishes)
    said = made.prediction
    return {
        "model": Path(name).name,
        "read_gbs": now,
        "calibrated_gbs": report.calibration.bandwidth_gbs.get(threads),
        "kernel": kernel,
        "label": made.label,
        "bottleneck": said.bottleneck,
        "decode": compared(said.decode_tps, decode),
        "prefill": compared(said.prefill_tps, prefill),
    }


def compared(said: Range, measured: list[float]) -> dict[str, Any]:
    found = median(measured)
    return {
        "low": said.low,
        "likely": said.likely,
        "high": said.high,
        "measured": found,
        "runs": measured,
        "off": said.likely / found - 1,
        "in_range": said.low <= found <= said.high,
        "close": abs(said.likely / found - 1) <= CLOSE,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--isa")
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--undisturbed", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, undisturbed(args.undisturbed):
        report = probe(calibrate=True, remembered_in=Path(folder))
    assert report.calibration is not None
    write = sys.stdout.write
    write(f"{report.cpu.name}, {report.calibration.bandwidth_gbs} GB/s by threads\n")
    for shape, speed in report.calibration.kernels.items():
        low, high = speed.spread_gbs
        write(f"{shape} experts {speed.decode_gbs:.1f} GB/s ({low:.1f} to {high:.1f}), {speed.prefill_gops} GOP/s\n")
    write(f"narrow matrices {report.calibration.narrow_gops} GOP/s, a region {report.calibration.region_us} us\n")
    write(f"{'':40}{'':9}{'low':>8}{'likely':>8}{'high':>8}{'measured':>10}{'off':>8}\n")
    found = []
    for name in args.models:
        row = measure(name, report, args)
        found.append(row)
        if row["read_gbs"] is not None:
            write(f"RAM is read at {row['read_gbs']:.1f} GB/s now ({row['calibrated_gbs']:.1f} when calibrated)\n")
        for kind in ("decode", "prefill"):
            one = row[kind]
            title = row["model"] if kind == "decode" else row["kernel"]
            figures = "".join(f"{one[key]:8.1f}" for key in ("low", "likely", "high"))
            verdict = ("in range" if one["in_range"] else "OUT OF RANGE") + ("" if one["close"] else ", over 20 % off")
            write(f"{title[:39]:40}{kind:9}{figures}{one['measured']:10.1f}{one['off']:>+8.0%}  {verdict}\n")
        sys.stdout.flush()
    if args.json:
        args.json.write_text(json.dumps({"machine": report.to_json(), "models": found}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
