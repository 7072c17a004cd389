"""Thinking sections: what a model says to itself before it answers."""

from __future__ import annotations

from dataclasses import dataclass

OPEN, CLOSE = "<think>", "</think>"
#: In a kept thought that speaks of the closing tag, the tag has a word joiner in it, which takes no room.
_SPOKEN = "<\u2060/think>"


@dataclass(frozen=True)
class SplitAnswer:
    """thought: None when there is no thinking section. thinking: True while the section has not been closed."""

    thought: str | None
    answer: str
    thinking: bool = False


def join_thought(thought: str | None, answer: str) -> str:
    """What `split_thought` takes apart again, whatever stands in the two. The section is left open before an answer."""
    if thought is None:
        plain = split_thought(answer) == SplitAnswer(None, answer)
        return answer if plain else f"{OPEN}{CLOSE}\n\n{answer}"
    section = f"{OPEN}\n{thought.replace(CLOSE, _SPOKEN)}"
    return f"{section}\n{CLOSE}\n\n{answer}" if answer else section


def split_thought(text: str) -> SplitAnswer:
    """Take a thinking section off the beginning of a kept answer.

    Some chat templates put the opening tag into the prompt, so a closing tag alone on its line opens nothing but
    closes a section as well. Tags anywhere else are text.
    """
    start = text.lstrip()
    if start.startswith(OPEN):
        thought, closed, answer = start[len(OPEN) :].partition(CLOSE)
        thought = thought.strip().replace(_SPOKEN, CLOSE)
        return SplitAnswer(thought, answer.lstrip("\n") if closed else "", thinking=not closed)
    if start and OPEN.startswith(start):
        return SplitAnswer(None, "")  # the tag is still on its way
    thought, closed, answer = text.partition(CLOSE)
    own_line = not thought or thought.endswith("\n")
    if closed and own_line and (not answer or answer.startswith("\n")) and "```" not in thought:
        return SplitAnswer(thought.strip(), answer.lstrip("\n"))
    return SplitAnswer(None, text)
