"""Where a paragraph without end can be cut, and how what follows is told that it goes on with one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from app.chat.rendering.markdown import OpenItem

#: Stands before the rest of a paragraph: it takes no room and begins no block, whatever follows it.
JOINT = "\u2060"

#: The signs of quotes and list items with which a line begins.
_SIGNS = re.compile(r"[ \t]*(?:(?:>|(?:[-*+]|\d{1,9}[.)])(?=[ \t]|$))[ \t]*)*")
_QUOTE = re.compile(r"[ \t>]*")
_LINE, _SENTENCE = re.compile(r"\n[ \t>]*(?=[^\s>])"), re.compile(r"(?:[.,;:!?)][ \t]+|[。，、！？；：])(?=[^\W\d_])")
_WORD, _BLANK, _LETTER = re.compile(r"\s(?=[^\W\d_])"), re.compile(r"\s(?=\S)"), re.compile(r"(?<=[\w>)])(?=[^\W\d_])")
#: Places of one kind that are looked at, last first, and how far back something may be open around them.
MOST_PLACES, FURTHEST = 30, 400


def signs_of(line: str) -> str:
    """ "> - words" -> "> - "."""
    found = _SIGNS.match(line)
    return found[0] if found else ""


def lead_of(lines: list[str], items: Iterable[OpenItem], at: int, first: bool = False) -> str:
    """What opens the list items that line number `at` stands in. first: nothing is shown of the innermost above it."""
    above = sorted({item.line for item in items if item.line < at})
    signs = [found if found[-1:].isspace() else f"{found} " for found in (signs_of(lines[line]) for line in above)]
    opened = [f"{found}{JOINT}\n" for found in signs]
    if not above:
        return ""
    # A blank line, which in a quote has the quote's signs.
    quote = _QUOTE.match(lines[at])
    blank = f"{quote[0].rstrip() if quote else ''}\n"
    return "".join([*opened[:-1], blank, f"{signs[-1]}\n"] if first else [*opened, blank])


def place_to_cut(text: str, first: int, last: int) -> int:
    """The best place between two: a line's beginning, a sentence's, a word's, and nothing open around it."""
    for pattern in (_LINE, _SENTENCE, _WORD, _BLANK, _LETTER):
        places = [match.end() for match in pattern.finditer(text, first, last)][-MOST_PLACES:]
        for place in reversed(places):
            if pattern is _LINE or not _inside(text[max(first - FURTHEST, place - FURTHEST, 0) : place]):
                return place
        if places and pattern not in (_SENTENCE, _WORD):
            return places[-1]
    return next((place for place in range(last, first, -1) if _divides(text, place)), last)


def _inside(before: str) -> bool:
    """Whether a link, an address or code seems to be open at the end of a text."""
    pairs = ("[]", "()", "<>")
    return any(before.rfind(pair[0]) > before.rfind(pair[1]) for pair in pairs) or bool(before.count("`") % 2)


def _divides(text: str, place: int) -> bool:
    """Whether no letter or picture is made of what stands on both sides."""
    before, after = text[place - 1], text[place]
    joined = unicodedata.category(after) in ("Mn", "Mc", "Me", "Cf", "Cs") or unicodedata.category(before) in (
        "Cf",
        "Cs",
    )
    flags = all("\U0001f1e6" <= sign <= "\U0001f1ff" for sign in (before, after))
    skin = "\U0001f3fb" <= after <= "\U0001f3ff"
    return not (joined or flags or skin or before == "\\" or before == after != " ")
