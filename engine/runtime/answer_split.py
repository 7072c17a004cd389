"""A stream of text with marks in it, split into what is thought and what is answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

#: Where in an answer the next text stands: before anything, in a thought, or in what is said to the user.
Where = Literal["before", "thought", "answer"]

#: Longer than any header. What has not ended by then is none.
_MOST_HEADER = 300


class Splitter(Protocol):
    """Text as a model writes it in, (thought, answer) out, each only what is new.

    The same for any way the text is cut into pieces, as long as no mark that is a token is cut.
    """

    def feed(self, text: str) -> tuple[str, str]: ...

    def flush(self) -> tuple[str, str]:
        """What was held back, at the end."""
        ...


class Unsplit:
    """For text that is no answer: all of it is said."""

    def feed(self, text: str) -> tuple[str, str]:
        return "", text

    def flush(self) -> tuple[str, str]:
        return "", ""


@dataclass(frozen=True)
class SectionMarks:
    """frames: pairs of marks that may stand around the answer; again: thinking may go on after a part of the answer"""

    opens: str
    closes: str
    frames: tuple[tuple[str, str], ...] = ()
    again: bool = False


class SectionSplitter:
    """A section of thinking comes first. Its closing mark counts only within it, its opening one only before all else.

    plain: takes marks that mark nothing out of a text
    fresh: a thought begins here, so that white space before its first word says nothing
    """

    def __init__(self, marks: SectionMarks, where: Where, plain: Callable[[str], str], *, fresh: bool = True) -> None:
        self._marks, self._plain, self._fresh = marks, plain, fresh
        self._where: Literal["before", "thought", "after", "answer"] = where
        self._held = ""
        #: What may end the answer and is no part of it.
        self._end = ""
        self._thought = self._answer = ""

    def feed(self, text: str) -> tuple[str, str]:
        steps = {
            "before": self._before,
            "thought": self._within,
            "after": self._after,
            "answer": self._say,
        }
        self._held += text
        while self._held and steps[self._where]():
            pass
        return self._take()

    def flush(self) -> tuple[str, str]:
        held, self._held = self._held, ""
        if self._where == "thought":
            self._thought += held.rstrip()
        elif not (self._end and held.strip() == self._end):
            self._answer += held
        return self._take()

    def _take(self) -> tuple[str, str]:
        thought, answer = self._plain(self._thought), self._plain(self._answer)
        self._thought = self._answer = ""
        return thought, answer

    # Each takes from what is held and says whether the next has something to do.

    def _before(self) -> bool:
        text = self._held.lstrip()
        for mark, then in ((self._marks.opens, "thought"), (self._marks.closes, "after")):
            if text.startswith(mark):
                self._held = text[len(mark) :]
                self._where = "thought" if then == "thought" else "after"
                return True
        if self._marks.opens.startswith(text) or self._marks.closes.startswith(text):
            return False
        self._where = "answer"
        return True

    def _within(self) -> bool:
        if self._fresh:
            self._held = self._held.lstrip()
        thought, closed, rest = self._held.partition(self._marks.closes)
        if closed:
            self._thought += thought.rstrip()
            self._held, self._where, self._fresh = rest, "after", True
            return True
        kept = self._held[: len(self._held) - overlap(self._held, self._marks.closes)].rstrip()
        self._thought += kept
        self._held = self._held[len(kept) :]
        self._fresh = self._fresh and not kept
        return False

    def _after(self) -> bool:
        self._held = text = self._held.lstrip()
        if not text:
            return False
        if not self._end:
            for opens, closes in self._marks.frames:
                if text.startswith(opens):
                    self._held, self._end = text[len(opens) :], closes
                    return True
            if any(opens.startswith(text) for opens, _ in self._marks.frames):
                return False
        self._where = "answer"
        return True

    def _say(self) -> bool:
        if self._marks.again:
            answer, opened, rest = self._held.partition(self._marks.opens)
            if opened:
                self._answer += answer
                self._thought += "\n\n"
                self._held, self._where = rest, "thought"
                return True
        held = overlap(self._held, self._end) if self._end else 0
        if self._end and self._held.rstrip().endswith(self._end):
            held = len(self._held) - self._held.rfind(self._end)
        said = self._held[: len(self._held) - held]
        self._answer += said
        self._held = self._held[len(said) :]
        return False


@dataclass(frozen=True)
class Headers:
    """heads: begin a header; body: ends it; ends: end a message; thinks: the name of the channel of thoughts"""

    heads: tuple[str, ...]
    body: str
    ends: tuple[str, ...]
    thinks: str


class ChannelSplitter:
    """Messages with headers. One of the channel of thoughts is thought, all others are said.

    One to a tool is said too, whatever its channel: nothing here can run it, and it must not vanish.
    """

    def __init__(self, headers: Headers, where: Where, plain: Callable[[str], str]) -> None:
        self._headers, self._plain = headers, plain
        self._where: Literal["header", "thought", "answer"] = "header" if where == "before" else where
        self._header = ""
        self._any = {"thought": where == "thought", "answer": where == "answer"}
        #: A new message of its kind begins.
        self._new = False
        self._marks = (*headers.heads, headers.body, *headers.ends)

    def feed(self, text: str) -> tuple[str, str]:
        said = {"thought": "", "answer": ""}
        while text:
            found = [(at, mark) for mark in self._marks if (at := text.find(mark)) >= 0]
            at, mark = min(found, default=(len(text), ""))
            self._add(text[:at], said)
            text = text[at + len(mark) :]
            if mark == self._headers.body:
                self._open(said)
            elif mark in self._headers.ends:
                self._close(said)
            elif mark:
                if self._where != "header":
                    self._where, self._header = "header", ""
                self._header += " "
        return said["thought"], said["answer"]

    def flush(self) -> tuple[str, str]:
        said = {"thought": "", "answer": ""}
        self._close(said)
        return said["thought"], said["answer"]

    def _add(self, text: str, said: dict[str, str]) -> None:
        if self._where == "header":
            self._header += text
            if len(self._header) > _MOST_HEADER:
                header, self._header = self._header, ""
                self._where, self._new = "answer", True
                self._put(header.lstrip(), said)
        else:
            self._put(text, said)

    def _put(self, text: str, said: dict[str, str]) -> None:
        text = self._plain(text)
        if text:
            if self._new and self._any[self._where]:
                said[self._where] += "\n\n"
            self._new = False
            self._any[self._where] = True
            said[self._where] += text

    def _open(self, said: dict[str, str]) -> None:
        words = self._plain(self._header).split()
        tool = next((word.removeprefix("to=") for word in words if word.startswith("to=")), "")
        thinks = self._headers.thinks in words and not tool
        self._where, self._header, self._new = "thought" if thinks else "answer", "", True
        if tool:
            self._put(f"{tool}: ", said)

    def _close(self, said: dict[str, str]) -> None:
        """A header that no message followed is said, for it may be all that the model wrote."""
        if self._where == "header" and self._header.strip() not in ("", "assistant"):
            header = self._header.strip()
            self._where, self._new = "answer", True
            self._put(header, said)
        self._where, self._header = "header", ""


def overlap(text: str, mark: str) -> int:
    """The length of the longest end of `text` that is a beginning of `mark`, shorter than all of it."""
    longest = min(len(text), len(mark) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(mark[:n])), 0)
