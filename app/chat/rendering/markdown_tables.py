"""Tables of a bounded size. Cells may hold a "|" within code and formulas, where the row would have too many otherwise.

GitHub's tables end a cell there as well, but models write `a | b` and $|x|$ for what they are.

What is beyond the bounds is no part of the table, and so shown as the text that it is. A text that is read row by row
tells the rule what came before: `env["table"]` is the `Size` of the first table up to its head.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.token import Token

from app.chat.rendering.cost import cost
from app.chat.rendering.markdown_rules import LONGEST_INLINE, closing_dollar

#: The columns of a table, and its cells: Qt lays them all out whenever the window's width changes.
MOST_COLUMNS, MOST_CELLS = 64, 3000
#: Cells that rows may leave out of one table: they are made up, and a line of two characters would make dozens.
MOST_LEFT_OUT = 200
#: The cost of one row: while it is written it is laid out again and again.
COSTLIEST_ROW = 6000
_BLANKS = " \t\v\f\r\n"
_DASHES = re.compile(r":?-+:?")
_PIPE = re.compile(r"(?<!\\)\|")
#: What may hold a pipe; a sign behind a backslash opens nothing.
_HOLDS = re.compile(r"\\.|`+|\$+")


@dataclass(frozen=True)
class Size:
    """Cells of a table, and how many of them are made up."""

    cells: int = 0
    left_out: int = 0


def add_tables(parser: MarkdownIt) -> None:
    parser.block.ruler.at("table", _table, {"alt": ["paragraph", "reference"]})


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    if start + 2 > end or state.sCount[start + 1] < state.blkIndent:
        return False
    if state.is_code_block(start) or state.is_code_block(start + 1):
        return False
    aligns, head = _aligns(_line(state, start + 1)), _line(state, start)
    if not aligns or "|" not in head:
        return False
    if len(aligns) > MOST_COLUMNS or cost(head) > COSTLIEST_ROW:
        return False
    cells = _cells(head, len(aligns))
    if len(cells) != len(aligns):
        return False
    if silent:
        return True
    around, state.parentType = state.parentType, "table"
    opening = state.push("table_open", "table", 1)
    state.push("thead_open", "thead", 1).map = [start, start + 1]
    _add_row(state, start, "th", cells, aligns)
    state.push("thead_close", "thead", -1)
    line, body = start + 2, None
    size = state.env.pop("table", Size())
    while line < end and (row := _row(state, line, end)) and cost(row) <= COSTLIEST_ROW:
        cells = _cells(row, len(aligns))
        size = Size(size.cells + len(aligns), size.left_out + max(0, len(aligns) - len(cells)))
        if size.cells > MOST_CELLS or size.left_out > MOST_LEFT_OUT:
            break
        if body is None:
            body = state.push("tbody_open", "tbody", 1)
        _add_row(state, line, "td", cells, aligns).meta["size"] = size
        line += 1
    if body is not None:
        state.push("tbody_close", "tbody", -1)
        body.map = [start + 2, line]
    state.push("table_close", "table", -1)
    opening.map = [start, line]
    state.parentType = around
    state.line = line
    return True


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]].strip(_BLANKS)


def _aligns(line: str) -> list[str]:
    """ "|:--|--:|" -> ["left", "right"]; nothing when it is no such line."""
    # "- " begins a list.
    if len(line) < 2 or line[:2] in ("- ", "-\t") or not set(line) <= set("-:| \t"):
        return []
    cells = _without_ends([cell.strip() for cell in line.split("|")])
    if not all(map(_DASHES.fullmatch, cells)):
        return []
    names = {(False, False): "", (True, False): "left", (False, True): "right", (True, True): "center"}
    return [names[cell.startswith(":"), cell.endswith(":")] for cell in cells]


def _without_ends(cells: list[str]) -> list[str]:
    """Without what is before the first "|" of a row and behind the last, if that is nothing."""
    cells = cells[1:] if cells[0] == "" else cells
    return cells[:-1] if cells and cells[-1] == "" else cells


def _row(state: StateBlock, line: int, end: int) -> str:
    """The line of the table's next row; nothing when the table ends above it."""
    if state.sCount[line] < state.blkIndent:
        return ""
    if any(rule(state, line, end, True) for rule in state.md.block.ruler.getRules("blockquote")):
        return ""
    return "" if state.is_code_block(line) else _line(state, line)


def _cells(row: str, columns: int) -> list[str]:
    cells = _without_ends(_PIPE.split(row))
    if len(cells) > columns:
        held = [*_held(row), (len(row), len(row))]
        cuts, at = [-1], 0
        for pipe in _PIPE.finditer(row):
            while held[at][1] <= pipe.start():
                at += 1
            if pipe.start() < held[at][0]:
                cuts.append(pipe.start())
        cuts.append(len(row))
        cells = _without_ends([row[first + 1 : last] for first, last in pairwise(cuts)])
    return [cell.replace("\\|", "|").strip(_BLANKS) for cell in cells]


def _held(row: str) -> Iterator[tuple[int, int]]:
    """Where code and formulas begin and end."""
    at = 0
    while sign := _HOLDS.search(row, at):
        mark, at = sign[0], sign.end()
        last = min(len(row), sign.start() + LONGEST_INLINE)
        if mark[0] == "`":
            closing = re.compile(rf"(?<!`){mark}(?!`)").search(row, at)
            found = closing.start() if closing else -1
        elif mark == "$":
            found = closing_dollar(row, sign.start(), last)
        else:
            found = row.find("$$" if mark == "$$" else "\\)", at, last) if mark in ("$$", "\\(") else -1
        if found >= 0:
            at = found + (1 if mark == "$" else len(mark))
            yield sign.start(), at


def _add_row(state: StateBlock, line: int, tag: str, cells: list[str], aligns: list[str]) -> Token:
    """The token that opens the row."""
    opening = state.push("tr_open", "tr", 1)
    opening.map = [line, line + 1]
    for column, align in enumerate(aligns):
        cell = state.push(f"{tag}_open", tag, 1)
        if align:
            cell.attrs = {"style": f"text-align:{align}"}
        words = state.push("inline", "", 0)
        words.map = [line, line + 1]
        words.content = cells[column] if column < len(cells) else ""
        words.children = []
        state.push(f"{tag}_close", tag, -1)
    state.push("tr_close", "tr", -1)
    return opening
