"""Read-only text that is as tall as its content: paragraphs, headings, lists, quotes and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any

from PySide6.QtCore import QEvent, QMimeData, QPoint, QRectF, QSize, Qt, QUrl, Signal, Slot
from PySide6.QtGui import (
    QColor,
    QContextMenuEvent,
    QFont,
    QFontMetricsF,
    QGuiApplication,
    QPainter,
    QPaintEvent,
    QTextBlock,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextFormat,
    QTextFrameFormat,
    QTextOption,
    QTextTable,
    QTextTableCell,
    QTextTableFormat,
    QWheelEvent,
)
from PySide6.QtWidgets import QMenu, QTextBrowser, QWidget

from app.chat.markdown import LINE_BREAK, Span, Table, Text
from app.theme import theme

#: Logical pixels: one list level, one quote level, and from a marker to its text.
INDENT, QUOTE_INDENT, MARKER_GAP = 24, 18, 7
PARAGRAPH_GAP, CLOSE_GAP = 12, 4
#: Height of a line in font sizes. A minimum, so that scripts with taller faces keep the same rhythm.
LINE_HEIGHT = 1.6
#: Sizes of headings 1..6 above body text, in pixels.
HEADING_STEPS = (6, 4, 2, 1, 0, 0)
MARKER = QTextFormat.Property.UserProperty.value + 1
QUOTE = QTextFormat.Property.UserProperty.value + 2
CARET_WIDTH = 3


def body_font() -> QFont:
    """The face of messages: a little larger than the window's."""
    font = QFont(QGuiApplication.font())
    font.setPixelSize(max(font.pixelSize(), 1) + 1)
    return font


class FlowView(QTextBrowser):
    """A text view without scrolling of its own. It shows no image and opens no link: `linkChosen` has the address."""

    linkChosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._width = 0
        #: The width that lines are broken for now.
        self._wrapped = 0
        self._size = QSize(0, 0)
        self._caret = False
        self.setOpenLinks(False)
        self.setUndoRedoEnabled(False)
        self.setFrameShape(QTextBrowser.Shape.NoFrame)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setLineWrapMode(QTextBrowser.LineWrapMode.FixedPixelWidth)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        # Tab stops only where Tab can reach something, see `_note_link`.
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.document().setDocumentMargin(0)
        self.document().setDefaultFont(body_font())
        self.setAccessibleName(self.tr("Message text"))
        self.anchorClicked.connect(self._choose)

    def set_width(self, width: int) -> None:
        """Lay out for that width in pixels and take the height it needs."""
        if width != self._width:
            self._width = width
            self.fit()

    def fit(self) -> None:
        if self._width > 0:
            self._wrap_at(self._width)
            self._take(self._width, ceil(self.document().size().height()))

    def set_caret(self, on: bool) -> None:
        """Show where the next word will appear."""
        self._caret = on
        self.viewport().update()

    def loadResource(self, kind: int, name: QUrl | str) -> Any:
        return None

    def createMimeDataFromSelection(self) -> QMimeData:
        data = QMimeData()
        data.setText(self.textCursor().selection().toPlainText().replace(LINE_BREAK, "\n"))
        return data

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        menu = QMenu(self)
        cursor = self.textCursor()
        link = self.anchorAt(self._to_viewport(event.pos()))
        copy = menu.addAction(self.tr("Copy"), self.copy)
        copy.setEnabled(cursor.hasSelection())
        if link:
            menu.addAction(self.tr("Copy link address"), lambda: QGuiApplication.clipboard().setText(link))
        menu.addAction(self.tr("Select all"), self.selectAll)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(event.globalPos())

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self._caret:
            end = QTextCursor(self.document())
            end.movePosition(QTextCursor.MoveOperation.End)
            place = self.cursorRect(end)
            metrics = QFontMetricsF(end.charFormat().font())
            height = metrics.ascent() + metrics.descent() + 2
            x = min(place.left() + 2, self.viewport().width() - CARET_WIDTH)
            bar = QRectF(x, place.bottom() - height, CARET_WIDTH, height)
            QPainter(self.viewport()).fillRect(bar, theme().colour("accent"))

    def _take(self, width: int, height: int) -> None:
        # A style sheet with a minimum height overrides what setFixedSize has set, so it goes first.
        self.ensurePolished()
        self._size = QSize(width, height)
        self.setFixedSize(self._size)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.StyleChange and self._width > 0:
            self.setFixedSize(self._size)

    def _wrap_at(self, width: int) -> None:
        # Left to itself QTextEdit wraps at whatever width it happens to have while it is being shown.
        if width != self._wrapped:
            self._wrapped = width
            self.setLineWrapColumnOrWidth(width)
            self.document().setTextWidth(width)

    def _to_viewport(self, position: QPoint) -> QPoint:
        return self.viewport().mapFrom(self, position)

    @Slot(QUrl)
    def _choose(self, address: QUrl) -> None:
        self.linkChosen.emit(address.toString())

    def _insert(self, cursor: QTextCursor, spans: Sequence[Span], base: QTextCharFormat) -> None:
        """Write spans in their styles. `base` is what plain text looks like here."""
        if any(span.link for span in spans):
            self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        for span in spans:
            cursor.insertText(span.text, _char_format(span, base))


