"""What answers on this machine really took, remembered per model, and predictions corrected by it.

An estimate from parts can be off by a third on a machine with some habit of its own. So the speed of every long enough
answer is kept as a ratio to what was predicted, and the next prediction of the same model here leans on them: the
prediction from the parts weighs as much as one answer, so that a first one moves it half of the way and leaves it a
wide range, and nine that agree leave a narrow one. An answer beside busy programs says nothing about the next.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import statistics
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.folders import make_private
from engine.hardware.busy import MUCH_DISTURBED
from engine.hardware.calibrate import fingerprint
from engine.hardware.report import HardwareReport
from engine.placement.plan import Learned, OffloadPlan, Range, TimePart
from engine.whole_file import write_whole
from engine.words import say

if TYPE_CHECKING:
    from engine.checkpoints.checkpoint import Checkpoint

logger = logging.getLogger(__name__)

FILE_NAME = "learned.json"
VERSION = 1
#: The latest answers count; a machine changes with its drivers and its cooling.
KEPT = 9
MOST_MODELS = 500
#: Shorter answers and prompts measure the start more than the speed.
SHORTEST_ANSWER = 32
SHORTEST_PROMPT = 128
#: Where more of an answer was guessed ahead, its speed says little about the next one.
MOST_GUESSED = 0.1
#: What one more answer may differ from all before, even if they agree.
MARGIN = 0.1
#: Further off than this is an answer that something disturbed, or a broken file.
SANE = (0.02, 50.0)
_MOST_BYTES = 4 << 20


def remember(
    folder: Path,
    checkpoint: Checkpoint,
    report: HardwareReport,
    plan: OffloadPlan,
    *,
    decode: tuple[float, int, int],
    prefill: tuple[float, int],
    others: float = 0.0,
) -> bool:
    """Keep the speed of one answer; False when it was too short or disturbed to tell anything, or cannot be written.

    decode:  (tokens per second, tokens of the answer, of them guessed ahead)
    prefill: (tokens per second, tokens computed)
    others:  share of all CPU time that other programs used meanwhile
    """
    if others >= MUCH_DISTURBED:
        logger.info("the answer's speed is not remembered: other programs used %.0f %% of the CPU", 100 * others)
        return False
    said = plan.prediction
    base, base_prefill = said.decode_tps, said.prefill_tps
    if said.learned is not None:
        base, base_prefill = said.learned.predicted_decode_tps, said.learned.predicted_prefill_tps
    found: dict[str, float] = {}
    speed, tokens, guessed = decode
    if tokens >= SHORTEST_ANSWER and guessed <= MOST_GUESSED * tokens:
        found["decode"] = speed / base.likely
    speed, tokens = prefill
    if tokens >= SHORTEST_PROMPT:
        found["prefill"] = speed / base_prefill.likely
    found = {kind: ratio for kind, ratio in found.items() if SANE[0] <= ratio <= SANE[1]}
    if not found:
        return False
    models = _read(folder)
    key = _key(checkpoint, report, plan)
    kept = models.pop(key, {})
    models[key] = {
        kind: [*kept.get(kind, []), *([round(found[kind], 4)] if kind in found else [])][-KEPT:]
        for kind in ("decode", "prefill")
    }
    while len(models) > MOST_MODELS:
        del models[next(iter(models))]
    return _write(folder, models)


def corrected(folder: Path, checkpoint: Checkpoint, report: HardwareReport, plan: OffloadPlan) -> OffloadPlan:
    """The plan with its prediction corrected by what was remembered; as it is where nothing was."""
    kept = _read(folder).get(_key(checkpoint, report, plan))
    if not kept:
        return plan
    said = plan.prediction
    decode, prefill = kept["decode"], kept["prefill"]
    decode_tps, prefill_tps = _between(said.decode_tps, decode), _between(said.prefill_tps, prefill)
    learned = Learned(
        answers=max(len(decode), len(prefill)),
        decode_factor=decode_tps.likely / said.decode_tps.likely,
        prefill_factor=prefill_tps.likely / said.prefill_tps.likely,
        predicted_decode_tps=said.decode_tps,
        predicted_prefill_tps=said.prefill_tps,
    )
    full = said.full_context_tps
    prediction = replace(
        said,
        decode_tps=decode_tps,
        prefill_tps=prefill_tps,
        full_context_tps=None if full is None else full * learned.decode_factor,
        learned=learned,
        token_time=(*said.token_time, *_more_or_less(said.decode_tps.likely, decode_tps.likely, len(decode))),
    )
    return replace(plan, prediction=prediction)


def _between(predicted: Range, ratios: list[float]) -> Range:
    """The geometric mean of what was predicted, with the weight of one answer, and what was measured. No answer that
    counts lies outside of the range.
    """
    if not ratios:
        return predicted

    def mean(said: float, seen: float) -> float:
        return float(said ** (1 / (1 + len(ratios))) * seen ** (len(ratios) / (1 + len(ratios))))

    lowest = predicted.likely * min(ratios) * (1 - MARGIN)
    highest = predicted.likely * max(ratios) * (1 + MARGIN)
    return Range(
        min(lowest, mean(predicted.low, lowest)),
        mean(predicted.likely, predicted.likely * statistics.median(ratios)),
        max(highest, mean(predicted.high, highest)),
    )


def _more_or_less(predicted: float, learned: float, answers: int) -> list[TimePart]:
    """What a token takes beyond its parts, or less than they, so that the sum stays right."""
    if not answers:
        return []
    said = say("what answers measured here took more or less than these parts ({answers} kept)", answers=answers)
    return [TimePart("learned", 1 / learned - 1 / predicted, said)]


def _key(checkpoint: Checkpoint, report: HardwareReport, plan: OffloadPlan) -> str:
    """The machine as it was measured, the model's file and how it is placed; threads and context may differ."""
    facts = [
        fingerprint(report),
        report.memory.bandwidth_gbs,
        checkpoint.name,
        checkpoint.nbytes,
        plan.device,
        plan.dense_dtype,
        plan.experts,
        plan.isa,
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _read(folder: Path) -> dict[str, dict[str, list[float]]]:
    try:
        with (folder / FILE_NAME).open("rb") as file:
            stored = json.loads(file.read(_MOST_BYTES))
        if stored["version"] != VERSION:
            return {}
        return {str(key): _ratios(entry) for key, entry in stored["models"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        logger.warning("what was learned is ignored: %s", error)
        return {}


def _ratios(entry: Mapping[str, Any]) -> dict[str, list[float]]:
    lists = {kind: [float(ratio) for ratio in entry[kind]][-KEPT:] for kind in ("decode", "prefill")}
    if not all(math.isfinite(r) and SANE[0] <= r <= SANE[1] for ratios in lists.values() for r in ratios):
        raise ValueError("a ratio is impossible")
    return lists


def _write(folder: Path, models: Mapping[str, Mapping[str, list[float]]]) -> bool:
    try:
        make_private(folder)
        write_whole(folder / FILE_NAME, json.dumps({"version": VERSION, "models": models}).encode())
    except OSError as error:
        logger.warning("the answer's speed was not remembered: %s", error)
        return False
    return True
