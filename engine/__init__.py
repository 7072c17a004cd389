"""Greenroom's engine: everything that works without a screen.

Importing this package is light: torch is imported by `load`, and only for a plan that needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.errors import Cancelled, GreenroomError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engine.checkpoints.checkpoint import Checkpoint
    from engine.hardware.report import HardwareReport
    from engine.placement.plan import OffloadPlan
    from engine.placement.recommend import Recommendations
    from engine.progress import Progress
    from engine.runtime.engine import Engine
    from engine.runtime.events import GenerationStats

__all__ = ["Cancelled", "GreenroomError", "learn", "load", "open_checkpoint", "plan", "probe", "recommend"]
__version__ = "0.1.0"


def probe(
    quick: bool = False, found: Callable[[str, HardwareReport], None] | None = None, *, present: bool = False
) -> HardwareReport:
    """What this machine is. Safe on any x86-64 CPU: the risky part runs in a child process.

    quick: measure the RAM's bandwidth (about half a second, once for this hardware), for better predictions
    found: called as each field of the report is known, with its name and the report so far
    present: look at how fast the RAM is at this moment (a quarter of a second), for what is loaded now
    """
    from engine.hardware.probe import probe as run

    return run(quick=quick, present=present, found=found or (lambda part, report: None))


def open_checkpoint(path: str | Path) -> Checkpoint:
    """A model's headers: a .gguf file, the first shard of a split, or a folder of safetensors.

    Raises GreenroomError when the path is missing, broken or of an unknown kind.
    """
    from engine.checkpoints.opening import open_checkpoint as run

    return run(path)


def plan(checkpoint: Checkpoint, report: HardwareReport, context: int | None = None, **wishes: Any) -> OffloadPlan:
    """Where the model will live here and what speed that should give.

    context: tokens of KV cache; None takes 8192, or the model's own limit if that is lower.
    wishes:  fields of `engine.placement.plan.Wishes`.
    What earlier answers of this model here taught is in the prediction, see `learn`.
    """
    from engine.folders import cache_folder
    from engine.placement.learned import corrected
    from engine.placement.planner import plan as run

    return corrected(cache_folder(), checkpoint, report, run(checkpoint, report, context, **wishes))


def learn(
    checkpoint: Checkpoint, report: HardwareReport, plan: OffloadPlan, stats: GenerationStats, others: float = 0.0
) -> bool:
    """Remember how fast an answer was, for the next prediction. False when it was too short to tell.

    others: share of the CPU that other programs used meanwhile, see `engine.hardware.busy`
    """
    from engine.folders import cache_folder
    from engine.placement.learned import remember

    return remember(
        cache_folder(),
        checkpoint,
        report,
        plan,
        decode=(stats.decode_tps, stats.completion_tokens, stats.accepted_tokens),
        prefill=(stats.prefill_tps, stats.prefilled_tokens),
        others=others,
    )


def load(checkpoint: Checkpoint, plan: OffloadPlan, progress: Callable[[Progress], None] | None = None) -> Engine:
    """Bring the model into memory as planned. `Engine.close()` gives everything back.

    progress may raise Cancelled to stop; nothing stays allocated then.
    """
    from engine.runtime.engine import load as run

    return run(checkpoint, plan, progress)


def recommend(report: HardwareReport, **wishes: Any) -> Recommendations:
    """The models of the catalogue that suit this machine, best first, each with its plan and why; about a second."""
    from engine.hub.catalogue import catalogue
    from engine.placement.recommend import recommend as run

    return run(catalogue(), report, **wishes)
