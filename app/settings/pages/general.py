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
                    mark("Takes effect immediately."),
                    _languages,
                    words="language 언어 한국어 English",
                ),
                choice(
                    "start",
                    mark("Load at start"),
                    mark("Loads after the window opens."),
                    (
                        (mark("Last used model"), "last"),
                        (mark("The demo model"), "demo"),
                        (mark("Nothing"), "nothing"),
                    ),
                ),
                choice(
                    "enter",
                    mark("Enter key"),
                    mark("When you write a message. Shift+Enter always starts a new line."),
                    ((mark("Sends the message"), "send"), (mark("Starts a new line"), "newline")),
                    words="return keyboard",
                ),
            )
        ),
    ),
)
