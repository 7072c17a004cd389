"""One message's Markdown as a column of widgets, which can grow while it is written."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from PySide6.QtCore import Qt, QTimer, Signal, Slot
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QFrame, QWidget

from app.chat.formulas.math_store import formulas
from app.chat.formulas.math_view import FormulaView
from app.chat.rendering.code_view import CodeView
from app.chat.rendering.cost import affordable, cost
from app.chat.rendering.flow_view import FlowView
from app.chat.rendering.late_links import LateLinks
from app.chat.rendering.markdown import LINE_BREAK, Code, Leaf, Math, Rule, Span, Table, Text, parse
from app.chat.rendering.markdown_stream import StreamParser
from app.chat.rendering.rich_text import INDENT, PARAGRAPH_GAP, QUOTE_BAR, QUOTE_INDENT, QUOTE_TOP, TextView, cost_of
from app.chat.rendering.table_view import TableView
from app.theme import theme

#: The cost of one text view. Beyond that the next paragraph starts a new one, so that laying out stays quick.
LONGEST_VIEW = 14_000
#: Texts longer than LONG_TEXT, or of a higher cost than SLICE_COST, are laid out in slices of at most SLICE characters
#: and SLICE_COST, for at most SLICE_SECONDS between two turns of the event loop.
LONG_TEXT, COSTLY_TEXT = 6000, 10_000
SLICE, SLICE_COST, SLICE_SECONDS = 800, 5000, 0.015
#: Blocks with widgets of their own that are shown at once, and characters that are shown without counting them. Such a
#: block may be a line of six characters.
MOST_BLOCKS, UNCOUNTED = 12, 60
#: Blocks with fewer characters than SMALL that get widgets of their own in one message. Further ones are shown as text:
#: a model caught in a loop writes thousands of empty code blocks, each of which would take ten widgets.
SMALL, MOST_SMALL = 64, 300
#: Leaves of text, and rows of a table, that are written anew between two such turns when their links are found.
LATE_TEXTS, LATE_ROWS = 40, 20


@dataclass
class _Part:
    """A widget and the leaves it shows.

    bottom: where the room for the next part begins
    small:  how many parts up to this one, itself included, are small blocks
    """

    widget: FlowView | CodeView | QFrame
    first: int
    count: int
    bottom: int = 0
    small: int = 0


def _frame(leaf: Leaf) -> object:
    """What a leaf is without its text, if that may have links."""
    if isinstance(leaf, Text):
        return leaf.heading, leaf.marker, leaf.indent, leaf.quote, leaf.close, leaf.outer
    return (leaf.aligns, leaf.indent, leaf.quote, leaf.outer) if isinstance(leaf, Table) else leaf


def _is_small(leaf: Leaf) -> bool:
    if isinstance(leaf, Table):
        return sum(len(span.text) for row in leaf.rows for cell in row for span in cell) < SMALL
    return isinstance(leaf, Rule) or (isinstance(leaf, (Code, Math)) and len(leaf.text) < SMALL)


def _are_many(leaves: Sequence[Leaf]) -> bool:
    return sum(not isinstance(leaf, Text) for leaf in leaves) > MOST_BLOCKS


def _has_many_blocks(text: str, start: int, end: int) -> bool:
    """Whether that piece has, as far as can be told without all that stands above its first line."""
    begin = max(text.rfind("\n", 0, start) + 1, start - SLICE)
    return end - start > UNCOUNTED and _are_many(parse(text[begin:end]))


def _as_text(leaf: Leaf) -> Text:
    """What shows a block within a text view."""
    if isinstance(leaf, Text):
        return leaf
    spans: list[Span] = []
    if isinstance(leaf, Code):
        spans.append(Span(leaf.text.replace("\n", LINE_BREAK), code=True))
    elif isinstance(leaf, Math):
        spans.append(Span(leaf.text, math="display"))
    elif isinstance(leaf, Table):
        for row in leaf.rows:
            for cell in row:
                spans += (*cell, Span(" | "))
            spans[-1] = Span(LINE_BREAK)
        spans.pop()
    else:
        spans.append(Span("———"))
    return Text(tuple(spans), indent=leaf.indent, quote=leaf.quote, outer=leaf.outer)


def _with_rows_of(shown: Table, whole: Table, most: int) -> Table:
    """What is shown with the first rows of another table that differ, but not more of them than `most`."""
    differ = (n for n, (old, new) in enumerate(zip(shown.rows, whole.rows, strict=False)) if old != new)
    end = next(islice(differ, most, None), None)
    return whole if end is None else replace(whole, rows=(*whole.rows[:end], *shown.rows[end:]))


class BodyView(QWidget):
    """Shows Markdown. `set_text` takes it whole; `grow` takes a longer version of it again and again.

    It places its parts itself: a layout would ask thousands of them for their sizes whenever the last one grows.
    """

    linkChosen = Signal(str)
    #: More of a long text is shown, or a formula has been laid out.
    resized = Signal()

    def __init__(self, ink: str = "text", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._ink = ink
        self._width = 0
        self._text = ""
        self._parser: StreamParser | None = None
        self._leaves: list[Leaf] = []
        self._parts: list[_Part] = []
        self._caret = False
        #: The view that shows it.
        self._caret_in: TextView | None = None
        #: The first part that has become taller or shorter by itself.
        self._grown: int | None = None
        formulas().delivered.connect(self._place_grown)
        #: The whole of a long text of which only the beginning, `_text`, is shown yet.
        self._rest = ""
        #: More may come than `_rest` has.
        self._grows = False
        #: Finds the links that the whole text has beyond what is shown.
        self._links: LateLinks | None = None
        #: The leaves that have such links and do not show them yet.
        self._late: list[int] = []
        self._slices = QTimer(self, singleShot=True, interval=0)
        self._slices.timeout.connect(self._show_slice)

    @property
    def text(self) -> str:
        return self._text

    @property
    def leaves(self) -> Sequence[Leaf]:
        return self._leaves

    @property
    def complete(self) -> bool:
        """False while a long text is still being laid out, or read again for what its links refer to."""
        return not self._rest and self._links is None

    def set_text(self, text: str, references: Mapping[str, Any] | None = None) -> None:
        """Show a whole text: a short one at once, a long one slice by slice so that the window stays awake.

        references: what its links refer to, if that is known
        """
        self._parser = None
        self._forget_links()
        self._text = self._rest = ""
        self._grows = False
        if len(text) <= LONG_TEXT and cost(text) <= COSTLY_TEXT and not _are_many(leaves := parse(text)):
            self._text = text
            self._change(0, leaves)
        else:
            self._rest = text
            self._parser = StreamParser(references)
            self._show_slice()

    def grow(self, text: str) -> None:
        """Show `text`, which begins with what was shown last. Much of it at once is laid out slice by slice too."""
        if text == (self._rest or self._text):
            return
        if self._parser is None or not text.startswith(self._text):
            self._forget_links()
            self._parser = StreamParser()
            self._text = ""
        self._grows = True
        start, end = len(self._text), len(text)
        much = end - start > LONG_TEXT or cost(text[start:]) > SLICE_COST
        if self._rest or much or _has_many_blocks(text, start, end):
            self._rest = text
            if not self._slices.isActive():
                self._show_slice()
        else:
            self._show(text)

    def _show(self, text: str) -> None:
        assert self._parser is not None
        self._text = text
        self._change(*self._parser.update(text))

    def finish(self) -> None:
        """The text will not grow any more."""
        self.set_caret(False)
        self._grows = False
        if self._rest:
            return  # when all of it is shown
        parser, self._parser = self._parser, None
        if parser is not None and parser.needs_second_pass:
            self._links = LateLinks(self._text, parser.references, self)
            self._links.found.connect(self._show_links)

    def _forget_links(self) -> None:
        if self._links is not None:
            self._links.deleteLater()
            self._links = None

    @Slot()
    def _show_links(self) -> None:
        """Write anew what has links that were not known when it was shown, a little in each turn of the event loop."""
        assert self._links is not None
        leaves = self._links.leaves
        self._late = [n for n, (old, new) in enumerate(zip(self._leaves, leaves, strict=False)) if old != new]
        same = len(leaves) == len(self._leaves)
        if same and all(_frame(leaves[n]) == _frame(self._leaves[n]) for n in self._late):
            self._show_late_view()
        else:
            self.set_text(self._text, self._links.references)

    @Slot()
    def _show_late_view(self) -> None:
        if self._links is None or not self._late:
            self._forget_links()
            return
        index = self._part_of(self._late[0])
        part = self._parts[index]
        found = {n: self._links.leaves[n] for n in self._late[:LATE_TEXTS] if n < part.first + part.count}
        self._late = self._late[len(found) :]
        if isinstance(part.widget, TableView):
            shown, whole = self._leaves[part.first], found[part.first]
            assert isinstance(shown, Table)
            assert isinstance(whole, Table)
            some = _with_rows_of(shown, whole, LATE_ROWS)
            if some != whole:
                self._late.insert(0, part.first)
            found[part.first] = some
            part.widget.show_leaf(some)
        for n, leaf in found.items():
            self._leaves[n] = leaf
        if isinstance(part.widget, TextView):
            leaves = self._leaves[part.first : part.first + part.count]
            part.widget.rewrite([_as_text(leaf) for leaf in leaves])
        self._place(index)
        self.resized.emit()
        QTimer.singleShot(0, self._links, self._show_late_view)

    @Slot()
    def _show_slice(self) -> None:
        until = time.perf_counter() + SLICE_SECONDS
        while self._rest:
            # A line without end is laid out anew for each slice: with growing ones, that is a few times.
            line = len(self._text) - self._text.rfind("\n")
            start = len(self._text)
            end = affordable(self._rest, start, start + max(SLICE, line // 2), SLICE_COST)
            while _has_many_blocks(self._rest, start, end):
                end = start + (end - start) // 2
            self._show(self._rest[:end])
            if len(self._text) == len(self._rest):
                self._rest = ""
                if not self._grows:
                    self.finish()
            if time.perf_counter() >= until:
                break
        if self._rest:
            self._slices.start()
        self.resized.emit()

    def restyle(self) -> None:
        """Draw everything anew in the colours of the present theme."""
        leaves = self._leaves
        self._truncate(0)
        self._leaves = []
        self._change(0, leaves)

    def set_caret(self, on: bool) -> None:
        self._caret = on
        self._place_caret()

    def set_width(self, width: int) -> None:
        if width != self._width:
            self._width = width
            for part in self._parts:
                self._fit(part)
            self.setFixedWidth(width)
            self._place(0)

    def paintEvent(self, event: QPaintEvent) -> None:
        """The bars of quotes go on beside code, tables and formulas; beside text they are the text's own."""
        painter = QPainter(self)
        painter.setPen(Qt.PenStyle.NoPen)
        for index in range(self._part_at(event.rect().top()), len(self._parts)):
            part = self._parts[index]
            if part.widget.y() - PARAGRAPH_GAP > event.rect().bottom():
                break
            if isinstance(part.widget, TextView) or part.first >= len(self._leaves):
                continue
            above = self._leaves[part.first - 1].quote if part.first else 0
            below = self._leaves[part.first + 1].quote if part.first + 1 < len(self._leaves) else 0
            leaf = self._leaves[part.first]
            for level in range(leaf.quote):
                top = part.widget.y() - (PARAGRAPH_GAP if above > level else 0)
                bottom = part.bottom + QUOTE_TOP if below > level else part.bottom - PARAGRAPH_GAP
                x = leaf.outer * INDENT + level * QUOTE_INDENT
                painter.fillRect(x, top, QUOTE_BAR, bottom - top, theme().colour("line"))

    def _part_at(self, y: int) -> int:
        """The index of the first part that ends below y, or its gap does."""
        return bisect_left(self._parts, y, key=lambda part: part.bottom)

    def _change(self, keep: int, leaves: Sequence[Leaf]) -> None:
        """Keep the first leaves, replace the others. What is the same again is not touched."""
        same = 0
        for old, new in zip(self._leaves[keep:], leaves, strict=False):
            if old != new:
                break
            same += 1
        keep += same
        leaves = leaves[same:]
        if keep == len(self._leaves) and not leaves:
            return
        # The part before the first that changes may take some of the new text.
        place = self._part_of(keep) - 1
        if leaves and self._replace_in_place(keep, leaves[0]):
            self._leaves[keep:] = [leaves[0]]
            keep, leaves = keep + 1, leaves[1:]
        self._truncate(keep, reuse=bool(leaves) and isinstance(leaves[0], Text))
        del self._leaves[keep:]
        run: list[Leaf] = []
        for leaf in leaves:
            if isinstance(leaf, Text) or self._in_text(leaf):
                run.append(leaf)
            else:
                self._append_texts(run)
                run = []
                self._append_block(leaf)
        self._append_texts(run)
        self._place(place)
        self._place_caret()

    def _part_of(self, leaf: int) -> int:
        """The index of the last part that begins with that leaf or one before it; 0 if there is none."""
        index = len(self._parts) - 1
        while index > 0 and self._parts[index].first > leaf:
            index -= 1
        return max(0, index)

    def _replace_in_place(self, index: int, leaf: Leaf) -> bool:
        """Let the widget that shows leaf `index` show this one, if it can without being made anew."""
        part = self._parts[self._part_of(index)] if index < len(self._leaves) else None
        if part is None or part.first != index:
            return False
        old = self._leaves[index]
        if (leaf.indent, leaf.quote, leaf.outer) != (old.indent, old.quote, old.outer):
            return False
        kinds = {Code: CodeView, Table: TableView, Math: FormulaView}
        if type(leaf) in kinds and isinstance(part.widget, kinds[type(leaf)]):
            self._truncate(index + 1)
            part.widget.show_leaf(leaf)
            part.small += _is_small(leaf) - _is_small(old)
            return True
        return False

    def _truncate(self, keep: int, reuse: bool = False) -> None:
        """Take away all leaves but the first. reuse: leave an emptied text view for the text that follows."""
        while self._parts and self._parts[-1].first >= keep:
            last = self._parts[-1]
            if reuse and last.first == keep and isinstance(last.widget, TextView):
                last.count = 0
                return
            self._parts.pop()
            if last.widget is self._caret_in:
                self._caret_in = None
            last.widget.hide()
            last.widget.deleteLater()
        last = self._parts[-1] if self._parts else None
        if last is not None and last.count > keep - last.first:
            last.count = keep - last.first
            # The text that follows takes the place of what is too much, if it goes into the same view.
            if isinstance(last.widget, TextView) and (not reuse or self._full(last)):
                last.widget.change(last.count, [])

    def _in_text(self, leaf: Leaf) -> bool:
        """Whether a block is one of too many small ones."""
        return bool(self._parts) and self._parts[-1].small >= MOST_SMALL and _is_small(leaf)

    def _append_texts(self, leaves: Sequence[Leaf]) -> None:
        while leaves:
            part = self._parts[-1] if self._parts else None
            if part is None or not isinstance(part.widget, TextView) or self._full(part):
                view = TextView(self, ink=self._ink)
                part = self._add(view)
            assert isinstance(part.widget, TextView)
            room = LONGEST_VIEW - (part.widget.cost if part.count else 0)
            texts: list[Text] = []
            while len(texts) < len(leaves) and (room > 0 or not texts):
                texts.append(_as_text(leaves[len(texts)]))
                room -= cost_of(texts[-1])
            part.widget.change(part.count, texts)
            part.count += len(texts)
            self._leaves += leaves[: len(texts)]
            leaves = leaves[len(texts) :]

    @staticmethod
    def _full(part: _Part) -> bool:
        return part.count > 0 and isinstance(part.widget, TextView) and part.widget.cost > LONGEST_VIEW

    def _append_block(self, leaf: Code | Math | Table | Rule) -> None:
        widget: CodeView | FlowView | QFrame
        if isinstance(leaf, Code):
            widget = CodeView(leaf, self)
        elif isinstance(leaf, Table):
            widget = TableView(leaf, self)
        elif isinstance(leaf, Math):
            widget = FormulaView(leaf, self._ink, self)
        else:
            widget = QFrame(self)
            widget.setObjectName("rule")
        part = self._add(widget)
        part.count = 1
        part.small += _is_small(leaf)
        self._leaves.append(leaf)
        self._fit(part)

    def _add(self, widget: FlowView | CodeView | QFrame) -> _Part:
        if isinstance(widget, FlowView):
            widget.linkChosen.connect(self.linkChosen)
            widget.resized.connect(self._take_height)
        part = _Part(widget, len(self._leaves), 0, small=self._parts[-1].small if self._parts else 0)
        self._parts.append(part)
        self._fit(part)
        widget.show()
        return part

    def _fit(self, part: _Part) -> None:
        if self._width <= 0:
            return
        inset = 0
        if not isinstance(part.widget, TextView) and part.first < len(self._leaves):
            leaf = self._leaves[part.first]
            inset = leaf.indent * INDENT + leaf.quote * QUOTE_INDENT
        width = max(80, self._width - inset)
        if isinstance(part.widget, (FlowView, CodeView)):
            part.widget.set_width(width)
        else:
            part.widget.setFixedSize(width, 1)

    @Slot()
    def _take_height(self) -> None:
        """A part has become taller or shorter by itself: formulas were laid out, and there may be more of them."""
        sender = self.sender()
        index = bisect_left(self._parts, sender.y(), key=lambda part: part.widget.y())
        self._grown = index if self._grown is None else min(index, self._grown)

    @Slot()
    def _place_grown(self) -> None:
        if self._grown is not None:
            index, self._grown = self._grown, None
            self._place(index)
            self.resized.emit()

    def _place(self, first: int) -> None:
        """Move the parts from that one on to where they belong, one below the other, and take their height."""
        first = max(0, min(first, len(self._parts) - 1))
        top = self._parts[first - 1].bottom if first else 0
        left_to_right = self.layoutDirection() == Qt.LayoutDirection.LeftToRight
        for part in self._parts[first:]:
            # Formulas, tables and code of lists and quotes begin further in, and all end together.
            part.widget.move(max(0, self._width - part.widget.width()) if left_to_right else 0, top)
            top += part.widget.height() + PARAGRAPH_GAP
            part.bottom = top
        self.setFixedHeight(max(0, top - PARAGRAPH_GAP))

    def _place_caret(self) -> None:
        last = self._parts[-1].widget if self._parts and self._caret else None
        if self._caret_in is not None and self._caret_in is not last:
            self._caret_in.set_caret(False)
        self._caret_in = last if isinstance(last, TextView) else None
        if self._caret_in is not None:
            self._caret_in.set_caret(True)
