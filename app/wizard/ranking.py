"""Which models of the catalogue to show for this PC, best first. Knows no Qt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.models.survey import ModelRow
from engine.hub.catalogue import TIERS

#: Tokens per second below which reading along becomes waiting.
COMFORTABLE = 5.0
SHOWN = 4


@dataclass(frozen=True)
class Fits:
    """rows: at most SHOWN, best first, with one that is too large where there is room. best: None when nothing fits."""

    rows: tuple[ModelRow, ...]
    best: ModelRow | None


def rank(offers: Sequence[ModelRow], disk_free: int) -> Fits:
    """offers: planned, in the catalogue's order, which is by worth within a tier. disk_free: bytes for a download.

    What runs at a comfortable speed comes first, the larger tier before the smaller; of models of the same make and
    size only the first.
    """
    known = [(number, row) for number, row in enumerate(_one_of_a_kind(offers)) if row.plan is not None]
    running = sorted((_order(number, row, disk_free), row) for number, row in known if row.plan.runnable)
    best = [row for _, row in running]
    largest = max((row.entry.params_total for row in best), default=0)
    beyond = sorted((*_distance(row, largest), number, row) for number, row in known if not row.plan.runnable)
    # The next one up shows where this PC ends.
    room = max(1, SHOWN - len(best))
    shown = best[: SHOWN - min(room, len(beyond))] + [row for *_, row in beyond[:room]]
    first = next((row for row in best if row.nbytes <= disk_free), None)
    return Fits(tuple(shown), first)


def _order(number: int, row: ModelRow, disk_free: int) -> tuple[bool, bool, int, int]:
    slow = row.plan.prediction.decode_tps.likely < COMFORTABLE
    return (row.nbytes > disk_free, slow, -TIERS.index(row.entry.tier), number)


def _distance(row: ModelRow, largest: int) -> tuple[bool, int]:
    """A model no larger than one that runs is only a worse way to the same."""
    return (row.entry.params_total <= largest, row.plan.bytes.ram_total + row.plan.bytes.vram_total)


def _one_of_a_kind(offers: Sequence[ModelRow]) -> list[ModelRow]:
    kept: dict[tuple[str, int], ModelRow] = {}
    for row in offers:
        if row.entry is not None:
            kept.setdefault((row.entry.author, row.entry.params_total), row)
    return list(kept.values())
