"""Markdown as flat leaves that a widget can draw one below the other, from whole texts and from growing ones.

HTML stays visible as text, images become links, a footnote stays where it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.tasklists import tasklists_plugin

from app.chat.markdown_rules import add_rules, open_formula

LINE_BREAK = "\u2028"
#: Characters after which a paragraph that is being written is cut: parsing and laying it out again must stay quick.
LONGEST_PARAGRAPH = 2500
_WORD_START = re.compile(r"(?<=\s)[^\W\d_]")
_QUOTED = re.compile(r"(?<=\n)>+ ?(?=[^\W\d_])")
#: What is cut off around a formula, and what is set beside it.
_BLANKS, _PUNCTUATION = LINE_BREAK + " ", (".", ",", ";", ":")
BULLETS = ("•", "◦", "▪")


@dataclass(frozen=True)
class Span:
    """A stretch of text in one style.

    link:    the address it leads to, "" for none
    math:    "" or how a formula is set, the text being its LaTeX: "inline", or "display" within a line
    raised:  small and high, as the number of a footnote
    """

    text: str
    bold: bool = False
    italic: bool = False
    code: bool = False
    strike: bool = False
    link: str = ""
    math: str = ""
    raised: bool = False


@dataclass(frozen=True)
class Text:
    """A paragraph, heading or list item.

    heading: 1..6, 0 for none        indent: list depth        quote: block quote depth
    marker:  what stands before it: "•", "3.", "☑", the label of a footnote
    close:   it follows the line above without a paragraph's distance
    """

    spans: tuple[Span, ...]
    heading: int = 0
    marker: str = ""
    indent: int = 0
    quote: int = 0
    close: bool = False


@dataclass(frozen=True)
class Code:
    """A code block without its last newline. closed: False while its closing fence has not come."""

    text: str
    language: str = ""
    closed: bool = True
    indent: int = 0
    quote: int = 0


@dataclass(frozen=True)
class Math:
    """A formula on lines of its own, without its dollars or brackets."""

    text: str
    indent: int = 0
    quote: int = 0


@dataclass(frozen=True)
class Table:
    """Rows of cells, the first row being the head. Each row has one cell for each of `aligns`: left, center, right."""

    rows: tuple[tuple[tuple[Span, ...], ...], ...]
    aligns: tuple[str, ...]
    indent: int = 0
    quote: int = 0


@dataclass(frozen=True)
class Rule:
    indent: int = 0
    quote: int = 0


Leaf = Text | Code | Math | Table | Rule


def _make_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.use(tasklists_plugin)
    add_rules(parser)
    return parser


_PARSER = _make_parser()


def parse(text: str) -> list[Leaf]:
    """The leaves of a whole text."""
    return _Walker().walk(_PARSER.parse(text, {}))


class StreamParser:
    """Parses a text that only grows, at the cost of its last block.

    A block is settled as soon as another one begins behind it; only what lies behind the last settled block is
    parsed again. Within a quote the same holds for its blocks, within a list for its items, within a table for its
    rows, within a code block for its lines.

    whole: what the text will grow to, if that is known; links then find their definitions wherever they are.
    """

    def __init__(self, whole: str = "") -> None:
        self._settled = 0
        self._start = 0
        self._env: dict[str, Any] = {}
        if whole:
            lines = (line for line in whole.splitlines() if line.lstrip().startswith("[") and "]:" in line)
            _PARSER.parse("\n\n".join(lines), self._env)
        self._complete = bool(whole)
        self._item: _Item | None = None
        self._fence: _OpenFence | None = None
        self._table: _OpenTable | None = None

    def update(self, text: str) -> tuple[int, list[Leaf]]:
        """The text so far -> (n, leaves): the first n leaves stand, the others are replaced by these."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if self._fence is not None and (code := self._fence.grow(text)) is not None:
            return self._settled, [code]
        settled = self._settled
        if self._table is not None:
            table, end = self._table.grow(text, self._env)
            if end is None:
                return settled, [table]
            # What follows the table is parsed by itself.
            self._table, self._start, self._settled = None, end, settled + 1
            return settled, [table, *self.update(text)[1]]
        tail = text[self._start :]
        tokens = _PARSER.parse(tail, self._env)
        walker = _Walker(self._item)
        leaves = walker.walk(tokens)
        unknown, formula = tail.count("\n"), open_formula(tail)
        if formula is not None:
            unknown = min(unknown, formula + 1)
        line, first_leaf, self._item = walker.last_mark(unknown)
        self._start += _line_offset(tail, line)
        self._settled += first_leaf
        self._fence = _OpenFence.find(tokens, leaves[first_leaf:], text, self._start)
        self._table = _OpenTable.find(tokens, leaves[first_leaf:], text, self._start)
        if len(text) - self._start > LONGEST_PARAGRAPH and _ends_with_paragraph(tokens):
            leaves[first_leaf:] = self._cut_paragraph(text)
        return settled, leaves

    def _cut_paragraph(self, text: str) -> list[Leaf]:
        """Settle most of an endless paragraph, as a model caught in a loop writes it, and start a new line there."""
        tail = text[self._start :]
        # In a quote a new one begins with a line, which has the quote's sign.
        pattern = _QUOTED if tail.lstrip(" ").startswith(">") else _WORD_START
        words = [match.start() for match in pattern.finditer(tail, len(tail) // 2, len(tail) - 100)]
        # A new line shows where there was one before.
        cut = max((word for word in words if tail[word - 1] == "\n"), default=max(words, default=0))
        if tail.startswith((" ", "\t")) or not cut or self._item is not None:
            return _Walker(self._item).walk(_PARSER.parse(tail, self._env))
        head = parse(tail[:cut])
        rest = _Walker().walk(_PARSER.parse(tail[cut:], self._env))
        self._start += cut
        self._settled += len(head)
        return head + rest

    @property
    def needs_second_pass(self) -> bool:
        """Whether links refer to definitions, which may have come after the link was settled."""
        return bool(self._env.get("references")) and not self._complete


def _ends_with_paragraph(tokens: Sequence[Token]) -> bool:
    """Whether the last thing is a paragraph, of the text or of a quote."""
    kinds = (token.type for token in reversed(tokens))
    return next((kind for kind in kinds if kind != "blockquote_close"), "") == "paragraph_close"


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
        return Code(_without_half_fence(text[self.content :]), self.language, closed=False)


@dataclass
class _OpenTable:
    """A table at the end of the text that may get more rows. Each row is parsed below the table's head by itself.

    head: its first two lines; row: where the first row begins that may still change; leaf: the table up to there
    """

    head: str
    row: int
    leaf: Table

    @classmethod
    def find(cls, tokens: Sequence[Token], tail: Sequence[Leaf], text: str, start: int) -> _OpenTable | None:
        if len(tail) != 1 or not isinstance(tail[0], Table) or tokens[-1].type != "table_close" or tokens[-1].level:
            return None
        below = text.find("\n", text.find("\n", start) + 1) + 1
        if below == 0 or not text[start:below].strip():
            return None
        return cls(text[start:below], below, replace(tail[0], rows=tail[0].rows[:1]))

    def grow(self, text: str, env: dict[str, Any]) -> tuple[Table, int | None]:
        """The table as it is now, and where what follows it begins; None while nothing does."""
        rest = text[self.row :]
        tokens = _PARSER.parse(self.head + rest, env)
        new = _Walker().walk(tokens)[0]
        assert isinstance(new, Table)
        whole = replace(self.leaf, rows=self.leaf.rows + new.rows[1:])
        table_map = tokens[0].map
        assert table_map is not None
        lines = table_map[1] - 2
        if tokens[-1].type != "table_close" or tokens[-1].level or rest.count("\n") > lines:
            return whole, self.row + _line_offset(rest, lines)
        # The last line may grow, and a formula that has begun may become one.
        formula = open_formula(rest)
        settled = rest.count("\n") if formula is None else min(formula, rest.count("\n"))
        self.row += _line_offset(rest, settled)
        self.leaf = replace(whole, rows=self.leaf.rows + new.rows[1 : 1 + settled])
        return whole, None


@dataclass(frozen=True)
class _Item:
    """A list item that is not its list's first, when parsing starts at it. number: None in a bullet list."""

    number: int | None


#: Tokens that become a leaf of their own, without text that could carry a list marker.
_BLOCKS = {"fence", "code_block", "math_block", "hr", "table_open"}


class _Walker:
    """Turns a token stream into leaves. first: what is known of the list item that the stream begins with."""

    def __init__(self, first: _Item | None = None) -> None:
        self._leaves: list[Leaf] = []
        self._first = first
        #: (line, number of leaves before it, its place in its list) of every top-level block and list item.
        self._marks: list[tuple[int, int, _Item | None]] = [(0, 0, first)]
        #: The next number of each open list, None for bullets.
        self._lists: list[int | None] = []
        self._quote = 0
        self._heading = 0
        self._marker = self._footnote = ""
        self._close = False

    def last_mark(self, unknown: int) -> tuple[int, int, _Item | None]:
        """Where the last block begins of which it is known that it is one. unknown: a line, and all below it.

        What an unfinished line will be is not known yet: "9" may become "9) nine".
        """
        return next(mark for mark in reversed(self._marks) if mark[0] < unknown or mark is self._marks[0])

    def walk(self, tokens: Sequence[Token]) -> list[Leaf]:
        index = 0
        while index < len(tokens):
            token = tokens[index]
            kind = token.type
            # What stands in a quote, and in nothing else, can be read by itself: its lines have the quote's sign.
            if token.level == self._quote and token.nesting >= 0 and token.map:
                self._marks.append((token.map[0], len(self._leaves), self._first if index == self._quote else None))
            if kind in ("bullet_list_open", "ordered_list_open"):
                self._open_list(token, continued=index == self._quote and self._first is not None)
            elif kind in ("bullet_list_close", "ordered_list_close"):
                self._lists.pop()
                self._close = False
            elif kind == "list_item_open":
                self._open_item(tokens, index)
            elif kind == "list_item_close":
                self._flush_marker()
                self._close = True
            elif kind in ("blockquote_open", "blockquote_close"):
                self._quote += token.nesting
                self._close = False
            elif kind == "heading_open":
                self._heading = int(token.tag[1])
            elif kind == "heading_close":
                self._heading = 0
            elif kind == "paragraph_open":
                self._footnote = str(token.meta.get("footnote", ""))
            elif kind == "inline":
                self._add_paragraph(tuple(_spans(token.children or [])))
            elif kind in _BLOCKS:
                self._flush_marker()
                self._close = False
                if kind == "table_open":
                    index = self._add_table(tokens, index)
                elif kind == "hr":
                    self._leaves.append(Rule(len(self._lists), self._quote))
                elif kind == "math_block":
                    self._leaves.append(Math(token.content, len(self._lists), self._quote))
                else:
                    self._leaves.append(_code(token, len(self._lists), self._quote))
            index += 1
        return self._leaves

    def _open_list(self, token: Token, continued: bool) -> None:
        start = token.attrGet("start")
        number = None if token.type == "bullet_list_open" else 1 if start is None else int(start)
        if continued and number is not None and self._first is not None:
            number = self._first.number
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
            place = (self._first if index == self._quote + 1 else None) if opens_list else _Item(number)
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
                self._flush_marker()
                self._leaves.append(Math(span.text, len(self._lists), self._quote))
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
        self._leaves.append(Text(spans, self._heading, self._marker, depth, self._quote, self._close))
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
        self._leaves.append(Table(tuple(map(tuple, rows)), tuple(aligns), len(self._lists), self._quote))
        return index


def _code(token: Token, indent: int, quote: int) -> Code:
    text = token.content.removesuffix("\n")
    if token.type != "fence":
        return Code(text.strip("\n"), "", True, indent, quote)
    assert token.map is not None
    lines = token.content.count("\n") + (token.content[-1:] not in ("", "\n"))
    closed = token.map[1] - token.map[0] - 1 > lines
    if not closed:
        text = _without_half_fence(text)
    language = token.info.split()[0] if token.info.split() else ""
    return Code(text, language.strip("{}."), closed, indent, quote)


def _without_half_fence(text: str) -> str:
    """Drop a last line that is on its way to become the closing fence, and the newline that ends the last line."""
    head, newline, last = text.rpartition("\n")
    half = last.strip() in ("`", "``", "~", "~~")
    return head if half or (newline and not last) else text


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
    depth = {"strong": 0, "em": 0, "s": 0}
    link = ""

    def span(text: str, code: bool = False, italic: bool = False, to: str = "") -> Span:
        return Span(text, depth["strong"] > 0, italic or depth["em"] > 0, code, depth["s"] > 0, link or to)

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


def _line_offset(text: str, line: int) -> int:
    """Where line number `line` starts."""
    offset = 0
    for _ in range(line):
        offset = text.index("\n", offset) + 1
    return offset
