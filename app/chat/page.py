"""The chat page: the open chat's messages, or an invitation to begin one, above the composer."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt, QUrl, Signal, Slot
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtWidgets import QFrame, QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget

from app.chat.composer import Composer
from app.chat.controller import ChatController
from app.chat.figures import why_not_ready
from app.chat.performance import performance_log
from app.chat.performance_panel import PerformancePanel, copy_card
from app.chat.store import ChatStore, StoredMessage
from app.chat.style import chat_style
from app.chat.transcript import Transcript
from app.chat.welcome import Welcome
from app.host import DEMO, AnswerResult, EngineHost, HostState
from app.settings.store import Settings
from app.theme import theme
from app.widgets.banner import BannerArea
from app.widgets.buttons import button
from app.widgets.labels import ElideLabel, label
from engine.errors import GreenroomError
from engine.runtime.events import GenerationStats

COMPOSER_WIDTH = 700
#: Only these leave the program; anything else in a model's answer is not to be trusted with a click.
SCHEMES = ("http", "https", "mailto")


class _LinkBar(QFrame):
    """Shows where a link leads and opens it only when told to."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("surface", "banner-info")
        self._address = ElideLabel("", mode=Qt.TextElideMode.ElideMiddle)
        self._open = button(self.tr("Open in browser"))
        copy = button(self.tr("Copy address"))
        close = button("", icon="cross", kind="ghost", name=self.tr("Close"))
        self._open.clicked.connect(self._open_address)
        copy.clicked.connect(self._copy_address)
        close.clicked.connect(self.hide)
        first = QHBoxLayout()
        first.addWidget(self._address, 1)
        first.addWidget(close)
        second = QHBoxLayout()
        second.setSpacing(8)
        second.addWidget(label(self.tr("This link leaves Greenroom."), "small"), 1)
        second.addWidget(copy)
        second.addWidget(self._open)
        column = QVBoxLayout(self)
        column.setContentsMargins(14, 8, 8, 8)
        column.setSpacing(4)
        column.addLayout(first)
        column.addLayout(second)
        self.hide()

    @property
    def address(self) -> str:
        return self._address.text()

    @property
    def open_button(self) -> QWidget:
        return self._open

    def offer(self, address: str) -> None:
        self._address.setText(address)
        self._open.setVisible(QUrl(address).scheme().lower() in SCHEMES)
        self.show()

    @Slot()
    def _open_address(self) -> None:
        self.hide()
        QDesktopServices.openUrl(QUrl(self.address))

    @Slot()
    def _copy_address(self) -> None:
        QGuiApplication.clipboard().setText(self.address)
        self.hide()


