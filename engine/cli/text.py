"""Figures of a machine and of a plan in words, as the command line prints them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.placement.plan import OffloadPlan, Range


def predicted_speeds(plan: OffloadPlan) -> Iterator[str]:
    said = plan.prediction
    grown = ""
    # Not worth a word where a long conversation hardly costs anything.
    if said.full_context_tps and said.full_context_tps < 0.8 * said.decode_tps.likely:
        grown = f", {rate(said.full_context_tps)} with all {plan.context} tokens"
    if said.learned is not None:
        before, times = said.learned.predicted_decode_tps.likely, said.learned.answers
        yield f"Corrected by {plural(times, 'answer')} measured here; predicted from the parts: {rate(before)} tok/s."
    yield f"Answers at {speed_range(said.decode_tps)}{grown}: {said.bottleneck}."
    for line in plan.time_sum():
        yield f"  {line}"
    yield f"Reads prompts at {speed_range(said.prefill_tps)}."


def speed_range(speed: Range) -> str:
    return f"about {rate(speed.likely)} tok/s ({rate(speed.low)} to {rate(speed.high)})"


def plural(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def rate(speed: float) -> str:
    """Two digits, which is more than a prediction knows: "2.4", "92", "2300"."""
    if speed < 10:
        return f"{speed:.1f}"
    unit = 10 ** (len(f"{speed:.0f}") - 2)
    return f"{round(speed / unit) * unit:.0f}"
