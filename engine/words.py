"""Sentences that remember how they were made, so that a window can say them in the user's language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class Said(str):
    """An English sentence with its template and what fills it; everywhere else a string like any other.

    What is made of it by `+`, f-strings or slices is plain English text again.
    """

    __slots__ = ("template", "values")
    template: str
    values: dict[str, Any]

    def __new__(cls, template: str, values: dict[str, Any]) -> Said:
        said = super().__new__(cls, template.format_map(values) if values else template)
        said.template, said.values = template, values
        return said

    def __getnewargs__(self) -> tuple[str, dict[str, Any]]:  # type: ignore[override]
        """For copies, also into another process."""
        return self.template, self.values


def say(template: str, /, **values: Any) -> str:
    """The template, filled: say("{model} does not fit", model=name). A value may be a sentence itself.

    Templates are literals: translations are looked up by them.
    """
    return Said(template, values)


def joined(separator: str, parts: Sequence[str]) -> str:
    """Sentences, or parts of one, in a row: each may be translated. separator: marks, no words."""
    if len(parts) == 1:
        return parts[0]
    return Said(separator.join(f"{{part{i}}}" for i in range(len(parts))), {f"part{i}": p for i, p in enumerate(parts)})


def filled(text: str, name: str) -> str:
    """What fills {name} in a sentence, itself a sentence where it is one; "" where nothing does."""
    value = text.values.get(name, "") if isinstance(text, Said) else ""
    return value if isinstance(value, str) else str(value)


def translated(text: str, translate: Callable[..., str]) -> str:
    """The sentence by way of translate(template, **values), and sentences within it too; other text as it is."""
    if not isinstance(text, Said):
        return text
    return translate(text.template, **{name: _inner(value, translate) for name, value in text.values.items()})


def _inner(value: Any, translate: Callable[..., str]) -> Any:
    return translated(value, translate) if isinstance(value, str) else value
