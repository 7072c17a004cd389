"""A code block: its language, a Copy button, and highlighting that never holds up the window."""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from pygments.token import Token, _TokenType
from PySide6.QtCore import QEvent, QMimeData, Qt, QTimer, Slot
from PySide6.QtGui import QColor, QFontMetrics, QShowEvent, QTextCharFormat, QTextCursor, QTextLayout, QWheelEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from app import tasks
from app.chat.copy_button import CopyButton, link_button
from app.chat.rendering.languages import file_name_for, known, lexer_for
from app.chat.rendering.markdown import Code
from app.chat.saving import save_bytes
from app.language import tr
from app.theme import theme
from app.widgets.labels import ElideLabel
from app.widgets.viewport import leave_to_parent

#: Size of the code, in pixels at the usual zoom.
CODE_PX = 13
#: Seconds of highlighting between two turns of the event loop.
SLICE = 0.006
#: While code is written, only this many characters at its end are looked at; the whole is done once it is complete.
STREAM_WINDOW = 3000
#: Characters of a line that are laid out at once: a longer one is shown below itself in pieces, and copied as one.
LONGEST_LINE = 400
#: Nobody writes code with a line or a run of blanks longer than these, and some lexers' expressions take minutes for
#: them. Such code keeps the colour of text.
LONGEST_COLOURED, MOST_BLANKS = 1000, 100
_BLANKS = re.compile(rf"\s{{{MOST_BLANKS}}}")
#: What Qt begins a new line after.
_LINE_ENDS = re.compile("[\n\u2029\ufdd0\ufdd1]")

#: Kind of token -> theme colour. The nearest ancestor counts.
COLOURS: dict[_TokenType, str] = {
    Token.Comment: "faint",
    Token.Keyword: "accent",
    Token.Operator.Word: "accent",
    Token.Name.Tag: "accent",
    Token.Name.Builtin: "vram",
    Token.Name.Decorator: "vram",
    Token.Name.Attribute: "vram",
    Token.Literal.Number: "vram",
    Token.Literal.String: "warn",
    Token.Generic.Deleted: "bad",
    Token.Generic.Inserted: "ram",
    Token.Generic.Heading: "vram",
    Token.Generic.Subheading: "vram",
}


#: Languages whose lexers have been made.
_MADE: set[str] = set()


def colourable(code: str) -> bool:
    """Whether a lexer can read this code in steps of a few milliseconds: a single step cannot be interrupted."""
    return max(map(len, code.split("\n"))) <= LONGEST_COLOURED and _BLANKS.search(code) is None


def _make_lexer(language: str) -> str:
    """On the background thread."""
    lexer_for(language)
    return language


def _colour_of(kind: _TokenType) -> str | None:
    while kind is not Token:
        if kind in COLOURS:
            return COLOURS[kind]
        kind = kind.parent
    return None


