"""How much work it is to read and lay out a text, estimated before the work is done."""

from __future__ import annotations

import re

#: What a line's end, a sign that may open or close something, and a line that may open or close a block with widgets of
#: its own cost, in plain characters. A slow computer needs about 4 microseconds for one.
LINE, SIGN, BLOCK = 10, 8, 300
_SIGNS = "*_`~$[<&\\|>"
#: Code, formulas, rules and the lines below the heads of tables, within quotes and lists too.
_BLOCKS = re.compile(
    r"^(?:[ \t>]|[-*+][ \t]|\d{1,9}[.)][ \t]){0,40}"
    r"(?:```|~~~|\$\$|\\\[|\\begin|---|\*\*\*|___|\|[ :]{0,2}-|:?-{1,20}:?[ ]?\|)|(?<=\n\n)(?:[ ]{4}|\t)",
    re.MULTILINE,
)


def cost(text: str) -> int:
    """The cost of a text in plain characters: of "word" 4, of a code block with one letter about 600."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    signs = sum(map(text.count, _SIGNS))
    return len(text) + LINE * text.count("\n") + SIGN * signs + BLOCK * len(_BLOCKS.findall(text))


def affordable(text: str, start: int, end: int, most: int) -> int:
    """Where a piece of the text that begins at `start` ends: at `end`, or earlier, so that it costs at most `most`."""
    while end - start > 1 and cost(text[start:end]) > most:
        end = start + (end - start) // 2
    return end
