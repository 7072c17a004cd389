"""Markdown that is still being written: only its end is parsed again."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markdown_it.token import Token

from app.chat.rendering.cost import cost
from app.chat.rendering.markdown import (
    PARSER,
    Code,
    Leaf,
    ListItem,
    Table,
    Text,
    Walker,
    line_offset,
    without_half_fence,
)
from app.chat.rendering.markdown_cut import JOINT, lead_of, place_to_cut, signs_of
from app.chat.rendering.markdown_rules import open_formula
from app.chat.rendering.markdown_tables import Size

#: Characters, and their cost, after which a paragraph that is being written is cut: parsing and laying it out again
#: must stay quick.
LONGEST_PARAGRAPH, COSTLIEST_PARAGRAPH = 2500, 5000
#: What each quote around a line adds to its cost.
QUOTED_LINE = 5
#: Characters of an unfinished line by which it has become what it will be.
LONGEST_HALF = 200
#: Blanks at the end of a text that are read as they are.
MOST_BLANKS = 200


@dataclass(frozen=True)
class _Lead:
    """What is put before a text that begins within list items or a paragraph, so that it is read as what it is.

    numbers: with which the lists go on that it opens, and that the text opens first
    leaves:  how many come of it, which are no part of the text
    joined:  the first that follows goes on with a paragraph
    """

    text: str = ""
    numbers: tuple[int | None, ...] = ()
    leaves: int = 0
    joined: bool = False

    def without(self, leaves: list[Leaf]) -> list[Leaf]:
        """The leaves of the text alone."""
        leaves = leaves[self.leaves :]
        if self.joined and leaves and isinstance(leaves[0], Text):
            first, *others = leaves[0].spans or (None,)
            if first is not None and first.text.startswith(JOINT):
                rest = first.text[len(JOINT) :]
                spans = (replace(first, text=rest), *others) if rest else tuple(others)
                leaves[0] = replace(leaves[0], spans=spans, marker="", close=True)
        return leaves


_NO_LEAD, _NO_SIZE = _Lead(), Size()


class _References(ChainMap[str, Any]):
    """What links refer to. complete: what looks like another definition is half of one, or of something else."""

    def __init__(self, *maps: dict[str, Any], complete: bool) -> None:
        super().__init__(*maps)
        self._complete = complete

    def __contains__(self, name: object) -> bool:
        return self._complete or super().__contains__(name)

    def __missing__(self, name: str) -> None:
        return None


class StreamParser:
    """Parses a text that only grows, at the cost of its last block.

    A block is settled as soon as another one begins behind it; only what lies behind the last settled block is
    parsed again. Within a quote the same holds for its blocks, within a list for its items, within a table for its
    rows, within a code block for its lines, and within a long list item for its blocks.

    A link whose definition comes further below is text. known: the `references` that another parser has found in the
    whole text, with which all links are found.
    """

    def __init__(self, known: Mapping[str, Any] | None = None) -> None:
        self._settled = 0
        self._start = 0
        #: What links refer to, by its name: the definitions that are settled, and those that may still change.
        self._references: dict[str, Any] = dict(known or {})
        self._unsettled_references: dict[str, Any] = {}
        self._complete = known is not None
        self._defined_late = False
        self._item: ListItem | None = None
        self._lead = _NO_LEAD
        self._fence: _OpenFence | None = None
        self._table: _OpenTable | None = None
        #: Where a list item could not be taken apart.
        self._refused = -1

    @property
    def references(self) -> dict[str, Any]:
        """What the links of the text so far refer to, by its name."""
        return self._references | self._unsettled_references

    @property
    def parsed_to(self) -> int:
        """How many characters are never parsed again."""
        if self._fence is not None:
            return self._fence.searched
        return self._start + (self._table.row if self._table is not None else 0)

    def update(self, text: str) -> tuple[int, list[Leaf]]:
        """The text so far -> (n, leaves): the first n leaves stand, the others are replaced by these."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if self._fence is not None and (code := self._fence.grow(text)) is not None:
            return self._settled, [code]
        settled = self._settled
        if self._table is not None:
            env = self._env()
            leaves, end = self._table.grow(text[self._start :], env, self._item)
            self._note_references(env)
            if end is None:
                return settled, leaves
            # What follows the table is parsed by itself, or within the same list item.
            after, self._table = self._table.after, None
            self._move(end, 1, after)
            return settled, [leaves[0], *self.update(text)[1]]
        unsettled = self._lead.text + text[self._start :]
        tail = _with_few_blank_lines(unsettled)
        # The first definition of a name counts, and half of one is none: those of the tail are read again.
        env = self._env()
        tokens = PARSER.parse(tail, env)
        self._note_references(env)
        walker = Walker(self._item, self._lead.numbers)
        leaves = self._lead.without(walker.walk(tokens))
        unknown, formula = tail.count("\n"), open_formula(tail)
        if formula is not None:
            begins, closed = formula
            unknown = min(unknown, begins if closed else begins + 1)
        # A table is none when the line below its head gets more columns, and what is above is one paragraph with it.
        heads = (token.map[0] for token in tokens if token.type == "table_open" and token.map)
        if unknown - 1 in heads:
            unknown -= 1
        line, first_leaf, item = walker.last_mark(tail, unknown)
        offset = line_offset(tail, line) - len(self._lead.text)
        if offset > 0:
            self._move(offset, first_leaf - self._lead.leaves, _NO_LEAD)
            self._item = item
            self._settle_references(line)
        rest = leaves[self._settled - settled :]
        self._fence = _OpenFence.find(tokens, rest, text, self._start)
        self._table = _OpenTable.find(tokens, rest[-1:], unsettled, self._lead, len(text) - self._start)
        if self._table is not None and len(rest) > 1:
            self._settle_marker(walker, rest, unsettled)
        grows_alone = self._fence is not None or self._table is not None
        if offset > 0 or grows_alone or not _is_long(tail, leaves):
            return settled, leaves
        if not self._settle_within(walker, unknown, tail, leaves):
            leaves = self._cut_paragraph(walker, tokens, tail, leaves)
        return settled, leaves

    def _move(self, characters: int, leaves: int, lead: _Lead) -> None:
        """So much more of the text is settled."""
        self._start += characters
        self._settled += leaves
        self._lead = lead

    def _settle_marker(self, walker: Walker, rest: list[Leaf], tail: str) -> None:
        """Settle what is shown of a list item that begins with the table: its marker alone."""
        marker, mark = rest[0], walker.inner_marks[-1] if walker.inner_marks else None
        alone = len(rest) == 2 and isinstance(marker, Text) and bool(marker.marker) and not marker.spans
        if self._table is None or mark is None or not alone:
            self._table = None
            return
        text = lead_of(tail.split("\n"), mark.items, mark.line + 1)
        self._table.after = _Lead(text, mark.numbers, len(self._read(text, mark.numbers)))
        self._table.lead = replace(self._table.lead, leaves=self._table.lead.leaves + 1)
        self._settled += 1

    def _settle_within(self, walker: Walker, unknown: int, tail: str, leaves: list[Leaf]) -> bool:
        """Settle what stands above the last block of a long list item."""
        first = self._lead.text.count("\n")
        for mark in reversed(walker.inner_marks):
            if first < mark.line < unknown and all(item.line != mark.line for item in mark.items):
                break
        else:
            return False
        offset = line_offset(tail, mark.line)
        place = self._start + offset - len(self._lead.text)
        if place <= self._refused:
            return False
        self._settle_references(mark.line)
        text = lead_of(tail.split("\n"), mark.items, mark.line, mark.first)
        opened = self._read(text, mark.numbers)
        lead = _Lead(text, mark.numbers, len(opened) - mark.first)
        count = mark.leaves - self._lead.leaves
        stands = bool(opened) and opened[-1].indent == len(mark.items)
        if not stands or lead.without(self._read(text + tail[offset:], mark.numbers)) != leaves[count:]:
            self._refused = place
            return False
        self._move(place - self._start, count, lead)
        return True

    def _cut_paragraph(self, walker: Walker, tokens: Sequence[Token], tail: str, leaves: list[Leaf]) -> list[Leaf]:
        """Settle most of an endless paragraph, as a model caught in a loop writes it, and start a new line there."""
        line, items = _last_paragraph(tokens), walker.last_items
        if line is None or not leaves or not isinstance(leaves[-1], Text):
            return leaves
        begins = max(line_offset(tail, line), len(self._lead.text))
        if not _is_long(tail[begins:], leaves):
            return leaves
        self._settle_references(line)
        cut = place_to_cut(tail, begins + (len(tail) - begins) // 2, len(tail) - 100)
        lines = tail.split("\n")
        text = f"{lead_of(lines, items, line)}{signs_of(lines[line])}{JOINT}"
        numbers = tuple(item.number for item in items)
        opened = self._read(text, numbers)
        last = opened[-1] if opened else None
        if not isinstance(last, Text) or (last.indent, last.quote) != (leaves[-1].indent, leaves[-1].quote):
            text, numbers = JOINT, ()
            opened = self._read(text)
        lead = _Lead(text, numbers, len(opened) - 1, joined=True)
        head = self._lead.without(self._read(tail[:cut], self._lead.numbers))
        self._move(cut - len(self._lead.text), len(head), lead)
        if not items:
            self._item = None
        return head + lead.without(self._read(text + tail[cut:], numbers))

    def _note_references(self, env: dict[str, Any]) -> None:
        self._unsettled_references = env["references"].maps[0]
        # What is settled may have links to them.
        self._defined_late |= bool(self._unsettled_references) and self._settled > 0

    def _settle_references(self, line: int) -> None:
        """Those that are defined above that line of the tail."""
        new = self._unsettled_references
        self._references.update((name, found) for name, found in new.items() if found["map"][1] <= line)
        self._unsettled_references = {name: found for name, found in new.items() if found["map"][1] > line}
        # What is settled may have links to half of one.
        self._defined_late |= bool(self._unsettled_references)

    def _env(self) -> dict[str, Any]:
        return {"references": _References({}, self._references, complete=self._complete)}

    def _read(self, text: str, numbers: tuple[int | None, ...] = ()) -> list[Leaf]:
        return Walker(self._item, numbers).walk(PARSER.parse(text, self._env()))

    @property
    def needs_second_pass(self) -> bool:
        """Whether something was settled before the definition came that a link in it may refer to."""
        return self._defined_late and not self._complete


def _is_long(text: str, leaves: Sequence[Leaf]) -> bool:
    """leaves: of which the last stands at the end of the text. Each quote around it reads all of its lines."""
    quotes = leaves[-1].quote if leaves else 0
    reading = quotes * QUOTED_LINE * text.count("\n")
    return len(text) > LONGEST_PARAGRAPH or cost(text) + reading > COSTLIEST_PARAGRAPH


def _with_few_blank_lines(text: str) -> str:
    """A model caught in a loop may end lines without end: where nothing follows, they say nothing."""
    end = text.find("\n", len(text.rstrip()))
    return f"{text[:end]}\n\n" if 0 <= end < len(text) - MOST_BLANKS else text


def _last_paragraph(tokens: Sequence[Token]) -> int | None:
    """The line of the paragraph with which everything ends."""
    last = None
    for token in tokens:
        if token.type == "paragraph_open" and token.map:
            last = token.map[0]
        elif token.nesting >= 0 and token.type != "inline":
            last = None
    return last


@dataclass
class _OpenFence:
    """A code block at the end of the text that may still grow, read without the parser."""

    content: int
    closing: re.Pattern[str]
    language: str
    #: Start of the first line that has not been searched for the closing fence.
    searched: int

    @classmethod
    def find(cls, tokens: Sequence[Token], tail: Sequence[Leaf], text: str, start: int) -> _OpenFence | None:
        if len(tail) != 1 or not isinstance(tail[0], Code) or tail[0].closed or tokens[-1].type != "fence":
            return None
        markup = tokens[-1].markup
        content = text.find("\n", start) + 1
        if content == 0 or tokens[-1].level > 0 or not text.startswith(markup, start):
            return None
        closing = re.compile(rf"^ {{0,3}}{re.escape(markup[0])}{{{len(markup)},}}[ \t]*$", re.MULTILINE)
        return cls(content, closing, tail[0].language, content)

    def grow(self, text: str) -> Code | None:
        """The block as it is now; None when its closing fence has come."""
        if self.closing.search(text, self.searched):
            return None
        self.searched = max(self.content, text.rfind("\n") + 1)
        return Code(without_half_fence(text[self.content :]), self.language, closed=False)


@dataclass
class _OpenTable:
    """A table at the end of the text that may get more rows. Each row is parsed below the table's head by itself.

    head: its first two lines, and what is put before them; row: where the first row begins that may still change,
    counted from where the table begins; leaf: the table up to there, of that size; after: what is put before what
    follows the table
    """

    lead: _Lead
    after: _Lead
    head: str
    row: int
    leaf: Table
    size: Size = _NO_SIZE

    @classmethod
    def find(
        cls, tokens: Sequence[Token], leaves: Sequence[Leaf], tail: str, lead: _Lead, size: int
    ) -> _OpenTable | None:
        """tail: what was parsed, lead included, of which the last `size` characters are not settled."""
        opened = next((n for n in reversed(range(len(tokens))) if tokens[n].type == "table_open"), None)
        if len(leaves) != 1 or not isinstance(leaves[0], Table) or opened is None:
            return None
        table_map = tokens[opened].map
        closed = next(n for n in range(opened, len(tokens)) if tokens[n].type == "table_close")
        # Around it there may be quotes, and a list item that the lead opens.
        if table_map is None or any(token.nesting >= 0 for token in tokens[closed + 1 :]):
            return None
        begins, below = (line_offset(tail, min(table_map[0] + more, tail.count("\n"))) for more in (0, 2))
        if tail.count("\n") < table_map[0] + 2 or begins != max(len(tail) - size, len(lead.text)):
            return None
        kept = lead if begins == len(lead.text) else _NO_LEAD
        head = kept.text + tail[begins:below]
        return cls(kept, lead, head, below - begins, replace(leaves[0], rows=leaves[0].rows[:1]))

    def grow(self, rest: str, env: dict[str, Any], item: ListItem | None) -> tuple[list[Leaf], int | None]:
        """rest: the text from the table on -> the table and what follows it, and where that begins.

        None while nothing does, or what does may still become rows, or a row the beginning of what does.
        """
        rest = rest[self.row :]
        tokens = PARSER.parse(self.head + rest, env | {"table": self.size})
        leaves = self.lead.without(Walker(item, self.lead.numbers).walk(tokens))
        new = leaves[0]
        assert isinstance(new, Table)
        whole = replace(self.leaf, rows=self.leaf.rows + new.rows[1:])
        table_map = next(token.map for token in tokens if token.type == "table_open")
        assert table_map is not None
        lines = table_map[1] - self.head.count("\n")
        # The last line may grow, and a formula that has begun may become one, or none.
        settled, formula = rest.count("\n"), open_formula(rest)
        sure = True
        if formula is not None:
            settled = min(settled, formula[0])
            sure = lines < settled or (lines == settled and not formula[1])
        # Half a line may look like a list's or a heading, and become a row: "*" is the beginning of "**words**".
        long = len(leaves) > 1 and len(rest) - line_offset(rest, lines) > LONGEST_HALF
        if sure and (long or rest.count("\n") > lines):
            return [whole], self.row + line_offset(rest, lines)
        self.row += line_offset(rest, settled)
        self.leaf = replace(whole, rows=self.leaf.rows + new.rows[1 : 1 + settled])
        sizes = [token.meta["size"] for token in tokens if token.type == "tr_open" and "size" in token.meta]
        self.size = (self.size, *sizes)[min(settled, len(new.rows) - 1)]
        return [whole, *leaves[1:]], None
