"""Greenroom beside other programs on the same files: every cell of the table in turn, round after round.

    python tests/benchmarks/compare.py PEERS.json --out results.json [--rounds 2] [--models Q4_0,Q8_0] [--threads 1,2]
        [--limits native,avx2] [--tests tg64,pp512,tg64@4096] [--programs Greenroom,NAME]

PEERS.json names the files and the other programs' llama-bench:

    {"models": {"Q4_0": "/models/a-Q4_0.gguf"},
     "peers": [{"name": "llama.cpp", "limit": "native", "bench": "/build/bin/llama-bench",
                "settings": {"fa": ["-fa", "1"]}, "environment": {}, "depth": "-d"}],
     "more": {"small": "/models/b.gguf"}}

limit: "native" or "avx2": which peers meet which of our kernel tiers. Of several settings the best counts in each cell.
more: models that are measured only where --models names them. tg64@4096: 64 tokens of an answer behind 4,096; depth:
how a peer is told so, "-d" (llama.cpp) or "-gp" (ik_llama.cpp).
A speed without its machine predicts nothing, and two runs on a shared machine differ by more than two programs: so all
programs take turns within a round, medians are over rounds, and what is worth reading is the ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

OURS = "Greenroom"
LIMITS = ("native", "avx2")
TESTS = ("tg64", "pp512", "pp2048")
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Peer:
    name: str
    limit: str
    bench: str
    settings: Mapping[str, Sequence[str]]
    environment: Mapping[str, str] = field(default_factory=dict)
    depth: str = "-d"


@dataclass(frozen=True)
class Run:
    """One cell measured once. tokens per second; our runs also say what the machine could read meanwhile."""

    model: str
    threads: int
    limit: str
    test: str
    program: str
    setting: str
    tps: float
    read_gbs: float | None = None
    handover_ns: float | None = None


@dataclass(frozen=True)
class Wish:
    models: Mapping[str, str]
    threads: Sequence[int]
    limits: Sequence[str]
    tests: Sequence[str]
    programs: Sequence[str]

    def wants(self, program: str) -> bool:
        return not self.programs or program in self.programs

    def lengths(self, kind: str) -> list[int]:
        """Of "pp" or "tg", from an empty context."""
        return [int(test[2:]) for test in self.tests if test.startswith(kind) and "@" not in test]

    def deep(self) -> list[tuple[int, int]]:
        """Tokens of an answer, and how many are before it."""
        return [(int(new), int(depth)) for new, _, depth in (t[2:].partition("@") for t in self.tests) if depth]


def our_runs(wish: Wish, model: str, threads: int, limit: str) -> tuple[list[Run], dict[str, Any]]:
    """The runs, and the machine and model as our bench describes them."""
    prompts, answers, deep = wish.lengths("pp"), wish.lengths("tg"), wish.deep()
    # An answer from an almost empty context is what llama-bench times.
    command = [sys.executable, "-m", "engine", "bench", wish.models[model], "--json", "--force", "--device", "cpu"]
    lengths = dict.fromkeys(([1] if answers else []) + prompts + [depth for _, depth in deep])
    new = dict.fromkeys([*answers, *(new for new, _ in deep)] or [1])
    command += ["-p", ",".join(map(str, lengths)), "-n", ",".join(map(str, new))]
    command += ["-t", str(threads), "-r", "1", *(["--isa", "avx2"] if limit == "avx2" else [])]
    told = json.loads(_output(command, os.environ))
    runs = []
    for result in told["results"]:
        before, new = result["n_prompt"], result["n_gen"]
        measured = {"read_gbs": result["read_bandwidth_gbs"], "handover_ns": result["handover_ns"]}
        tests = {f"tg{new}": "decode_tps"} if before == 1 else {f"pp{before}": "prefill_tps"}
        tests[f"tg{new}@{before}"] = "decode_tps"
        runs += [
            Run(model, threads, limit, test, OURS, result["kernel"], result[speed], **measured)
            for test, speed in tests.items()
            if test in wish.tests
        ]
    return runs, {"machine": told["machine"], "model": told["model"]}


def peer_runs(wish: Wish, peer: Peer, model: str, threads: int) -> Iterator[Run]:
    for setting, options in peer.settings.items():
        command = [peer.bench, "-m", wish.models[model], "-t", str(threads), "-r", "1", "-o", "json", *options]
        shallow = ["-p", _list(wish.lengths("pp")), "-n", _list(wish.lengths("tg"))]
        deep = [
            ["-p", "0", "-n", str(new), "-d", str(depth)] if peer.depth == "-d"
            else ["-p", "0", "-n", "0", peer.depth, f"{depth},{new}"]
            for new, depth in wish.deep()
        ]  # fmt: skip
        for tests in ([shallow] if shallow != ["-p", "0", "-n", "0"] else []) + deep:
            text = _output([*command, *tests], {**os.environ, **peer.environment})
            for result in json.loads(text[text.index("[") :]):
                yield Run(model, threads, peer.limit, _test_of(result), peer.name, setting, result["avg_ts"])


def _list(lengths: Sequence[int]) -> str:
    return ",".join(map(str, lengths)) or "0"


def _test_of(result: Mapping[str, Any]) -> str:
    """What llama-bench measured, in our words."""
    if not result["n_gen"]:
        return f"pp{result['n_prompt']}"
    depth = result.get("n_depth") or result["n_prompt"]
    return f"tg{result['n_gen']}@{depth}" if depth else f"tg{result['n_gen']}"


def _output(command: Sequence[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def compare(
    wish: Wish, peers: Sequence[Peer], rounds: int, keep: Callable[[dict[str, Any]], None] = lambda _: None
) -> dict[str, Any]:
    """keep gets the document so far after every cell, so that an interrupted run loses only that one."""
    runs: list[Run] = []
    about: dict[str, Any] = {"models": {}}
    started = time.monotonic()
    for number in range(rounds):
        for model in wish.models:
            for threads in wish.threads:
                for limit in wish.limits:
                    if wish.wants(OURS):
                        ours, told = our_runs(wish, model, threads, limit)
                        runs += ours
                        about["machine"] = told["machine"]
                        about["models"][model] = told["model"]
                    for peer in peers:
                        if peer.limit == limit and wish.wants(peer.name):
                            runs += peer_runs(wish, peer, model, threads)
                    minutes = (time.monotonic() - started) / 60
                    note = f"round {number + 1}/{rounds} {model} {threads} threads {limit}: {minutes:.1f} min"
                    sys.stderr.write(note + "\n")
                    keep(_document(about, number + 1, runs))
    return _document(about, rounds, runs)


def _document(about: Mapping[str, Any], rounds: int, runs: Sequence[Run]) -> dict[str, Any]:
    return {**about, "rounds": rounds, "taken": time.strftime("%Y-%m-%d"), "runs": [asdict(run) for run in runs]}


def cells(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per model, threads, limit and test: medians of every program at its best setting, and our ratios.

    share: of the read bandwidth measured by our run of the same cell, in bytes as the file stores them; answers from an
           empty context only, because keys and values are not counted
    """
    runs = [Run(**run) for run in document["runs"]]
    rows = []
    for key in dict.fromkeys((r.model, r.threads, r.limit, r.test) for r in runs):
        here = [r for r in runs if (r.model, r.threads, r.limit, r.test) == key]
        speeds: dict[str, float] = {}
        for program in dict.fromkeys(r.program for r in here):
            mine = [r for r in here if r.program == program]
            settings = dict.fromkeys(r.setting for r in mine)
            speeds[program] = max(median(r.tps for r in mine if r.setting == setting) for setting in settings)
        model, threads, limit, test = key
        reads = [r.read_gbs for r in here if r.read_gbs]
        handovers = [r.handover_ns for r in here if r.handover_ns]
        active = document["models"].get(model, {}).get("active_bytes")
        share = {}
        if test.startswith("tg") and "@" not in test and reads and active:
            share = {name: tps * active / 1e9 / median(reads) for name, tps in speeds.items()}
        ratios = {name: speeds[OURS] / tps for name, tps in speeds.items() if OURS in speeds and name != OURS}
        rows.append(
            {
                "model": model,
                "threads": threads,
                "limit": limit,
                "test": test,
                "tps": speeds,
                "ratio": ratios,
                "share": share,
                "read_gbs": median(reads) if reads else None,
                "handover_ns": median(handovers) if handovers else None,
            }
        )
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """In Markdown."""
    peers = list(dict.fromkeys(name for row in rows for name in row["ratio"]))
    lines = ["| model | threads | kernels | test | Greenroom tok/s | of read bandwidth | " + " | ".join(
        f"{name} tok/s | x {name}" for name in peers) + " |"]  # fmt: skip
    lines.append("|---" * (6 + 2 * len(peers)) + "|")
    for row in rows:
        share = row["share"].get(OURS)
        read = f"{share:.0%} of {row['read_gbs']:.0f} GB/s" if share else ""
        if read and row["handover_ns"]:
            read += f" ({row['handover_ns']:.0f} ns)"
        start = [row["model"], row["threads"], row["limit"], row["test"], _number(row["tps"].get(OURS)), read]
        for name in peers:
            ratio = row["ratio"].get(name)
            start += [_number(row["tps"].get(name)), f"{ratio:.2f}" if ratio else ""]
        lines.append("| " + " | ".join(map(str, start)) + " |")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=2)
    for name, default in (("models", ""), ("threads", "1,2"), ("limits", ",".join(LIMITS)), ("tests", ",".join(TESTS)),
                          ("programs", "")):  # fmt: skip
        parser.add_argument(f"--{name}", default=default, help=f"only these (default: {default or 'all'})")
    args = parser.parse_args()
    config = json.loads(args.peers.read_text(encoding="utf-8"))
    chosen = args.models.split(",") if args.models else list(config["models"])
    files = {**config["models"], **config.get("more", {})}
    wish = Wish(
        models={name: files[name] for name in chosen},
        threads=[int(count) for count in args.threads.split(",")],
        limits=args.limits.split(","),
        tests=args.tests.split(","),
        programs=args.programs.split(",") if args.programs else [],
    )

    def keep(document: dict[str, Any]) -> None:
        args.out.write_text(json.dumps({**document, "cells": cells(document)}, indent=1), encoding="utf-8")

    document = compare(wish, [Peer(**peer) for peer in config["peers"]], args.rounds, keep)
    sys.stdout.write(table(cells(document)) + "\n")


if __name__ == "__main__":
    main()
