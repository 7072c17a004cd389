"""A model nearly as large as the RAM: what it really takes beside its plan, and its answers beside the read bandwidth.

    python tests/benchmarks/full_size.py MODEL.gguf [--threads 1,2] [--tokens 32] [--context 512]

A new process per thread count, and the read loop in processes of its own before and after, so that its buffer does not
count. Peak and plan are of the whole process; the plan's part for other programs is left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[2]

RUN = """
import json, sys, time
from dataclasses import replace
import numpy as np
import engine
from engine.models import model_spec
from engine.runtime.bench import active

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024

checkpoint = engine.open_checkpoint(sys.argv[1])
threads, tokens, context = map(int, sys.argv[2:])
plan = replace(engine.plan(checkpoint, engine.probe(quick=True), context, device="cpu"), threads=threads)
start = time.perf_counter()
with engine.load(checkpoint, plan) as loaded:
    load_s, kernel = time.perf_counter() - start, loaded.kernel
    answer = np.random.default_rng(0).integers(0, loaded.spec.vocab, tokens + 4).tolist()
    for token in answer[:4]:
        loaded.append([token])
    start = time.perf_counter()
    for token in answer[4:]:
        loaded.append([token])
    tps = tokens / (time.perf_counter() - start)
ram = {role: nbytes for role, nbytes in plan.bytes.ram.items() if role != "reserve"}
nbytes = active(checkpoint, model_spec(checkpoint)).decode_bytes
print(json.dumps({"load_s": load_s, "decode_tps": tps, "decode_gbs": tps * nbytes / 1e9, "peak_gb": peak() / 1e9,
                  "planned_gb": sum(ram.values()) / 1e9, "kernel": kernel}))
"""

READ = """
import sys
from engine import _native
pool = _native.ThreadPool(int(sys.argv[1]))
print(sorted(_native.read_bandwidth(pool, 768 << 20, 5))[2] / 1e9)
"""


def told(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT).stdout


def measure(model: Path, threads: int, tokens: int, context: int) -> dict[str, Any]:
    reads = [float(told(READ, str(threads)))]
    row: dict[str, Any] = json.loads(told(RUN, str(model), str(threads), str(tokens), str(context)))
    reads.append(float(told(READ, str(threads))))
    about = {"model": model.name, "gigabytes": model.stat().st_size / 1e9, "threads": threads}
    return {**about, **row, "read_gbs": median(reads)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--context", type=int, default=512)
    args = parser.parse_args()
    counts = [int(count) for count in args.threads.split(",")]
    rows = [measure(args.model.absolute(), count, args.tokens, args.context) for count in counts]
    sys.stdout.write(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
