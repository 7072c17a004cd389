"""Markdown as flat leaves that a widget can draw one below the other. Texts that grow: `markdown_stream`.

HTML stays visible as text but for <br>, <sub> and <sup>, images become links, a footnote stays where it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.tasklists import tasklists_plugin

from app.chat.rendering.markdown_inline import add_inline_rules
from app.chat.rendering.markdown_rules import add_rules
from app.chat.rendering.markdown_tables import add_tables

LINE_BREAK = "\u2028"
#: What is cut off around a formula, and what is set beside it.
_BLANKS, _PUNCTUATION = LINE_BREAK + " ", (".", ",", ";", ":")
BULLETS = ("•", "◦", "▪")
_INDENTED_QUOTE = re.compile(r"(?: {4}| {0,3}\t)[ \t]*>")


@dataclass(frozen=True)
class Span:
    """A stretch of text in one style.

    link:    the address it leads to, "" for none
    math:    "" or how a formula is set, the text being its LaTeX: "inline", or "display" within a line
    raised:  small and high, as the number of a footnote
    script:  "", "sub" or "sup": lowered or raised as in H2O and m2
    """

    text: str
    bold: bool = False
    italic: bool = False
    code: bool = False
    strike: bool = False
    link: str = ""
    math: str = ""
    raised: bool = False
    script: str = ""


@dataclass(frozen=True)
class Text:
    """A paragraph, heading or list item.

    heading: 1..6, 0 for none        indent: list depth        quote: block quote depth
    outer:   how many of the lists are around the quotes
    marker:  what stands before it: "•", "3.", "☑", the label of a footnote
    close:   it follows the line above without a paragraph's distance
    """

    spans: tuple[Span, ...]
    heading: int = 0
    marker: str = ""
    indent: int = 0
    quote: int = 0
    close: bool = False
    outer: int = 0


@dataclass(frozen=True)
class Code:
    """A code block without its last newline. closed: False while its closing fence has not come."""

    text: str
    language: str = ""
    closed: bool = True
    indent: int = 0
    quote: int = 0
    outer: int = 0


@dataclass(frozen=True)
class Math:
    """A formula on lines of its own, without its dollars or brackets."""

    text: str
    indent: int = 0
    quote: int = 0
    outer: int = 0


@dataclass(frozen=True)
class Table:
    """Rows of cells, the first row being the head. Each row has one cell for each of `aligns`: left, center, right."""

    rows: tuple[tuple[tuple[Span, ...], ...], ...]
    aligns: tuple[str, ...]
    indent: int = 0
    quote: int = 0
    outer: int = 0


@dataclass(frozen=True)
class Rule:
    indent: int = 0
    quote: int = 0
    outer: int = 0


Leaf = Text | Code | Math | Table | Rule


def _make_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.use(tasklists_plugin)
    add_rules(parser)
    add_inline_rules(parser)
    add_tables(parser)
    return parser


PARSER = _make_parser()


def parse(text: str) -> list[Leaf]:
    """The leaves of a whole text."""
    return Walker().walk(PARSER.parse(text, {}))


@dataclass(frozen=True)
class ListItem:
    """A list item that is not its list's first, when parsing starts at it. number: None in a bullet list."""

    number: int | None


@dataclass(frozen=True)
class OpenItem:
    """A list item around a block: the line at which it begins, and its number, None in a bullet list."""

    line: int
    number: int | None


@dataclass(frozen=True)
class InnerMark:
    """Where a block within list items begins.

    leaves: so many come before it; items: around it; numbers: with which their lists, and its own, go on there
    first:  the innermost item has shown nothing yet
    """

    line: int
    leaves: int
    items: tuple[OpenItem, ...]
    numbers: tuple[int | None, ...]
    first: bool = False


#: Tokens that become a leaf of their own, without text that could carry a list marker.
_BLOCKS = {"fence", "code_block", "math_block", "hr", "table_open"}


