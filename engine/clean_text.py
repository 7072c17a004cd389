"""Text from outside, made fit for a sentence, a line of the terminal or of the log.

File names, answers of servers and messages of libraries may hold anything: codes that steer a terminal, marks that turn
the direction of writing, line breaks that forge a second line, and megabytes.
"""

from __future__ import annotations

import re
from numbers import Number
from typing import Any

#: Characters of one value in a sentence, of a whole sentence, and of a line on the terminal.
MOST_VALUE, MOST_SENTENCE, MOST_LINE = 500, 4000, 20_000
#: Bits of the largest number that is written with all its digits: Python refuses more than 4300 of them.
_MOST_BITS = 1000

_BREAK = "\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_CONTROL = "\x00-\x1f\x7f-\x9f"
_SURROGATE = "\ud800-\udfff"
#: They change the order in which everything after them is read.
_DIRECTION = "\u202a-\u202e\u2066-\u2069"
#: Characters without a glyph: soft hyphen, joiners, fillers, direction marks, tags, byte order mark.
_INVISIBLE = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    "\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_UNFIT = re.compile(f"(?P<space>\t|[{_BREAK}]\\s*)|(?P<shown>[{_CONTROL}{_SURROGATE}])|[{_DIRECTION}{_INVISIBLE}]")
#: Several scripts and emoji are joined, or kept apart, by these.
_JOINERS = "\u200c\u200d"
#: What may not reach a terminal in text of several lines.
_STEERING = re.compile(f"(?![\n\t])[{_CONTROL}{_SURROGATE}{_DIRECTION}]")
_REPLACEMENT = "\ufffd"


def clean_text(value: object, most: int = MOST_VALUE) -> str:
    """The value as one line of at most `most` visible characters, cut in the middle where there are more.

    Line breaks become spaces, other control characters U+FFFD; invisible characters are left out, but for joiners
    after a letter or sign beyond ASCII. Text that is fine is returned as it is; cleaning it twice changes nothing.
    """
    text = cut(value if isinstance(value, str) else _written(value), most)
    # What is fine stays the object that it is: a sentence knows its translation.
    return _UNFIT.sub(_fit, text) if _UNFIT.search(text) else text


def clean_value(value: Any) -> Any:
    """A value for a hole of a sentence, which may want its digits: numbers stay numbers, but for endless ones."""
    if value is None or isinstance(value, int):
        return value if value is None or value.bit_length() <= _MOST_BITS else clean_text(value)
    if isinstance(value, Number):
        return value
    if isinstance(value, bytes):
        return value[:MOST_VALUE]  # shown with escapes
    return clean_text(value)


def steerless(text: str) -> str:
    """Text of several lines that cannot steer a terminal: U+FFFD takes the place of what would."""
    return _STEERING.sub(_REPLACEMENT, text)


def cut(text: str, most: int) -> str:
    """At most so many characters: the beginning and the end, an ellipsis between them."""
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - end - 1]}…{text[-end:]}"


def _written(value: object) -> str:
    try:
        # Python refuses to write a number of many digits, but not in base 16.
        return hex(value) if isinstance(value, int) and value.bit_length() > _MOST_BITS else str(value)
    except Exception:
        return type(value).__name__


def _fit(found: re.Match[str]) -> str:
    if found["space"]:
        return " "
    if found["shown"]:
        return _REPLACEMENT
    if found[0] in _JOINERS and found.start():
        before = found.string[found.start() - 1]
        if not before.isascii() and not before.isspace() and not _UNFIT.match(before):
            return found[0]
    return ""
