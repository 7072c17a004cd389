"""A conversation as token ids, and how to read what a model writes after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from engine.runtime.answer_split import Splitter, Unsplit
from engine.runtime.events import Begun, Message
from engine.runtime.thinking import Thinking

if TYPE_CHECKING:
    from engine.checkpoints.chat_template import ChatTemplate
    from engine.checkpoints.tokenizer import Tokenizer


@dataclass(frozen=True)
class Prompt:
    """marks: tokens that the splitter is told of, by id."""

    ids: list[int]
    splitter: Splitter
    marks: dict[int, str]


class PromptWriter:
    """Writes conversations for one model.

    What people and the model have said stays text: a control token spelled in it does not become one.
    """

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        self._template, self._tokenizer = template, tokenizer
        self._thinking = Thinking(template.source, tokenizer)

    def write(self, messages: Sequence[Message], thinking: str | None = None, begun: Begun | None = None) -> Prompt:
        """Raises GreenroomError when the template refuses the conversation or knows no such thinking."""
        begun = begun or Begun()
        extra = self._template.thinking_variables(thinking) if thinking else {}
        text, said = self._template.render_apart(messages, self._looks_like_control, **extra)
        tail = self._tail(messages, extra)
        for piece, literal in self._thinking.resume(tail, begun.text, begun.thought):
            if literal:
                said.append((len(text), len(text) + len(piece)))
            text += piece
        ids = self._tokenizer.encode(text, special=False, literal=said, controls=frozenset(self._controls))
        return Prompt(ids, self._thinking.splitter(tail, begun.text, begun.thought), self._thinking.marks)

    def _tail(self, messages: Sequence[Message], extra: dict[str, Any]) -> str:
        """What the template writes last, to have the conversation answered."""
        system = [message for message in messages[:1] if message.role == "system"]
        return self._template.generation_prompt(system, **extra)

    @cached_property
    def _controls(self) -> dict[int, str]:
        """Tokens that mean something to the model only where the template puts them."""
        return {
            token: name
            for token, name in self._tokenizer.added_tokens.items()
            if name.strip() and (token in self._tokenizer.special_ids or name in self._template.source)
        }

    def _looks_like_control(self, text: str) -> bool:
        if any(word in text for word in self._thinking.words):
            return True
        return any(first in text for first in self._first_letters) and any(
            name in text for name in self._controls.values()
        )

    @cached_property
    def _first_letters(self) -> frozenset[str]:
        return frozenset(name[0] for name in self._controls.values())


def raw_prompt(ids: list[int]) -> Prompt:
    """Of a text that is to be continued as it is."""
    return Prompt(ids, Unsplit(), {})