class Walker:
    """Turns a token stream into leaves.

    first:   what is known of the list item that the stream begins with
    numbers: with which the lists go on that the stream opens first, None for bullets
    """

    def __init__(self, first: ListItem | None = None, numbers: Sequence[int | None] = ()) -> None:
        self._leaves: list[Leaf] = []
        self._first = first
        #: (line, number of leaves before it, its place in its list) of every top-level block and list item.
        self._marks: list[tuple[int, int, ListItem | None]] = [(0, 0, first)]
        self._numbers = list(numbers)
        #: The open list items.
        self._items: list[OpenItem] = []
        #: Of every block within list items.
        self.inner_marks: list[InnerMark] = []
        #: The items around the last paragraph.
        self.last_items: tuple[OpenItem, ...] = ()
        #: The next number of each open list, None for bullets.
        self._lists: list[int | None] = []
        self._quote = self._outer = 0
        self._heading = 0
        self._marker = self._footnote = ""
        self._close = False

    def last_mark(self, text: str, unknown: int) -> tuple[int, int, ListItem | None]:
        """Where the last block begins of which it is known that it is one. unknown: a line, and all below it.

        What an unfinished line will be is not known yet: "9" may become "9) nine". A line of a quote that is indented
        like code goes on with a quote, but begins none.
        """
        for mark in reversed(self._marks[1:]):
            if mark[0] < unknown and not _INDENTED_QUOTE.match(text, line_offset(text, mark[0])):
                return mark
        return self._marks[0]

    def walk(self, tokens: Sequence[Token]) -> list[Leaf]:
        index = 0
        while index < len(tokens):
            token = tokens[index]
            kind = token.type
            # What stands in a quote, and in nothing else, can be read by itself: its lines have the quote's sign.
            if self._items and token.nesting >= 0 and token.map and token.block and kind != "inline":
                numbers = [item.number for item in self._items]
                if kind == "list_item_open":
                    numbers.append(self._lists[-1])
                place = token.map[0], len(self._leaves)
                mark = InnerMark(*place, tuple(self._items), tuple(numbers), first=bool(self._marker))
                self.inner_marks.append(mark)
            if token.level == self._quote and token.nesting >= 0 and token.map:
                self._marks.append((token.map[0], len(self._leaves), self._first if index == self._quote else None))
            if kind in ("bullet_list_open", "ordered_list_open"):
                self._open_list(token, continued=index == self._quote and self._first is not None)
            elif kind in ("bullet_list_close", "ordered_list_close"):
                self._lists.pop()
                self._close = False
            elif kind == "list_item_open":
                self._open_item(tokens, index)
                number = self._lists[-1]
                self._items.append(OpenItem(token.map[0] if token.map else 0, None if number is None else number - 1))
            elif kind == "list_item_close":
                self._flush_marker()
                self._close = True
                self._items.pop()
            elif kind in ("blockquote_open", "blockquote_close"):
                if self._quote == 0:
                    self._outer = len(self._lists)
                self._quote += token.nesting
                if self._quote == 0:
                    self._outer = 0
                self._close = False
            elif kind == "heading_open":
                self._heading = int(token.tag[1])
            elif kind == "heading_close":
                self._heading = 0
            elif kind == "paragraph_open":
                self.last_items = tuple(self._items)
                self._footnote = str(token.meta.get("footnote", ""))
            elif kind == "inline":
                self._add_paragraph(tuple(_spans(token.children or [])))
            elif kind == "math_block" and self._marker:
                # An item's sign stands beside its formula, not above it.
                self._add_text((Span(token.content, math="display"),))
            elif kind in _BLOCKS:
                self._flush_marker()
                self._close = False
                if kind == "table_open":
                    index = self._add_table(tokens, index)
                elif kind == "hr":
                    self._leaves.append(Rule(*self._place))
                elif kind == "math_block":
                    self._leaves.append(Math(token.content, *self._place))
                else:
                    self._leaves.append(_code(token, self._place))
            index += 1
        return self._leaves

    @property
    def _place(self) -> tuple[int, int, int]:
        """How many lists and quotes are around what comes next, and how many of the lists around the quotes."""
        return len(self._lists), self._quote, self._outer

    def _open_list(self, token: Token, continued: bool) -> None:
        start = token.attrGet("start")
        number = None if token.type == "bullet_list_open" else 1 if start is None else int(start)
        if continued and number is not None and self._first is not None:
            number = self._first.number
        if self._numbers:
            number = self._numbers.pop(0)
        self._close = continued or bool(self._lists)
        self._lists.append(number)

    def _open_item(self, tokens: Sequence[Token], index: int) -> None:
        token, number = tokens[index], self._lists[-1]
        depth = min(len(self._lists), len(BULLETS))
        self._marker = BULLETS[depth - 1] if number is None else f"{number}."
        checked = _checkbox(tokens, index)
        if checked is not None:
            self._marker = "☑" if checked else "☐"
        if token.level == self._quote + 1 and token.map:
            opens_list = tokens[index - 1].type.endswith("list_open")
            place = (self._first if index == self._quote + 1 else None) if opens_list else ListItem(number)
            self._marks.append((token.map[0], len(self._leaves), place))
        if number is not None:
            self._lists[-1] = number + 1

    def _flush_marker(self) -> None:
        """A marker whose item does not begin with text stands alone."""
        if self._marker:
            self._add_text(())

    def _add_paragraph(self, spans: tuple[Span, ...]) -> None:
        """The formulas of a paragraph that ask for lines of their own get them."""
        rest: list[Span] = []
        alone = not self._heading
        for span in spans:
            if span.math == "display" and alone:
                if before := _without_breaks(rest):
                    self._add_text(before)
                if self._marker:
                    self._add_text((span,))
                else:
                    self._leaves.append(Math(span.text, *self._place))
                rest = []
            else:
                rest.append(span)
        text = _without_breaks(rest) if len(rest) < len(spans) else spans
        last = self._leaves[-1] if len(rest) < len(spans) else None
        if isinstance(last, Math) and len(text) == 1 and text[0].text in _PUNCTUATION:
            self._leaves[-1] = replace(last, text=last.text + text[0].text)
        elif text or not spans:
            self._add_text(text)

    def _add_text(self, spans: tuple[Span, ...]) -> None:
        depth = len(self._lists)
        if self._footnote:
            self._marker, depth, self._footnote = self._footnote, depth + 1, ""
        self._leaves.append(Text(spans, self._heading, self._marker, depth, self._quote, self._close, self._outer))
        self._marker, self._close = "", False

    def _add_table(self, tokens: Sequence[Token], index: int) -> int:
        """Returns the index of the table's last token."""
        rows: list[list[tuple[Span, ...]]] = []
        aligns: list[str] = []
        while tokens[index].type != "table_close":
            token = tokens[index]
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "th_open":
                aligns.append(str(token.attrGet("style") or "text-align:left").partition(":")[2])
            elif token.type == "inline":
                rows[-1].append(tuple(_spans(token.children or [])))
            index += 1
        self._leaves.append(Table(tuple(map(tuple, rows)), tuple(aligns), *self._place))
        return index


