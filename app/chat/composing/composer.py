"""Where messages are written: a growing field, the context meter, and one button that sends or stops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QProgressBar, QPushButton, QVBoxLayout, QWidget

from app.chat.composing.chips import ChipRows
from app.chat.composing.field import MOST_LINES, Field
from app.chat.copy_button import link_button
from app.chat.speed.figures import tokens
from app.chat.storage.records import Attachment, Draft
from app.language import tr
from app.theme import theme
from app.theme.theme import restyle
from app.widgets.buttons import GAPS, ICON, button
from app.widgets.labels import label
from app.words import brief

__all__ = ["MOST_LINES", "Composer"]

METER_STEPS = 1000
#: From this share of the context on, the meter warns.
NEARLY_FULL = 0.9
#: A narrower composer leaves out the words of its buttons and the bar of the meter.
NARROW = 460
#: And in one narrower than this only its sign on the button.
BARE = 304
METER_WIDTH = 64
#: Between its edges and what is in it, and between the parts of the lowest row.
LEFT, RIGHT, SPACING = 16, 14, 12
#: Pixels between the icon and the word of a tool, beside those that Qt leaves.
GAP = 3


class Composer(QFrame):
    """Sending is possible while `set_ready` said so; stopping while `set_answering` did."""

    #: str: the message, without blank ends; its files are `attachments`
    sent = Signal(str)
    #: Text or attachments are others now.
    draftChanged = Signal()
    #: list[str]: paths of files to attach; empty: the user has yet to choose some
    attachWanted = Signal(list)
    #: str: text to attach
    pasteWanted = Signal(str)
    #: A picture was given instead of text.
    pictureGiven = Signal()
    #: How this chat answers is to be shown.
    settingsWanted = Signal()
    stopped = Signal()
    #: Draft: what was written in place of the earlier message
    editCancelled = Signal(object)
    #: Esc, with nothing here that it would end.
    escaped = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("composer")
        self._reason = ""
        self._too_large = False
        self._soon = False
        self._elsewhere = ""
        #: Enter was pressed too early: the message goes as soon as it can.
        self._queued = False
        self._answering = False
        self._field = Field(self)
        self._field.setAccessibleName(tr("Message"))
        self._field.sent.connect(self._send)
        self._field.escaped.connect(self._escape)
        self._field.focusChanged.connect(self._show_focus)
        self._field.textChanged.connect(self._unqueue)
        self._field.textChanged.connect(self.draftChanged)
        self._field.filesGiven.connect(self.attachWanted)
        self._field.longPasted.connect(self.pasteWanted)
        self._field.pictureGiven.connect(self.pictureGiven)
        self._attachments: tuple[Attachment, ...] = ()
        self._chips = ChipRows(True, self)
        self._chips.removed.connect(self._remove)

        self._editing = QWidget(self)
        edit_row = QHBoxLayout(self._editing)
        edit_row.setContentsMargins(0, 0, 0, 0)
        self._edit_said = label("", "small", wrap=True)
        edit_row.addWidget(self._edit_said, 1)
        #: An answer is changed, which nobody has to answer.
        self._keeps = False
        cancel = link_button(tr("Cancel"), tr("Cancel editing"))
        cancel.clicked.connect(self.cancel_edit)
        edit_row.addWidget(cancel)
        self._editing.hide()

        self._attach = button("", icon="clip", kind="ghost", role="muted", name=tr("Attach text files"))
        self._attach.setToolTip(tr("Attach text files, or drop them here"))
        self._attach.clicked.connect(lambda: self.attachWanted.emit([]))
        self._settings = button("", icon="sliders", kind="ghost", role="muted", name=tr("Chat settings"))
        self._settings.setObjectName("composerSettings")
        self._settings.clicked.connect(self.settingsWanted)
        self._preset = ""
        #: What the meter says, and what it says in little room.
        self._counts = ("", "")
        #: Beside the tools where there is room for all of it, and over them where there is not.
        self._hint = ""
        self._hint_beside = label("", "small")
        self._hint_over = label("", "small", wrap=True)
        # One long word in the title of a chat must not widen the window.
        self._hint_over.setMinimumWidth(1)
        self._hint_over.hide()
        self._meter_text = label("", "small")
        self._meter = QProgressBar(self)
        self._meter.setObjectName("meter")
        self._meter.setTextVisible(False)
        self._meter.setRange(0, METER_STEPS)
        self._button = button("", parent=self)
        self._button.clicked.connect(self._press)
        bottom = QHBoxLayout()
        bottom.setSpacing(SPACING)
        tools = QHBoxLayout()
        tools.setSpacing(2)
        tools.setContentsMargins(-8, 0, 0, 0)
        tools.addWidget(self._attach)
        tools.addWidget(self._settings)
        bottom.addLayout(tools)
        bottom.addWidget(self._hint_beside, 1)
        bottom.addWidget(self._meter_text)
        bottom.addWidget(self._meter)
        bottom.addWidget(self._button)

        column = QVBoxLayout(self)
        column.setContentsMargins(LEFT, 14, RIGHT, 12)
        column.setSpacing(10)
        column.addWidget(self._editing)
        column.addWidget(self._chips)
        column.addWidget(self._field)
        column.addWidget(self._hint_over)
        column.addLayout(bottom)
        self.setFocusProxy(self._field)
        self.set_context(0, 0)
        self.set_enter("send")
        self._show_button()
        self._show_state()

    @property
    def field(self) -> Field:
        return self._field

    @property
    def action_button(self) -> QPushButton:
        """Send or Stop."""
        return self._button

    @property
    def hint(self) -> str:
        return self._hint

    @property
    def meter_text(self) -> str:
        return self._meter_text.text()

    @property
    def editing(self) -> bool:
        return not self._editing.isHidden()

    @property
    def takes_files(self) -> bool:
        """An answer has no files."""
        return not self._keeps

    @property
    def text(self) -> str:
        return self._field.toPlainText()

    def set_text(self, text: str) -> None:
        self._field.setPlainText(text)
        self._field.moveCursor(self._field.textCursor().MoveOperation.End)

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        return self._attachments

    @property
    def chips(self) -> ChipRows:
        return self._chips

    @property
    def settings_button(self) -> QPushButton:
        return self._settings

    @property
    def draft(self) -> Draft:
        return Draft(self.text, self._attachments)

    def set_draft(self, draft: Draft) -> None:
        self.set_attachments(draft.attachments)
        self.set_text(draft.text)

    def set_attachments(self, attachments: Sequence[Attachment]) -> None:
        if tuple(attachments) != self._attachments:
            self._attachments = tuple(attachments)
            self._chips.show_files(self._attachments)
            self._unqueue()
            self.draftChanged.emit()

    def set_enter(self, does: str) -> None:
        """What Enter does: "send", or "newline" (then Ctrl+Enter sends)."""
        self._field.set_enter(does)
        sends, starts = ("Enter", "Shift+Enter") if does == "send" else ("Ctrl+Enter", "Enter")
        described = tr("{send} to send, {newline} for a new line", send=sends, newline=starts)
        self._field.setAccessibleDescription(described)

    def set_history(self, history: Callable[[], Sequence[str]]) -> None:
        """history: gives what was asked before, newest first; Up in the empty field goes through it."""
        self._field.set_history(history)

    def set_preset(self, name: str) -> None:
        """What the button for the chat's settings says."""
        self._preset = name
        self._settings.setAccessibleName(tr("Chat settings: {preset}", preset=name))
        self._settings.setToolTip(tr("Preset, system prompt and sampling for this chat"))
        self._show_words()

    def _show_words(self) -> None:
        roomy = self.width() >= theme().px(NARROW)
        for words, bar in ((roomy, roomy), (roomy, False), (False, False)):
            for tool, text in ((self._attach, tr("Attach")), (self._settings, self._preset)):
                tool.setText(text if words else "")
                icon = theme().px(ICON)
                tool.setIconSize(QSize(icon + GAP if words else icon, icon))
            self._meter.setFixedWidth(theme().px(METER_WIDTH if bar else 0))
            self._meter_text.setText(self._counts[0 if bar else 1])
            self._show_button_words()
            if self._room_left() >= 0:
                break
        self._show_hint()

    def _show_hint(self) -> None:
        self._hint_beside.ensurePolished()
        needed = self._hint_beside.fontMetrics().horizontalAdvance(self._hint)
        fits = not self._hint or needed < self._room_left()
        self._hint_beside.setText(self._hint if fits else "")
        self._hint_over.setText("" if fits else self._hint)
        self._hint_over.setVisible(not fits)

    def _room_left(self) -> int:
        """Pixels beside what stands in the lowest row, whole."""
        parts = (self._attach, self._settings, self._meter_text, self._button)
        needed = sum(part.sizeHint().width() + SPACING for part in parts if not part.isHidden())
        needed += 0 if self._meter.isHidden() else self._meter.maximumWidth() + SPACING
        return self.contentsRect().width() - LEFT - RIGHT - needed

    def _show_button_words(self) -> None:
        wide = self.width() >= theme().px(NARROW)
        said = tr("Stop") + ("  Esc" if wide else "") if self._answering else tr("Save") if self._keeps else tr("Send")
        said = said if self.width() >= theme().px(BARE) else ""
        self._button.setText(said)
        icon = theme().px(ICON)
        self._button.setIconSize(QSize(icon + GAPS[""] if said else icon, icon))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._show_words()

    @Slot(int)
    def _remove(self, place: int) -> None:
        self.set_attachments([a for n, a in enumerate(self._attachments) if n != place])

    def set_model(self, name: str) -> None:
        """Names the model that will answer; "" for none."""
        names = (name, brief(name)) if name else ()
        self._field.set_placeholder(*(tr("Message {model}", model=said) for said in names), tr("Write a message"))

    def set_ready(self, reason: str, soon: bool = False) -> None:
        """reason: why nothing can be sent now; "" when it can. soon: it can be in a while, Enter may wait for it."""
        self._reason, self._soon = reason, soon
        self._queued = self._queued and (soon or not reason)
        self._show_state()
        self._send_soon()

    def set_too_large(self, on: bool) -> None:
        """What is attached does not fit, whatever is said beside it. Enter still asks, and is told why."""
        if on != self._too_large:
            self._too_large = on
            self._show_state()

    def set_answering(self, on: bool, elsewhere: str = "") -> None:
        """elsewhere: the title of the chat that is answered, unless it is this one."""
        self._elsewhere = elsewhere if on else ""
        self._show_state()
        if on != self._answering:
            self._answering = on
            self._show_button()
            self._show_state()
            self._send_soon()

    def set_context(self, used: int, size: int, exact: bool = True) -> None:
        """Tokens of the context that the chat takes with what is being written; size 0 hides the meter."""
        known = used > 0 and size > 0
        self._meter.setVisible(known)
        self._meter_text.setVisible(known)
        self._counts = ("", "")
        if known:
            counted = ("" if exact else "~") + tokens(used)
            text = tr("{used} of {size} tokens", used=counted, size=tokens(size))
            self._counts = (text, f"{counted} / {tokens(size)}")
            self._meter_text.setAccessibleName(text)
            full = used >= NEARLY_FULL * size
            if full != bool(self._meter.property("full")):
                self._meter.setProperty("full", full)
                restyle(self._meter)
            self._meter.setValue(min(METER_STEPS, round(METER_STEPS * used / size)))
            self._meter.setAccessibleName(tr("Context used"))
            self._meter_text.setToolTip(tr("How much of the context this chat uses, including your draft"))
        self._show_words()

    def begin_edit(self, text: str, attachments: Sequence[Attachment] = (), answer: bool = False) -> None:
        """Offer an earlier message for change; an answer is kept as it is then, without a model."""
        self._edit_said.setText(
            tr("Editing an answer. The old version is kept.")
            if answer
            else tr("Editing an earlier message. The old version is kept.")
        )
        self._set_keeps(answer)
        self._editing.show()
        self.set_draft(Draft(text, tuple(attachments)))

    @Slot()
    def cancel_edit(self) -> None:
        if self.editing:
            written = self.draft
            self.clear()
            self.editCancelled.emit(written)

    def _set_keeps(self, on: bool) -> None:
        if on != self._keeps:
            self._keeps = on
            self._field.takes_files = not on
            self._attach.setVisible(not on)
            self._show_button()
            self._show_words()

    def clear(self) -> None:
        self._editing.hide()
        self._set_keeps(False)
        self._field.clear()
        self.set_attachments(())

    @Slot()
    def _press(self) -> None:
        if self._answering:
            self.stopped.emit()
        else:
            self._send()

    @Slot()
    def _send(self) -> None:
        text = self.text.strip()
        something = bool(text or self._attachments)
        if something and not self._answering and (self._keeps or not self._reason):
            self.sent.emit(text)
        elif something and (self._soon or self._answering):
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
        elif self.editing:
            self.cancel_edit()
        else:
            self.escaped.emit()

    @Slot(bool)
    def _show_focus(self, on: bool) -> None:
        self.setProperty("focused", on)
        restyle(self)

    def _show_button(self) -> None:
        self._button.setProperty("kind", "" if self._answering else "primary")
        theme().bind_icon(
            self._button, "stop" if self._answering else "send", "text" if self._answering else "accent_ink"
        )
        self._show_button_words()
        keeps = tr("Save edited answer") if self._keeps else tr("Send message")
        self._button.setAccessibleName(tr("Stop answering") if self._answering else keeps)
        restyle(self._button)

    @Slot()
    def _show_state(self) -> None:
        if self._queued and self._answering:
            self._hint = tr("Your message will be sent after this answer")
        elif self._queued:
            self._hint = tr("Your message will be sent once the model is loaded")
        elif self._elsewhere:
            self._hint = tr("Answering in “{title}”", title=self._elsewhere)
        else:
            self._hint = "" if self._answering else self._reason
        self._show_hint()
        can_send = (self._soon or not self._reason or self._keeps) and not self._queued
        can_send = can_send and bool(self.text.strip() or self._attachments) and not self._too_large
        enabled = self._answering or can_send
        if not enabled and self.window().focusWidget() is self._button:
            # Also while another program has the keyboard, when Qt tells nobody that it passes it on.
            self._field.setFocus(Qt.FocusReason.OtherFocusReason)
        self._button.setEnabled(enabled)
