"""Which models of the catalogue to show for this PC, best first. Knows no Qt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.models.survey import ModelRow, find_offers, plan_offer
from app.settings.store import Settings
from engine.hardware.report import HardwareReport
from engine.placement.recommend import Recommendation

SHOWN = 4


@dataclass(frozen=True)
class Fits:
    """rows: at most SHOWN, best first, with one that does not fit. best: None when nothing does.

    reasons: why it is the best, a sentence each
    """

    rows: tuple[ModelRow, ...]
    best: ModelRow | None
    reasons: tuple[str, ...] = ()


def plan_catalogue(api: Any, report: HardwareReport, values: Settings) -> Fits:
    """Takes about half a second on one core."""
    wishes = values.wishes
    offers = {row.entry.id: row for row in find_offers() if row.entry is not None}
    found = api.recommend(report, **wishes)
    ranked = [recommended(offers[entry.id], entry) for entry in found.ranked]
    beyond = [plan_offer(api, offers[entry.id], report, values.context, wishes) for entry in found.unsuited]
    reasons = found.ranked[0].reasons if found.ranked else ()
    return replace(arrange(ranked, beyond), reasons=reasons)


def recommended(offer: ModelRow, entry: Recommendation) -> ModelRow:
    """The catalogue's offer with the download and the plan that suit best."""
    downloads = offer.entry.downloads if offer.entry is not None else ()
    choice = next(download for download in downloads if (download.repo, download.label) == (entry.repo, entry.label))
    return replace(offer, choice=choice, nbytes=entry.nbytes, plan=entry.plan)


def arrange(ranked: Sequence[ModelRow], beyond: Sequence[ModelRow]) -> Fits:
    """Of models of the same make and size only the first; at the end the next one up, to show where this PC ends."""
    best = _one_of_a_kind(ranked)
    largest = max((row.entry.params_total for row in best if row.entry is not None), default=0)
    further = sorted(_one_of_a_kind(beyond), key=lambda row: _distance(row, largest))
    room = max(1, SHOWN - len(best))
    shown = best[: SHOWN - min(room, len(further))] + further[:room]
    return Fits(tuple(shown), best[0] if best else None)


def _distance(row: ModelRow, largest: int) -> tuple[bool, int]:
    """A model no larger than one that runs is only a worse way to the same."""
    size = row.entry.params_total if row.entry is not None else 0
    needed = row.plan.bytes.ram_total + row.plan.bytes.vram_total if row.plan is not None else 0
    return (size <= largest, needed)


def _one_of_a_kind(rows: Sequence[ModelRow]) -> list[ModelRow]:
    kept: dict[tuple[str, int], ModelRow] = {}
    for row in rows:
        if row.entry is not None and row.plan is not None:
            kept.setdefault((row.entry.author, row.entry.params_total), row)
    return list(kept.values())
