"""`greenroom recommend`: which models of the catalogue suit this PC, or another one."""

from __future__ import annotations

import argparse
from typing import Any

import engine
from engine.cli.common import this_or_another, wishes
from engine.cli.options import add_threads, add_what_if, add_wishes, count
from engine.cli.terminal import Terminal

HELP = "say which models of the catalogue suit this PC best, and why"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_threads(parser)
    add_wishes(parser)
    add_what_if(parser)
    parser.add_argument("--top", type=count, default=5, metavar="N", help="how many to say (default 5)")


def run(args: argparse.Namespace, terminal: Terminal) -> dict[str, Any]:
    context = {} if args.context is None else {"context": args.context}
    report = this_or_another(args)
    if not report.disk.known:
        for warning in report.warnings:
            terminal.note(warning)
    found = engine.recommend(report, **wishes(args), **context)
    for number, entry in enumerate(found.ranked[: args.top], 1):
        terminal.say(f"{number}. {entry.name}  {entry.repo}:{entry.label}")
        for reason in entry.reasons:
            terminal.say(f"   {reason}")
    if found.ranked:
        best = found.ranked[0]
        terminal.say(f'"greenroom download {best.repo}:{best.label}" brings the first one here.')
    else:
        terminal.say('No model of the catalogue fits here. "greenroom generate demo" runs the built-in one.')
    return found.to_json()
