"""Plans with the user's settings, for loading and for the list of models alike."""

from __future__ import annotations

from typing import Any

from engine.hardware.report import HardwareReport
from engine.placement.plan import OffloadPlan


def plan_with(
    api: Any, checkpoint: Any, report: HardwareReport, context: int | None, wishes: dict[str, Any]
) -> OffloadPlan:
    """The plan.

    context: the most the user wants, None for the plan's choice; a model made for fewer tokens gets its own limit
    wishes:  fields of `engine.placement.plan.Wishes`

    Raises GreenroomError for a model that is not supported or a wish that cannot be met.
    """
    if context is not None:
        context = min(context, context_limit(checkpoint))
    plan: OffloadPlan = api.plan(checkpoint, report, context, **wishes)
    return plan


def active_bytes(checkpoint: Any) -> float:
    """Bytes of weights that one token reads, as the file stores them. From the headers."""
    from engine.models import model_spec
    from engine.runtime.bench import active

    return active(checkpoint, model_spec(checkpoint)).decode_bytes


def context_limit(checkpoint: Any) -> int:
    """The most tokens the model was made for. Raises GreenroomError for an unknown architecture."""
    from engine.models import model_spec

    return model_spec(checkpoint).context_length
