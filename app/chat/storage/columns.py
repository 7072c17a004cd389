"""Values as the chat file has them. It may be damaged, or somebody else's: any column may hold anything, and what makes
no sense becomes something empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from app.chat.storage.records import MOST_FILES, ROLES, Attachment, Draft, Edit
from engine.clean_text import clean_text
from engine.errors import GreenroomError
from engine.placement.plan import Range
from engine.runtime.events import GenerationStats
from engine.words import Said

#: Characters of a message or of a file; a title.
MOST_CHARACTERS, MOST_TITLE = 4_000_000, 200
#: 9999-12-31 in seconds since the epoch; what is later or before it is no time.
LATEST = 253_402_214_400.0
#: Sentences within a sentence, and characters of a template: the engine's own have far less.
_DEPTH, _TEMPLATE = 5, 2000
#: A hole as the engine's sentences have them. Others could reach into objects, or ask for a million spaces.
_HOLE = re.compile(r"\{\w+(![ra])?(:,?(\.\d)?[a-z%]?)?\}")


def text(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return "" if value is None else str(value)[:MOST_CHARACTERS]


def packed_text(value: Any) -> str:
    """What one of the functions below reads; at its whole length."""
    return value if isinstance(value, str) else text(value)


def line(value: Any) -> str:
    """A title or a name, as it is shown."""
    return clean_text(text(value), MOST_TITLE).strip()


def role(value: Any) -> str:
    """What has no role that is known is shown, and sent, as an answer."""
    return value if value in ROLES else "assistant"


def moment(value: Any) -> float:
    """Seconds since the epoch."""
    return float(value) if figure(value) and value < LATEST else 0.0


def seconds(value: Any) -> float | None:
    return float(value) if figure(value) else None


def figure(value: Any) -> bool:
    """A number that something can be done with, as JSON may not be: not negative, neither endless nor no number."""
    return type(value) in (int, float) and 0 <= value < 2**62


def attachment(name: Any, content: Any, length: Any) -> Attachment:
    """length: as in `Attachment`; that of the text where it makes no sense"""
    content = text(content)
    return Attachment(line(name), content, length if figure(length) and length >= len(content) else len(content))


def plain(text: Any) -> Any:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError, TypeError):
        return None


def draft(packed: Any) -> Draft:
    match plain(packed):
        case [str(words), [*files]]:
            return Draft(text(words), _files(files))
        case [str(words), [*files], [int(message), str(edited), [*its]]] if figure(message):
            return Draft(text(words), _files(files), Edit(message, text(edited), _files(its)))
    return Draft()


def _files(raw: list[Any]) -> tuple[Attachment, ...]:
    known = [a for a in raw if isinstance(a, list) and [type(v) for v in a] == [str, str, int]]
    return tuple(attachment(*values) for values in known[:MOST_FILES])


def packed_draft(draft: Draft) -> str:
    """What `draft` reads; "" for an empty one."""
    if draft.empty:
        return ""
    parts: list[Any] = [draft.text, [[a.name, a.text, a.length] for a in draft.attachments]]
    if draft.edit is not None:
        its = [[a.name, a.text, a.length] for a in draft.edit.attachments]
        parts.append([draft.edit.message_id, draft.edit.text, its])
    return json.dumps(parts, ensure_ascii=False)


def settings(text: Any) -> dict[str, Any]:
    values = plain(text)
    return values if isinstance(values, dict) else {}


def moved(settings: dict[str, Any], places: Mapping[int, int]) -> dict[str, Any]:
    """Settings whose `start`, the one that names a message, is another number now; without it when that is unknown."""
    start = settings.get("start")
    start = places.get(start) if type(start) is int else None
    return {k: v for k, v in settings.items() if k != "start"} | ({} if start is None else {"start": start})


def stats(text: Any) -> GenerationStats | None:
    known = plain(text)
    if not isinstance(known, dict):
        return None
    found = known_stats(known)
    return found if not known or found != GenerationStats() else None


def known_stats(raw: dict[str, Any]) -> GenerationStats:
    """What makes sense of them: a file may carry fields of another version of the program."""
    fields = GenerationStats.__dataclass_fields__
    fine = {k: v for k, v in raw.items() if k in fields and figure(v)}
    return GenerationStats(**{k: int(v) if fields[k].type == "int" else float(v) for k, v in fine.items()})


def figures(stats: GenerationStats | None, predicted: Range | None, stepped_down: Sequence[str]) -> str | None:
    """An answer's figures, beside them what was predicted and what it had to do without."""
    values: dict[str, Any] = asdict(stats) if stats is not None else {}
    if stats is not None and predicted is not None:
        values["predicted_tps"] = [predicted.low, predicted.likely, predicted.high]
    if stepped_down:
        values["stepped_down"] = list(map(packed, stepped_down))
    return json.dumps(values) if values else None


def stepped_down(text: Any) -> tuple[str, ...]:
    match plain(text):
        case {"stepped_down": [*steps]}:
            return tuple(filter(None, map(unpacked, steps)))
    return ()


def predicted(text: Any) -> Range | None:
    match plain(text):
        case {"predicted_tps": [low, likely, high]} if figure(low) and figure(likely) and figure(high):
            return Range(low, likely, high)
    return None


def error(text: Any) -> GreenroomError | None:
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


def unpacked(value: Any, depth: int = _DEPTH) -> str | None:
    match value:
        case str():
            return value
        case {"said": [str(template), {**values}, *rest]} if depth and _is_template(template, values, *rest):
            whole = {name: v if isinstance(v, int | float) else unpacked(v, depth - 1) for name, v in values.items()}
            if None in whole.values():
                return None
            try:
                return Said(template, whole, *rest)
            except (LookupError, ValueError, TypeError, AttributeError, OverflowError):
                return None
    return None


def _is_template(text: str, values: dict[Any, Any], n: Any = None, one: Any = "", *more: Any) -> bool:
    if len(text) > _TEMPLATE or more or not isinstance(one, str) or len(one) > _TEMPLATE:
        return False
    plain = not values or not set(_HOLE.sub("", text + one)) & set("{}")
    return plain and (n is None or (type(n) is int and abs(n) < 2**62))
