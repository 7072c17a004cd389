"""Paragraphs, headings, lists and quotes as one selectable text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from math import ceil

from PySide6.QtCore import QMimeData, QPoint, QRectF, Qt
from PySide6.QtGui import (
    QFont,
    QFontMetricsF,
    QPainter,
    QPaintEvent,
    QTextBlock,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextFormat,
)
from PySide6.QtWidgets import QWidget

from app.chat.rendering.cost import LINE
from app.chat.rendering.flow_view import FlowView, body_font
from app.chat.rendering.markdown import LINE_BREAK, Text
from app.theme import theme

#: Logical pixels: one list level, one quote level, and from a marker to its text.
INDENT, QUOTE_INDENT, MARKER_GAP = 24, 18, 7
#: The least that is left of that gap before a marker takes room from its text.
NARROWEST_GAP = 3
#: Width of the bar beside a quote, and how far below the top of its first line it begins.
QUOTE_BAR, QUOTE_TOP = 3, 3
PARAGRAPH_GAP, CLOSE_GAP = 12, 4
#: Height of a line in font sizes. A minimum, so that scripts with taller faces keep the same rhythm.
LINE_HEIGHT = 1.6
#: Sizes of headings 1..6 above body text, in pixels.
HEADING_STEPS = (6, 4, 2, 1, 0, 0)
MARKER = QTextFormat.Property.UserProperty.value + 1
QUOTE = QTextFormat.Property.UserProperty.value + 2
#: List levels around the quotes. (3 is that of formulas.)
OUTER = QTextFormat.Property.UserProperty.value + 4


def cost_of(leaf: Text) -> int:
    """What laying out a leaf costs, in characters."""
    return LINE + sum(len(span.text) + LINE * span.text.count(LINE_BREAK) for span in leaf.spans)


class TextView(FlowView):
    """Consecutive `Text` leaves as one selectable text. Leaves can be added and taken away at the end."""

    def __init__(self, parent: QWidget | None = None, ink: str = "text") -> None:
        """ink: the theme's name for the colour of plain text."""
        super().__init__(parent)
        self._ink = ink
        #: Where each leaf's block begins.
        self._starts: list[int] = []
        #: What is shown; the last of it may grow.
        self._leaves: list[Text] = []
        #: The cost of the leaves up to each.
        self._costs: list[int] = []

    @property
    def count(self) -> int:
        return len(self._starts)

    @property
    def length(self) -> int:
        """Characters held."""
        return self.document().characterCount()

    @property
    def cost(self) -> int:
        """What laying out all of it costs, as `cost_of` has it."""
        return self._costs[-1] if self._costs else 0

    def change(self, keep: int, leaves: Sequence[Text]) -> None:
        """Keep the first leaves, replace the others."""
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        costs = list(accumulate(map(cost_of, leaves), initial=self._costs[keep - 1] if keep else 0))
        self._costs[keep:] = costs[1:]
        if leaves and keep == self.count - 1 and self._continue(cursor, leaves[0]):
            self._leaves[keep] = leaves[0]
            keep, leaves = keep + 1, leaves[1:]
        if keep == 0:
            self._formulas.clear()
            # Text may be larger now than when the view was made. Qt lays out everything whenever this is set.
            if (font := body_font()) != self.document().defaultFont():
                self.document().setDefaultFont(font)
        shown = self.count
        if keep < shown:
            cursor.setPosition(max(0, self._starts[keep] - 1))
            form = cursor.blockFormat()
            cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
            cursor.removeSelectedText()
            # An empty block takes the format of the one that was removed behind it, and with it its marker.
            cursor.setBlockFormat(form)
            del self._starts[keep:]
            del self._leaves[keep:]
        cursor.movePosition(QTextCursor.MoveOperation.End)
        for leaf in leaves:
            self._append(cursor, leaf)
        self._leaves += leaves
        cursor.endEditBlock()
        self.fit()

    def rewrite(self, leaves: Sequence[Text]) -> None:
        """Write as many leaves with other spans: the blocks of those that differ, and no other."""
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        for place, (old, new) in enumerate(zip(self._leaves, leaves, strict=True)):
            if old != new:
                end = self._starts[place + 1] - 1 if place + 1 < self.count else self.length - 1
                cursor.setPosition(self._starts[place])
                cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
                cursor.removeSelectedText()
                self._insert(cursor, new.spans, self._base_format(new))
                self._moved(self._starts[place], cursor.position() - end)
        self._leaves = list(leaves)
        cursor.endEditBlock()
        self.fit()

    def _continue(self, cursor: QTextCursor, leaf: Text) -> bool:
        """Make the last leaf this one if it begins the same: a paragraph of many formulas is not written anew."""
        last = self._leaves[-1]
        if replace(last, spans=leaf.spans) != leaf:
            return False
        same = 0
        for old, new in zip(last.spans, leaf.spans, strict=False):
            if old != new:
                break
            same += 1
        gone = last.spans[same:]
        # A formula is one character, or as many as its source has.
        if not same or last == leaf or any(span.math for span in gone):
            return False
        cursor.movePosition(QTextCursor.MoveOperation.End)
        units = len("".join(span.text for span in gone).encode("utf-16-le", "surrogatepass")) // 2
        cursor.setPosition(cursor.position() - units, QTextCursor.MoveMode.KeepAnchor)
        cursor.removeSelectedText()
        self._insert(cursor, leaf.spans[same:], self._base_format(leaf))
        return True

    def natural_width(self, limit: int) -> int:
        """The width that the text needs if it may be at most `limit` pixels wide."""
        self._width = 0  # laid out for no width in particular now
        self._wrap_at(limit)
        # The ideal width is a by-product of laying out, which happens only when somebody asks for the size.
        self.document().size()
        return min(limit, ceil(self.document().idealWidth()) + 1)

    def createMimeDataFromSelection(self) -> QMimeData:
        """Plain text, with the markers of lists, which are not part of the document."""
        cursor = self.textCursor()
        first, last = cursor.selectionStart(), cursor.selectionEnd()
        lines = []
        block = self.document().findBlock(first)
        while block.isValid() and block.position() <= last:
            cursor.setPosition(max(first, block.position()))
            cursor.setPosition(min(last, block.position() + block.length() - 1), QTextCursor.MoveMode.KeepAnchor)
            text = self._plain(cursor.selectionStart(), cursor.selectionEnd())
            marker = block.blockFormat().property(MARKER)
            lines.append(f"{marker} {text}" if marker and first <= block.position() else text)
            block = block.next()
        data = QMimeData()
        data.setText("\n".join(lines))
        return data

    def _moved(self, position: int, by: int) -> None:
        self._starts = [start + by if start > position else start for start in self._starts]

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        colours = theme()
        layout = self.document().documentLayout()
        for block in self._blocks_in(event.rect().top(), event.rect().bottom()):
            form = block.blockFormat()
            box = layout.blockBoundingRect(block)
            right_to_left = block.textDirection() == Qt.LayoutDirection.RightToLeft
            for level in range(form.property(QUOTE) or 0):
                x = (form.property(OUTER) or 0) * INDENT + level * QUOTE_INDENT
                x = self.viewport().width() - x - QUOTE_BAR if right_to_left else x
                last = block.layout().lineAt(block.layout().lineCount() - 1)
                below = block.next()
                joined = below.isValid() and (below.blockFormat().property(QUOTE) or 0) > level
                joined = joined and below.blockFormat().property(OUTER) == form.property(OUTER)
                # A box leaves out what the minimum line height adds.
                end = layout.blockBoundingRect(below).top() if joined else box.top() + last.y() + last.height()
                painter.fillRect(QRectF(x, box.top() + QUOTE_TOP, QUOTE_BAR, end - box.top()), colours.colour("line"))
            marker = form.property(MARKER)
            if marker and block.layout().lineCount():
                self._paint_marker(painter, block, box, marker, right_to_left)
        painter.end()
        super().paintEvent(event)

    def _paint_marker(
        self, painter: QPainter, block: QTextBlock, box: QRectF, marker: str, right_to_left: bool
    ) -> None:
        line = block.layout().lineAt(0)
        font = self.document().defaultFont()
        painter.setFont(font)
        painter.setPen(theme().colour("muted"))
        width = QFontMetricsF(font).horizontalAdvance(marker)
        form = block.blockFormat()
        room = (form.rightMargin() if right_to_left else form.leftMargin()) + form.textIndent()
        gap = min(MARKER_GAP, max(NARROWEST_GAP, room - width))
        x = self.viewport().width() - room + gap if right_to_left else room - gap - width
        # blockBoundingRect includes the margin above, which the lines do not.
        top = (
            self.document().documentLayout().blockBoundingRect(block).top() + block.layout().position().y() - box.top()
        )
        painter.drawText(QPoint(round(x), round(top + line.y() + line.ascent())), marker)

    def _blocks_in(self, top: int, bottom: int) -> Iterator[QTextBlock]:
        layout = self.document().documentLayout()
        block = self.cursorForPosition(QPoint(0, top)).block()
        block = block.previous() if block.previous().isValid() else block
        while block.isValid() and layout.blockBoundingRect(block).top() <= bottom:
            yield block
            block = block.next()

    def _append(self, cursor: QTextCursor, leaf: Text) -> None:
        form = QTextBlockFormat()
        base = self._base_format(leaf)
        if self._starts:
            form.setTopMargin(self._gap(leaf))
            cursor.insertBlock(form, base)
        self._starts.append(cursor.position())
        height = round(base.font().pixelSize() * LINE_HEIGHT)
        form.setLineHeight(height, QTextBlockFormat.LineHeightTypes.MinimumHeight.value)
        form.setProperty(MARKER, leaf.marker)
        form.setProperty(QUOTE, leaf.quote)
        form.setProperty(OUTER, leaf.outer)
        form.setHeadingLevel(leaf.heading)
        self._insert(cursor, leaf.spans, base)
        margin = leaf.indent * INDENT + leaf.quote * QUOTE_INDENT
        if cursor.block().textDirection() == Qt.LayoutDirection.RightToLeft:
            form.setRightMargin(margin)
        else:
            form.setLeftMargin(margin)
        if leaf.marker:
            # A long marker, such as a footnote's name, takes room from the first line of its text.
            width = QFontMetricsF(self.document().defaultFont()).horizontalAdvance(leaf.marker)
            room = leaf.indent * INDENT
            form.setTextIndent(ceil(width + MARKER_GAP) - room if width + NARROWEST_GAP > room else 0)
        cursor.setBlockFormat(form)

    @staticmethod
    def _gap(leaf: Text) -> int:
        if leaf.close:
            return CLOSE_GAP
        return PARAGRAPH_GAP + (6 if leaf.heading else 0)

    def _base_format(self, leaf: Text) -> QTextCharFormat:
        form = QTextCharFormat()
        font = QFont(self.document().defaultFont())
        if leaf.heading:
            font.setPixelSize(font.pixelSize() + HEADING_STEPS[leaf.heading - 1])
            font.setWeight(QFont.Weight.DemiBold)
        form.setFont(font)
        form.setForeground(theme().colour("muted" if leaf.quote else self._ink))
        return form
