"""A whole chat outside the store: what is exported and imported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.chat.storage.records import Attachment
from engine.placement.plan import Range
from engine.runtime.events import GenerationStats


@dataclass(frozen=True)
class PortableMessage:
    """parent: the place of the message it follows in `PortableChat.messages`, an earlier one; None for a first one.

    Times are seconds since the epoch; error: what, why, remedy. The rest as in `StoredMessage`.
    """

    role: str
    text: str
    parent: int | None
    created: float
    model: str = ""
    thought_s: float | None = None
    stats: GenerationStats | None = None
    stop_reason: str | None = None
    attachments: Sequence[Attachment] = ()
    predicted: Range | None = None
    stepped_down: Sequence[str] = ()
    error: Sequence[str] | None = None


@dataclass(frozen=True)
class PortableChat:
    """leaf: the place of the message that the visible path ends at; None for the last one.
    settings: as in `ChatStore.set_chat_settings`, but `start` is the place of a message.
    """

    title: str
    created: float
    updated: float
    messages: tuple[PortableMessage, ...]
    leaf: int | None = None
    pinned: bool = False
    folder: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> list[PortableMessage]:
        """The visible messages, first to last."""
        return [self.messages[place] for place in self._way]

    @property
    def _way(self) -> list[int]:
        """Their places."""
        place = len(self.messages) - 1 if self.leaf is None else self.leaf
        found: list[int] = []
        while self.messages and place is not None:
            found.append(place)
            place = self.messages[place].parent
        return found[::-1]

    def until(self, count: int, title: str, created: float) -> PortableChat:
        """A chat of its own with the first `count` of the visible messages, in this version only."""
        way = self._way[:count]
        messages = tuple(
            replace(self.messages[place], parent=number - 1 if number else None) for number, place in enumerate(way)
        )
        numbers = {place: number for number, place in enumerate(way)}
        settings = {k: v for k, v in self.settings.items() if k not in ("start", "summary")}
        if self.settings.get("start") in numbers:
            settings = {**self.settings, "start": numbers[self.settings["start"]]}
        return PortableChat(title, created, created, messages, None, False, self.folder, settings)
