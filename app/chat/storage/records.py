"""What chats are made of, as everyone but the database sees it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from app.language import tr
from engine.errors import GreenroomError
from engine.placement.plan import Range
from engine.runtime.events import GenerationStats

ROLES = ("system", "user", "assistant")
#: That one message takes.
MOST_FILES = 20
#: stop_reason of an answer whose words are the user's.
EDITED = "edited"
#: stop_reasons of an answer that has no more to say: its own, or the user's who has changed it.
COMPLETE = ("end", "stop_string", EDITED)


class ChatInfo(NamedTuple):
    """One line of the chat list. Times are seconds since the epoch; folder "" is none."""

    id: int
    title: str
    created: float
    updated: float
    pinned: bool = False
    folder: str = ""


@dataclass(frozen=True)
class Attachment:
    """A text file that goes with a question. length: characters of the whole file; `text` may be its beginning."""

    name: str
    text: str
    length: int

    @property
    def whole(self) -> bool:
        return len(self.text) == self.length


@dataclass(frozen=True)
class Edit:
    """How an earlier message is being put otherwise."""

    message_id: int
    text: str
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True)
class Draft:
    """What is written but not sent. edit: what is written in place of an earlier message, while this waits."""

    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    edit: Edit | None = None

    @property
    def empty(self) -> bool:
        return not self.text and not self.attachments and self.edit is None

    def and_also(self, text: str, attachments: Iterable[Attachment]) -> Draft:
        """With that below it, unless it has it already."""
        texts = (self.text, "" if text in self.text else text)
        files = tuple(dict.fromkeys((*self.attachments, *attachments)))
        return Draft("\n\n".join(filter(None, texts)), files, self.edit)


@dataclass(frozen=True)
class Hit:
    """Where a search has found something in a chat.

    message_id: None when only the title has it
    excerpt:    a piece of the message around the first place, on one line
    file:       the name of the attached file that the excerpt is from; "" when it is from the message itself
    """

    message_id: int | None
    excerpt: str
    file: str = ""

    @property
    def line(self) -> str:
        """What was found, as it is shown below the chat's title."""
        return tr("in {file}: {excerpt}", file=self.file, excerpt=self.excerpt) if self.file else self.excerpt


@dataclass(frozen=True)
class StoredMessage:
    """One message of the visible path.

    stop_reason: a key of STOP_REASONS; None for a question, an answer being written, and one cut off by a crash.
    version, versions: its 1-based place among the siblings that could stand here, and their number.
    thought_s: seconds spent in the thinking section, None while unknown.
    predicted: tokens per second that the plan had promised for it, None while unknown.
    elsewhere: another window is writing it.
    stepped_down: what the engine gave up for want of memory while it was written, a sentence each.
    """

    id: int
    chat_id: int
    parent_id: int | None
    role: str
    text: str
    model: str
    thought_s: float | None
    stats: GenerationStats | None
    stop_reason: str | None
    error: GreenroomError | None
    version: int
    versions: int
    attachments: tuple[Attachment, ...] = ()
    predicted: Range | None = None
    elsewhere: bool = False
    stepped_down: tuple[str, ...] = ()

    @property
    def cut_off(self) -> bool:
        """An answer that a model could go on with."""
        return self.role == "assistant" and not self.elsewhere and self.stop_reason not in COMPLETE
