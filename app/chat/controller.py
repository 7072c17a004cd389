"""Questions and answers between the store and the engine. Knows no widget, so any chat may be shown meanwhile."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.chat.store import ChatStore, StoredMessage
from app.chat.thinking import split_thought
from app.host import DEMO, AnswerDelta, AnswerResult, EngineHost
from app.settings.store import Settings
from engine.errors import GreenroomError
from engine.runtime.events import GenerationStats, Message, SamplingParams

log = logging.getLogger(__name__)

#: A killed program loses at most this much of an answer.
FLUSH_MS = 500
SAMPLING = SamplingParams(temperature=0.7, top_p=0.95)
#: A model as small as the demonstration one wanders off when it is warm, and falls into loops without a penalty.
DEMO_SAMPLING = replace(SAMPLING, temperature=0.3, top_p=0.9, repetition_penalty=1.1)


@dataclass
class Stream:
    """The answer that is being written. Times are monotonic seconds."""

    chat_id: int
    message_id: int
    text: str = ""
    stats: GenerationStats = field(default_factory=GenerationStats)
    #: Seconds spent in the thinking section; None when there is none.
    thought_s: float | None = None
    thinking_since: float | None = None

    def add(self, delta: AnswerDelta) -> None:
        self.text += delta.text
        self.stats = delta.stats
        split = split_thought(self.text)
        now = time.monotonic()
        if self.thinking_since is None and split.thought is not None:
            self.thinking_since = now
        if self.thinking_since is not None and (split.thinking or self.thought_s is None):
            self.thought_s = now - self.thinking_since


class ChatController(QObject):
    """Asks the engine and saves what it answers, one answer at a time.

    Whatever is written belongs to the message it was started for, even when that chat is no longer open.
    """

    #: int: the id of the message that an answer begins, continues or ends in
    streamStarted = Signal(int)
    streamGrew = Signal(int)
    streamEnded = Signal(int)
    #: GreenroomError: something could not be saved
    failed = Signal(object)

    def __init__(
        self,
        host: EngineHost,
        store: ChatStore,
        settings: Callable[[], Settings] = Settings,
        parent: QObject | None = None,
    ) -> None:
        """settings: the user's settings as they are when it is called."""
        super().__init__(parent)
        self._host, self._store, self._settings = host, store, settings
        self._stream: Stream | None = None
        self._flush_timer = QTimer(self, singleShot=True, interval=FLUSH_MS)
        self._flush_timer.timeout.connect(self._flush)
        host.answerEvent.connect(self._grow)
        host.answerFinished.connect(self._finish)
        store.subscribe(self._stop_if_deleted)

    @property
    def stream(self) -> Stream | None:
        """The answer being written, or None."""
        return self._stream

    @property
    def can_ask(self) -> bool:
        return self._stream is None and self._host.state.kind == "ready"

    def ask(self, chat_id: int | None, question: str) -> int:
        """Append a question to a chat, or to a new one, and have it answered. Returns the chat's id."""
        if chat_id is None:
            chat_id = self._store.create_chat(question)
        messages = self._store.messages(chat_id)
        parent = messages[-1].id if messages else None
        self._answer(chat_id, self._store.add_message(chat_id, parent, "user", question))
        return chat_id

    def edit(self, message: StoredMessage, question: str) -> None:
        """Ask differently from that question on. The old question and all that followed stay as another version."""
        self._answer(message.chat_id, self._store.add_message(message.chat_id, message.parent_id, "user", question))

    def regenerate(self, message: StoredMessage) -> None:
        """Have the question above this answer answered anew. The old answer stays as another version."""
        if message.parent_id is not None:
            self._answer(message.chat_id, message.parent_id)

    def stop(self) -> None:
        if self._stream is not None:
            self._host.stop()

    def shutdown(self) -> None:
        """Save what there is; nothing more is written."""
        self._flush_timer.stop()
        self._flush()
        self._stream = None

    def _answer(self, chat_id: int, question_id: int) -> None:
        answer_id = self._store.add_message(chat_id, question_id, "assistant", model=self._host.state.model_name)
        settings = self._settings()
        history = to_prompt(self._store.messages(chat_id)[:-1])
        if settings.system_prompt.strip():
            history.insert(0, Message("system", settings.system_prompt.strip()))
        self._stream = Stream(chat_id, answer_id)
        self.streamStarted.emit(answer_id)
        self._host.generate(history, sampling(settings, self._host.state.path == DEMO))

    @Slot(object)
    def _grow(self, delta: AnswerDelta) -> None:
        stream = self._stream
        if stream is None:
            return
        stream.add(delta)
        if not self._flush_timer.isActive():
            self._flush_timer.start()
        self.streamGrew.emit(stream.message_id)

    @Slot(object)
    def _finish(self, result: AnswerResult) -> None:
        stream = self._stream
        if stream is None:
            return
        self._stream = None
        self._flush_timer.stop()
        try:
            self._store.finish(
                stream.message_id,
                result.text or stream.text,
                result.stats if result.stats.prompt_tokens else stream.stats,
                result.stop_reason,
                result.error,
                stream.thought_s,
            )
        except GreenroomError as error:
            self.failed.emit(error)
        self.streamEnded.emit(stream.message_id)

    @Slot()
    def _flush(self) -> None:
        if self._stream is None or not self._stream.text:
            return
        try:
            self._store.set_text(self._stream.message_id, self._stream.text)
        except GreenroomError as error:
            # The next flush saves the same text and more.
            log.warning("%s", error)

    def _stop_if_deleted(self, chat_id: int) -> None:
        if self._stream is not None and self._stream.chat_id == chat_id and self._store.title(chat_id) is None:
            self.stop()


def sampling(settings: Settings, demo: bool) -> SamplingParams:
    """What suits the model, but for what the user has chosen."""
    names = ("temperature", "top_p", "repetition_penalty", "max_tokens")
    chosen = {name: getattr(settings, name) for name in names if getattr(settings, name) is not None}
    return replace(DEMO_SAMPLING if demo else SAMPLING, **chosen)


def to_prompt(messages: list[StoredMessage]) -> list[Message]:
    """The visible messages as the model should see them.

    Thinking of earlier turns is left out: models are trained so, and it would fill the context. An answer that
    never came is left out too, and questions that thereby meet become one, for chat templates want turns to alternate.
    """
    prompt: list[Message] = []
    for message in messages:
        text = split_thought(message.text).answer if message.role == "assistant" else message.text
        if message.role == "assistant" and not text.strip():
            continue
        if prompt and prompt[-1].role == message.role == "user":
            prompt[-1] = Message("user", f"{prompt[-1].content}\n\n{text}")
        else:
            prompt.append(Message(message.role, text))
    return prompt
