"""How much work it is to read and lay out a text, estimated before the work is done."""

from __future__ import annotations

import re

#: What a line's end, a sign that may open or close something, and the first line of a block with widgets of its own
#: cost, in plain characters.
LINE, SIGN, BLOCK = 8, 8, 250
_SIGNS = "*_`~$[<&\\|>"
_BLOCKS = re.compile(r"^[ \t>*+\-\d.)]*(?:```|~~~|\$\$|\\\[|\\begin|---|\*\*\*|___|\|?[ \t]*:?-+:?[ \t]*\||\|-)", re.MULTILINE)


def cost(text: str) -> int:
    """The cost of a text in plain characters: of "word" 4, of a code block with one letter about 600."""
    signs = sum(map(text.count, _SIGNS))
    return len(text) + LINE * text.count("\n") + SIGN * signs + BLOCK * len(_BLOCKS.findall(text))


def affordable(text: str, start: int, end: int, most: int) -> int:
    """Where a piece of the text that begins at `start` ends: at `end`, or earlier, so that it costs at most `most`."""
    while end - start > 1 and cost(text[start:end]) > most:
        end = start + (end - start) // 2
    return end
