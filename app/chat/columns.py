"""What some columns of the chat file hold as JSON. Damage may have reached it: what makes no sense is none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from app.chat.records import Attachment, Draft
from engine.errors import GreenroomError
from engine.placement.plan import Range
from engine.runtime.events import GenerationStats


def plain(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None


def draft(text: str | None) -> Draft:
    match plain(text):
        case [str(words), [*files]]:
            known = [a for a in files if isinstance(a, list) and [type(v) for v in a] == [str, str, int]]
            return Draft(words, tuple(Attachment(*values) for values in known))
    return Draft()


def settings(text: str | None) -> dict[str, Any]:
    values = plain(text)
    return values if isinstance(values, dict) else {}


def moved(settings: dict[str, Any], places: Mapping[int, int]) -> dict[str, Any]:
    """Settings whose `start`, the one that names a message, is another number now; without it when that is unknown."""
    start = settings.get("start")
    start = places.get(start) if type(start) is int else None
    return {k: v for k, v in settings.items() if k != "start"} | ({} if start is None else {"start": start})


def stats(text: str | None) -> GenerationStats | None:
    known = plain(text)
    if not isinstance(known, dict):
        return None
    # A file may carry fields of another version of the program.
    fields = GenerationStats.__dataclass_fields__
    return GenerationStats(**{k: v for k, v in known.items() if k in fields and type(v) in (int, float)})


def promise(predicted: Range | None) -> dict[str, list[float]]:
    """The prediction lies beside the figures that it is compared with."""
    return {} if predicted is None else {"predicted_tps": [predicted.low, predicted.likely, predicted.high]}


def predicted(text: str | None) -> Range | None:
    match plain(text):
        case {"predicted_tps": [int() | float() as low, int() | float() as likely, int() | float() as high]}:
            return Range(low, likely, high)
    return None


def error(text: str | None) -> GreenroomError | None:
    match plain(text):
        case [str(what), str(why), str(remedy)]:
            return GreenroomError(what, why, remedy)
    return None
