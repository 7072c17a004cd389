"""`greenroom bench`: how fast a model is here on one kernel tier or on all, or the kernels without a model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import engine
from engine.cli.common import check_runnable, model_document, opened, planned
from engine.cli.options import add_loading, count, counts
from engine.cli.terminal import Terminal
from engine.cli.text import plural, speed_range
from engine.errors import GreenroomError
from engine.units import size_text

if TYPE_CHECKING:
    from engine.checkpoints.checkpoint import Checkpoint
    from engine.hardware.report import HardwareReport
    from engine.placement.plan import OffloadPlan
    from engine.runtime.bench import BenchResult
    from engine.status import EngineStatus

HELP = "measure prompt reading and answering beside the RAM's bandwidth"
ALL = "all"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_loading(parser)
    for action in parser._actions:
        if action.dest == "model":
            action.nargs, action.required = "?", False
        if action.dest == "isa":
            action.help = f'highest kernel tier to use, e.g. "avx2"; "{ALL}" measures one after the other'
    parser.add_argument(
        "-p", "--prompt-tokens", type=counts, default=[512], metavar="N,M", help="prompt lengths (default 512)"
    )
    parser.add_argument(
        "-n", "--new-tokens", type=counts, default=[64], metavar="N,M", help="answer lengths (default 64)"
    )
    parser.add_argument(
        "-t",
        "--threads",
        dest="thread_counts",
        type=counts,
        metavar="N,M",
        help="CPU threads (default: one per fast core)",
    )
    parser.add_argument(
        "-r", "--repeats", type=count, default=3, metavar="N", help="runs of each; medians are shown (default 3)"
    )
    parser.add_argument(
        "--kernels", action="store_true", help="no model: layers of random weights in INT4, INT8 and BF16"
    )
    parser.add_argument(
        "--curve",
        action="store_true",
        help="with --kernels: from 1 token at once to 2048, on each code's best tier",
    )
    parser.add_argument(
        "--shape", choices=("small", "large", "both"), default="both", help="with --kernels: the size of experts"
    )


def run(args: argparse.Namespace, terminal: Terminal) -> dict[str, Any]:
    if args.kernels == bool(args.model):
        raise GreenroomError(
            "The benchmark cannot run",
            "a model and --kernels exclude each other" if args.model else "no model is named",
            "Name a model, or use --kernels without one.",
        )
    if args.curve and args.model:
        why = "it measures kernels on random weights, not a model"
        raise GreenroomError("--curve cannot be used with a model", why, "Use --kernels --curve without a model.")
    report = engine.probe(quick=True, present=True)
    return _kernels(args, report, terminal) if args.kernels else _model(args, report, terminal)


def _check_threads(args: argparse.Namespace, report: HardwareReport) -> None:
    most = max(args.thread_counts or [1])
    if most > report.cpu.logical_cores:
        raise GreenroomError(
            f"{most} threads cannot be measured",
            f"this CPU has {report.cpu.logical_cores} logical cores",
            f"Choose {report.cpu.logical_cores} or fewer.",
        )


def _kernels(args: argparse.Namespace, report: HardwareReport, terminal: Terminal) -> dict[str, Any]:
    from engine.runtime.bench_kernels import bench_kernels

    shapes = ("small", "large") if args.shape == "both" else (args.shape,)
    _check_threads(args, report)
    threads = args.thread_counts or [report.cpu.performance_cores]
    if args.curve:
        return _curve(args, report, shapes, threads, terminal)
    isa = None if args.isa == ALL else args.isa
    results = bench_kernels(shapes, threads, args.repeats, isa, terminal.progress)
    terminal.say(f"Expert kernels on {_machine(report)}")
    terminal.say("experts  code  tier         threads  decode GB/s  of read bandwidth  prefill GOP/s  of peak")
    for r in results:
        terminal.say(
            f"{r.shape:7}  {r.code:4}  {r.tier:11}  {r.threads:7d}  {r.decode_gbs:11.1f}  "
            f"{r.bandwidth_share:6.0%} of {r.read_bandwidth_gbs:5.1f}  {r.prefill_gops:15.0f}  "
            + (f"{r.peak_share:.0%} of {r.peak_gops:.0f} ({r.peak})" if r.peak_share else "not measured")
        )
    return {"machine": report.to_json(), "kernels": [r.to_json() for r in results]}


def _curve(
    args: argparse.Namespace, report: HardwareReport, shapes: Sequence[str], threads: Sequence[int], terminal: Terminal
) -> dict[str, Any]:
    from engine.runtime.bench_kernels import token_curve

    isa = None if args.isa == ALL else args.isa
    points = [p for s in shapes for t in threads for p in token_curve(s, t, args.repeats, isa, terminal.progress)]
    terminal.say(f"Expert kernels on {_machine(report)}")
    terminal.say("experts  code  tier         threads  tokens      us per call   us per token    GOP/s")
    for p in points:
        terminal.say(
            f"{p.shape:7}  {p.code:4}  {p.tier:11}  {p.threads:7d}  {p.tokens:6d}  {p.us:15.0f}  "
            f"{p.us / p.tokens:13.1f}  {p.gops:7.0f}"
        )
    return {"machine": report.to_json(), "curve": [p.to_json() for p in points]}


def _model(args: argparse.Namespace, report: HardwareReport, terminal: Terminal) -> dict[str, Any]:
    from engine.models import model_spec
    from engine.runtime.bench import active, bench

    every_tier = args.isa == ALL
    args.isa = None if every_tier else args.isa
    longest = max(args.prompt_tokens) + max(args.new_tokens)
    with opened(args.model, terminal) as checkpoint:
        _check_threads(args, report)
        # What is predicted stands below what was measured.
        args.threads = max(args.thread_counts) if args.thread_counts else None
        plan = planned(checkpoint, report, args, args.context or longest, prompt=max(args.prompt_tokens))
        check_runnable(checkpoint, plan, args.force, terminal)
        threads = args.thread_counts or [plan.threads]
        plans = _on_every_tier(checkpoint, plan) if every_tier else [plan]
        results: list[BenchResult] = []
        for variant in plans:
            results += bench(
                checkpoint, variant, args.prompt_tokens, args.new_tokens, threads, args.repeats, terminal.progress
            )
        touched = active(checkpoint, model_spec(checkpoint))
        model = {**model_document(checkpoint), "active_bytes": round(touched.decode_bytes)}
    terminal.say(f"{checkpoint.name} on {_machine(report)}: {plan.label}")
    terminal.say("threads  prompt     new   prefill tok/s   GOP/s   decode tok/s    GB/s  of read bandwidth  kernels")
    for r in results:
        share = f"{r.bandwidth_share:.0%} of {r.read_bandwidth_gbs:.1f}" if r.bandwidth_share else "not measured"
        terminal.say(
            f"{r.threads:7d} {r.n_prompt:7d} {r.n_gen:7d} {r.prefill_tps:15.1f} {r.prefill_gops:7.0f} "
            f"{r.decode_tps:14.1f} {r.decode_gbs:7.2f}  {share:17}  {r.kernel}"
        )
    for line in status_lines(results[-1].status):
        terminal.say(line)
    answers, prompts = (speed_range(speed) for speed in (plan.prediction.decode_tps, plan.prediction.prefill_tps))
    read = plural(max(args.prompt_tokens), "token")
    terminal.say(
        f"Predicted with {plural(plan.threads, 'thread')}: answers at {answers}, prompts of {read} at {prompts}"
    )
    return {
        "machine": report.to_json(),
        "model": model,
        "plan": plan.to_json(),
        "results": [r.to_json() for r in results],
    }


def status_lines(status: EngineStatus) -> list[str]:
    """What was really in use, a sentence a line."""
    where = {"cpu": "everything on the CPU", "hybrid": "experts in RAM", "all_gpu": "everything on the device"}
    prompts = {"cpu": "on the CPU", "streamed": "on the device, weights streamed there", "device": "on the device"}
    parts = [f"{status.device}, {where[status.path]}", status.kernel]
    lines = [f"In use: {'; '.join(parts)}"]
    if status.path != "all_gpu":
        held = "locked in RAM" if status.locked else "not locked in RAM"
        lines[0] += f"; experts {held}"
    if status.path != "cpu":
        steps = "replayed from graphs" if status.graphs else "launched one by one"
        lines.append(f"Device: work {steps}")
        if status.path == "hybrid":
            copies = "page-locked" if status.pinned else "not page-locked"
            lines[-1] += f"; copies {copies}; prompts' experts computed {prompts[status.prefill]}"
        lines.append(f"Memory: {size_text(status.ram_bytes)} RAM, {size_text(status.vram_bytes)} VRAM")
        if status.path == "hybrid":
            lines[-1] += f"; handing over the experts of a token takes {status.handoff_s * 1e6:.0f} µs a layer"
    if status.cache_slots:
        rate = "none called" if status.hit_rate is None else f"{status.hit_rate:.0%} of calls found there"
        lines.append(
            f"Experts in VRAM: {plural(status.cache_slots, 'slot')}, {rate}; "
            f"{size_text(status.bytes_uploaded)} copied there"
        )
    return [*lines, *(f"Note: {note}" for note in status.notes)]


def _on_every_tier(checkpoint: Checkpoint, plan: OffloadPlan) -> Sequence[OffloadPlan]:
    """The plan for every code this model's experts can be had in, on every tier with a kernel of its own for it.

    Experts stored as floats can be re-coded to 4 and 8 bits; others stay what they are.
    """
    from engine import _native
    from engine.checkpoints.formats import FORMATS
    from engine.models import model_spec
    from engine.runtime.bench_kernels import tiers_of

    spec = model_spec(checkpoint)
    names = [role for role in spec.weights if role.endswith(".gate") and ".moe.experts." in role]
    names = names or [role for role in spec.weights if role.endswith(".gate")]
    form = FORMATS[checkpoint.tensors[spec.weights[names[0]].name].format]
    stored = _native.Matrix(1, form.block_values, form.name).code
    codes = {"int4": "int4", "int8": "int8"} if form.block_values == 1 and ".moe.experts." in names[0] else {}
    return [
        replace(plan, experts=experts, isa=tier)
        for code, experts in {**codes, stored: "stored"}.items()
        for tier in tiers_of(code)
    ]


def _machine(report: HardwareReport) -> str:
    return f"{report.cpu.name}, {size_text(report.memory.total_bytes)} RAM"
