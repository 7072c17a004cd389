"""Words to look for: the excerpt around them, and the places of a text where they stand."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: Characters of an excerpt before the first place, and in all.
BEFORE, EXCERPT = 12, 160
#: What of a query counts; more is a text that was pasted into the field.
MOST_WORDS, WORD_LENGTH = 16, 200
#: Marks of Markdown around words or before a line, also where their counterpart is cut off; `2**3` has none.
_MARKS = re.compile(r"(?<!\w)\*\*?(?=\S)([^*\n]+)(?<=\S)\*\*?|(?<!\w)\*\*(?=\w)|(?<=\S)\*\*(?!\w)|`+|^#{1,6} ", re.M)


def words_of(query: str) -> list[str]:
    """The words to look for. A query may be anything."""
    # SQLite's text ends at a null, and half a character is in no text.
    plain = query.replace("\0", " ").encode("utf-8", "replace").decode()
    return [word[:WORD_LENGTH] for word in plain.split()[:MOST_WORDS]]


def like(word: str) -> str:
    """The pattern for SQL's LIKE with ESCAPE '\\'."""
    for special in ("\\", "%", "_"):
        word = word.replace(special, "\\" + special)
    return f"%{word}%"


def places(text: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """(start, end) of every place where a word stands, in any case, in order and without overlap."""
    wanted = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True) if word)
    return [match.span() for match in re.finditer(wanted, text, re.IGNORECASE)] if wanted else []


def excerpt(text: str, words: Sequence[str], markdown: bool = False) -> str:
    """One line around the first place, whole words at its beginning. markdown: without the marks of its looks."""
    found = places(text, words)
    start = max(0, found[0][0] - BEFORE) if found else 0
    piece = text[start : start + EXCERPT]
    if start:
        # To the next word, unless that is the one looked for.
        space = re.search(r"\s", piece[:BEFORE])
        piece = "…" + (piece[space.end() :] if space else piece)
    # Who looks for such marks sees them.
    if markdown and not any(mark in word for word in words for mark in "*`#"):
        piece = _MARKS.sub(lambda found: found[1] or "", piece)
    return " ".join(piece.split())
