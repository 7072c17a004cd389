"""A conversation written out the way a model was trained to read it."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from engine.checkpoints.template_process import LONGEST, TemplateFailed, TemplateProcess
from engine.errors import GreenroomError
from engine.words import say

MAX_SOURCE = 1_000_000  # characters

_CHATML = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

_TURNS = """\
{{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'system' %}{{ message.content + '\\n\\n' }}
{%- elif message.role == 'assistant' %}{{ 'Assistant: ' + message.content + eos_token + '\\n' }}
{%- else %}{{ 'User: ' + message.content + '\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"""


#: What templates call the choice of whether a model thinks before it answers, or how much; least first.
_SWITCHES = ("enable_thinking", "thinking")
_LEVELS = ("reasoning_effort", "thinking_effort", "reasoning_strength")
_LEVEL_NAMES = ("none", "no_think", "minimal", "low", "medium", "high", "max")
_USUAL_LEVELS = ("low", "medium", "high")
#: Levels that stand for not thinking at all.
_SILENT = ("none", "no_think")


@dataclass(frozen=True)
class Choice:
    """A variable of the template that says whether or how much the model thinks.

    values:   False and True, or names from least to most; None among names: the ordinary way, by leaving it out
    default:  what holds when nothing is chosen
    """

    variable: str
    values: tuple[bool | str | None, ...]
    default: bool | str | None


class Turn(Protocol):
    """One message: role "system", "user" or "assistant", and what it says."""

    @property
    def role(self) -> str: ...

    @property
    def content(self) -> str: ...


class ChatTemplate:
    """A Jinja template, rendered in a process of its own with limits on time and memory.

    source:      the template's text; tool_source replaces it when tools are given
    name:        "own" for the model's, "ChatML" or "User/Assistant" for a plain one, as shown to the user
    variables:   what the template may use besides messages, tools and the two tokens
    Raises GreenroomError when the text is not a Jinja template.
    """

    def __init__(
        self,
        source: str,
        bos_token: str = "",
        eos_token: str = "",
        *,
        tool_source: str | None = None,
        name: str = "own",
        variables: Mapping[str, Any] | None = None,
    ) -> None:
        self.source = source
        self.name = name
        self._variables = {**(variables or {}), "bos_token": bos_token, "eos_token": eos_token}
        self._process = TemplateProcess(source, tool_source)
        weakref.finalize(self, self._process.close)
        what, remedy = say("The model's chat template cannot be used"), say("Choose another file of this model.")
        longest = max(len(source), len(tool_source or ""))
        if longest > MAX_SOURCE:
            raise GreenroomError(what, say("it is {count:,} characters long", count=longest), remedy)
        try:
            self._process.compile()
        except TemplateFailed as failed:
            why = failed.why
            if failed.refused:
                why = say("it is not a valid Jinja template ({value})", value=why)
            raise GreenroomError(what, why, remedy) from failed

    @classmethod
    def plain(cls, bos_token: str = "", eos_token: str = "", *, chatml: bool) -> ChatTemplate:
        """For a model that carries none: ChatML if its vocabulary has <|im_start|>, else "User: ... Assistant: ..."."""
        if chatml:
            return cls(_CHATML, bos_token, eos_token, name="ChatML")
        return cls(_TURNS, bos_token, eos_token, name="User/Assistant")

    @property
    def is_plain(self) -> bool:
        """Whether the model carried no template of its own."""
        return self.name != "own"

    @cached_property
    def thinking(self) -> tuple[Choice, ...]:
        """What can be chosen about the model's thinking, as `render` takes it: render(..., **{variable: value}).

        Found by trying: a value counts if the template accepts it and writes another prompt for it. That takes up to
        twenty renderings of a short conversation: not for the window's own thread. A template that hits its time limit
        at one of them leaves no choice.
        """
        try:
            return self._choices()
        except TemplateFailed:
            return ()

    def _choices(self) -> tuple[Choice, ...]:
        thinks = {name: True for name in _SWITCHES if name in self.source}
        # Some templates know two names for one switch.
        found = [self._choice(name, (False, True), {}) for name in thinks]
        found = [choice for choice in found if len(choice.values) > 1][:1]
        for name in _LEVELS:
            if name in self.source:
                unknown = self._sample({**thinks, name: "?"})
                # A template that writes down any text it is given names no levels of its own.
                free = unknown is not None and unknown != self._sample(thinks)
                found.append(self._choice(name, _USUAL_LEVELS if free else _LEVEL_NAMES, thinks, unknown))
        return tuple(choice for choice in found if len(choice.values) > 1)

    def thinking_variables(self, wish: str) -> dict[str, Any]:
        """What `render` takes for a wish: "on", "off" or the name of a level.

        Raises GreenroomError when the template leaves no such choice.
        """
        wishes: dict[str, dict[str, Any]] = {}
        switches: dict[str, Any] = {}
        for choice in self.thinking:
            for value in choice.values:
                if isinstance(value, bool):
                    wishes["on" if value else "off"] = {choice.variable: value}
                    switches[choice.variable] = True
                elif value is not None:
                    wishes[value] = {**switches, choice.variable: value}
                    if value in _SILENT:
                        wishes.setdefault("off", wishes[value])
        if wish not in wishes:
            why = (
                say("its chat template knows {wishes}", wishes=", ".join(wishes))
                if wishes
                else say("its chat template leaves no choice")
            )
            remedy = say("Choose one of these or none.") if wishes else say("Let it answer as it was made to.")
            raise GreenroomError(say('The model cannot be told to think "{wish}"', wish=wish), why, remedy)
        return wishes[wish]

    def _choice(
        self, variable: str, values: Sequence[bool | str], others: Mapping[str, Any], unknown: str | None = None
    ) -> Choice:
        """unknown: the prompt for a value that is no level; other values with this prompt are none either."""
        prompts: dict[str, bool | str | None] = {}
        for value in values:
            prompt = self._sample({**others, variable: value})
            if prompt is not None:
                prompts.setdefault(prompt, None if prompt == unknown else value)
        return Choice(variable, tuple(prompts.values()), prompts.get(self._sample(others) or ""))

    def _sample(self, variables: Mapping[str, Any]) -> str | None:
        """None where the template fails. Raises TemplateFailed where it took all its time: once is enough."""
        try:
            return self._render([{"role": "user", "content": "Hi"}], True, None, variables)
        except TemplateFailed as failed:
            if failed.ended:
                raise
            return None

    def render(
        self,
        messages: Sequence[Turn | Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **extra: Any,
    ) -> str:
        """The prompt as text, special tokens written out; encode it with special=False.

        extra: variables that some templates know, e.g. enable_thinking=False.
        Raises GreenroomError when the template refuses the conversation, fails or does not end.
        """
        try:
            return self._render(messages, add_generation_prompt, tools, extra)
        except TemplateFailed as failed:
            raise GreenroomError(
                say("The model's chat template cannot write this conversation"),
                failed.why,
                say("Change the conversation (some models take no system message) or choose another model."),
            ) from failed

    def _render(
        self,
        messages: Sequence[Turn | Mapping[str, Any]],
        add_generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]] | None,
        extra: Mapping[str, Any],
    ) -> str:
        variables = {
            "documents": None,
            **self._variables,
            **extra,
            "messages": [_as_dict(message) for message in messages],
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
        }
        return self._process.render(variables, bool(tools))

    def render_apart(
        self, messages: Sequence[Turn], apart: Callable[[str], bool], **extra: Any
    ) -> tuple[str, list[tuple[int, int]]]:
        """As `render`, and where in the prompt (start, end) those contents stand for which `apart` says so.

        The template is given a stand-in for them, so that it takes nothing in them for its own marks.
        """
        told = "".join(message.content for message in messages)
        stand_in = _unused(told + self.source)
        turns: list[dict[str, Any]] = []
        contents: list[str] = []
        for message in messages:
            core = message.content.strip()
            if core and apart(core):
                # Around it white space is the template's to cut.
                before, after = message.content.split(core, 1)
                turns.append({"role": message.role, "content": f"{before}{stand_in}{len(contents)}{stand_in}{after}"})
                contents.append(core)
            else:
                turns.append(_as_dict(message))
        parts = re.split(f"{stand_in}([0-9]{{1,9}}){stand_in}", self.render(turns, **extra))
        numbers = [int(number) for number in parts[1::2]]
        known = max(numbers, default=-1) < len(contents)
        # A stand-in is short: what it stands for might not fit as often as the template writes it.
        fits = known and sum(map(len, parts[::2])) + sum(len(contents[number]) for number in numbers) <= LONGEST
        if not fits or any(stand_in in part for part in parts):
            # A template that cuts what is said must see it.
            return self.render(messages, **extra), []
        text = parts[0]
        places = []
        for number, after in zip(numbers, parts[2::2], strict=True):
            content = contents[number]
            places.append((len(text), len(text) + len(content)))
            text += content + after
        return text, places

    def generation_prompt(self, system: Sequence[Turn] = (), **extra: Any) -> str:
        """What is written after a question to have it answered; "" where the template takes none."""
        stand_in = _unused(self.source + "".join(turn.content for turn in system))
        try:
            text = self.render([*system, {"role": "user", "content": stand_in}], **extra)
        except GreenroomError:
            return ""
        return text.rpartition(stand_in)[2] if stand_in in text else ""


def _unused(text: str) -> str:
    """A letter of private use that is not in a text."""
    used = set(text)
    return next(letter for letter in map(chr, (*range(0xE000, 0xF900), *range(0xF0000, 0xFFFFE))) if letter not in used)


def _as_dict(message: Turn | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(message, Mapping):
        return dict(message)
    return {"role": message.role, "content": message.content}
