"""Where messages are written: a growing field, the context meter, and one button that sends or stops."""

from __future__ import annotations

from math import ceil

from PySide6.QtCore import QMimeData, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QFocusEvent, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QProgressBar, QPushButton, QVBoxLayout, QWidget

from app.chat.copy_button import link_button
from app.chat.figures import tokens
from app.theme import theme
from app.theme.theme import restyle
from app.widgets.buttons import button
from app.widgets.labels import ElideLabel, label

MOST_LINES = 10
METER_STEPS = 1000


class _Field(QPlainTextEdit):
    """Grows with its text up to MOST_LINES lines. Enter sends, Shift+Enter starts a new line."""

    sent = Signal()
    escaped = Signal()
    focusChanged = Signal(bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setTabChangesFocus(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._placeholder = ""
        self.document().setDocumentMargin(0)
        self.document().documentLayout().documentSizeChanged.connect(self._fit)
        self._fit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if enter and not event.modifiers() & (Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.AltModifier):
            self.sent.emit()
        elif event.key() == Qt.Key.Key_Escape:
            self.escaped.emit()
        else:
            super().keyPressEvent(event)

    def insertFromMimeData(self, source: QMimeData) -> None:
        """Text from a word processor comes without its looks."""
        if source.hasText():
            self.insertPlainText(source.text())

    def set_placeholder(self, text: str) -> None:
        """On one line: what does not fit is left out."""
        self._placeholder = text
        self._show_placeholder()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._show_placeholder()

    def _show_placeholder(self) -> None:
        room = self.viewport().width() - 4
        self.setPlaceholderText(self.fontMetrics().elidedText(self._placeholder, Qt.TextElideMode.ElideRight, room))
        # Qt paints the new words only where the caret blinks.
        self.viewport().update()

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focusChanged.emit(True)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.focusChanged.emit(False)

    @Slot()
    def _fit(self) -> None:
        lines = min(MOST_LINES, max(1, ceil(self.document().size().height())))
        self.setFixedHeight(lines * self.fontMetrics().lineSpacing() + 4)
        fits = lines < MOST_LINES
        self.setVerticalScrollBarPolicy(
            Qt.ScrollBarPolicy.ScrollBarAlwaysOff if fits else Qt.ScrollBarPolicy.ScrollBarAsNeeded
        )


class Composer(QFrame):
    """Sending is possible while `set_ready` said so; stopping while `set_answering` did."""

    #: str: the message, without blank ends
    sent = Signal(str)
    stopped = Signal()
    editCancelled = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("composer")
        self._reason = ""
        self._soon = False
        self._elsewhere = ""
        #: Enter was pressed too early: the message goes as soon as it can.
        self._queued = False
        self._answering = False
        self._field = _Field(self)
        self._field.setAccessibleName(self.tr("Message"))
        self._field.setAccessibleDescription(self.tr("Enter sends, Shift+Enter starts a new line"))
        self._field.sent.connect(self._send)
        self._field.escaped.connect(self._escape)
        self._field.focusChanged.connect(self._show_focus)
        self._field.textChanged.connect(self._unqueue)

        self._editing = QWidget(self)
        edit_row = QHBoxLayout(self._editing)
        edit_row.setContentsMargins(0, 0, 0, 0)
        edit_row.addWidget(
            label(self.tr("Editing an earlier message. The old one stays as another version."), "small"), 1
        )
        cancel = link_button(self.tr("Cancel"), self.tr("Cancel editing"))
        cancel.clicked.connect(self.cancel_edit)
        edit_row.addWidget(cancel)
        self._editing.hide()

        self._hint = ElideLabel("", "small")
        self._meter_text = label("", "small")
        self._meter = QProgressBar(self)
        self._meter.setTextVisible(False)
        self._meter.setRange(0, METER_STEPS)
        self._meter.setFixedWidth(64)
        self._button = button("", parent=self)
        self._button.clicked.connect(self._press)
        bottom = QHBoxLayout()
        bottom.setSpacing(12)
        bottom.addWidget(self._hint, 1)
        bottom.addWidget(self._meter_text)
        bottom.addWidget(self._meter)
        bottom.addWidget(self._button)

        column = QVBoxLayout(self)
        column.setContentsMargins(16, 14, 14, 12)
        column.setSpacing(10)
        column.addWidget(self._editing)
        column.addWidget(self._field)
        column.addLayout(bottom)
        self.setFocusProxy(self._field)
        self.set_context(0, 0)
        self._show_button()
        self._show_state()

    @property
    def field(self) -> QPlainTextEdit:
        return self._field

    @property
    def action_button(self) -> QPushButton:
        """Send or Stop."""
        return self._button

    @property
    def hint(self) -> str:
        return self._hint.text()

    @property
    def meter_text(self) -> str:
        return self._meter_text.text()

    @property
    def editing(self) -> bool:
        return not self._editing.isHidden()

    @property
    def text(self) -> str:
        return self._field.toPlainText()

    def set_text(self, text: str) -> None:
        self._field.setPlainText(text)
        self._field.moveCursor(self._field.textCursor().MoveOperation.End)

    def set_model(self, name: str) -> None:
        """Names the model that will answer; "" for none."""
        self._field.set_placeholder(self.tr("Message {0}").format(name) if name else self.tr("Write a message"))

    def set_ready(self, reason: str, soon: bool = False) -> None:
        """reason: why nothing can be sent now; "" when it can. soon: it can be in a while, Enter may wait for it."""
        self._reason, self._soon = reason, soon
        self._queued = self._queued and (soon or not reason)
        self._show_state()
        self._send_soon()

    def set_answering(self, on: bool, elsewhere: str = "") -> None:
        """elsewhere: the title of the chat that is answered, unless it is this one."""
        self._elsewhere = elsewhere if on else ""
        self._show_state()
        if on != self._answering:
            self._answering = on
            self._show_button()
            self._show_state()
            self._send_soon()

    def set_context(self, used: int, size: int) -> None:
        """Tokens of the context that the chat takes; size 0 hides the meter."""
        known = used > 0 and size > 0
        self._meter.setVisible(known)
        self._meter_text.setVisible(known)
        if known:
            self._meter_text.setText(self.tr("{0} of {1} tokens").format(tokens(used), tokens(size)))
            self._meter.setValue(min(METER_STEPS, round(METER_STEPS * used / size)))
            self._meter.setAccessibleName(self.tr("Context used"))
            self._meter_text.setToolTip(self.tr("How much of the model's context this chat takes"))

    def begin_edit(self, text: str) -> None:
        """Offer an earlier message for change."""
        self._editing.show()
        self.set_text(text)
        self._field.setFocus(Qt.FocusReason.OtherFocusReason)

    @Slot()
    def cancel_edit(self) -> None:
        if self.editing:
            self._editing.hide()
            self._field.clear()
            self.editCancelled.emit()

    def clear(self) -> None:
        self._editing.hide()
        self._field.clear()

    @Slot()
    def _press(self) -> None:
        if self._answering:
            self.stopped.emit()
        else:
            self._send()

    @Slot()
    def _send(self) -> None:
        text = self.text.strip()
        if text and not self._reason and not self._answering:
            self.sent.emit(text)
        elif text and (self._soon or self._answering):
            self._queued = True
            self._show_state()

    def _send_soon(self) -> None:
        if self._queued and not self._reason and not self._answering:
            # Not at once: others hear of the same change after us.
            QTimer.singleShot(0, self, self._send_queued)

    @Slot()
    def _send_queued(self) -> None:
        if self._queued:
            self._queued = False
            self._send()
            self._show_state()

    def hold(self) -> None:
        """What waits to be sent stays until it is sent anew."""
        self._unqueue()

    @Slot()
    def _unqueue(self) -> None:
        self._queued = False
        self._show_state()

    @Slot()
    def _escape(self) -> None:
        self._unqueue()
        if self._answering:
            self.stopped.emit()
        else:
            self.cancel_edit()

    @Slot(bool)
    def _show_focus(self, on: bool) -> None:
        self.setProperty("focused", on)
        restyle(self)

    def _show_button(self) -> None:
        self._button.setProperty("kind", "" if self._answering else "primary")
        theme().bind_icon(
            self._button, "stop" if self._answering else "send", "text" if self._answering else "accent_ink"
        )
        self._button.setText(self.tr("Stop") + "  Esc" if self._answering else self.tr("Send"))
        self._button.setAccessibleName(self.tr("Stop the answer") if self._answering else self.tr("Send message"))
        restyle(self._button)

    @Slot()
    def _show_state(self) -> None:
        if self._queued and self._answering:
            hint = self.tr("Your message is sent after this answer")
        elif self._queued:
            hint = self.tr("Your message is sent when the model is loaded")
        elif self._elsewhere:
            hint = self.tr("Answering in “{0}”").format(self._elsewhere)
        else:
            hint = "" if self._answering else self._reason
        self._hint.setText(hint)
        can_send = (self._soon or not self._reason) and not self._queued and bool(self.text.strip())
        self._button.setEnabled(self._answering or can_send)
