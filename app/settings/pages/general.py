"""General: language, what happens at start, what Enter does."""

from __future__ import annotations

from app.language import SYSTEM, languages, mark
from app.settings.options import Entries, Group, Page, choice


def _languages() -> Entries:
    return ((mark("Follow the system"), SYSTEM), *((name, code) for code, name in languages().items()))


PAGE = Page(
    "general",
    mark("General"),
    "settings",
    (
        Group(
            (
                choice(
                    "language",
                    mark("Language"),
                    mark("Holds at once."),
                    _languages,
                    words="language 언어 한국어 English",
                ),
                choice(
                    "start",
                    mark("Load at start"),
                    mark("The window opens first, then this loads."),
                    (
                        (mark("The model used last"), "last"),
                        (mark("The demo model"), "demo"),
                        (mark("Nothing"), "nothing"),
                    ),
                ),
                choice(
                    "enter",
                    mark("Enter key"),
                    mark("While you write a message. Shift+Enter always begins a new line."),
                    ((mark("Sends the message"), "send"), (mark("Begins a new line"), "newline")),
                    words="return keyboard",
                ),
            )
        ),
    ),
)
