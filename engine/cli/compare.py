"""`greenroom compare`: this PC and others side by side for one model."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import engine
from engine.cli.common import model_document, opened, wishes
from engine.cli.options import add_model, add_wishes, amounts, names, positive, prices
from engine.cli.terminal import Terminal
from engine.cli.text import rate
from engine.errors import GreenroomError
from engine.units import size_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.hardware.report import HardwareReport
    from engine.placement.compare import Comparison, Machine, Use

#: Writes a picture of a comparison: (file, rows, title, how costs are counted). Raises OSError.
Paint = Callable[[Path, "Sequence[Comparison]", str, "Use"], None]

HELP = "set this PC and others side by side for one model: mode, speed, cost"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser, planned_only=True)
    add_wishes(parser)
    group = parser.add_argument_group("the machines: this PC, and every combination of")
    group.add_argument("--ram", type=amounts, metavar="GB,GB", help="RAM built in")
    group.add_argument("--ram-bandwidth", type=positive, metavar="GB/s", help="read bandwidth of the RAM")
    group.add_argument("--cpu", type=names, metavar="NAME,NAME", help='as sold, e.g. "2x EPYC 9355"')
    group.add_argument("--gpu", type=names, metavar="NAME,NAME", help='as sold, e.g. "RTX 4090,RTX 5090"')
    group.add_argument("--vram", type=amounts, metavar="GB,GB", help="VRAM built in; 0 for no GPU")
    group.add_argument("--machines", metavar="FILE", help="or those of a JSON file")
    cost = parser.add_argument_group("what a million tokens cost")
    cost.add_argument("--price-per-hour", type=prices, metavar="P,P", help="rent of each machine, this PC first")
    cost.add_argument("--price", type=prices, metavar="P,P", help="purchase price of each machine, this PC first")
    cost.add_argument("--years", type=positive, default=3.0, help="a bought machine is used for (default 3)")
    cost.add_argument("--hours-per-day", type=positive, default=8.0, help="it answers (default 8)")
    parser.add_argument("--csv", metavar="FILE", help="write the table there as well")
    parser.add_argument("--picture", metavar="FILE", help="and a picture of it (PNG)")


def run(args: argparse.Namespace, terminal: Terminal) -> dict[str, Any]:
    from engine.placement.compare import Machine, Use, compare, to_csv

    if args.picture and args.paint is None:
        why = "this is the engine without the window program"
        raise GreenroomError("A picture cannot be painted here", why, "Use --csv.")
    if args.hours_per_day > 24:
        raise GreenroomError("A machine cannot answer that long", "a day has 24 hours", "Correct --hours-per-day.")
    here = engine.probe(quick=True, present=True)
    machines = _priced([Machine("This PC", here), *_others(args, here)], args)
    use = Use(args.years, args.hours_per_day)
    with opened(args.model, terminal, planned_only=True) as checkpoint:
        rows = compare(checkpoint, machines, args.context, use, **wishes(args))
        terminal.say(f"{checkpoint.name}, {size_text(checkpoint.nbytes)}")
        for line in _table(rows):
            terminal.say(line)
        if any(row.cost_per_million for row in rows):
            bought = f"bought machines are used {use.years:g} years, {use.hours_per_day:g} hours a day"
            terminal.say(f"Cost is per million tokens of answer, one answer at a time; {bought}, without electricity.")
        if args.csv:
            _write(Path(args.csv), to_csv(rows))
        if args.picture:
            try:
                args.paint(Path(args.picture), rows, checkpoint.name, use)
            except OSError as error:
                why = error.strerror or str(error)
                raise GreenroomError(f"{args.picture} cannot be written", why, "Choose another place.") from error
        return {"model": model_document(checkpoint), "machines": [row.to_json() for row in rows]}


def _others(args: argparse.Namespace, here: HardwareReport) -> list[Machine]:
    from engine.placement.compare import MOST_MACHINES, other_machine, read_machines

    if args.machines:
        if args.ram or args.cpu or args.gpu or args.vram or args.ram_bandwidth:
            why = "the file says what the machines are"
            raise GreenroomError("--machines cannot be combined with parts", why, "Leave one of them out.")
        return read_machines(_read(Path(args.machines)), args.machines, here)
    choices: list[Sequence[Any]] = [part or [None] for part in (args.cpu, args.ram, args.gpu, args.vram)]
    total = 1
    for choice in choices:
        total *= len(choice)
    if total > MOST_MACHINES:
        raise GreenroomError(f"{total} machines are too many", f"at most {MOST_MACHINES} fit", "Name fewer parts.")
    combinations = list(itertools.product(*choices))
    if args.ram_bandwidth is None and combinations == [(None, None, None, None)]:
        return []
    return [
        other_machine(here, cpu=cpu, ram=ram, gpu=gpu, vram=vram, ram_bandwidth=args.ram_bandwidth)
        for cpu, ram, gpu, vram in combinations
    ]


def _priced(machines: list[Machine], args: argparse.Namespace) -> list[Machine]:
    for option, field in (("--price-per-hour", "price_per_hour"), ("--price", "price")):
        given = getattr(args, field)
        if given is None:
            continue
        if len(given) != len(machines):
            raise GreenroomError(
                f"{option} was not understood",
                f"it has {len(given)} prices for {len(machines)} machines",
                f"Give one for each: {', '.join(machine.name for machine in machines)}.",
            )
        machines = [replace(machine, **{field: price}) for machine, price in zip(machines, given, strict=True)]
    return machines


def _table(rows: Sequence[Comparison]) -> Iterator[str]:
    lines: list[tuple[str, ...]] = [("", "RAM", "VRAM", "tok/s", "prompt tok/s", "cost", "")]
    for row in rows:
        runs = row.mode in ("all_gpu", "hybrid", "cpu")
        decode, prefill, cost = row.decode_tps, row.prefill_tps, row.cost_per_million
        lines.append(
            (
                row.name,
                size_text(row.ram_bytes),
                size_text(row.vram_bytes) if row.vram_bytes else "-",
                f"{rate(decode.likely)} ({rate(decode.low)} to {rate(decode.high)})" if runs else "-",
                rate(prefill.likely) if runs else "-",
                f"{cost.likely:.2f} ({cost.low:.2f} to {cost.high:.2f})" if cost else "-",
                row.label,
            )
        )
    if not any(row.cost_per_million for row in rows):
        lines = [(*line[:5], *line[6:]) for line in lines]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read((1 << 20) + 1)
    except OSError as error:
        raise GreenroomError(f"{path} cannot be read", error.strerror or str(error), "Name a JSON file.") from error


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        why = error.strerror or str(error)
        raise GreenroomError(f"{path} cannot be written", why, "Choose another place for the table.") from error