class TextView(FlowView):
    """Consecutive `Text` leaves as one selectable text. Leaves can be added and taken away at the end."""

    def __init__(self, parent: QWidget | None = None, ink: str = "text") -> None:
        """ink: the theme's name for the colour of plain text."""
        super().__init__(parent)
        self._ink = ink
        #: Where each leaf's block begins.
        self._starts: list[int] = []

    @property
    def count(self) -> int:
        return len(self._starts)

    @property
    def length(self) -> int:
        """Characters held."""
        return self.document().characterCount()

    def change(self, keep: int, leaves: Sequence[Text]) -> None:
        """Keep the first leaves, replace the others."""
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        if keep < self.count:
            cursor.setPosition(max(0, self._starts[keep] - 1))
            cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
            cursor.removeSelectedText()
            del self._starts[keep:]
        cursor.movePosition(QTextCursor.MoveOperation.End)
        for leaf in leaves:
            self._append(cursor, leaf)
        cursor.endEditBlock()
        self.fit()

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
            text = cursor.selectedText()
            marker = block.blockFormat().property(MARKER)
            lines.append(f"{marker} {text}" if marker and first <= block.position() else text)
            block = block.next()
        data = QMimeData()
        data.setText("\n".join(lines).replace(LINE_BREAK, "\n").replace("\u00a0", " "))
        return data

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        colours = theme()
        layout = self.document().documentLayout()
        for block in self._blocks_in(event.rect().top(), event.rect().bottom()):
            form = block.blockFormat()
            box = layout.blockBoundingRect(block)
            right_to_left = block.textDirection() == Qt.LayoutDirection.RightToLeft
            for level in range(form.property(QUOTE) or 0):
                x = level * QUOTE_INDENT
                x = self.viewport().width() - x - 3 if right_to_left else x
                last = block.layout().lineAt(block.layout().lineCount() - 1)
                below = block.next()
                joined = below.isValid() and (below.blockFormat().property(QUOTE) or 0) > level
                # A box leaves out what the minimum line height adds.
                end = layout.blockBoundingRect(below).top() if joined else box.top() + last.y() + last.height()
                painter.fillRect(QRectF(x, box.top() + 3, 3, end - box.top()), colours.colour("line"))
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
        if right_to_left:
            x = self.viewport().width() - block.blockFormat().rightMargin() + MARKER_GAP
        else:
            x = block.blockFormat().leftMargin() - MARKER_GAP - width
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
        form.setHeadingLevel(leaf.heading)
        self._insert(cursor, leaf.spans, base)
        margin = leaf.indent * INDENT + leaf.quote * QUOTE_INDENT
        if cursor.block().textDirection() == Qt.LayoutDirection.RightToLeft:
            form.setRightMargin(margin)
        else:
            form.setLeftMargin(margin)
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


class TableView(FlowView):
    """One table, as wide as it needs to be; beyond the column it scrolls sideways."""

    #: A column narrower than this is unreadable, so a table of many columns scrolls instead.
    NARROWEST_COLUMN = 96

    def __init__(self, leaf: Table, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        self._table: QTextTable | None = None
        self._leaf = Table((), ())
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
        self.document().clear()
        self._wrapped = 0
        form = QTextTableFormat()
        form.setBorder(0)
        form.setCellSpacing(0)
        form.setCellPadding(0)
        form.setHeaderRowCount(1)
        table = QTextCursor(self.document()).insertTable(max(1, rows), max(1, columns), form)
        self._flatten_ends()
        return table

    def fit(self) -> None:
        if self._width <= 0:
            return
        widest = max(self._width, len(self._leaf.aligns) * self.NARROWEST_COLUMN)
        # Rows that are added never make a table narrower, so one that fills the width need not be measured again.
        if self._wrapped != widest:
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


def _char_format(span: Span, base: QTextCharFormat) -> QTextCharFormat:
    form = QTextCharFormat(base)
    colours = theme()
    if span.code:
        font = colours.mono(base.font().pixelSize() - 2)
        font.setWeight(base.font().weight())
        form.setFont(font)
        form.setBackground(QColor(colours.colour("hover")))
    if span.bold:
        form.setFontWeight(QFont.Weight.DemiBold.value)
    if span.italic:
        form.setFontItalic(True)
    if span.strike:
        form.setFontStrikeOut(True)
    if span.link:
        form.setAnchor(True)
        form.setAnchorHref(span.link)
        form.setForeground(colours.colour("accent"))
        form.setFontUnderline(True)
        form.setToolTip(span.link)
    return form
