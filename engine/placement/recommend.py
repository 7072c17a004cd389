"""Which models of the catalogue suit a machine best, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from engine.errors import GreenroomError
from engine.hardware.report import HardwareReport
from engine.placement.plan import OffloadPlan
from engine.placement.planner import find_usable_gpu, plan
from engine.units import size_down, size_up
from engine.words import say

if TYPE_CHECKING:
    from engine.hub.catalogue import CatalogueDownload, CatalogueModel

#: Reading along wants about this many tokens per second; below the second figure an answer is left alone meanwhile.
COMFORTABLE_TPS = 5.0
PATIENT_TPS = 2.0
#: Faster than people read; below it, so much faster is a difference that is felt in every answer, unless it comes from
#: a model of less than so much of the other's size, which knows less.
FAST_TPS, MUCH_FASTER, AS_LARGE = 15.0, 1.5, 2 / 3
#: Kept free on the disk beside a download.
DISK_RESERVE = 2_000_000_000
#: A conversation of some length.
USUAL_CONTEXT = 8192
#: What a class of models is worth: one that needs a server knows more than one made for home PCs.
CLASSES = {"home": 0.0, "workstation": 1.0, "server": 2.0}
#: Beginnings of a quantisation's name, the best balance of size and accuracy first, and what it costs in classes.
QUANTS = (
    (("Q4_K_M", "UD-Q4_K", "MXFP4", "Q4", "IQ4"), 0.0),
    (("Q5", "Q6", "UD-Q5", "UD-Q6", "Q8", "UD-Q8", "FP8"), 0.0),
    (("Q3", "UD-Q3", "IQ3", "UD-IQ3"), 0.5),
    (("Q2", "UD-Q2", "IQ2", "UD-IQ2", "IQ1", "UD-IQ1"), 1.0),
)
#: Whole numbers take four times the room of Q4 for next to no gain.
WHOLE_NUMBERS = 0.1
SLOW, VERY_SLOW, SHORT_CONTEXT = 1.5, 3.0, 0.25


@dataclass(frozen=True)
class Recommendation:
    """One model in the quantisation that suits best. score: higher is better; reasons: one sentence each."""

    id: str
    name: str
    repo: str
    label: str
    nbytes: int
    score: float
    plan: OffloadPlan
    reasons: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Unsuited:
    """A model that cannot be run here, or not be stored, and why."""

    id: str
    name: str
    why: str


@dataclass(frozen=True)
class Recommendations:
    """ranked: best first, empty where nothing fits; unsuited: the others, in the catalogue's order."""

    ranked: tuple[Recommendation, ...]
    unsuited: tuple[Unsuited, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def recommend(models: Sequence[CatalogueModel], report: HardwareReport, **wishes: Any) -> Recommendations:
    """Models that fit this machine, by their class, quantisation, whether one can read along, and context.

    Of equals the one that stands first in the catalogue is first, which is its editors' preference, unless it is slower
    than FAST_TPS and another of its size is MUCH_FASTER: that one is worth more in use.
    wishes: as for `plan`.
    """
    ranked: list[Recommendation] = []
    unsuited: list[Unsuited] = []
    for model in models:
        found = _best(model, report, wishes)
        if isinstance(found, Recommendation):
            ranked.append(found)
        else:
            unsuited.append(Unsuited(model.id, model.name, found))
    ranked.sort(key=lambda entry: -entry.score)
    equals = (list(group) for _, group in groupby(ranked, key=lambda entry: entry.score))
    sizes = {model.id: model.params_total for model in models}
    return Recommendations(tuple(entry for group in equals for entry in _in_use(group, sizes)), tuple(unsuited))


def _in_use(equals: list[Recommendation], sizes: Mapping[str, float]) -> Iterator[Recommendation]:
    """Equals, the most useful first; one that overtakes says why. sizes: weights by id."""
    left = list(equals)
    while left:
        first = left[0]
        slow = _speed(first)
        alike = [entry for entry in left if sizes[entry.id] >= AS_LARGE * sizes[first.id]]
        faster = [entry for entry in alike if slow < FAST_TPS and _speed(entry) >= MUCH_FASTER * slow]
        if faster:
            why = say(
                "Before {name}, which is of the same class and size, because it answers {times:.1f} times as fast.",
                name=first.name,
                times=_speed(faster[0]) / slow,
            )
            yield replace(faster[0], reasons=(*faster[0].reasons, why))
            left.remove(faster[0])
        else:
            yield first
            left.remove(first)


def _speed(entry: Recommendation) -> float:
    return entry.plan.prediction.decode_tps.likely


def _best(model: CatalogueModel, report: HardwareReport, wishes: dict[str, Any]) -> Recommendation | str:
    """The model in its best quantisation here, or why it is unsuited."""
    found: list[Recommendation] = []
    why = ""
    for download in sorted(model.downloads, key=lambda download: _quant(download.label)[0]):
        nbytes = model.nbytes(download)
        if found and _ceiling(model, download) <= max(entry.score for entry in found):
            continue
        if nbytes > _memory(report):
            why = why or say(
                "{label} takes {size}, more than all free memory here",
                label=download.label,
                size=_size(download, nbytes),
            )
            continue
        # Of a disk that could not be read, nobody can say that it is too small.
        if report.disk.known and nbytes + DISK_RESERVE > report.disk.free_bytes:
            why = say(
                "{label} takes {size}; {free} of disk is free",
                label=download.label,
                size=_size(download, nbytes),
                free=size_down(report.disk.free_bytes),
            )
            continue
        try:
            made = plan(model.checkpoint(download.label), report, **wishes)
        except GreenroomError as error:
            why = why or error.why
            continue
        if made.runnable:
            found.append(_judged(model, download, nbytes, made, report))
        else:
            why = made.label
    return max(found, key=lambda entry: entry.score) if found else why


def _size(download: CatalogueDownload, nbytes: int) -> str:
    """With "~" where it is worked out from shapes, because nobody has looked at the files."""
    return f"{'' if download.nbytes is not None else '~'}{size_up(nbytes)}"


def _memory(report: HardwareReport) -> int:
    gpu, _ = find_usable_gpu(report)
    return report.memory.available_bytes + (gpu[1].free_bytes if gpu else 0)


def _quant(label: str) -> tuple[int, float]:
    """(place in the order of preference, cost in classes)."""
    for place, (beginnings, cost) in enumerate(QUANTS):
        if label.startswith(beginnings):
            return place, cost
    return len(QUANTS), WHOLE_NUMBERS


def _ceiling(model: CatalogueModel, download: CatalogueDownload) -> float:
    """The best score that this quantisation can have."""
    short = SHORT_CONTEXT if model.context < USUAL_CONTEXT else 0.0
    return CLASSES[model.tier] - _quant(download.label)[1] - short


def _judged(
    model: CatalogueModel, download: CatalogueDownload, nbytes: int, made: OffloadPlan, report: HardwareReport
) -> Recommendation:
    score = _ceiling(model, download)
    speed = made.prediction.decode_tps.likely
    reasons = [say("Good at {what}.", what=model.good_at)]
    if speed >= COMFORTABLE_TPS:
        reasons.append(
            say("{label}; about {speed:.0f} tok/s, fast enough to read along.", label=made.label, speed=speed)
        )
    elif speed >= PATIENT_TPS:
        score -= SLOW
        reasons.append(say("{label}; about {speed:.1f} tok/s, slower than one reads.", label=made.label, speed=speed))
    else:
        score -= VERY_SLOW
        reasons.append(
            say("{label}; about {speed:.1f} tok/s, for questions that may take minutes.", label=made.label, speed=speed)
        )
    cost = _quant(download.label)[1]
    if cost >= 0.5:
        reasons.append(say("Only {label} fits, which loses some accuracy.", label=download.label))
    if model.context < USUAL_CONTEXT:
        reasons.append(say("Its conversations end at {context} tokens.", context=model.context))
    size = _size(download, nbytes)
    if report.disk.known:
        free = size_down(report.disk.free_bytes)
        reasons.append(say("{size} to download, {free} of disk is free.", size=size, free=free))
    else:
        reasons.append(
            say(
                "{size} to download; how much is free at {folder} could not be read.",
                size=size,
                folder=report.disk.path,
            )
        )
    return Recommendation(
        model.id, model.name, download.repo, download.label, nbytes, round(score, 2), made, tuple(reasons)
    )
