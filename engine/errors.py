"""The one error type a user ever sees."""

from __future__ import annotations

from engine.clean_text import MOST_SENTENCE, clean_text


class GreenroomError(Exception):
    """Something the user can understand and act on.

    what:   what happened, e.g. "model.gguf cannot be read"
    why:    the cause in plain words, e.g. "the file ends after 1.2 GB of 4.7 GB"
    remedy: what to do next, e.g. "Download it again."

    The window shows the three parts, the command line prints them as one sentence;
    raw detail belongs in the log. Each part is one line of bounded length, whatever it was made of.
    """

    def __init__(self, what: str, why: str, remedy: str) -> None:
        self.what = _without(".", what)
        self.why = _without(".", why)
        self.remedy = _without("", remedy)
        super().__init__(f"{self.what}: {self.why}. {self.remedy}")


def _without(end: str, text: str) -> str:
    """On one line, without white space around it and that end; the object itself if it is so already: it may know its
    translation.
    """
    trimmed = clean_text(text, MOST_SENTENCE).strip()
    trimmed = trimmed.rstrip(end) if end else trimmed
    return text if trimmed == text else trimmed


class Cancelled(Exception):
    """Work was stopped because the user asked for it. Not an error."""
