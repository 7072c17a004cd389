r"""Stop strings as they are edited: one in each line, with what a line cannot show written out.

Backslashes, line breaks, tabs and whatever else cannot be seen are escaped as in Python (\\, \n, \t, \u00a0), as are
blanks at the ends of a line. Anything that is no such escape stands for itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from app.chat.storage.presets import MOST_STOPS, STOP_LIMIT

_NAMED = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_CHARACTERS = {escape[1]: character for character, escape in _NAMED.items()}
_ESCAPE = re.compile(r"\\(?:([\\ntr])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U(000[0-9a-fA-F]{5}|0010[0-9a-fA-F]{4}))")


def to_lines(stops: Sequence[str]) -> str:
    """`from_lines` gives the same again, whatever is in them."""
    return "\n".join(map(_line, stops))


def from_lines(text: str) -> tuple[str, ...]:
    """Lines without anything in them are none."""
    found = (_ESCAPE.sub(_character, line)[:STOP_LIMIT] for line in text.split("\n"))
    return tuple(stop for stop in found if stop)[:MOST_STOPS]


def _line(stop: str) -> str:
    last = len(stop) - 1
    return "".join(
        "\\x20" if character == " " and place in (0, last) else _visible(character)
        for place, character in enumerate(stop)
    )


def _visible(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _character(found: re.Match[str]) -> str:
    named, *codes = found.groups()
    return _CHARACTERS[named] if named else chr(int(next(filter(None, codes)), 16))
