"""One message as it is shown: a question in its bubble, an answer with its thinking, text, figures and actions."""

from __future__ import annotations

import time

from PySide6.QtCore import QEvent, QPoint, QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QEnterEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.chat.composing.chips import ChipRows
from app.chat.copy_button import CopyButton, link_button
from app.chat.rendering.body_view import BodyView
from app.chat.rendering.markdown import LINE_BREAK, Span, Text
from app.chat.rendering.rich_text import TextView
from app.chat.rendering.thinking import split_thought
from app.chat.rendering.thought_view import ThoughtView
from app.chat.speed.figures import answered_by, stats_detail, stats_lines
from app.chat.stepped_down import SteppedDownLine
from app.chat.storage.store import StoredMessage
from app.language import told, tr
from app.theme import theme
from app.widgets.labels import ElideLabel, label
from app.words import sentence
from engine.errors import GreenroomError

BUBBLE_WIDTH, BUBBLE_PADDING = 540, 15
PART_GAP = 10
#: Drawing may take at most one part in this of the time while an answer streams, but text waits for so many seconds at
#: most: much of it at once would be one long frame.
DRAW_SHARE, LONGEST_WAIT = 4, 0.1


class Pager(QWidget):
    """ "‹ 2/3 ›": pages between versions of a message."""

    stepped = Signal(int)

    def __init__(self, version: int, versions: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        older = link_button("‹", tr("Previous version"))
        newer = link_button("›", tr("Next version"))
        older.setEnabled(version > 1)
        newer.setEnabled(version < versions)
        older.clicked.connect(lambda: self.stepped.emit(-1))
        newer.clicked.connect(lambda: self.stepped.emit(+1))
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(older)
        row.addWidget(label(f"{version}/{versions}", "small"))
        row.addWidget(newer)


class _QuietButton(QPushButton):
    """Seen only while the pointer is over its message or the keyboard is on it."""

    def __init__(self, icon: str, name: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.setProperty("kind", "ghost")
        self.setFixedSize(theme().px(30), theme().px(30))
        self.setIconSize(QSize(theme().px(16), theme().px(16)))
        self.setAccessibleName(name)
        self.setToolTip(name)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        theme().bind_icon(self, icon)
        self.shown = False

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.shown or self.hasFocus():
            super().paintEvent(event)


class QuestionView(QWidget):
    """A question, at the right."""

    editWanted = Signal(object)
    #: StoredMessage, QPoint: what else can be done with it, asked for at that place of the screen
    menuWanted = Signal(object, QPoint)
    versionWanted = Signal(object, int)
    linkChosen = Signal(str)

    def __init__(self, message: StoredMessage, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.message = message
        self._bubble = QFrame(self)
        self._bubble.setObjectName("bubble")
        self._text = TextView(self._bubble)
        self._text.setAccessibleName(tr("Your message"))
        self._files = ChipRows(False, self._bubble)
        self._files.show_files(message.attachments)
        self._edit = _QuietButton("edit", tr("Edit message"), self)
        self._edit.clicked.connect(lambda: self.editWanted.emit(self.message))
        self._more = _QuietButton("dots", tr("More actions"), self)
        self._more.clicked.connect(lambda: self.menuWanted.emit(self.message, _below(self._more)))
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(4)
        row.addStretch()
        self._pager: Pager | None = None
        if message.versions > 1:
            self._pager = Pager(message.version, message.versions, self)
            self._pager.stepped.connect(lambda step: self.versionWanted.emit(self.message, step))
            row.addWidget(self._pager)
        row.addWidget(self._more)
        row.addWidget(self._edit)
        row.addWidget(self._bubble)
        self._width = 0
        self._write()

    @property
    def releasable(self) -> bool:
        """True when this can be made again from its message without a difference."""
        return True

    @property
    def edit_button(self) -> QPushButton:
        return self._edit

    def set_width(self, width: int) -> None:
        self._width = width
        self.setFixedWidth(width)
        pager = self._pager.sizeHint().width() if self._pager is not None else 0
        beside = self._edit.width() + self._more.width() + 12 + pager
        limit = min(theme().px(BUBBLE_WIDTH), width - beside) - 2 * BUBBLE_PADDING
        said = bool(self.message.text.strip())
        self._text.setVisible(said)
        self._text.set_width(self._text.natural_width(limit))
        inner, top = self._text.width() if said else 0, 8
        if self.message.attachments:
            self._files.adjustSize()
            size = self._files.sizeHint()
            self._files.setGeometry(BUBBLE_PADDING, 12, min(limit, size.width()), size.height())
            inner = max(inner, self._files.width())
            top = self._files.geometry().bottom() + (6 if said else 0)
        self._text.move(BUBBLE_PADDING, top)
        height = top + (self._text.height() if said else 0) + 12
        self._bubble.setFixedSize(inner + 2 * BUBBLE_PADDING, height)
        self.setFixedHeight(max(self._bubble.height(), self._edit.height()))
        # The lower end of a long question is in sight beside its answer, its middle is not.
        low = self.height() > 2 * self._edit.height()
        for part in (self._edit, self._more, self._pager):
            if part is not None:
                self.layout().setAlignment(part, Qt.AlignmentFlag.AlignBottom if low else Qt.AlignmentFlag.AlignVCenter)

    def restyle(self) -> None:
        self._files.show_files(self.message.attachments)
        self._write()
        self.set_width(self._width)

    def _write(self) -> None:
        """What the user wrote is shown as it is: no Markdown."""
        self._text.change(0, [Text((Span(self.message.text.rstrip().replace("\n", LINE_BREAK)),))])

    def enterEvent(self, event: QEnterEvent) -> None:
        self._show_edit(True)
        super().enterEvent(event)

    def leaveEvent(self, event: QEvent) -> None:
        self._show_edit(False)
        super().leaveEvent(event)

    def _show_edit(self, on: bool) -> None:
        for part in (self._edit, self._more):
            part.shown = on
            part.update()


class ErrorView(QFrame):
    """Why there is no (more) answer."""

    def __init__(self, error: GreenroomError, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("surface", "banner-bad")
        self.setAccessibleName(f"{told(error.what)}: {told(error.why)}. {told(error.remedy)}")
        column = QVBoxLayout(self)
        column.setContentsMargins(14, 10, 14, 10)
        column.setSpacing(2)
        column.addWidget(label(told(error.what), "strong", wrap=True))
        why = label(f"{sentence(told(error.why))}. {told(error.remedy)}", wrap=True)
        why.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        column.addWidget(why)

    def set_width(self, width: int) -> None:
        self.setFixedWidth(width)
        # With the frame, which the layout alone does not count.
        self.setFixedHeight(self.heightForWidth(width))


class FiguresLabel(ElideLabel):
    """The line under an answer: a click, or Enter, asks for all of its figures."""

    chosen = Signal()

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(text, "small", parent=parent)
        self.setAccessibleName(tr("Details of this answer: {line}", line=text))
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self.hasFocus():
            painter = QPainter(self)
            painter.setPen(theme().colour("accent"))
            painter.drawLine(0, self.height() - 1, self.width(), self.height() - 1)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton and self.rect().contains(event.position().toPoint()):
            self.chosen.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            self.chosen.emit()
        else:
            super().keyPressEvent(event)


class AnswerView(QWidget):
    """An answer, as wide as the column. While it is written it grows; then its figures and actions appear."""

    regenerateWanted = Signal(object)
    #: StoredMessage: all its figures are asked for
    figuresWanted = Signal(object)
    #: StoredMessage, QPoint: what else can be done with it, asked for at that place of the screen
    menuWanted = Signal(object, QPoint)
    versionWanted = Signal(object, int)
    linkChosen = Signal(str)
    #: int: by how many pixels it has become taller
    resized = Signal(int)

    def __init__(self, message: StoredMessage, streaming: bool = False, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.message = message
        self._width = 0
        self._thought: ThoughtView | None = None
        self._error: ErrorView | None = None
        self._stepped_down: SteppedDownLine | None = None
        self._footer: QWidget | None = None
        self._waiting: QLabel | None = None
        self._body = BodyView(parent=self)
        self._body.linkChosen.connect(self.linkChosen)
        self._body.resized.connect(self._fit)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(PART_GAP)
        self._column.addWidget(self._body)
        self._pending: tuple[str, float | None] | None = None
        self._draw_again = 0.0
        self._draw_timer = QTimer(self, singleShot=True)
        self._draw_timer.timeout.connect(self._draw_pending)
        if streaming:
            self._body.hide()
            self._waiting = label(tr("Reading your message…"), "muted", parent=self)
            self._column.insertWidget(0, self._waiting)
            self._waiting.show()
        else:
            self._show_text(message.text, message.thought_s, whole=True)
            self._show_end()

    @property
    def releasable(self) -> bool:
        """True when this can be made again from its message without a difference."""
        opened = self._thought is not None and self._thought.toggle.isChecked()
        return self._footer is not None and self._body.complete and not opened

    @property
    def body(self) -> BodyView:
        return self._body

    @property
    def thought(self) -> ThoughtView | None:
        return self._thought

    @property
    def shown_text(self) -> str:
        """The answer without its thinking section."""
        return split_thought(self.message.text).answer

    def grow(self, text: str, thought_s: float | None) -> None:
        """Show a longer version. When drawing has become slow, text is gathered and drawn less often."""
        self._pending = (text, thought_s)
        wait = self._draw_again - time.perf_counter()
        if wait <= 0:
            self._draw_pending()
        elif not self._draw_timer.isActive():
            self._draw_timer.start(max(1, round(wait * 1000)))

    def finish(self, message: StoredMessage) -> None:
        """The answer is whole."""
        self._draw_timer.stop()
        self._pending = None
        self.message = message
        self._show_text(message.text, message.thought_s)
        self._body.finish()
        if self._waiting is not None:
            self._waiting.hide()
        self._show_end()
        self._fit()

    def _fold_foot(self) -> None:
        """The actions stand under the figures where beside them there is no room even for the fewest."""
        if self._footer is None or not self._width:
            return
        actions = self._foot.itemAt(1).sizeHint().width()
        beside = self._least_foot + self._foot.spacing() + actions <= self._width
        self._foot.setDirection(QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom)

    def set_width(self, width: int) -> None:
        self._width = width
        self.setFixedWidth(width)
        self._fold_foot()
        for part in (self._body, self._thought, self._error, self._stepped_down):
            if part is not None:
                part.set_width(width)
        self._fit()

    def restyle(self) -> None:
        self._body.restyle()
        if self._thought is not None:
            self._thought.restyle()

    @Slot()
    def _fit(self) -> None:
        """Take the height of the parts. Waiting for layouts to find it out would show one wrong frame after another."""
        heights = []
        for part in (self._thought, self._waiting, self._body, self._error, self._stepped_down, self._footer):
            if part is not None and not part.isHidden():
                part.ensurePolished()
                fixed = part.minimumHeight() == part.maximumHeight()
                heights.append(part.height() if fixed else part.sizeHint().height())
        height = sum(heights) + PART_GAP * max(0, len(heights) - 1)
        before = self.height()
        if height != before or self.minimumHeight() != self.maximumHeight():
            self.setFixedHeight(height)
            self.resized.emit(height - before)

    @Slot()
    def _draw_pending(self) -> None:
        if self._pending is None:
            return
        start = time.perf_counter()
        self._show_text(*self._pending)
        self._pending = None
        self._fit()
        now = time.perf_counter()
        self._draw_again = now + min((now - start) * (DRAW_SHARE - 1), LONGEST_WAIT)

    def _show_text(self, text: str, thought_s: float | None, whole: bool = False) -> None:
        split = split_thought(text)
        if split.thought is not None and (split.thought or split.thinking):
            if self._thought is None:
                self._add_thought()
            assert self._thought is not None
            # An answer may end, or be cut off, in the middle of a thought.
            goes_on = split.thinking and not whole and self.message.stop_reason is None
            self._thought.show_thought(split.thought, goes_on, thought_s)
        if self._waiting is not None:
            self._waiting.setVisible(not split.answer and self._thought is None)
        if whole:
            self._body.set_text(split.answer)
        elif split.answer:
            self._body.set_caret(True)
            self._body.grow(split.answer)
        self._body.setVisible(bool(split.answer))

    def _add_thought(self) -> None:
        self._thought = ThoughtView(self)
        self._thought.linkChosen.connect(self.linkChosen)
        self._thought.resized.connect(self._fit)
        if self._width:
            self._thought.set_width(self._width)
        self._column.insertWidget(0, self._thought)
        self._thought.show()

    def _show_end(self) -> None:
        """The error and what was stepped down, where there is such, the figures and the actions."""
        message = self.message
        if message.error is not None:
            self._error = ErrorView(message.error, self)
            self._append(self._error)
        if message.stepped_down:
            self._stepped_down = SteppedDownLine(message.stepped_down, self)
            self._append(self._stepped_down)
        self._footer = QWidget(self)
        self._foot = QBoxLayout(QBoxLayout.Direction.LeftToRight, self._footer)
        self._foot.setContentsMargins(0, 0, 0, 0)
        self._foot.setSpacing(2)
        row = QHBoxLayout()
        row.setSpacing(2)
        line, *shorter = stats_lines(message.stats, message.stop_reason, message.predicted)
        figures = FiguresLabel(line)
        figures.shorter = tuple(shorter)
        figures.setObjectName("stats")
        model = answered_by(message.model, message.stop_reason) if message.model else ""
        figures.detail = "\n".join(filter(None, (stats_detail(message.stats), model)))
        figures.setAccessibleDescription(figures.detail)
        figures.chosen.connect(lambda: self.figuresWanted.emit(self.message))
        self._foot.addWidget(figures, 1)
        self._foot.addLayout(row)
        if message.versions > 1:
            pager = Pager(message.version, message.versions)
            pager.stepped.connect(lambda step: self.versionWanted.emit(self.message, step))
            row.addWidget(pager)
        if self.shown_text:
            row.addWidget(CopyButton(lambda: self.shown_text, tr("Copy answer")))
        again = link_button(tr("Regenerate"), tr("Regenerate this answer"))
        again.setObjectName("regenerate")
        again.clicked.connect(lambda: self.regenerateWanted.emit(self.message))
        row.addWidget(again)
        more = link_button("⋯", tr("More actions"))
        more.setObjectName("more")
        more.clicked.connect(lambda: self.menuWanted.emit(self.message, _below(more)))
        row.addWidget(more)
        row.addStretch(0)
        figures.ensurePolished()
        self._least_foot = figures.fontMetrics().horizontalAdvance(shorter[-1] if shorter else line)
        self._column.addWidget(self._footer)
        self._fold_foot()
        self._footer.show()

    def _append(self, part: ErrorView | SteppedDownLine) -> None:
        if self._width:
            part.set_width(self._width)
        self._column.addWidget(part)
        part.show()


def _below(widget: QWidget) -> QPoint:
    """Where a menu of that widget opens, on the screen."""
    return widget.mapToGlobal(QPoint(0, widget.height() + 2))
