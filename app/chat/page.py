"""The chat page: the open chat's messages, or an invitation to begin one, above the composer."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import (
    QDragEnterEvent,
    QDropEvent,
    QFocusEvent,
    QGuiApplication,
    QHideEvent,
    QKeyEvent,
    QResizeEvent,
    QShowEvent,
)
from PySide6.QtWidgets import QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget

from app.chat.advice import Advice
from app.chat.composing.attachment_view import AttachmentView
from app.chat.composing.composer import Composer
from app.chat.composing.context import ContextMeter
from app.chat.composing.drafting import Drafting
from app.chat.composing.editing import Editing
from app.chat.composing.field import HISTORY, local_files
from app.chat.controller import ChatController
from app.chat.find_bar import FindBar
from app.chat.link_bar import LinkBar
from app.chat.lost_focus import LostFocus
from app.chat.message_actions import MessageActions
from app.chat.notice import NoticeArea
from app.chat.options import ChatOptions, preset_caption
from app.chat.options_opener import OptionsOpener
from app.chat.rendering.thinking import split_thought
from app.chat.speed.figures import why_not_ready
from app.chat.speed.performance import performance_log
from app.chat.speed.performance_opener import PerformanceOpener
from app.chat.speed.performance_panel import PerformancePanel
from app.chat.storage.records import Attachment, Draft, StoredMessage
from app.chat.storage.store import ChatStore
from app.chat.style import chat_style
from app.chat.transcript import NEAR_END, Transcript
from app.chat.welcome import Welcome
from app.host import DEMO, AnswerResult, EngineHost, HostState
from app.language import tr
from app.settings.store import Settings
from app.theme import theme
from app.widgets.banner import BannerArea
from engine.errors import GreenroomError

COMPOSER_WIDTH = 700


class ChatPage(QWidget):
    """One chat at a time; answers go on being written while another chat is looked at."""

    titleChanged = Signal(str)
    #: int: the id of the chat that is open now, 0 for one that has no message yet
    chatChanged = Signal(int)
    #: int: the id of the chat in which an answer is being written, 0 for none
    answeringChanged = Signal(int)
    #: bool: whether the performance panel is shown
    performanceShown = Signal(bool)
    #: str: a path or "demo" that is to be loaded
    modelWanted = Signal(str)
    modelsWanted = Signal()
    #: A model file is to be chosen.
    fileWanted = Signal()
    #: str: what was done, for a moment
    said = Signal(str)

    def __init__(
        self,
        host: EngineHost,
        store: ChatStore,
        settings: Callable[[], Settings] = Settings,
        parent: QWidget | None = None,
        controller: ChatController | None = None,
    ) -> None:
        """settings: the user's settings as they are when it is called.

        controller: one that outlives this page, so that an answer goes on while the page is made anew
        """
        super().__init__(parent)
        self._host, self._store = host, store
        self._settings = settings
        self._controller = controller or ChatController(host, store, settings, self)
        self._meter = ContextMeter(host, self._controller, self)
        self._advice = Advice(host, store, self._controller, self._meter, settings, self)
        self._messages: list[StoredMessage] = []
        self.message_actions = MessageActions(store, self._controller, lambda: self._messages, self)
        self._opener = OptionsOpener(host, self._controller, settings, self)
        #: What was written is sent as soon as it is known to fit.
        self._sends_when_counted = False
        self._chat: int | None = None
        self._title = ""
        self._build()
        self._connect()
        self._restyle()
        self._show_state(host.state)
        self.new_chat()

    def _build(self) -> None:
        self.transcript = Transcript()
        self.welcome = Welcome()
        self._stack = QStackedWidget()
        self._stack.addWidget(self.welcome)
        self._stack.addWidget(self.transcript)
        # In a low window the messages give way, not what is asked below them.
        self._stack.setMinimumHeight(1)
        self.banners = BannerArea()
        self.link_bar = LinkBar()
        self.find_bar = FindBar(self.transcript)
        self.notices = NoticeArea(self.find_bar)
        self.composer = Composer()
        self.composer.set_history(lambda: self._store.questions(HISTORY))
        self._drafting = Drafting(self.composer, self._host, self._store, self._meter, self)
        self._editing = Editing(self.composer, self._drafting, self._controller, self)
        LostFocus(self, self.composer)
        self.setAcceptDrops(True)
        lower = QVBoxLayout()
        lower.setSpacing(8)
        lower.addWidget(self.link_bar)
        lower.addWidget(self.find_bar)
        lower.addWidget(self.notices)
        lower.addWidget(self.composer)
        centred = QWidget()
        self._centred = centred
        centred.setLayout(lower)
        lower.setContentsMargins(0, 0, 0, 0)
        row = QHBoxLayout()
        row.setContentsMargins(24, 0, 24, 18)
        row.addStretch(1)
        row.addWidget(centred, 1000)
        row.addStretch(1)
        messages = QWidget()
        column = QVBoxLayout(messages)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.banners)
        column.addWidget(self._stack, 1)
        column.addLayout(row)
        beside = QHBoxLayout(self)
        beside.setContentsMargins(0, 0, 0, 0)
        beside.setSpacing(0)
        beside.addWidget(messages, 1)
        self._performance = PerformanceOpener(performance_log(self._host), beside, messages, self)

    def _connect(self) -> None:
        self._host.stateChanged.connect(self._show_state)
        self._host.answerFinished.connect(self._hold_if_stopped)
        self._store.subscribe(self._chat_changed)
        controller, transcript = self._controller, self.transcript
        controller.streamStarted.connect(performance_log(self._host).begin)
        controller.streamStarted.connect(self._show_stream_state)
        controller.streamGrew.connect(self._grow)
        controller.streamEnded.connect(self._finish)
        controller.failed.connect(self.show_failure)
        transcript.editWanted.connect(self._editing.begin)
        transcript.linkChosen.connect(self.link_bar.offer)
        transcript.figuresWanted.connect(lambda message: self._performance.show(True, message.id))
        self._performance.shown.connect(self.performanceShown)
        actions = self.message_actions
        transcript.regenerateWanted.connect(actions.regenerate)
        transcript.versionWanted.connect(actions.show_version)
        transcript.menuWanted.connect(actions.open_menu)
        actions.editWanted.connect(self._editing.begin)
        actions.chatWanted.connect(self._open_branch)
        actions.changed.connect(self._show_path)
        actions.failed.connect(self.show_failure)
        actions.deleted.connect(self._offer_undo)
        actions.forgotten.connect(lambda: self.banners.dismiss("deleted"))
        self.find_bar.closed.connect(self.composer.setFocus)
        controller.settingsChanged.connect(self._settings_changed)
        self._meter.changed.connect(self._show_context)
        self._opener.failed.connect(self.show_failure)
        self._opener.said.connect(self.said)
        self._opener.presetsChanged.connect(lambda: self._settings_changed(self._chat or 0))
        self._opener.noteWanted.connect(lambda note, ways: self.banners.show_error(note, "info", "preset", ways))
        self._drafting.failed.connect(self.show_failure)
        self._drafting.attaching.connect(lambda: self.banners.dismiss("chat"))
        self._drafting.counted.connect(self._show_context)
        advice = self._advice
        advice.summaryWanted.connect(self._show_summary)
        advice.changed.connect(self.notices.show_notices)
        self.notices.closed.connect(advice.close)
        advice.modelWanted.connect(self.modelWanted)
        advice.modelsWanted.connect(self.modelsWanted)
        advice.chatWanted.connect(self.open_chat)
        advice.continueWanted.connect(actions.continue_answer)
        advice.answerWanted.connect(actions.regenerate)
        advice.attachmentsWanted.connect(self.composer.set_attachments)
        self.welcome.modelsWanted.connect(self.modelsWanted)
        self.welcome.fileWanted.connect(self.fileWanted)
        self.composer.settingsWanted.connect(self.open_options)
        self.composer.sent.connect(self.send)
        self.composer.stopped.connect(controller.stop)
        self.composer.escaped.connect(self.link_bar.hide)
        self._editing.revised.connect(self._show_revised)
        self._editing.dropped.connect(self._offer_edit)
        self._editing.failed.connect(self.show_failure)
        self.welcome.exampleChosen.connect(self._take_example)
        theme().changed.connect(self._restyle)

    # What the window calls

    @property
    def chat(self) -> int | None:
        """The id of the open chat; None for one that has no message yet."""
        return self._chat

    @property
    def title(self) -> str:
        return self._title

    def new_chat(self) -> None:
        """Open an empty chat. It is kept from its first message on."""
        self._switch(None)
        self.composer.setFocus(Qt.FocusReason.OtherFocusReason)

    @Slot(int)
    def open_chat(self, chat_id: int) -> None:
        """Open a chat at its end. One that was deleted meanwhile opens as a new one."""
        self._switch(chat_id if self._store.title(chat_id) is not None else None)

    @Slot(int)
    def _open_branch(self, chat_id: int) -> None:
        self.open_chat(chat_id)
        self.composer.setFocus(Qt.FocusReason.OtherFocusReason)

    @Slot(int, str)
    def show_hit(self, message_id: int, words: str) -> None:
        """Go to a message of the open chat, in whichever version it is, and mark the words in it."""
        if message_id:
            try:
                self._store.show_message(message_id)
            except GreenroomError as error:
                self.show_failure(error)
            self._show_path(stay=True)
        self._performance.give_way()
        self.find_bar.open_bar(words)
        self.find_bar.stand_at(message_id)
        self.transcript.go_to(message_id)

    def find(self) -> None:
        """Look for words in the open chat."""
        self._performance.give_way()
        self.find_bar.open_bar()

    @Slot(str)
    def send(self, text: str) -> None:
        """Ask the model, in the open chat."""
        files = self.composer.attachments
        if self._editing.of_answer:
            self._editing.keep_answer(text)
            return
        if not self._controller.can_ask or not (text or files):
            return
        self._sends_when_counted = self._meter.doubtful
        if self._sends_when_counted:
            self._meter.count()
            return
        if self._meter.full:
            self._advise_room()
            return
        edited = self._editing.message
        try:
            if edited is not None:
                self._controller.edit(edited, text, files)
            else:
                self._chat = self._controller.ask(self._chat, text, files)
        except GreenroomError as error:
            self.show_failure(error)
            return
        self.message_actions.forget()
        if edited is not None:
            self._editing.end()
        else:
            self._drafting.sent(self._chat)
        self._show_path()
        self._announce()

    @property
    def performance(self) -> PerformancePanel | None:
        """The panel beside the messages while it is shown."""
        return self._performance.panel

    def show_performance(self, on: bool, message_id: int | None = None) -> None:
        """The figures of an answer, of the newest one without a message, beside the messages."""
        self._performance.show(on, message_id)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._performance.share_room()
        # The conversation keeps most of a low window.
        self.notices.set_room(self.height() // 3)

    def copy_card(self) -> bool:
        """Copy the benchmark card of the newest answer; False when there is none."""
        copied = self._performance.copy_card()
        if copied:
            self.said.emit(tr("The benchmark card was copied"))
        return copied

    def regenerate_last(self) -> None:
        """Have the last question of the open chat answered, anew where it has an answer."""
        if self._messages:
            self.message_actions.regenerate(self._messages[-1])

    def copy_last(self) -> None:
        """The newest answer of the open chat, without what the model thought."""
        answers = [message for message in self._messages if message.role == "assistant"]
        if answers:
            QGuiApplication.clipboard().setText(split_thought(answers[-1].text).answer)
            self.said.emit(tr("The answer was copied"))
        else:
            self.said.emit(tr("There is no answer to copy yet"))

    def save_draft(self) -> None:
        """At once, not a moment after the last key: another page is about to take this one's place."""
        self._drafting.save()

    def shutdown(self) -> None:
        """Save what is being written and close the store. The page is of no use afterwards."""
        self._drafting.save()
        self._meter.stop()
        self._controller.shutdown()
        self._store.close()

    # Chats and versions

    def _switch(self, chat_id: int | None) -> None:
        self._performance.give_way()
        self._drafting.save()
        self._editing.leave()
        self.message_actions.forget()
        self._sends_when_counted = False
        self.composer.clear()
        self.link_bar.hide()
        if chat_id != self._chat:
            self.find_bar.close_bar()
        self._chat = chat_id
        self._drafting.open(chat_id)
        self._show_path()
        self._editing.resume(self._messages)
        self._announce()

    def _announce(self) -> None:
        self.chatChanged.emit(self._chat or 0)
        self._show_title()

    def _show_title(self) -> None:
        title = (self._store.title(self._chat) if self._chat is not None else None) or tr("New chat")
        if title != self._title:
            self._title = title
            self.titleChanged.emit(title)

    @Slot(bool)
    def _show_path(self, stay: bool = False) -> None:
        messages = self._messages = self._store.messages(self._chat) if self._chat is not None else []
        self.transcript.show_messages(messages, self._controller.stream, stay)
        self._stack.setCurrentWidget(self.transcript if messages else self.welcome)
        self._meter.show_chat(self._chat, messages, self.composer.draft)
        self.find_bar.show_messages(messages)
        self._show_preset()
        self._show_context()
        self._show_stream_state()
        self._advice.look(self._chat, messages)

    @Slot()
    def _show_revised(self) -> None:
        self.message_actions.forget()
        self._show_path(stay=True)

    @Slot()
    def _offer_undo(self) -> None:
        what = tr("The message was deleted")
        note = GreenroomError(what, tr("the messages after it were deleted too"), tr("You can still undo this."))
        self.banners.show_error(note, "info", "deleted", [(tr("Undo"), self.message_actions.undo_delete)])

    @Slot(object, object)
    def _offer_edit(self, message: StoredMessage, written: Draft) -> None:
        """What was given up can be had back, wherever the user is by then."""

        def take_up() -> None:
            if self._chat != message.chat_id:
                self.open_chat(message.chat_id)
            if self._chat == message.chat_id:
                self._editing.begin_with(message, written)

        note = GreenroomError(
            tr("Your edit was discarded"), tr("the message is unchanged"), tr("Undo to continue editing.")
        )
        self.banners.show_error(note, "info", "edit", [(tr("Undo"), take_up)])

    def _chat_changed(self, chat_id: int) -> None:
        """The store says that a chat was renamed, deleted or has a new message; 0: any may be another now."""
        if self._chat is None or chat_id not in (0, self._chat):
            return
        if self._store.title(self._chat) is None:
            self._switch(None)
            return
        self._show_title()
        if chat_id == 0:
            self._look_elsewhere()

    def _look_elsewhere(self) -> None:
        """Show what another window has made of the open chat, unless it is worked on here."""
        stream = self._controller.stream
        busy = self._editing.message is not None or (stream is not None and stream.chat_id == self._chat)
        if not busy and self._store.messages(self._chat) != self._messages:
            bar = self.transcript.verticalScrollBar()
            self._show_path(stay=bar.value() < bar.maximum() - NEAR_END)

    @Slot(str)
    def _take_example(self, text: str) -> None:
        # Before the examples disappear: their stack would give the keyboard to the first button of the messages.
        self.composer.setFocus(Qt.FocusReason.OtherFocusReason)
        if self._controller.can_ask:
            self.send(text)
        else:
            self.composer.set_text(text)

    # Answers

    @Slot(int)
    def _grow(self, message_id: int) -> None:
        stream = self._controller.stream
        if stream is not None and stream.chat_id == self._chat:
            self.transcript.grow(stream)
            if stream.message_id:
                self._meter.show_stats(stream.stats)

    @Slot(int)
    def _finish(self, message_id: int) -> None:
        if self._chat is not None:
            messages = self._store.messages(self._chat)
            message = next((m for m in messages if m.id == message_id), None)
            if message is not None:
                self._messages = messages
                self.transcript.finish(message)
                self.find_bar.show_messages(messages)
                if message.stats is not None:
                    self._meter.show_stats(message.stats, messages)
        self._show_stream_state()
        self._advice.look(self._chat, self._messages)

    @Slot()
    def _show_context(self) -> None:
        empty = not self._messages and self.composer.draft.empty
        self.composer.set_context(0 if empty else self._meter.used, self._meter.size, self._meter.exact)
        if self._sends_when_counted and not self._meter.doubtful:
            self._sends_when_counted = False
            self.send(self.composer.text.strip())
            return
        self.composer.set_too_large(self._meter.full and bool(self.composer.attachments))
        if not self._meter.full:
            self._advice.fits_again()
        elif self.composer.attachments:
            self._advise_room()

    def _advise_room(self) -> None:
        files = self.composer.attachments
        if files:
            self._advice.large_file(files, self._drafting.file_tokens)
        else:
            self._advice.full_context()

    @Slot()
    def _show_stream_state(self) -> None:
        stream = self._controller.stream
        elsewhere = stream is not None and stream.chat_id != self._chat
        self.composer.set_answering(stream is not None, (self._store.title(stream.chat_id) or "") if elsewhere else "")
        self.answeringChanged.emit(stream.chat_id if stream is not None else 0)
        self._advice.refresh()

    @Slot(object)
    def _hold_if_stopped(self, result: AnswerResult) -> None:
        """Who stops an answer wants quiet, not the next one."""
        if result.stop_reason in ("cancelled", "error"):
            self.composer.hold()

    @Slot(object)
    def _show_state(self, state: HostState) -> None:
        self.composer.set_ready(why_not_ready(state), state.busy)
        self.composer.set_model(state.model_name if state.kind in ("ready", "generating") else "")
        self.welcome.show_state(state.kind, state.model_name, state.path == DEMO, self._settings().offline)
        if state.kind == "ready":
            self._meter.take_next()
            self._drafting.count_anew()
        self._show_context()
        self._show_preset()
        self._advice.refresh()

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Whoever turns to the chat wants to write. No focus proxy: Tab would jump over all that lies before it."""
        self.composer.setFocus(event.reason())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Esc also where a link was clicked, which has the keyboard then."""
        if event.key() == Qt.Key.Key_Escape and self.link_bar.isVisible():
            self.link_bar.hide()
        else:
            super().keyPressEvent(event)

    def showEvent(self, event: QShowEvent) -> None:
        """What Enter does may have been changed on the settings page."""
        super().showEvent(event)
        self._show_preset()

    def hideEvent(self, event: QHideEvent) -> None:
        """The page may be made anew: what is written stays."""
        self._drafting.save()
        super().hideEvent(event)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if self.composer.takes_files and local_files(event.mimeData()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        files = local_files(event.mimeData())
        if files and self.composer.takes_files:
            event.acceptProposedAction()
            self._drafting.attach(files)

    # How this chat answers

    @Slot()
    def open_options(self) -> None:
        self._performance.give_way()
        self._opener.open(self._chat, self.composer.settings_button)

    @property
    def options(self) -> ChatOptions | None:
        """The popover while it is open."""
        return self._opener.current

    @Slot(int)
    def _settings_changed(self, chat_id: int) -> None:
        if chat_id == (self._chat or 0):
            self._show_preset()
            self._meter.take_next()
            self._advice.refresh()

    @Slot()
    def _show_preset(self) -> None:
        self.composer.set_preset(preset_caption(self._controller.settings_of(self._chat), self._controller.presets))
        self.composer.set_enter(self._settings().enter)

    @Slot(str)
    def _show_summary(self, text: str) -> None:
        AttachmentView(Attachment(tr("Summary"), text, len(text)), self).open()

    @Slot(object)
    def show_failure(self, error: GreenroomError) -> None:
        self.banners.show_error(error, "bad", "chat")

    @Slot()
    def _restyle(self) -> None:
        self.setStyleSheet(chat_style(theme().tokens))
        self._centred.setMaximumWidth(theme().px(COMPOSER_WIDTH))
        # Plates carry pictures in the colours of the theme.
        self.composer.chips.show_files(self.composer.attachments)
        self._drafting.count_files()