class ChatPage(QWidget):
    """One chat at a time; answers go on being written while another chat is looked at."""

    titleChanged = Signal(str)
    #: int: the id of the chat that is open now, 0 for one that has no message yet
    chatChanged = Signal(int)
    #: int: the id of the chat in which an answer is being written, 0 for none
    answeringChanged = Signal(int)
    #: bool: whether the performance panel is shown
    performanceShown = Signal(bool)

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
        self._controller = controller or ChatController(host, store, settings, self)
        self._chat: int | None = None
        self._edited: StoredMessage | None = None
        self._title = ""
        #: Figures of the newest answer of the open chat.
        self._stats: GenerationStats | None = None
        #: What was written but not sent, by chat.
        self._drafts: dict[int | None, str] = {}
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
        self.banners = BannerArea()
        self.link_bar = _LinkBar()
        self.composer = Composer()
        lower = QVBoxLayout()
        lower.setSpacing(8)
        lower.addWidget(self.link_bar)
        lower.addWidget(self.composer)
        centred = QWidget()
        centred.setMaximumWidth(COMPOSER_WIDTH)
        centred.setLayout(lower)
        lower.setContentsMargins(0, 0, 0, 0)
        row = QHBoxLayout()
        row.setContentsMargins(24, 0, 24, 18)
        row.addStretch(1)
        row.addWidget(centred, 1000)
        row.addStretch(1)
        column = QVBoxLayout()
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.banners)
        column.addWidget(self._stack, 1)
        column.addLayout(row)
        self._beside = QHBoxLayout(self)
        self._beside.setContentsMargins(0, 0, 0, 0)
        self._beside.setSpacing(0)
        self._beside.addLayout(column, 1)
        #: Made when it is first wanted.
        self._figures: PerformancePanel | None = None
        self.setFocusProxy(self.composer)

    def _connect(self) -> None:
        self._host.stateChanged.connect(self._show_state)
        self._host.answerFinished.connect(self._hold_if_stopped)
        self._store.subscribe(self._chat_changed)
        controller, transcript = self._controller, self.transcript
        controller.streamStarted.connect(performance_log(self._host).begin)
        controller.streamStarted.connect(self._show_stream_state)
        controller.streamGrew.connect(self._grow)
        controller.streamEnded.connect(self._finish)
        controller.failed.connect(self._show_failure)
        transcript.editWanted.connect(self._begin_edit)
        transcript.regenerateWanted.connect(self._regenerate)
        transcript.versionWanted.connect(self._show_version)
        transcript.linkChosen.connect(self.link_bar.offer)
        transcript.figuresWanted.connect(lambda message: self.show_performance(True, message.id))
        self.composer.sent.connect(self.send)
        self.composer.stopped.connect(controller.stop)
        self.composer.editCancelled.connect(self._end_edit)
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

    def open_chat(self, chat_id: int) -> None:
        """Open a chat at its end. One that was deleted meanwhile opens as a new one."""
        self._switch(chat_id if self._store.title(chat_id) is not None else None)

    @Slot(str)
    def send(self, text: str) -> None:
        """Ask the model, in the open chat."""
        if not self._controller.can_ask:
            return
        try:
            if self._edited is not None:
                self._controller.edit(self._edited, text)
                chat = self._edited.chat_id
            else:
                chat = self._controller.ask(self._chat, text)
        except GreenroomError as error:
            self._show_failure(error)
            return
        self._edited = None
        self._drafts.pop(self._chat, None)
        self.composer.clear()
        self._chat = chat
        self._show_path()
        self._announce()

    @property
    def performance(self) -> PerformancePanel | None:
        """The panel beside the messages while it is shown."""
        return self._figures

    def show_performance(self, on: bool, message_id: int | None = None) -> None:
        """The figures of an answer beside the messages; of the newest one without a message."""
        if on and self._figures is None:
            self._figures = PerformancePanel(performance_log(self._host), self)
            self._figures.closed.connect(lambda: self.show_performance(False))
            self._beside.addWidget(self._figures)
        elif not on and self._figures is not None:
            self._beside.removeWidget(self._figures)
            self._figures.hide()
            self._figures.deleteLater()
            self._figures = None
        if self._figures is not None:
            self._figures.choose(message_id)
        self.performanceShown.emit(on)

    def copy_card(self) -> bool:
        """Copy the benchmark card of the newest answer; False when there is none."""
        return copy_card(performance_log(self._host).newest)

    def shutdown(self) -> None:
        """Save what is being written and close the store. The page is of no use afterwards."""
        self._controller.shutdown()
        self._store.close()

    # Chats and versions

    def _switch(self, chat_id: int | None) -> None:
        if self._edited is None:
            self._drafts[self._chat] = self.composer.text
        self._edited = None
        self.composer.clear()
        self.link_bar.hide()
        self._chat = chat_id
        self._show_path()
        self.composer.set_text(self._drafts.get(chat_id, ""))
        self._announce()

    def _announce(self) -> None:
        self.chatChanged.emit(self._chat or 0)
        self._show_title()

    def _show_title(self) -> None:
        title = (self._store.title(self._chat) if self._chat is not None else None) or self.tr("New chat")
        if title != self._title:
            self._title = title
            self.titleChanged.emit(title)

    def _show_path(self, stay: bool = False) -> None:
        messages = self._store.messages(self._chat) if self._chat is not None else []
        self.transcript.show_messages(messages, self._controller.stream, stay)
        self._stack.setCurrentWidget(self.transcript if messages else self.welcome)
        self._show_context(next((m.stats for m in reversed(messages) if m.stats is not None), None))
        self._show_stream_state()

    @Slot(object)
    def _regenerate(self, message: StoredMessage) -> None:
        if self._controller.can_ask:
            try:
                self._controller.regenerate(message)
            except GreenroomError as error:
                self._show_failure(error)
            self._show_path()

    @Slot(object, int)
    def _show_version(self, message: StoredMessage, step: int) -> None:
        try:
            self._store.show_version(message.id, step)
        except GreenroomError as error:
            self._show_failure(error)
        self._show_path(stay=True)

    @Slot(object)
    def _begin_edit(self, message: StoredMessage) -> None:
        if self._edited is None:
            self._drafts[self._chat] = self.composer.text
        self._edited = message
        self.composer.begin_edit(message.text)

    @Slot()
    def _end_edit(self) -> None:
        self._edited = None
        self.composer.set_text(self._drafts.get(self._chat, ""))

    def _chat_changed(self, chat_id: int) -> None:
        """The store says that a chat was renamed, deleted or has a new message."""
        if chat_id == self._chat:
            if self._store.title(chat_id) is None:
                self._switch(None)
            else:
                self._show_title()

    @Slot(str)
    def _take_example(self, text: str) -> None:
        if self._controller.can_ask:
            self.send(text)
        else:
            self.composer.set_text(text)
            self.composer.setFocus(Qt.FocusReason.OtherFocusReason)

    # Answers

    @Slot(int)
    def _grow(self, message_id: int) -> None:
        stream = self._controller.stream
        if stream is not None and stream.chat_id == self._chat:
            self.transcript.grow(stream)
            self._show_context(stream.stats)

    @Slot(int)
    def _finish(self, message_id: int) -> None:
        if self._chat is not None:
            messages = self._store.messages(self._chat)
            message = next((m for m in messages if m.id == message_id), None)
            if message is not None:
                self.transcript.finish(message)
                self._show_context(message.stats)
        self._show_stream_state()

    def _show_context(self, stats: GenerationStats | None) -> None:
        self._stats = stats
        plan = self._host.state.plan
        used = stats.prompt_tokens + stats.completion_tokens if stats is not None else 0
        self.composer.set_context(used, plan.context if plan is not None else 0)

    @Slot()
    def _show_stream_state(self) -> None:
        stream = self._controller.stream
        elsewhere = stream is not None and stream.chat_id != self._chat
        self.composer.set_answering(stream is not None, (self._store.title(stream.chat_id) or "") if elsewhere else "")
        self.answeringChanged.emit(stream.chat_id if stream is not None else 0)

    @Slot(object)
    def _hold_if_stopped(self, result: AnswerResult) -> None:
        """Who stops an answer wants quiet, not the next one."""
        if result.stop_reason in ("cancelled", "error"):
            self.composer.hold()

    @Slot(object)
    def _show_state(self, state: HostState) -> None:
        self.composer.set_ready(why_not_ready(state), state.busy)
        self.composer.set_model(state.model_name if state.kind in ("ready", "generating") else "")
        self.welcome.show_state(state.kind, state.model_name, state.path == DEMO)
        self._show_context(self._stats)

    @Slot(object)
    def _show_failure(self, error: GreenroomError) -> None:
        self.banners.show_error(error, "bad", "chat")

    @Slot()
    def _restyle(self) -> None:
        self.setStyleSheet(chat_style(theme().tokens))