def _code(token: Token, place: tuple[int, int, int]) -> Code | Math:
    """A code block; one in the language "math" is a formula as soon as it is closed."""
    text = token.content.removesuffix("\n")
    if token.type != "fence":
        return Code(text.strip("\n"), "", True, *place)
    assert token.map is not None
    lines = token.content.count("\n") + (token.content[-1:] not in ("", "\n"))
    closed = token.map[1] - token.map[0] - 1 > lines
    if not closed:
        text = without_half_fence(text)
    language = token.info.split()[0].strip("{}.") if token.info.split() else ""
    if language.lower() == "math" and closed and text.strip():
        return Math(text.strip(), *place)
    return Code(text, language, closed, *place)


def without_half_fence(text: str) -> str:
    """Drop a last line that is on its way to become the closing fence, and the empty lines at the end."""
    head, _, last = text.rpartition("\n")
    return (head if last.strip() in ("`", "``", "~", "~~") else text).rstrip("\n")


def _checkbox(tokens: Sequence[Token], index: int) -> bool | None:
    """Whether the list item at `index` is ticked; None when it has no box. Removes the box from its text."""
    if "task-list-item" not in str(tokens[index].attrGet("class") or ""):
        return None
    inline = next(token for token in tokens[index:] if token.type == "inline")
    assert inline.children is not None
    box = inline.children.pop(0)
    if inline.children and inline.children[0].type == "text":
        inline.children[0].content = inline.children[0].content.lstrip()
    return "checked=" in box.content


def _spans(tokens: Sequence[Token]) -> Iterator[Span]:
    depth = {"strong": 0, "em": 0, "s": 0, "sub": 0, "sup": 0}
    link = ""

    def span(text: str, code: bool = False, to: str = "") -> Span:
        script = "sub" if depth["sub"] else "sup" if depth["sup"] else ""
        return Span(text, depth["strong"] > 0, depth["em"] > 0, code, depth["s"] > 0, link or to, script=script)

    for token in tokens:
        kind = token.type
        if kind == "text":
            if token.content:
                yield span(token.content)
        elif kind == "link_open":
            link = str(token.attrGet("href") or "")
        elif kind == "link_close":
            link = ""
        elif token.nesting and kind.rpartition("_")[0] in depth:
            depth[kind.rpartition("_")[0]] += token.nesting
        elif kind in ("softbreak", "hardbreak"):
            # Models end lines where they mean to: verses, addresses, "key: value" lines.
            yield span(LINE_BREAK)
        elif kind == "code_inline":
            yield span(token.content, code=True)
        elif kind == "math_inline":
            yield Span(token.content, math="display" if token.meta["display"] else "inline", link=link)
        elif kind == "footnote_reference":
            yield Span(token.content, raised=True)
        elif kind == "image":
            address = str(token.attrGet("src") or "")
            yield span(token.content or address, to=address)
        elif token.content:
            yield span(token.content)


def _without_breaks(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Without line breaks and blanks at both ends, where a formula was."""
    kept = list(spans)
    for end in (0, -1):
        while kept and not kept[end].code:
            text = kept[end].text
            text = text.lstrip(_BLANKS) if end == 0 else text.rstrip(_BLANKS)
            if text:
                kept[end] = replace(kept[end], text=text)
                break
            kept.pop(end)
    return tuple(kept)


def line_offset(text: str, line: int) -> int:
    """Where line number `line` starts."""
    offset = 0
    for _ in range(line):
        offset = text.index("\n", offset) + 1
    return offset
