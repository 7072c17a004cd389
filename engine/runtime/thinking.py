"""What a model says to itself before it answers, told apart from the answer.

Every family marks its thinking in its own way. A way is a record here, found by what the chat template says and by what
the vocabulary holds, never by a model's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Protocol

from engine.runtime.answer_split import ChannelSplitter, Headers, SectionMarks, SectionSplitter, Splitter, Where

#: Stands before the spelling of a token that has one id, so that nothing a model spells out letter by letter is taken
#: for it. Unicode keeps this one for a program's own use.
TOKEN = "\uffff"


@dataclass(frozen=True)
class Section:
    """Thinking between two marks.

    title:  what follows the opening mark's token and belongs to it
    frames: marks that may stand around the answer, where the template speaks of them
    """

    opens: str
    closes: str
    title: str = ""
    frames: tuple[tuple[str, str], ...] = ()


SECTIONS = (
    Section("<|channel>", "<channel|>", title="thought"),
    Section("[THINK]", "[/THINK]"),
    Section("<seed:think>", "</seed:think>"),
    Section("<mm:think>", "</mm:think>"),
    Section("<think:opensource>", "</think:opensource>"),
    Section("<|START_THINKING|>", "<|END_THINKING|>", frames=(("<|START_RESPONSE|>", "<|END_RESPONSE|>"),)),
    Section("<|inner_prefix|>", "<|inner_suffix|>"),
    Section("◁think▷", "◁/think▷"),
    Section("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", frames=(("", "[END FINAL RESPONSE]"),)),
    Section("Here is my thought process:", "Here is my response:"),
    Section("<think>", "</think>", frames=(("<response>", "</response>"), ("<answer>", "</answer>"))),
    Section("<thought>", "</thought>"),
)
#: For a model that says nowhere how it thinks; what is no tag on a line of its own is text.
_UNTOLD = Section("<think>\n", "</think>")


@dataclass(frozen=True)
class Channels:
    """An answer of several messages, each with a header that says what it is (OpenAI's harmony format).

    start, channel: open a header; body: ends it; ends: end a message
    """

    start: str = "<|start|>"
    channel: str = "<|channel|>"
    body: str = "<|message|>"
    ends: tuple[str, ...] = ("<|end|>", "<|return|>", "<|call|>")
    thinks: str = "analysis"
    answers: str = "final"

    @property
    def marks(self) -> tuple[str, ...]:
        return (self.start, self.channel, self.body, *self.ends)


HARMONY = Channels()


class Vocabulary(Protocol):
    """What is asked of a `Tokenizer`."""

    @property
    def special_ids(self) -> frozenset[int]: ...

    @property
    def added_tokens(self) -> Mapping[int, str]: ...


class Thinking:
    """How one model marks its thinking.

    marks: ids of tokens to be fed to a splitter as TOKEN and their spelling
    """

    def __init__(self, source: str, vocabulary: Vocabulary) -> None:
        """source: the chat template's text."""
        # Any other token that spells a mark is one of many ways to write its letters.
        known = {name: token for token, name in vocabulary.added_tokens.items()}
        self.kind = _find(source, known.keys())
        if isinstance(self.kind, Channels):
            names = self.kind.marks
        else:
            self._frames = tuple(f for f in self.kind.frames if f[0] in source)
            names = (self.kind.opens, self.kind.closes, *(name for frame in self._frames for name in frame))
        self.marks = {known[name]: name for name in names if name in known}
        self._controls = {name for token, name in self.marks.items() if token in vocabulary.special_ids}
        self._tokens = frozenset(self.marks.values())

    @property
    def words(self) -> tuple[str, str]:
        """The marks that a template may look for in what was said."""
        if isinstance(self.kind, Channels):
            return self.kind.channel, self.kind.body
        return self.kind.opens.strip(), self.kind.closes

    def resume(self, tail: str, text: str, thought: str | None) -> list[tuple[str, bool]]:
        """What is written after a prompt for an answer that is already begun: (piece, whether it is said literally).

        tail: the end of the prompt, what the template writes last to have it answered
        """
        if not text and thought is None:
            return []
        kind = self.kind
        if isinstance(kind, Channels):
            opened = kind.channel + kind.thinks + kind.body
            pieces = [] if thought is None else [(opened, False), (thought, True)]
            if text:
                between = "" if thought is None else kind.ends[0] + kind.start + "assistant"
                pieces += [(between + kind.channel + kind.answers + kind.body, False), (text, True)]
            return pieces
        opened = kind.opens.strip() + kind.title + "\n"
        pieces = []
        if thought is not None:
            pieces = [("" if self._opened(tail) else opened, False), (thought, True)]
        if text:
            closed = "\n" + kind.closes + "\n\n" if pieces or self._opened(tail) else ""
            pieces += [(closed, False), (text, True)]
        return pieces

    def splitter(self, tail: str, text: str = "", thought: str | None = None) -> Splitter:
        """For what the model writes after the prompt and after what `resume` says of the same."""
        kind = self.kind
        where: Where = "answer" if text else "thought" if thought is not None else "before"
        if isinstance(kind, Channels):
            if where == "before" and tail.rfind(kind.start) <= tail.rfind(kind.body):
                where = "answer"
            marked = self._marked
            headers = Headers(
                tuple(map(marked, (kind.start, kind.channel))),
                marked(kind.body),
                tuple(map(marked, kind.ends)),
                kind.thinks,
            )
            return ChannelSplitter(headers, where, self._plain)
        if where == "before" and self._opened(tail):
            where = "thought"
        marks = SectionMarks(
            self._marked(kind.opens) + kind.title,
            self._marked(kind.closes),
            tuple((self._marked(opens), self._marked(closes)) for opens, closes in self._frames),
            again=kind.opens in self._controls,
        )
        return SectionSplitter(marks, where, self._plain, fresh=thought is None)

    def _opened(self, tail: str) -> bool:
        kind = self.kind
        return isinstance(kind, Section) and tail.rfind(kind.opens.strip()) > tail.rfind(kind.closes)

    def _marked(self, name: str) -> str:
        return TOKEN + name if name in self._tokens else name

    def _plain(self, text: str) -> str:
        """Marks where they mark nothing: a control token is no text, another is what it spells."""
        if TOKEN in text:
            for name in self._tokens:
                text = text.replace(TOKEN + name, "" if name in self._controls else name)
        return text


def _find(source: str, known: Set[str]) -> Section | Channels:
    """known: names of tokens"""
    if HARMONY.channel in source and {HARMONY.start, HARMONY.channel, HARMONY.body} <= known:
        return HARMONY
    told = next((s for s in SECTIONS if s.closes in source), None)
    held = next((s for s in SECTIONS if {s.opens, s.closes} <= known), None)
    return told or held or _UNTOLD
