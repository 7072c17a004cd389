"""Text as an attacker writes it, and what must never be on the screen."""

from __future__ import annotations

import random
import sys
import unicodedata


def hostile_text(rng: random.Random) -> str:
    """Words, and between them whatever Unicode has."""
    pieces: list[str] = []
    for _ in range(rng.randrange(12)):
        kind = rng.randrange(6)
        if kind == 0:
            pieces.append(chr(rng.randrange(sys.maxunicode + 1)) * rng.choice((1, 1, 2, 700)))
        elif kind == 1:
            pieces.append(
                rng.choice("\x00\x07\x08\t\n\r\x0b\x0c\x1b\x1c\x7f\x85\x9b\xad\u2028\u2029\u202e\u2066\ufeff")
            )
        elif kind == 2:
            pieces.append(
                rng.choice(("\u200d", "\u200c", "\ud800", "\udfff", "\U000e0061", "\u3164", "\u0301", "e\u0301"))
            )
        elif kind == 3:
            pieces.append(rng.choice(("{", "}", "%n", "{0}", "{a.b}", "<b>", "%s", "…", ". ", ": ")))
        else:
            pieces.append(rng.choice(("model", "모델", "می", "x" * 5000, "\n" * 3000, " ", "👩‍🚀")))
    return "".join(pieces)


def is_one_clean_line(text: str) -> bool:
    """By Unicode's own tables, not by those of the code."""
    joiners = "\u200c\u200d"
    return not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c not in joiners for c in text)
