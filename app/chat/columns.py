"""What some columns of the chat file hold as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from engine.errors import GreenroomError
from engine.placement.plan import Range
from engine.runtime.events import GenerationStats


def moved(settings: dict[str, Any], places: Mapping[int, int]) -> dict[str, Any]:
    """Settings whose `start`, the one that names a message, is another number now; without it when that is unknown."""
    start = settings.get("start")
    start = places.get(start) if type(start) is int else None
    return {k: v for k, v in settings.items() if k != "start"} | ({} if start is None else {"start": start})


def stats(text: str | None) -> GenerationStats | None:
    if text is None:
        return None
    known: dict[str, Any] = json.loads(text)
    # A file may carry fields of another version of the program.
    return GenerationStats(**{k: v for k, v in known.items() if k in GenerationStats.__dataclass_fields__})


def promise(predicted: Range | None) -> dict[str, list[float]]:
    """The prediction lies beside the figures that it is compared with."""
    return {} if predicted is None else {"predicted_tps": [predicted.low, predicted.likely, predicted.high]}


def predicted(text: str | None) -> Range | None:
    promise = None if text is None else json.loads(text).get("predicted_tps")
    return None if promise is None else Range(*promise)


def error(text: str | None) -> GreenroomError | None:
    return None if text is None else GreenroomError(*json.loads(text))
