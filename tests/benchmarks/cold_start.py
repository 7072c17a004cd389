"""From a cold process to the first token, how long a cancelled load goes on, and what a load needs beside its weights.

    python tests/benchmarks/cold_start.py MODEL.gguf [--runs 5] [--out cold.json]

The file is read once beforehand, so that it lies in the page cache. Times are a user's: by the clock, with the
interpreter's start. CPU time stands beside them, because on a busy machine the clock says nothing.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[2]
#: Seconds allowed for the process and per GB of file.
FIXED, PER_GB = 1.0, 0.6

LOAD = """
import sys, threading, time
import engine
from engine.errors import Cancelled
import engine.executors.native.executor

def status(key):
    return int(next(line for line in open("/proc/self/status") if line.startswith(key)).split()[1]) * 1024

checkpoint = engine.open_checkpoint(sys.argv[1])
plan = engine.plan(checkpoint, engine.probe(quick=True), 512, device="cpu")
if len(sys.argv) > 2:
    wanted = []
    timer = threading.Timer(float(sys.argv[2]), lambda: wanted.append(time.perf_counter()))
    def progress(_):
        if wanted:
            raise Cancelled
    timer.start()
    try:
        engine.load(checkpoint, plan, progress).close()
        print(-1)
    except Cancelled:
        print(time.perf_counter() - wanted[0])
    timer.cancel()
else:
    before, start, cpu = status("VmRSS"), time.perf_counter(), time.process_time()
    loaded = engine.load(checkpoint, plan)
    print(time.perf_counter() - start, time.process_time() - cpu, status("VmHWM") - before)
    ram = plan.bytes.ram
    print(sum(n for role, n in ram.items() if role not in ("buffers", "reserve")))
    loaded.close()
"""


def timed(command: list[str]) -> tuple[float, float, str]:
    """Seconds by the clock, seconds of CPU time, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, used, done.stdout


def measure(model: Path, runs: int) -> dict[str, Any]:
    with model.open("rb", buffering=0) as file:
        while file.read(1 << 26):
            pass
    gigabytes = model.stat().st_size / 1e9
    generate = [sys.executable, "-m", "engine", "generate", str(model), "--raw", "--prompt", "a", "--max-tokens", "1"]
    generate += ["--json", "--device", "cpu", "--context", "512"]
    first = [timed(generate) for _ in range(runs)]
    loads = [timed([sys.executable, "-c", LOAD, str(model)])[2].split() for _ in range(runs)]
    load_s = median(float(load[0]) for load in loads)
    waits = []
    for moment in (0.05, 0.25, 0.5, 0.75):
        told = float(timed([sys.executable, "-c", LOAD, str(model), str(moment * load_s)])[2])
        if told >= 0:
            waits.append(told)
    return {
        "model": model.name,
        "gigabytes": gigabytes,
        "allowed_s": FIXED + PER_GB * gigabytes,
        "first_token_s": median(seconds for seconds, _, _ in first),
        "first_token_fastest_s": min(seconds for seconds, _, _ in first),
        "first_token_cpu_s": median(used for _, used, _ in first),
        "load_s": load_s,
        "load_gbs_per_core": median(gigabytes / float(load[1]) for load in loads),
        "peak_over_weights": max(int(load[2]) / int(load[3]) for load in loads),
        "cancel_s": waits,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    text = json.dumps([measure(model.absolute(), args.runs) for model in args.models], indent=1)
    if args.out:
        args.out.write_text(text, encoding="utf-8")
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
