"""One table of a message."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from PySide6.QtCore import Qt
from PySide6.QtGui import (
    QFont,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextFrameFormat,
    QTextTable,
    QTextTableCell,
    QTextTableFormat,
    QWheelEvent,
)
from PySide6.QtWidgets import QWidget

from app.chat.flow_view import FlowView
from app.chat.markdown import Span, Table
from app.theme import theme

#: Rows of a table that is measured whenever it changes, and of one that is never measured.
OFTEN, LONG = 40, 200


class TableView(FlowView):
    """One table, as wide as it needs to be; beyond the column it scrolls sideways."""

    #: A column narrower than this is unreadable, so a table of many columns scrolls instead.
    NARROWEST_COLUMN = 96

    def __init__(self, leaf: Table, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        self._table: QTextTable | None = None
        self._leaf = Table((), ())
        #: Rows when the natural width was taken last.
        self._measured = 0
        self.show_leaf(leaf)

    def show_leaf(self, leaf: Table) -> None:
        """Show this table. Rows that are shown already are left as they are."""
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        if self._table is None or leaf.aligns != self._leaf.aligns or len(leaf.rows) < len(self._leaf.rows):
            self._table = self._make_table(len(leaf.rows), len(leaf.aligns))
            shown: tuple[tuple[tuple[Span, ...], ...], ...] = ()
        else:
            shown = self._leaf.rows
            if len(leaf.rows) > len(shown):
                self._table.appendRows(len(leaf.rows) - len(shown))
        for row, cells in enumerate(leaf.rows):
            if row >= len(shown) or cells != shown[row]:
                for column, spans in enumerate(cells):
                    self._fill(self._table.cellAt(row, column), spans, leaf.aligns[column], row == 0)
        cursor.endEditBlock()
        self._leaf = leaf
        self.fit()

    def _make_table(self, rows: int, columns: int) -> QTextTable:
        self._formulas.clear()
        self.document().clear()
        self._wrapped = 0
        form = QTextTableFormat()
        form.setBorder(0)
        form.setCellSpacing(0)
        form.setCellPadding(0)
        form.setHeaderRowCount(1)
        table = QTextCursor(self.document()).insertTable(max(1, rows), max(1, columns), form)
        self._flatten_ends()
        # Qt keeps the cursor in sight, and it has gone to the end.
        self.moveCursor(QTextCursor.MoveOperation.Start)
        return table

    def set_width(self, width: int) -> None:
        self._measured = 0
        super().set_width(width)

    def fit(self) -> None:
        if self._width <= 0:
            return
        widest = max(self._width, len(self._leaf.aligns) * self.NARROWEST_COLUMN)
        # Rows that are added never make a table narrower, so one that fills the width need not be measured again.
        # Laying a longer table out for its natural width as well costs several times its growth, so that is done now
        # and then only; a wider cell is broken into lines until then. A very long one takes all the width there is.
        rows = len(self._leaf.rows)
        if rows > LONG:
            self._wrap_at(widest)
        elif self._wrapped != widest and (rows <= OFTEN or rows >= 1.5 * self._measured or not self._wrapped):
            self._measured = rows
            self._wrap_at(-1)
            # The ideal width is a by-product of laying out, which happens only when somebody asks for the size.
            natural = ceil(max(self.document().size().width(), self.document().idealWidth()))
            self._wrap_at(min(natural, widest))
        bar = self.horizontalScrollBar().sizeHint().height() if self._wrapped > self._width else 0
        self._take(self._width, ceil(self.document().size().height()) + bar)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Sideways turns scroll the table, all others the chat."""
        delta = event.angleDelta()
        if abs(delta.x()) > abs(delta.y()):
            super(FlowView, self).wheelEvent(event)
        else:
            event.ignore()

    def _fill(self, cell: QTextTableCell, spans: Sequence[Span], align: str, head: bool) -> None:
        colours = theme()
        form = cell.format().toTableCellFormat()
        form.setTopPadding(6)
        form.setBottomPadding(6)
        form.setLeftPadding(0 if cell.column() == 0 else 10)
        form.setRightPadding(14)
        form.setBottomBorder(1)
        form.setBottomBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
        form.setBottomBorderBrush(colours.colour("line"))
        cell.setFormat(form)
        cursor = cell.firstCursorPosition()
        cursor.setPosition(cell.lastPosition(), QTextCursor.MoveMode.KeepAnchor)
        cursor.removeSelectedText()
        block = QTextBlockFormat()
        sides = {"center": Qt.AlignmentFlag.AlignHCenter, "right": Qt.AlignmentFlag.AlignRight}
        block.setAlignment(sides.get(align, Qt.AlignmentFlag.AlignLeft))
        cursor.setBlockFormat(block)
        base = QTextCharFormat()
        font = QFont(self.document().defaultFont())
        font.setPixelSize(font.pixelSize() - 1)
        if head:
            font.setWeight(QFont.Weight.DemiBold)
        base.setFont(font)
        base.setForeground(colours.colour("muted" if head else "text"))
        self._insert(cursor, spans, base)

    def _flatten_ends(self) -> None:
        """The blocks that Qt demands before and after a table must not take a line each."""
        for move in (QTextCursor.MoveOperation.Start, QTextCursor.MoveOperation.End):
            cursor = QTextCursor(self.document())
            cursor.movePosition(move)
            if cursor.currentTable() is None:
                form = QTextBlockFormat()
                form.setLineHeight(0.1, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
                cursor.setBlockFormat(form)