class CodeView(QFrame):
    """One code block in a frame. It is as tall as its code and scrolls sideways."""

    def __init__(self, leaf: Code, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("codeBlock")
        self._leaf = Code("")
        self._language = ElideLabel("", "small", parent=self)
        self._copy = CopyButton(lambda: self._leaf.text, tr("Copy code"), self)
        self._save = link_button(tr("Save"), tr("Save code as a file"), self)
        self._save.clicked.connect(self._save_code)
        self._text = _CodeText(self)
        head = QHBoxLayout()
        head.setContentsMargins(14, 6, 8, 0)
        head.addWidget(self._language, 1)
        head.addWidget(self._save)
        head.addWidget(self._copy)
        column = QVBoxLayout(self)
        column.setContentsMargins(1, 1, 1, 1)
        column.setSpacing(2)
        column.addLayout(head)
        column.addWidget(self._text)
        self.show_leaf(leaf)

    @property
    def code(self) -> str:
        return self._leaf.text

    @property
    def language(self) -> str:
        return self._language.text()

    @property
    def copy_button(self) -> QPushButton:
        return self._copy

    @property
    def save_button(self) -> QPushButton:
        return self._save

    @Slot()
    def _save_code(self) -> None:
        text = self._leaf.text + "\n"
        save_bytes(self, tr("Save code"), file_name_for(self._leaf.language), text.encode())

    def show_leaf(self, leaf: Code) -> None:
        """Show this code. Cheap when it only continues what is shown."""
        self._language.setText(leaf.language or tr("text"))
        self._text.show_code(leaf, self._leaf)
        self._leaf = leaf
        if self._width_known:
            self._fit()

    def set_width(self, width: int) -> None:
        self.setFixedWidth(width)
        self._fit()

    @property
    def _width_known(self) -> bool:
        return self.minimumWidth() == self.maximumWidth()

    def _fit(self) -> None:
        self._text.fit(self.width() - 2)
        head = max(self._copy.sizeHint().height(), self._language.sizeHint().height()) + 6
        self.setFixedHeight(head + 2 + self._text.height() + 2)


class _CodeText(QPlainTextEdit):
    """The code itself. Colours are laid over the text in slices of a few milliseconds."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setReadOnly(True)
        self.setUndoRedoEnabled(False)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.setFont(theme().mono(CODE_PX))
        self.setTabStopDistance(4 * QFontMetrics(self.font()).horizontalAdvance(" "))
        self.document().setDocumentMargin(0)
        self.setViewportMargins(14, 0, 8, 10)
        self.setAccessibleName(tr("Code"))
        self._leaf = Code("")
        #: Where in the code each line begins that is shown, and how much of it is.
        self._starts, self._shown = [0], 0
        #: The language whose lexer was last asked for.
        self._asked = ""
        self._widest = 0
        self._measured = 0
        self._pending: Iterator[tuple[int, Any, str]] | None = None
        #: Where highlighting is: line, UTF-16 column, place in the code, and the colours of that line so far.
        self._line = self._column = self._place = 0
        self._ranges: list[QTextLayout.FormatRange] = []
        self._timer = QTimer(self, singleShot=True, interval=0)
        self._timer.timeout.connect(self._highlight_slice)

    def show_code(self, leaf: Code, before: Code) -> None:
        if not (leaf.text.startswith(before.text) and self.document().characterCount() > 1):
            self.clear()
            self._starts, self._shown = [0], 0
            self._widest = self._measured = 0
        self._append(leaf.text[self._shown :])
        self._leaf = leaf
        if leaf.language in _MADE:
            self._start_highlighting()
        elif leaf.language != self._asked:
            # A language's expressions take up to 150 ms when it is met first.
            self._asked = leaf.language
            if known(leaf.language):
                tasks.run(_make_lexer, leaf.language, done=self._take_lexer)

    def _append(self, text: str) -> None:
        """Show more code, an endless line in pieces."""
        shown: list[str] = []
        for number, line in enumerate(_LINE_ENDS.split(text)):
            if number:
                self._break_line(shown, 1)
            while len(line) > (room := self._starts[-1] + LONGEST_LINE - self._shown):
                shown.append(line[:room])
                self._break_line(shown, room)
                line = line[room:]
            shown.append(line)
            self._shown += len(line)
        cursor = QTextCursor(self.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.insertText("".join(shown))

    def _break_line(self, shown: list[str], characters: int) -> None:
        """After so many more characters a new line begins."""
        shown.append("\n")
        self._shown += characters
        self._starts.append(self._shown)

    def createMimeDataFromSelection(self) -> QMimeData:
        """The selected code, without the ends of lines that are only shown."""
        cursor = self.textCursor()
        start = self.document().findBlock(cursor.selectionStart()).blockNumber()
        first, *others = cursor.selectedText().split("\u2029")
        text = [first]
        for number, line in enumerate(others, start + 1):
            ends = _LINE_ENDS.match(self._leaf.text, self._starts[number] - 1)
            text.append(f"\n{line}" if ends else line)
        data = QMimeData()
        data.setText("".join(text))
        return data

    def _take_lexer(self, language: str) -> None:
        _MADE.add(language)
        if language == self._leaf.language:
            self._start_highlighting()

    def fit(self, width: int) -> None:
        """Take the height of all lines at that width."""
        metrics = QFontMetrics(self.font())
        for number in range(max(0, self._measured - 1), self.blockCount()):
            text = self.document().findBlockByNumber(number).text()
            self._widest = max(self._widest, metrics.horizontalAdvance(text.expandtabs(4)))
        self._measured = self.blockCount()
        margins = self.viewportMargins()
        # Qt begins to scroll some pixels before the text fills the width: a letter more is safe.
        wide = self._widest + metrics.horizontalAdvance("m") > width - margins.left() - margins.right()
        bar = self.horizontalScrollBar().sizeHint().height() if wide else 0
        self.setFixedSize(width, self.blockCount() * metrics.lineSpacing() + margins.bottom() + bar + 2)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        leave_to_parent(self)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.StyleChange:
            leave_to_parent(self)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Sideways turns scroll the code, all others the chat."""
        delta = event.angleDelta()
        if abs(delta.x()) > abs(delta.y()):
            super().wheelEvent(event)
        else:
            event.ignore()

    def _start_highlighting(self) -> None:
        leaf, lexer = self._leaf, lexer_for(self._leaf.language)
        if lexer is None:
            return
        self._line = 0
        if not leaf.closed:
            self._line = max(0, bisect_right(self._starts, len(leaf.text) - STREAM_WINDOW) - 1)
        start = self._place = self._starts[self._line]
        self._column = 0
        self._ranges = []
        if not colourable(leaf.text[start:]):
            self._pending = None
            self._timer.stop()
            return
        # Many lexers know a comment by the end of its line.
        self._pending = iter(lexer.get_tokens_unprocessed(leaf.text[start:] + "\n"))
        self._highlight_slice()

    @Slot()
    def _highlight_slice(self) -> None:
        assert self._pending is not None
        until = time.perf_counter() + SLICE
        for _, kind, text in self._pending:
            self._colour(kind, text)
            if time.perf_counter() > until:
                self._timer.start()
                return
        self._finish_line()
        self._pending = None
        self._timer.stop()

    def _colour(self, kind: Any, text: str) -> None:
        colour = _colour_of(kind)
        while text:
            ends = self._starts[self._line + 1] if self._line + 1 < len(self._starts) else self._shown
            piece, text = text[: ends - self._place], text[ends - self._place :]
            if not piece:
                return
            self._place += len(piece)
            # Qt counts UTF-16 units, Python characters.
            length = len(piece) if piece.isascii() else len(piece.encode("utf-16-le", "surrogatepass")) // 2
            if colour is not None:
                form = QTextCharFormat()
                form.setForeground(QColor(theme().colour(colour)))
                part = QTextLayout.FormatRange()
                part.start, part.length, part.format = self._column, length, form
                self._ranges.append(part)
            self._column += length
            if self._place == ends and self._line + 1 < len(self._starts):
                self._finish_line()
                self._line += 1
                self._column = 0

    def _finish_line(self) -> None:
        """Hand a line's colours to its layout, as QSyntaxHighlighter does; the text is untouched."""
        block = self.document().findBlockByNumber(self._line)
        if block.isValid():
            block.layout().setFormats(self._ranges)
            self.document().markContentsDirty(block.position(), block.length())
        self._ranges = []
