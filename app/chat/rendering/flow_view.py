"""Read-only text that is as tall as its content, with styles, links and formulas."""

from __future__ import annotations

from collections.abc import Sequence
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
    QShowEvent,
    QTextCharFormat,
    QTextCursor,
    QTextOption,
    QWheelEvent,
)
from PySide6.QtWidgets import QMenu, QTextBrowser, QWidget

from app.chat.formulas.math_object import PLACE, FormulaObjects, code_font, within_block
from app.chat.rendering.addresses import read_address, tip_of
from app.chat.rendering.markdown import LINE_BREAK, Span
from app.language import tr
from app.theme import theme
from app.widgets.labels import plain_tip
from app.widgets.viewport import leave_to_parent

#: The width of the mark at the end of a growing text.
CARET_WIDTH = 3


def body_font() -> QFont:
    """The face of messages: a little larger than the window's."""
    font = QFont(QGuiApplication.font())
    font.setPixelSize(max(font.pixelSize(), 1) + 1)
    return font


class FlowView(QTextBrowser):
    """A text view without scrolling of its own. It shows no image and opens no link: `linkChosen` has the address.

    A formula shows its source until it has been laid out, and for good when it is none.
    """

    linkChosen = Signal(str)
    #: A formula has taken its source's place.
    resized = Signal()

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
        self._formulas = FormulaObjects(self.document(), self._room_of_line)
        self._formulas.moved.connect(self._moved)
        self._formulas.shown.connect(self._refit)
        self.setAccessibleName(tr("Message text"))
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
        if on != self._caret:
            self._caret = on
            self.viewport().update()

    def loadResource(self, kind: int, name: QUrl | str) -> Any:
        return None

    def createMimeDataFromSelection(self) -> QMimeData:
        data = QMimeData()
        cursor = self.textCursor()
        data.setText(self._plain(cursor.selectionStart(), cursor.selectionEnd()))
        return data

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        menu = QMenu(self)
        cursor = self.textCursor()
        link = self.anchorAt(self._to_viewport(event.pos()))
        copy = menu.addAction(tr("Copy"), self.copy)
        copy.setEnabled(cursor.hasSelection())
        if link:
            menu.addAction(
                tr("Copy link address"), lambda: QGuiApplication.clipboard().setText(read_address(link).whole)
            )
        menu.addAction(tr("Select all"), self.selectAll)
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

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        leave_to_parent(self)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.StyleChange:
            leave_to_parent(self)
            if self._width > 0:
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
        self.linkChosen.emit(address.toString(QUrl.ComponentFormattingOption.FullyEncoded))

    def _plain(self, first: int, last: int) -> str:
        """The text between two positions, with formulas as they were written."""
        cursor = QTextCursor(self.document())
        cursor.setPosition(first)
        cursor.setPosition(last, QTextCursor.MoveMode.KeepAnchor)
        text = cursor.selection().toPlainText()
        if PLACE in text:
            sources = self._formulas.sources(first, last)
            text = "".join(part + source for part, source in zip(text.split(PLACE), [*sources, ""], strict=False))
        return text.replace(LINE_BREAK, "\n").replace("\u00a0", " ")

    def _insert(self, cursor: QTextCursor, spans: Sequence[Span], base: QTextCharFormat) -> None:
        """Write spans in their styles. `base` is what plain text looks like here."""
        if any(span.link for span in spans):
            self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        for span in spans:
            if span.math:
                self._formulas.insert(cursor, span.text, span.math == "display", base)
            else:
                cursor.insertText(within_block(span.text), _char_format(span, base))

    @Slot(int, int)
    def _moved(self, position: int, by: int) -> None:
        """The text behind a position has moved."""

    @Slot()
    def _refit(self) -> None:
        self.fit()
        self.resized.emit()

    def _room_of_line(self) -> float:
        """Pixels that a formula may be wide; 0 for any width."""
        return max(0, self._wrapped)


def _char_format(span: Span, base: QTextCharFormat) -> QTextCharFormat:
    form = QTextCharFormat(base)
    colours = theme()
    if span.code:
        font = code_font(base.font())
        form.setFont(font)
        form.setBackground(QColor(colours.colour("hover")))
    if span.raised:
        form.setVerticalAlignment(QTextCharFormat.VerticalAlignment.AlignSuperScript)
        form.setForeground(colours.colour("muted"))
    if span.script:
        alignment = QTextCharFormat.VerticalAlignment
        form.setVerticalAlignment(alignment.AlignSubScript if span.script == "sub" else alignment.AlignSuperScript)
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
        form.setToolTip(plain_tip(tip_of(span.link)))
    return form
