"""Questions and answers between the store and the engine. Knows no widget, so any chat may be shown meanwhile."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.chat.composing.attaching import with_attachments
from app.chat.rendering.thinking import join_thought, split_thought
from app.chat.storage.portable import PortableMessage
from app.chat.storage.preset_store import PresetStore
from app.chat.storage.presets import ChatSettings, Sampling, params_of, resolve
from app.chat.storage.records import EDITED, Attachment, StoredMessage
from app.chat.storage.store import ChatStore
from app.host import AnswerDelta, AnswerResult, EngineHost
from app.settings.store import Settings
from engine.errors import GreenroomError
from engine.runtime.events import Begun, GenerationStats, Message

log = logging.getLogger(__name__)

#: A killed program loses at most this much of an answer.
FLUSH_MS = 500
#: Until saving is tried again.
AGAIN_MS = 1000
SUMMARY_TOKENS = 500
#: Asked of the model, in no language in particular: it answers in that of the conversation.
SUMMARY_QUESTION = (
    "Summarise our conversation so far in at most 300 words, in the language it is held in. Keep facts, names, "
    "numbers, decisions and open questions. Write the summary only."
)
SUMMARY_FRAME = "(What was said before, in short: {summary})"


_PLAIN = ChatSettings()
_NOTHING = Begun()


@dataclass
class Stream:
    """The answer that is being written. Times are monotonic seconds.

    message_id: 0 for a summary, which is no message
    begun:      what was there before, when an answer is continued
    start:      of a summary: the first message that it does not stand for
    """

    chat_id: int
    message_id: int
    begun: Begun = _NOTHING
    #: Tokens of `begun`.
    tokens_before: int = 0
    start: int | None = None
    #: What was given up for want of memory while that was written.
    stepped_down: tuple[str, ...] = ()
    stats: GenerationStats = field(default_factory=GenerationStats)
    #: Seconds spent in the thinking section; None when there is none.
    thought_s: float | None = None
    thinking_since: float | None = None

    def __post_init__(self) -> None:
        self._text, self._thought = self.begun.text, self.begun.thought

    @property
    def text(self) -> str:
        """All there is, as it is kept."""
        return join_thought(self._thought, self._text)

    def add(self, delta: AnswerDelta) -> None:
        self._text += delta.text
        self.stats = self.whole(delta.stats)
        if delta.thought:
            self._thought = (self._thought or "") + delta.thought
            now = time.monotonic()
            if self.thinking_since is None:
                self.thinking_since = now - (self.thought_s or 0.0)
            self.thought_s = now - self.thinking_since

    def ended(self, result: AnswerResult) -> str:
        """All there is at the end, as it is kept."""
        if not result.text and not result.thought:
            return self.text
        thought = (self.begun.thought or "") + result.thought or None
        return join_thought(thought, self.begun.text + result.text)

    def whole(self, stats: GenerationStats) -> GenerationStats:
        """Figures of the whole answer from those of its continuation."""
        return replace(stats, completion_tokens=stats.completion_tokens + self.tokens_before)


class ChatController(QObject):
    """Asks the engine and saves what it answers, one answer at a time.

    Whatever is written belongs to the message it was started for, even when that chat is no longer open.
    """

    #: int: the id of the message that an answer begins, continues or ends in
    streamStarted = Signal(int)
    streamGrew = Signal(int)
    streamEnded = Signal(int)
    #: int: the id of the chat whose beginning is kept as a summary from now on
    summarised = Signal(int)
    #: GreenroomError: something could not be saved
    failed = Signal(object)
    #: int: the id of the chat whose settings are others now, 0 for one without a message
    settingsChanged = Signal(int)

    def __init__(
        self,
        host: EngineHost,
        store: ChatStore,
        settings: Callable[[], Settings] = Settings,
        parent: QObject | None = None,
        presets: PresetStore | None = None,
    ) -> None:
        """settings: the user's settings as they are when it is called."""
        super().__init__(parent)
        self._host, self._store, self._settings = host, store, settings
        self.presets = presets or PresetStore()
        #: For a chat that has no message yet.
        self._next = ChatSettings()
        self._stream: Stream | None = None
        self._flush_timer = QTimer(self, singleShot=True, interval=FLUSH_MS)
        self._flush_timer.timeout.connect(self._flush_if_saved)
        #: By message, what saves the end of an answer that is not saved yet.
        self._ends: dict[int, Callable[[], None]] = {}
        self._again = QTimer(self, singleShot=True, interval=AGAIN_MS)
        self._again.timeout.connect(self._save_ends)
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

    # Asking

    def ask(self, chat_id: int | None, question: str, attachments: Sequence[Attachment] = ()) -> int:
        """Append a question to a chat, or to a new one, and have it answered. Returns the chat's id."""
        if chat_id is None:
            chat_id = self._store.create_chat(question or attachments[0].name)
            self._save_settings(chat_id, self._next)
            self._next = ChatSettings()
        messages = self._store.messages(chat_id)
        parent = messages[-1].id if messages else None
        self._answer(chat_id, self._store.add_message(chat_id, parent, "user", question, attachments=attachments))
        return chat_id

    def edit(self, message: StoredMessage, question: str, attachments: Sequence[Attachment] | None = None) -> None:
        """Ask differently from that question on. The old question and all that followed stay as another version.

        attachments: None for those the question has
        """
        files = message.attachments if attachments is None else attachments
        parent = message.parent_id
        self._answer(
            message.chat_id, self._store.add_message(message.chat_id, parent, "user", question, attachments=files)
        )

    def revise(self, message: StoredMessage, answer: str) -> None:
        """Put an answer otherwise. The old one stays as another version; what the model thought is the same.

        What follows it follows both: it was said whatever is made of the answer later.
        """
        chat_id = message.chat_id
        text = join_thought(split_thought(message.text).thought, answer)
        revised = PortableMessage(
            "assistant", text, None, time.time(), message.model, message.thought_s, stop_reason=EDITED
        )
        shown = [known.id for known in self._store.messages(chat_id)]
        # Its version may not be the one that is shown any more: nothing follows it then.
        from_it = shown[shown.index(message.id) :] if message.id in shown else [message.id]
        whole = self._store.portable(chat_id)
        following = whole.path[len(shown) - len(from_it) + 1 :] if whole is not None else []
        added = self._store.add_path(chat_id, message.parent_id, [revised, *following])
        # What is not sent any more ends at the same message as before.
        moved = dict(zip(from_it, added, strict=False))
        settings = self.settings_of(chat_id)
        if settings.start in moved:
            self.set_settings(chat_id, replace(settings, start=moved[settings.start]))

    def regenerate(self, message: StoredMessage) -> None:
        """Have the question above this answer answered anew, or this one. An answer stays as another version."""
        question = message.id if message.role == "user" else message.parent_id
        if question is not None:
            self._answer(message.chat_id, question)

    def continue_answer(self, message: StoredMessage) -> None:
        """Go on with an answer that was cut off, at the end of its chat."""
        if message.id in self._ends:
            self._save_end(message.id)
        messages = self._store.messages(message.chat_id)
        place = next((n for n, known in enumerate(messages) if known.id == message.id), None)
        if place is None or not self.can_ask:
            return
        message = messages[place]
        self._store.reopen(message.id)
        tokens = message.stats.completion_tokens if message.stats is not None else 0
        split = split_thought(message.text)
        begun = Begun(split.answer, split.thought or None)
        self._stream = Stream(
            message.chat_id, message.id, begun, tokens, stepped_down=message.stepped_down, thought_s=message.thought_s
        )
        self._generate(message.chat_id, messages[:place], begun)
        self.streamStarted.emit(message.id)

    def summarise(self, chat_id: int, start: int) -> None:
        """Have the model put into few words what comes before the message `start`; `summarised` follows."""
        messages = self._store.messages(chat_id)
        before = messages[: next((n for n, m in enumerate(messages) if m.id == start), 0)]
        if not before or not self.can_ask:
            return
        chat = self.settings_of(chat_id)
        prompt = [*to_prompt(before, chat), Message("user", SUMMARY_QUESTION)]
        if len(prompt) > 1 and prompt[-2].role == "user":
            prompt[-2:] = [Message("user", f"{prompt[-2].content}\n\n{SUMMARY_QUESTION}")]
        sampling, _, _ = self.resolved(chat_id)
        thinking = "off" if "off" in self._host.state.thinking else None
        self._stream = Stream(chat_id, 0, start=start)
        calm = Sampling(temperature=min(0.3, sampling.temperature or 0.0), max_tokens=SUMMARY_TOKENS, stop=())
        self._host.generate(prompt, params_of(calm.over(sampling)), thinking=thinking)
        self.streamStarted.emit(0)

    # Settings of a chat

    def settings_of(self, chat_id: int | None) -> ChatSettings:
        """None: of a chat that has no message yet."""
        return self._next if chat_id is None else ChatSettings.from_plain(self._store.chat_settings(chat_id))

    def set_settings(self, chat_id: int | None, settings: ChatSettings) -> None:
        if chat_id is None:
            self._next = settings
        else:
            self._save_settings(chat_id, settings)
        self.settingsChanged.emit(chat_id or 0)

    def _save_settings(self, chat_id: int, settings: ChatSettings) -> None:
        try:
            self._store.set_chat_settings(chat_id, settings.to_plain())
        except GreenroomError as error:
            self.failed.emit(error)

    def resolved(self, chat_id: int | None) -> tuple[Sampling, str, str | None]:
        """What holds for the next answer: sampling, system prompt, thinking."""
        return resolve(self.settings_of(chat_id), self.presets.presets, self._host.state, self._settings())

    def prompt(self, chat_id: int | None, messages: Sequence[StoredMessage]) -> list[Message]:
        """What the model is sent for a path of messages."""
        history = to_prompt(messages, self.settings_of(chat_id))
        _, system, _ = self.resolved(chat_id)
        return [Message("system", system), *history] if system else history

    def stop(self) -> None:
        if self._stream is not None:
            self._host.stop()

    def save(self) -> None:
        """What there is of the answer, at once."""
        self._flush()
        self._save_ends()

    def shutdown(self) -> None:
        """Save what there is; nothing more is written."""
        self._flush_timer.stop()
        self.save()
        self._again.stop()
        self._stream = None

    def _answer(self, chat_id: int, question_id: int) -> None:
        answer_id = self._store.add_message(chat_id, question_id, "assistant", model=self._host.state.model_name)
        self._stream = Stream(chat_id, answer_id)
        self.streamStarted.emit(answer_id)
        self._generate(chat_id, self._store.messages(chat_id)[:-1])

    def _generate(self, chat_id: int, messages: Sequence[StoredMessage], begun: Begun = _NOTHING) -> None:
        if self._host.state.path is not None:
            self._store.set_model_path(chat_id, self._host.state.path)
        sampling, _, thinking = self.resolved(chat_id)
        self._host.generate(self.prompt(chat_id, messages), params_of(sampling), thinking=thinking, begun=begun)

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
        if stream.start is not None:
            self._take_summary(stream, result)
            return
        self._ends[stream.message_id] = partial(
            self._store.finish,
            stream.message_id,
            stream.ended(result),
            stream.whole(result.stats) if result.stats.prompt_tokens else stream.stats,
            result.stop_reason,
            result.error,
            stream.thought_s,
            self._host.state.plan.prediction.decode_tps if self._host.state.plan is not None else None,
            tuple(dict.fromkeys((*stream.stepped_down, *result.stepped_down))),
        )
        try:
            self._save_end(stream.message_id)
        except GreenroomError as error:
            self.failed.emit(error)
            self._again.start()
        self.streamEnded.emit(stream.message_id)

    def _save_end(self, message_id: int) -> None:
        self._ends[message_id]()
        del self._ends[message_id]

    @Slot()
    def _save_ends(self) -> None:
        """Answers whose end could not be saved, for another program had the file."""
        for message_id in list(self._ends):
            try:
                self._save_end(message_id)
            except GreenroomError as error:
                log.info("%s", error)
                self._again.start()
            else:
                self.streamEnded.emit(message_id)

    def _take_summary(self, stream: Stream, result: AnswerResult) -> None:
        summary = result.text.strip()
        if result.error is not None:
            self.failed.emit(result.error)
        elif summary and result.stop_reason != "cancelled":
            changed = replace(self.settings_of(stream.chat_id), start=stream.start, summary=summary)
            self.set_settings(stream.chat_id, changed)
            self.summarised.emit(stream.chat_id)
        self.streamEnded.emit(0)

    @Slot()
    def _flush_if_saved(self) -> None:
        """Where the store keeps all that it is given until the disk has space, the end of the answer is enough."""
        if self._store.problem is None:
            self._flush()

    def _flush(self) -> None:
        if self._stream is None or not self._stream.text or not self._stream.message_id:
            return
        try:
            self._store.set_text(self._stream.message_id, self._stream.text)
        except GreenroomError as error:
            # The next flush saves the same text and more.
            log.warning("%s", error)

    def _stop_if_deleted(self, chat_id: int) -> None:
        stream = self._stream
        if stream is not None and chat_id in (0, stream.chat_id) and self._store.title(stream.chat_id) is None:
            self.stop()


def to_prompt(messages: Sequence[StoredMessage], chat: ChatSettings = _PLAIN) -> list[Message]:
    """The visible messages as the model should see them.

    Thinking of earlier turns is left out: models are trained so, and it would fill the context. An answer that
    never came is left out too, and questions that thereby meet become one, for chat templates want turns to alternate.
    What the chat has left behind is left out as well; its summary goes before the first question that is sent.
    """
    start = next((n for n, message in enumerate(messages) if message.id == chat.start), 0)
    prompt: list[Message] = []
    if start and chat.summary:
        prompt.append(Message("user", SUMMARY_FRAME.format(summary=chat.summary)))
    for message in messages[start:]:
        if message.role == "assistant":
            text = split_thought(message.text).answer
        else:
            text = with_attachments(message.text, message.attachments)
        if message.role == "assistant" and not text.strip():
            continue
        if prompt and prompt[-1].role == message.role == "user":
            prompt[-1] = Message("user", f"{prompt[-1].content}\n\n{text}")
        else:
            prompt.append(Message(message.role, text))
    return prompt
