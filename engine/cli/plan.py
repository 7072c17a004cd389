"""`greenroom plan`: where a model would live here, and how fast it would be."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from engine.cli.common import model_document, opened, planned, this_or_another
from engine.cli.options import add_model, add_shortcuts, add_threads, add_what_if, add_wishes, count
from engine.cli.terminal import Terminal
from engine.cli.text import plural, predicted_speeds
from engine.errors import GreenroomError
from engine.units import size_text

if TYPE_CHECKING:
    from engine.checkpoints.checkpoint import Checkpoint
    from engine.hardware.report import HardwareReport
    from engine.placement.plan import OffloadPlan

HELP = "say where a model would live here and how fast it would be"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser, planned_only=True)
    add_threads(parser)
    add_wishes(parser)
    add_shortcuts(parser)
    parser.add_argument(
        "--prompt-tokens",
        type=count,
        metavar="N",
        help="of the prompt whose reading is predicted (default 512)",
    )
    add_what_if(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> dict[str, Any]:
    report = this_or_another(args)
    with opened(args.model, terminal, planned_only=True) as checkpoint:
        plan = _for_prompt(checkpoint, report, args)
        terminal.say(f"{checkpoint.name}, {size_text(checkpoint.nbytes)}")
        for line in plan.explanation:
            terminal.say(f"  {line}")
        if plan.runnable:
            for line in predicted_speeds(plan):
                terminal.say(f"  {line}")
        for line in plan.alternatives:
            terminal.say(f"- {line}")
        return {"model": model_document(checkpoint), **plan.to_json()}


def _for_prompt(checkpoint: Checkpoint, report: HardwareReport, args: argparse.Namespace) -> OffloadPlan:
    """The plan for the context that was named; for one that takes the prompt, where none was."""
    prompt = args.prompt_tokens
    if prompt is None:
        return planned(checkpoint, report, args, args.context)
    plan = planned(checkpoint, report, args, args.context, prompt=prompt)
    if prompt <= plan.context:
        return plan
    if args.context is not None:
        raise GreenroomError(
            f"A prompt of {plural(prompt, 'token')} cannot be planned",
            f"a context of {plural(plan.context, 'token')} was asked for",
            f"Choose --context {prompt} or more, or a shorter prompt.",
        )
    return planned(checkpoint, report, args, prompt, prompt=prompt)
