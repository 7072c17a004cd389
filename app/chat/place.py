"""Where one was in the chat, for a page that takes another's place: what is looked at, opened and found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.chat.message_view import AnswerView

if TYPE_CHECKING:
    from app.chat.page import ChatPage


@dataclass(frozen=True)
class Place:
    """at:      the message at the upper edge and the share of it above; None at the end
    thoughts: ids of answers whose thoughts are unfolded
    found:    what is looked for and the message that is looked at; None without the bar
    figures:  whether the performance panel is open, and of which answer: None for the newest
    """

    at: tuple[int, float] | None
    thoughts: tuple[int, ...]
    found: tuple[str, int] | None
    figures: tuple[bool, int | None]


def place_of(page: ChatPage) -> Place:
    views = (view for view in page.transcript.views if isinstance(view, AnswerView))
    panel, bar = page.performance, page.find_bar
    return Place(
        page.transcript.place,
        tuple(view.message.id for view in views if view.thought is not None and view.thought.toggle.isChecked()),
        None if bar.isHidden() else (bar.field.text(), bar.message),
        (panel is not None, None if panel is None else panel.chosen),
    )


def return_to(page: ChatPage, place: Place) -> None:
    """The same chat must be open."""
    if place.figures[0]:
        page.show_performance(True, place.figures[1])
    for message in place.thoughts:
        page.transcript.unfold(message)
    if place.found is not None:
        words, message = place.found
        page.find_bar.open_bar(words)
        page.find_bar.stand_at(message)
    if place.at is None:
        page.transcript.go_to_end()
    else:
        page.transcript.return_to(*place.at)
