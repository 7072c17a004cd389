"""How much of the model's context the open chat takes, and what can be left out when it is full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.chat.composing.attaching import with_attachments
from app.chat.controller import ChatController
from app.chat.storage.presets import ChatSettings
from app.chat.storage.records import Attachment, Draft, StoredMessage
from app.host import EngineHost, TokenCount
from engine.runtime.events import GenerationStats, Message

#: Writing pauses this long before the engine is asked to count.
PAUSE_MS = 300
#: Tokens per character before anything was counted: English has fewer, Korean more.
USUAL_RATIO = 0.3
#: Tokens that an answer needs at the least.
ROOM = 32
#: The share of the context that is used after the oldest messages were left out.
AFTER_DROPPING = 0.6
#: Estimates beyond this share of the context are not trusted to be below it, those beyond so many contexts to be above.
NEAR, HOPELESS = 0.7, 4
CHAT = "chat"


@dataclass(frozen=True)
class Dropped:
    """Messages that are not sent any more. start: the id of the first one that still is."""

    messages: tuple[StoredMessage, ...]
    start: int


class ContextMeter(QObject):
    """Counts the open chat with what is being written: at once by estimate, exactly when the engine has counted."""

    changed = Signal()

    def __init__(self, host: EngineHost, controller: ChatController, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._host, self._controller = host, controller
        self._chat: int | None = None
        self._messages: Sequence[StoredMessage] = ()
        self._draft = Draft()
        self._settings = ChatSettings()
        #: Characters of the messages that are sent, and of the draft.
        self._sent = self._drafted = 0
        self._counted = 0
        #: Characters that `_counted` tokens are of.
        self._characters = 0
        self._asked: tuple[int, object] | None = None
        self.exact = False
        #: What is sent now cannot be counted: the model's template refuses it, or there is no model.
        self._uncountable = False
        self._pause = QTimer(self, singleShot=True, interval=PAUSE_MS)
        self._pause.timeout.connect(self.count)
        host.tokensCounted.connect(self._take)

    @property
    def size(self) -> int:
        """Tokens the model's context holds; 0 without a model."""
        plan = self._host.state.plan
        return plan.context if plan is not None and self._host.state.kind in ("ready", "generating") else 0

    @property
    def used(self) -> int:
        """Tokens of the chat and the draft; an estimate unless `exact`."""
        return max(0, self._counted + round((self._length() - self._characters) * self.ratio))

    @property
    def files(self) -> tuple[Attachment, ...]:
        """Of the draft."""
        return self._draft.attachments

    @property
    def ratio(self) -> float:
        """Tokens per character."""
        return self._counted / self._characters if self._characters > 200 else USUAL_RATIO

    @property
    def room(self) -> int:
        """Tokens that are free for more text, with a little left for the answer."""
        return max(0, self.size - self.used - ROOM)

    @property
    def full(self) -> bool:
        """True when what is written cannot be sent."""
        return self.size > 0 and (self.exact or self._hopeless) and self.used + ROOM > self.size

    @property
    def doubtful(self) -> bool:
        """True when it may be too much and only a count can tell."""
        near = self.size > 0 and self.used + ROOM > NEAR * self.size
        return near and not (self.exact or self._hopeless or self._uncountable)

    @property
    def _hopeless(self) -> bool:
        """By far too much, also where the estimate is wrong: counting it would only keep the engine busy."""
        return self.used > HOPELESS * self.size

    def show_chat(self, chat_id: int | None, messages: Sequence[StoredMessage], draft: Draft) -> None:
        """Another chat, or another path in it."""
        self._chat = chat_id
        self._put_draft(draft)
        self._put_messages(messages)
        stats = next((m.stats for m in reversed(messages) if m.stats is not None), None)
        self._counted, self._characters, self.exact = 0, 0, not messages and draft.empty
        if stats is not None:
            self._take_stats(stats)
        self._soon()

    def show_draft(self, draft: Draft) -> None:
        if draft != self._draft:
            self._put_draft(draft)
            self.exact = self._uncountable = False
            self._soon()
            self.changed.emit()

    def show_stats(self, stats: GenerationStats, messages: Sequence[StoredMessage] | None = None) -> None:
        """While an answer is written, and with `messages` at its end."""
        if messages is not None:
            self._put_messages(messages)
            self._soon()
        self._take_stats(stats)
        self.changed.emit()

    def _take_stats(self, stats: GenerationStats) -> None:
        if stats.prompt_tokens:
            self._counted, self._characters = stats.prompt_tokens + stats.completion_tokens, self._sent
            self.exact = self._draft.empty

    def _soon(self) -> None:
        self._pause.start()

    def estimate(self, text: str) -> int:
        """Tokens, by the characters."""
        return round(len(text) * self.ratio)

    def hopeless(self, text: str) -> bool:
        """Too much in any case: not worth counting."""
        return self.size > 0 and self.estimate(text) > HOPELESS * self.size

    def take_next(self) -> None:
        """Ask anew: what is sent of the chat is something else now."""
        self._put_messages(self._messages)
        self.exact = self._uncountable = False
        self._soon()
        self.changed.emit()

    def stop(self) -> None:
        """Nothing is asked any more."""
        self._pause.stop()

    @Slot()
    def count(self) -> None:
        """Ask the engine now."""
        self._pause.stop()
        if self.size == 0:
            return
        if self._hopeless:
            self.changed.emit()
            return
        prompt, thinking = self.prompt_with(self._draft.attachments)
        if prompt:
            self._asked = (self._length(), tuple(prompt))
            self._host.count(CHAT, prompt, thinking)

    def prompt_with(self, files: Sequence[Attachment]) -> tuple[list[Message], str | None]:
        """What is sent of the chat and the draft, had it these files, and how the model is to think."""
        messages, draft = [*self._messages], replace(self._draft, attachments=tuple(files))
        if not draft.empty:
            messages.append(_as_message(draft))
        _, _, thinking = self._controller.resolved(self._chat)
        return self._controller.prompt(self._chat, messages), thinking

    @Slot(object)
    def _take(self, count: TokenCount) -> None:
        if count.request.key != CHAT or self._asked is None:
            return
        characters, prompt = self._asked
        if tuple(count.request.prompt) != prompt:
            return
        self._uncountable = count.tokens is None
        if count.tokens is None:
            self.changed.emit()
            return
        self._counted, self._characters = count.tokens, characters
        self.exact = characters == self._length()
        self.changed.emit()

    def _length(self) -> int:
        """Characters of all that is sent."""
        return self._sent + self._drafted

    def _put_draft(self, draft: Draft) -> None:
        self._draft = draft
        self._drafted = _length(_as_message(draft))

    def _put_messages(self, messages: Sequence[StoredMessage]) -> None:
        self._messages = messages
        self._settings = self._controller.settings_of(self._chat)
        sent = _from_start(messages, self._settings)
        self._sent = sum(_length(message) for message in sent) + len(self._settings.summary)

    def droppable(self) -> Dropped | None:
        """The oldest questions and answers that make enough room; the last question always stays. None: none do."""
        sent = list(_from_start(self._messages, self._settings))
        wanted = self.used - AFTER_DROPPING * self.size
        gained, best = 0.0, None
        for place, message in enumerate(sent):
            if place and message.role == "user":
                best = Dropped(tuple(sent[:place]), message.id)
                if gained >= wanted:
                    break
            gained += _length(message) * self.ratio
        return best


def dropped(messages: Sequence[StoredMessage], settings: ChatSettings) -> Sequence[StoredMessage]:
    """The messages of a path that are not sent any more."""
    return messages[: len(messages) - len(_from_start(messages, settings))]


def _from_start(messages: Sequence[StoredMessage], settings: ChatSettings) -> Sequence[StoredMessage]:
    start = next((n for n, message in enumerate(messages) if message.id == settings.start), 0)
    return messages[start:]


def _length(message: StoredMessage) -> int:
    return len(with_attachments(message.text, message.attachments))


def _as_message(draft: Draft) -> StoredMessage:
    return StoredMessage(0, 0, None, "user", draft.text, "", None, None, None, None, 1, 1, draft.attachments)
