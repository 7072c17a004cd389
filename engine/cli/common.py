"""What several verbs do: open a model, plan it, load it."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import engine
from engine.cli.terminal import Terminal
from engine.errors import GreenroomError
from engine.units import size_text

if TYPE_CHECKING:
    from engine.checkpoints.checkpoint import Checkpoint
    from engine.hardware.report import HardwareReport
    from engine.placement.plan import OffloadPlan, Prediction
    from engine.runtime.engine import Engine
    from engine.runtime.events import GenerationStats


def this_or_another(args: argparse.Namespace) -> HardwareReport:
    """This PC, with the parts that were asked for."""
    from engine.placement.machines import what_if

    # A measurement of this PC says nothing about another one.
    here = not (args.cpu or args.ram_bandwidth)
    return what_if(
        engine.probe(quick=here, present=here),
        ram=args.ram,
        vram=args.vram,
        ram_bandwidth=args.ram_bandwidth,
        cpu=args.cpu,
        gpu=args.gpu,
        threads=args.threads if args.cpu else None,
        sockets=args.sockets,
    )


@contextlib.contextmanager
def opened(name: str, terminal: Terminal, *, planned_only: bool = False) -> Iterator[Checkpoint]:
    """planned_only: a model that is not here will do, if it is known by name."""
    from engine.hub.library import resolve

    if name == "demo":
        from engine.hub.demo import PACKAGE_BYTES, demo_path, dense_path, prepare_demo

        if not os.path.exists(demo_path()):  # which does not mind a folder that is closed to us
            download = "" if os.path.exists(dense_path()) else f", with {size_text(PACKAGE_BYTES)} to download"
            terminal.note(f"The demo model is prepared; this happens once and takes a minute{download}.")
        path = prepare_demo(progress=terminal.progress)
    else:
        try:
            path = resolve(name)
        except GreenroomError as error:
            from engine.hub.described import described

            if not planned_only:
                raise
            if (found := described(name)) is None:
                names = 'Models that are not here are planned by the names of "greenroom models --catalogue".'
                raise GreenroomError(error.what, error.why, f"{error.remedy} {names}") from error
            yield found
            return
    with contextlib.closing(engine.open_checkpoint(path)) as checkpoint:
        yield checkpoint


#: Options that are fields of `engine.placement.plan.Wishes` under the same name.
WISHES = (
    "threads",
    "device",
    "dtype",
    "kv_type",
    "experts",
    "isa",
    "max_vram",
    "leave_ram",
    "leave_vram",
    "keep_gpu",
    "prefer_gpu",
    "experts_per_token",
    "defer_experts",
)


def wishes(args: argparse.Namespace) -> dict[str, Any]:
    """Those that the verb has options for."""
    return {name: value for name, value in vars(args).items() if name in WISHES}


def planned(
    checkpoint: Checkpoint, report: HardwareReport, args: argparse.Namespace, context: int | None, **more: int
) -> OffloadPlan:
    """more: wishes beside those that all verbs know."""
    return engine.plan(checkpoint, report, context, **wishes(args), **more)


@contextlib.contextmanager
def loaded(
    args: argparse.Namespace, terminal: Terminal, context: int | None
) -> Iterator[tuple[Engine, Callable[[GenerationStats], Prediction]]]:
    """The model, and what remembers an answer's speed and says what was predicted."""
    from engine.hardware.busy import MUCH_DISTURBED, OtherPrograms

    with opened(args.model, terminal) as checkpoint:
        report = engine.probe(present=True)
        plan = planned(checkpoint, report, args, context)
        check_runnable(checkpoint, plan, args.force, terminal)
        with engine.load(checkpoint, plan, terminal.progress) as ready:
            others = OtherPrograms()

            def learn(stats: GenerationStats) -> Prediction:
                busy = others.share()
                engine.learn(checkpoint, report, plan, stats, busy)
                if busy >= MUCH_DISTURBED:
                    terminal.note(
                        f"Other programs used {busy:.0%} of the CPU meanwhile: this speed does not correct the next "
                        "prediction. Close them for the model's own speed."
                    )
                return plan.prediction

            yield ready, learn


def check_runnable(checkpoint: Checkpoint, plan: OffloadPlan, force: bool, terminal: Terminal) -> None:
    if plan.runnable or force:
        return
    for line in (*plan.explanation, *plan.alternatives):
        terminal.note(line)
    raise GreenroomError(f"{checkpoint.name} was not loaded", plan.label, "Add --force to try anyway.")


def model_document(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "name": checkpoint.name,
        "path": str(checkpoint.path),
        "form": checkpoint.form,
        "architecture": checkpoint.architecture,
        "bytes": checkpoint.nbytes,
    }
