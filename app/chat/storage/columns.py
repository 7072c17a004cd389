"""What some columns of the chat file hold as JSON. Damage may have reached it: what makes no sense is none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from app.chat.storage.records import Attachment, Draft, Edit
from engine.errors import GreenroomError
from engine.placement.plan import Range
from engine.runtime.events import GenerationStats
from engine.words import Said


def plain(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None


def draft(text: str | None) -> Draft:
    match plain(text):
        case [str(words), [*files]]:
            return Draft(words, _files(files))
        case [str(words), [*files], [int(message), str(edited), [*its]]]:
            return Draft(words, _files(files), Edit(message, edited, _files(its)))
    return Draft()


def _files(raw: list[Any]) -> tuple[Attachment, ...]:
    known = [a for a in raw if isinstance(a, list) and [type(v) for v in a] == [str, str, int]]
    return tuple(Attachment(*values) for values in known)


def packed_draft(draft: Draft) -> str:
    """What `draft` reads; "" for an empty one."""
    if draft.empty:
        return ""
    parts: list[Any] = [draft.text, [[a.name, a.text, a.length] for a in draft.attachments]]
    if draft.edit is not None:
        its = [[a.name, a.text, a.length] for a in draft.edit.attachments]
        parts.append([draft.edit.message_id, draft.edit.text, its])
    return json.dumps(parts, ensure_ascii=False)


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
    values = {k: v for k, v in known.items() if k in fields and type(v) in (int, float)}
    return GenerationStats(**values) if values or not known else None


def figures(stats: GenerationStats | None, predicted: Range | None, stepped_down: Sequence[str]) -> str | None:
    """An answer's figures, beside them what was predicted and what it had to do without."""
    values: dict[str, Any] = asdict(stats) if stats is not None else {}
    if stats is not None and predicted is not None:
        values["predicted_tps"] = [predicted.low, predicted.likely, predicted.high]
    if stepped_down:
        values["stepped_down"] = list(map(packed, stepped_down))
    return json.dumps(values) if values else None


def stepped_down(text: str | None) -> tuple[str, ...]:
    match plain(text):
        case {"stepped_down": [*steps]}:
            return tuple(filter(None, map(unpacked, steps)))
    return ()


def predicted(text: str | None) -> Range | None:
    match plain(text):
        case {"predicted_tps": [int() | float() as low, int() | float() as likely, int() | float() as high]}:
            return Range(low, likely, high)
    return None


def error(text: str | None) -> GreenroomError | None:
    match plain(text):
        case [what, why, remedy]:
            said = [unpacked(part) for part in (what, why, remedy)]
            if None not in said:
                return GreenroomError(*said)
    return None


def packed_error(error: GreenroomError | None) -> str | None:
    return None if error is None else json.dumps([packed(part) for part in (error.what, error.why, error.remedy)])


def packed(text: Any) -> Any:
    """What the engine said keeps its parts: the window's language may be another when it is read."""
    if not isinstance(text, Said):
        return text if isinstance(text, int | float) else str(text)
    template, values, *rest = text.__getnewargs__()
    return {"said": [template, {name: packed(value) for name, value in values.items()}, *rest]}


def unpacked(value: Any) -> str | None:
    match value:
        case str():
            return value
        case {"said": [str(template), {**values}, *rest]}:
            whole = {name: v if isinstance(v, int | float) else unpacked(v) for name, v in values.items()}
            try:
                return Said(template, whole, *rest)
            except (LookupError, ValueError, TypeError, AttributeError):
                return None
    return None
