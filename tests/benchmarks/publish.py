"""Measures what docs/engineering/performance.md shows and writes the tables into it.

    python tests/benchmarks/publish.py [--peers PEERS.json] [--cold MODEL.gguf ...] [--full MODEL.gguf]
        [--only kernels,curve,peers,prompts,depth,small,cold,full] [--rounds 2] [--note "shared with other work"]
        [--keep FOLDER]

PEERS.json is as in the head of compare.py: its first model alone goes through long prompts and long contexts, and those
under "more" are the small ones. --full takes a model nearly as large as the RAM. Results are kept as JSON in FOLDER
(default: build/performance); what is not measured this time is taken from there.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import compare

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "engineering" / "performance.md"
#: Part of the page -> the options of compare.py that fill it, and the models it is about.
COMPARISONS = {
    "peers": ("all", ["--tests", "tg64,pp512"]),
    "prompts": ("first", ["--tests", "pp2048,pp8192", "--threads", "2"]),
    "depth": ("first", ["--tests", "tg64@4096,tg64@16384", "--threads", "2"]),
    "small": ("more", ["--tests", "tg128,pp512"]),
}
PARTS = ("kernels", "curve", *COMPARISONS, "cold", "full")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--cold", type=Path, nargs="*", default=[])
    parser.add_argument("--full", type=Path)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--compare", default="", metavar="OPTIONS", help="more options for compare.py, in one word")
    parser.add_argument("--note", default="")
    parser.add_argument("--keep", type=Path, default=ROOT / "build" / "performance")
    args = parser.parse_args()
    args.keep.mkdir(parents=True, exist_ok=True)
    only = args.only.split(",")
    bench = [sys.executable, "-m", "engine", "bench", "--kernels", "-t", args.threads, "--json"]
    if "kernels" in only:
        _keep(args, "kernels", _run([*bench, "--isa", "all"]))
    if "curve" in only:
        _keep(args, "curve", _run([*bench, "--curve", "--shape", "small"]))
    for part in COMPARISONS:
        if part in only and args.peers:
            _compare(args, part)
    if "cold" in only and args.cold:
        cold = [sys.executable, _script("cold_start.py"), *map(str, args.cold)]
        _keep(args, "cold", json.dumps({"rows": json.loads(_run(cold))}))
    if "full" in only and args.full:
        _keep(args, "full", _run([sys.executable, _script("full_size.py"), str(args.full), "--threads", args.threads]))
    text = PAGE.read_text(encoding="utf-8")
    for part in PARTS:
        kept = args.keep / f"{part}.json"
        if kept.exists():
            text = fill(text, part, WRITERS[part](json.loads(kept.read_text(encoding="utf-8"))))
    PAGE.write_text(text, encoding="utf-8")


def fill(text: str, part: str, table: str) -> str:
    """The page with one table replaced. Raises ValueError when it has no place for it."""
    pattern = re.compile(rf"(<!-- {part} -->\n).*?(<!-- end {part} -->)", re.DOTALL)
    filled, count = pattern.subn(lambda found: f"{found[1]}{table}\n{found[2]}", text)
    if count != 1:
        raise ValueError(f"the page has {count} places for {part}")
    return filled


def _compare(args: argparse.Namespace, part: str) -> None:
    config = json.loads(args.peers.read_text(encoding="utf-8"))
    which, options = COMPARISONS[part]
    models = list(config["more" if which == "more" else "models"])
    models = models[:1] if which == "first" else models
    out = args.keep / f"{part}.json"
    command = [sys.executable, _script("compare.py"), str(args.peers), "--out", str(out), "--rounds", str(args.rounds)]
    command += ["--models", ",".join(models), "--threads", args.threads, *options, *args.compare.split()]
    _run(command)
    _keep(args, part, out.read_text(encoding="utf-8"))


def _script(name: str) -> str:
    return str(Path(__file__).with_name(name))


def _run(command: Sequence[str]) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT).stdout


def _keep(args: argparse.Namespace, part: str, text: str) -> None:
    document = {**json.loads(text), "note": args.note}
    (args.keep / f"{part}.json").write_text(json.dumps(document, indent=1), encoding="utf-8")


def _noted(document: dict[str, Any], table: str) -> str:
    return f"*{document['note']}*\n\n{table}" if document.get("note") else table


def kernels(document: dict[str, Any]) -> str:
    lines = ["| experts | code | tier | threads | decode GB/s | of read bandwidth | prefill GOP/s | of peak |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for r in document["kernels"]:
        peak = f"{r['peak_share']:.0%} of {r['peak_gops']:.0f} ({r['peak']})" if r["peak_share"] else "not measured"
        lines.append(
            f"| {r['shape']} | {r['code']} | {r['tier']} | {r['threads']} | {r['decode_gbs']:.1f} | "
            f"{r['bandwidth_share']:.0%} of {r['read_bandwidth_gbs']:.1f} | {r['prefill_gops']:.0f} | {peak} |"
        )
    return _noted(document, "\n".join(lines))


def curve(document: dict[str, Any]) -> str:
    points = document["curve"]
    columns = list(dict.fromkeys((p["code"], p["tier"], p["threads"]) for p in points))
    heads = [f"{code} {tier}, {threads} thread{'s' if threads > 1 else ''}" for code, tier, threads in columns]
    lines = ["| tokens | " + " | ".join(heads) + " |", "|---" * (1 + len(heads)) + "|"]
    for tokens in dict.fromkeys(p["tokens"] for p in points):
        row = {(p["code"], p["tier"], p["threads"]): p for p in points if p["tokens"] == tokens}
        values = [f"{row[key]['gops']:.0f} ({row[key]['us'] / tokens:.0f})" if key in row else "" for key in columns]
        lines.append(f"| {tokens} | " + " | ".join(values) + " |")
    return _noted(document, "\n".join(lines))


def peers(document: dict[str, Any]) -> str:
    return _noted(document, compare.table(compare.cells(document)))


def cold(document: dict[str, Any]) -> str:
    lines = [
        "| file | GB | first token s | CPU s | goal s | packed GB/s per core | peak over weights | cancelled after s |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    for r in document["rows"]:
        waits = f"{min(r['cancel_s']):.2f} to {max(r['cancel_s']):.2f}" if r["cancel_s"] else ""
        lines.append(
            f"| {r['model']} | {r['gigabytes']:.2f} | {r['first_token_s']:.2f} | {r['first_token_cpu_s']:.2f} | "
            f"{r['allowed_s']:.2f} | {r['load_gbs_per_core']:.1f} | {r['peak_over_weights']:.3f} | {waits} |"
        )
    return _noted(document, "\n".join(lines))


def full(document: dict[str, Any]) -> str:
    lines = ["| file | GB | threads | load s | peak GB over plan | decode tok/s | GB/s | of read bandwidth |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    lines += [
        f"| {r['model']} | {r['gigabytes']:.1f} | {r['threads']} | {r['load_s']:.0f} | {r['peak_gb']:.2f} over "
        f"{r['planned_gb']:.2f} ({r['peak_gb'] / r['planned_gb']:.3f}) | {r['decode_tps']:.1f} | "
        f"{r['decode_gbs']:.1f} | {r['decode_gbs'] / r['read_gbs']:.0%} of {r['read_gbs']:.1f} |"
        for r in document["rows"]
    ]
    return _noted(document, "\n".join(lines))


WRITERS = {"kernels": kernels, "curve": curve, **dict.fromkeys(COMPARISONS, peers), "cold": cold, "full": full}


if __name__ == "__main__":
    main()
