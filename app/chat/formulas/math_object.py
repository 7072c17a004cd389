"""Formulas within a text document: one character each, on the baseline of its line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSizeF, Signal, Slot
from PySide6.QtGui import (
    QFont,
    QFontMetricsF,
    QPainter,
    QPyTextObject,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
)

from app.chat.formulas.math_layout import Formula
from app.chat.formulas.math_store import FormulaKey, formulas
from app.theme import theme

FORMULA = QTextFormat.ObjectTypes.UserObject.value + 1
#: Of a formula's character, and of the source that stands in for it: its number.
NUMBER = QTextFormat.Property.UserProperty.value + 3
#: The character that a document holds in a formula's place.
PLACE = "\ufffc"
#: What Qt would begin a new block after, and what would stand for a formula that there is not.
_SPECIAL = dict.fromkeys(map(ord, "\n\r\u2029\ufdd0\ufdd1"), "\u2028") | {ord(PLACE): "\ufffd"}
#: The formula font's letters are smaller than those of most faces for text.
SCALE = 1.12
#: Pixels on both sides of a formula, and by how many a source is smaller than the text around it.
SIDE, CODE_STEP = 1.0, 2
#: Pixels between a formula that is taller than its line and the lines next to it.
GAP = 1.0
#: A formula within a line that is wider than this could not be read in the width of the column, but its source can.
WIDEST_INLINE = 1400.0


@dataclass(frozen=True)
class _Placed:
    """A formula in the document. ascent: of the text around it; descent: of the font that holds it, see `_place`."""

    formula: Formula
    ascent: float
    descent: float


class FormulaObjects(QPyTextObject):
    """The formulas of one document. Each shows its source until it has been laid out, and for good when it is none."""

    #: int, int: behind this position the text has moved by so many characters
    moved = Signal(int, int)
    #: Formulas have taken the place of their sources.
    shown = Signal()

    def __init__(self, document: QTextDocument, room: Callable[[], float]) -> None:
        """room: gives the width in pixels that a line has; a formula that is wider is drawn smaller. 0: any width."""
        super().__init__(document)
        self._document, self._room = document, room
        self._keys: dict[int, FormulaKey] = {}
        self._store = formulas()
        self._formulas: dict[int, _Placed] = {}
        #: Those that are still laid out, and where their sources begin.
        self._pending: dict[int, QTextCursor] = {}
        self._next = 0
        self._tidy_at = 64
        document.documentLayout().registerHandler(FORMULA, self)

    def insert(self, cursor: QTextCursor, source: str, display: bool, base: QTextCharFormat) -> None:
        """Write a formula. base: what plain text looks like here."""
        self._tidy()
        key = FormulaKey(source, round(base.font().pixelSize() * SCALE, 1), display)
        number = self._next
        self._next += 1
        self._keys[number] = key
        formula = self._fit_for_a_line(key)
        if formula is not None:
            self._place(cursor, number, formula, base)
            return
        form = QTextCharFormat(base)
        form.setFont(code_font(base.font()))
        form.setBackground(theme().colour("hover"))
        form.setProperty(NUMBER, number)
        begins = QTextCursor(cursor)
        begins.setKeepPositionOnInsert(True)
        cursor.insertText(within_block(source), form)
        if self._store.pending(key):
            self._pending[number] = begins
            self._store.wait(key, self._show_ready)

    def clear(self) -> None:
        """The document is written anew."""
        self._pending.clear()
        self._keys.clear()
        self._formulas.clear()

    def sources(self, first: int, last: int) -> list[str]:
        """What was written for the formulas between two positions that are shown as such."""
        keys = (
            self._keys[number]
            for position, _, number in self._numbered()
            if first <= position < last and number in self._formulas
        )
        return [f"$${key.source}$$" if key.display else f"${key.source}$" for key in keys]

    # Qt calls these two even while the view is being destroyed, when it loses the focus: they may touch no other object
    # of Qt than those they are given, for an exception in here ends the program.

    def intrinsicSize(self, document: QTextDocument, position: int, form: QTextFormat) -> QSizeF:
        placed = self._formulas.get(form.property(NUMBER))
        if placed is None:
            return QSizeF(1, 1)
        formula = placed.formula
        scale = self._scale(formula)
        # At least as tall as text, so that a cell of a table with nothing else keeps the baseline of its neighbours.
        ascent = max(formula.ascent * scale + GAP, placed.ascent)
        return QSizeF(formula.width * scale + 2 * SIDE, ascent + placed.descent)

    def drawObject(
        self, painter: QPainter, rect: QRectF, document: QTextDocument, position: int, form: QTextFormat
    ) -> None:
        placed = self._formulas.get(form.property(NUMBER))
        if placed is None:
            return
        scale = self._scale(placed.formula)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.translate(rect.left() + SIDE, round(rect.bottom() - placed.descent))
        painter.scale(scale, scale)
        painter.fillPath(placed.formula.path, form.toCharFormat().foreground())
        painter.restore()

    def _place(self, cursor: QTextCursor, number: int, formula: Formula, base: QTextCharFormat) -> None:
        form = QTextCharFormat(base)
        form.setObjectType(FORMULA)
        form.setProperty(NUMBER, number)
        # Qt hangs an object below the baseline by the descent of its format's font, so that font is one which goes as
        # deep as the formula.
        form.setVerticalAlignment(QTextCharFormat.VerticalAlignment.AlignBaseline)
        font = _font_with_descent(base.font(), formula.descent * self._scale(formula) + GAP)
        form.setFont(font)
        # Qt asks for the size whenever it lays the line out, so it is not measured there.
        ascent, descent = QFontMetricsF(base.font()).ascent(), QFontMetricsF(font).descent()
        self._formulas[number] = _Placed(formula, ascent, descent)
        cursor.insertText(PLACE, form)

    @Slot()
    def _show_ready(self) -> None:
        """Put the formulas that have been laid out in the place of their sources."""
        done = [number for number in self._pending if not self._store.pending(self._keys[number])]
        if not done:
            return
        places = {number: self._pending.pop(number) for number in done}
        made = False
        cursor = QTextCursor(self._document)
        cursor.beginEditBlock()
        for number, place in places.items():
            formula, position = self._fit_for_a_line(self._keys[number]), place.position()
            length = _units(self._keys[number].source)
            if formula is None or position + length >= self._document.characterCount():
                continue
            cursor.setPosition(position)
            cursor.setPosition(position + length, QTextCursor.MoveMode.KeepAnchor)
            # Its text may have been taken away since.
            if cursor.charFormat().property(NUMBER) == number:
                self._place(cursor, number, formula, self._plain_format(cursor.charFormat()))
                self.moved.emit(position, 1 - length)
                made = True
        cursor.endEditBlock()
        if made:
            self.shown.emit()

    def _plain_format(self, source: QTextCharFormat) -> QTextCharFormat:
        """The format of the text around a source."""
        font = QFont(self._document.defaultFont())
        font.setPixelSize(source.font().pixelSize() + CODE_STEP)
        font.setWeight(source.font().weight())
        form = QTextCharFormat()
        form.setFont(font)
        form.setForeground(source.foreground())
        return form

    def _numbered(self) -> Iterator[tuple[int, int, int]]:
        """(position, characters, number) of every formula and every source, first to last."""
        block = self._document.begin()
        while block.isValid():
            pieces = block.begin()
            while not pieces.atEnd():
                fragment = pieces.fragment()
                number = fragment.charFormat().property(NUMBER)
                if number is not None:
                    yield fragment.position(), fragment.length(), number
                pieces += 1
            block = block.next()

    def _tidy(self) -> None:
        """Forget formulas that are no longer in the document: the end of a growing text is written again and again."""
        if len(self._keys) < self._tidy_at:
            return
        alive = {number for _, _, number in self._numbered()}
        for numbers in (self._keys, self._formulas):
            for number in numbers.keys() - alive:
                del numbers[number]
        for number in self._pending.keys() - alive:
            del self._pending[number]
        self._tidy_at = max(64, 2 * len(self._keys))

    def _fit_for_a_line(self, key: FormulaKey) -> Formula | None:
        formula = self._store.get(key)
        return formula if formula is None or key.display or formula.width <= WIDEST_INLINE else None

    def _scale(self, formula: Formula) -> float:
        room = self._room() - 2 * SIDE
        return min(1.0, max(0.3, room / formula.width)) if room > 0 and formula.width > 0 else 1.0


def within_block(text: str) -> str:
    """A text as it can stand within one block of a document, with as many characters."""
    return text.translate(_SPECIAL)


def _units(text: str) -> int:
    """Qt's characters of a text."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def code_font(text: QFont) -> QFont:
    """The fixed-width font for code within text."""
    font = theme().mono()
    font.setPixelSize(max(1, text.pixelSize() - CODE_STEP))
    font.setWeight(text.weight())
    return font


def _font_with_descent(font: QFont, descent: float) -> QFont:
    """The font, in a size in which it reaches that far below the baseline; never a smaller one."""
    deep = QFont(font)
    while (reached := QFontMetricsF(deep).descent()) < descent:
        deep.setPixelSize(max(deep.pixelSize() + 1, round(deep.pixelSize() * descent / max(reached, 1.0))))
    return deep
