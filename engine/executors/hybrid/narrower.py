"""What a load gives up, step by step, when the device turns out to have less memory than planned."""

from __future__ import annotations

from dataclasses import replace

from engine.placement.plan import OffloadPlan
from engine.words import say

#: Dense weights that are rounded more.
_ROUNDED = {"bfloat16": "int8", "int8": "int4"}


def narrower(plan: OffloadPlan, *, has_experts: bool) -> tuple[OffloadPlan, str] | None:
    """The next smaller plan for the same device, and what the user is told; None when nothing is left.

    Slots for hot experts are no matter of this: they take what is left in the end. Exact plans stay exact.
    """
    exact = plan.dense_dtype == "float32"
    all_gpu = plan.mode == "all_gpu" and has_experts
    if not exact and plan.kv_type != "q8":
        why = say(
            "VRAM is shorter than planned: the KV cache is held in q8 instead of {kv_type}, a little less exactly.",
            kv_type=plan.kv_type,
        )
        return replace(plan, kv_type="q8"), why
    rounded = _ROUNDED.get(plan.dense_dtype)
    if rounded is not None and not (all_gpu and rounded == "int4"):
        why = say(
            "VRAM is shorter than planned: dense weights are held as {rounded} instead of {planned}, a little less "
            "exactly.",
            rounded=rounded,
            planned=plan.dense_dtype,
        )
        return replace(plan, dense_dtype=rounded), why
    if all_gpu:
        why = say("VRAM is shorter than planned: the experts stay in RAM and are computed by the CPU, which is slower.")
        return replace(plan, mode="hybrid", hot_slots=0), why
    return None
