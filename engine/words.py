"""Sentences that remember how they were made, so that a window can say them in the user's language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.clean_text import MOST_SENTENCE, clean_value, cut

#: The hole for a count that chooses between one and many.
COUNT = "%n"


class Said(str):
    """An English sentence with its template and what fills it; everywhere else a string like any other.

    Values are cleaned, so that translations are clean too. What is made of it by `+`, f-strings or slices is plain
    English text again.
    """

    __slots__ = ("n", "one", "template", "values")
    template: str
    values: dict[str, Any]
    n: int | None
    one: str

    def __new__(cls, template: str, values: dict[str, Any], n: int | None = None, one: str = "") -> Said:
        form = one if n == 1 else template
        if n is not None:
            form = form.replace(COUNT, str(clean_value(n)))
        values = {name: value if isinstance(value, Said) else clean_value(value) for name, value in values.items()}
        said = super().__new__(cls, cut(form.format_map(values) if values else form, MOST_SENTENCE))
        said.template, said.values, said.n, said.one = template, values, n, one
        return said

    def __getnewargs__(self) -> tuple[str, dict[str, Any], int | None, str]:  # type: ignore[override]
        """For copies, also into another process."""
        return self.template, self.values, self.n, self.one


def say(template: str, /, n: int | None = None, one: str = "", **values: Any) -> str:
    """The template, filled: say("{model} does not fit", model=name). A value may be a sentence itself.

    Templates are literals: translations are looked up by them.
    n:   the count that %n stands for, and that chooses the form: say("%n threads", n=count, one="%n thread")
    one: the English form for 1; the template is that for all others
    """
    return Said(template, values, n, one)


def joined(separator: str, parts: Sequence[str]) -> str:
    """Sentences, or parts of one, in a row: each may be translated. separator: marks, no words."""
    if len(parts) == 1:
        return parts[0]
    return Said(separator.join(f"{{part{i}}}" for i in range(len(parts))), {f"part{i}": p for i, p in enumerate(parts)})


def filled(text: str, name: str) -> str:
    """What fills {name} in a sentence, itself a sentence where it is one; "" where nothing does."""
    value = text.values.get(name, "") if isinstance(text, Said) else ""
    return value if isinstance(value, str) else str(value)


def translated(text: str, translate: Callable[[str, int | None, dict[str, Any]], str | None]) -> str:
    """The sentence by way of translate(template, n, values), and sentences within it too; other text as it is.

    translate: None where it has no translation; the sentence is then English, with what is translated within it
    """
    if not isinstance(text, Said):
        return text
    values = {name: _inner(value, translate) for name, value in text.values.items()}
    found = translate(text.template, text.n, values)
    return Said(text.template, values, text.n, text.one) if found is None else found


def _inner(value: Any, translate: Callable[[str, int | None, dict[str, Any]], str | None]) -> Any:
    return translated(value, translate) if isinstance(value, str) else value
