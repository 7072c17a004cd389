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
    QTextLength,
    QTextTable,
    QTextTableCell,
    QTextTableFormat,
    QWheelEvent,
)
from PySide6.QtWidgets import QWidget

from app.chat.rendering.flow_view import FlowView
from app.chat.rendering.markdown import Span, Table
from app.theme import theme

#: Rows, and cells in them, that are measured whenever one changes; but some rows in any case. What follows keeps the
#: columns that they have by then.
CHUNK, CHUNK_CELLS, FEWEST_ROWS = 40, 100, 4
#: Pixels between the sides of a cell and its text; the first column has none on the left.
LEFT, RIGHT = 10, 14


class TableView(FlowView):
    """One table, as wide as it needs to be; beyond the column it scrolls sideways.

    Qt lays a table out as a whole whenever a row is added. So a long one is several in one document, the last of which
    grows, with columns of the same widths.
    """

    #: A column narrower than this is unreadable, so a table of many columns scrolls instead.
    NARROWEST_COLUMN = 96

    def __init__(self, leaf: Table, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        self._tables: list[QTextTable] = []
        #: Rows of each of them but the last.
        self._chunk = CHUNK
        self._leaf = Table((), ())
        #: The width that the columns of a long table share.
        self._shared = 0
        self.show_leaf(leaf)

    def show_leaf(self, leaf: Table) -> None:
        """Show this table. Rows that are shown already are left as they are."""
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        if not self._tables or leaf.aligns != self._leaf.aligns or len(leaf.rows) < len(self._leaf.rows):
            self._begin(len(leaf.aligns))
            shown: tuple[tuple[tuple[Span, ...], ...], ...] = ()
        else:
            shown = self._leaf.rows
        self._make_rows(len(leaf.rows), len(leaf.aligns))
        for row, cells in enumerate(leaf.rows):
            if row >= len(shown) or cells != shown[row]:
                for column, spans in enumerate(cells):
                    cell = self._tables[row // self._chunk].cellAt(row % self._chunk, column)
                    self._fill(cell, spans, leaf.aligns[column], row == 0)
        cursor.endEditBlock()
        self._leaf = leaf
        self.fit()

    def _begin(self, columns: int) -> None:
        self._formulas.clear()
        self.document().clear()
        self._tables = []
        self._wrapped = self._shared = 0
        self._chunk = max(FEWEST_ROWS, min(CHUNK, CHUNK_CELLS // max(1, columns)))

    def _make_rows(self, rows: int, columns: int) -> None:
        """Make room for so many rows."""
        if self._tables:
            last = self._tables[-1]
            more = min(self._chunk, rows - self._chunk * (len(self._tables) - 1)) - last.rows()
            if more > 0:
                last.appendRows(more)
        while rows > self._chunk * len(self._tables) or not self._tables:
            form = QTextTableFormat()
            form.setBorder(0)
            form.setCellSpacing(0)
            form.setCellPadding(0)
            form.setHeaderRowCount(0 if self._tables else 1)
            if self._tables:
                form.setColumnWidthConstraints(self._tables[0].format().toTableFormat().columnWidthConstraints())
            cursor = QTextCursor(self.document())
            cursor.movePosition(QTextCursor.MoveOperation.End)
            made = min(self._chunk, max(1, rows - self._chunk * len(self._tables)))
            self._tables.append(cursor.insertTable(made, max(1, columns), form))
            self._flatten(QTextCursor.MoveOperation.End)
            if len(self._tables) == 1:
                self._flatten(QTextCursor.MoveOperation.Start)
                # Qt keeps the cursor in sight, and it has gone to the end.
                self.moveCursor(QTextCursor.MoveOperation.Start)

    def fit(self) -> None:
        if self._width <= 0:
            return
        widest = max(self._width, len(self._leaf.aligns) * self.NARROWEST_COLUMN)
        if len(self._tables) > 1:
            self._wrap_at(widest)
            self._share(widest)
        elif self._wrapped != widest or self._shared:
            # Rows that are added never make a table narrower, so one that fills the width need not be measured again.
            self._shared = 0
            self._wrap_at(-1)
            # The ideal width is a by-product of laying out, which happens only when somebody asks for the size.
            natural = ceil(max(self.document().size().width(), self.document().idealWidth()))
            self._wrap_at(min(natural, widest))
        bar = self.horizontalScrollBar().sizeHint().height() if self._wrapped > self._width else 0
        self._take(self._width, ceil(self.document().size().height()) + bar)

    def _share(self, width: int) -> None:
        """Give all tables the columns of the first, and what that leaves of the width to each column alike."""
        if width == self._shared:
            return
        self._shared = width
        self._constrain(self._tables[:1], [])
        layout = self.document().documentLayout()
        self.document().size()
        places = [
            layout.blockBoundingRect(self._tables[0].cellAt(0, column).firstCursorPosition().block())
            for column in range(self._tables[0].columns())
        ]
        # A cell's text lies between its paddings.
        widths = [place.width() + RIGHT + (LEFT if column else 0) for column, place in enumerate(places)]
        spare = (width - sum(widths)) / len(widths)
        self._constrain(self._tables, [taken + max(0.0, spare) for taken in widths])

    @staticmethod
    def _constrain(tables: Sequence[QTextTable], widths: Sequence[float]) -> None:
        lengths = [QTextLength(QTextLength.Type.FixedLength, width) for width in widths]
        for table in tables:
            form = table.format().toTableFormat()
            if lengths:
                form.setColumnWidthConstraints(lengths)
            else:
                form.clearColumnWidthConstraints()
            table.setFormat(form)

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
        form.setLeftPadding(LEFT if cell.column() else 0)
        form.setRightPadding(RIGHT)
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

    def _flatten(self, end: QTextCursor.MoveOperation) -> None:
        """The block that Qt demands before or after a table must not take a line."""
        cursor = QTextCursor(self.document())
        cursor.movePosition(end)
        if cursor.currentTable() is None:
            form = QTextBlockFormat()
            form.setLineHeight(0.1, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
            cursor.setBlockFormat(form)
