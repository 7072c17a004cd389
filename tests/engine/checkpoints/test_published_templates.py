"""Published chat templates render as transformers renders them, and tell what can be chosen about thinking."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import jinja2
import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from engine.checkpoints.chat_template import ChatTemplate, Choice
from engine.errors import GreenroomError

FOLDER = Path(__file__).parent / "templates"
NAMES = sorted(path.stem for path in FOLDER.glob("*.jinja"))

CITY = {"type": "string", "description": "the city <name>", "enum": ["Paris", "Zürich"]}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "What the weather is",
            "parameters": {"type": "object", "properties": {"city": CITY}, "required": ["city"]},
        },
    }
]
CALL = {"id": "call_1a2b", "type": "function", "function": {"name": "weather", "arguments": {"city": "Paris"}}}
SYSTEM = {"role": "system", "content": "Be brief."}
QUESTION = {"role": "user", "content": 'What is 1 < 2 & "é" 🎉?  '}
ANSWER = {"role": "assistant", "content": "True."}
THOUGHT = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."}
CALLED = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "sunny", "tool_call_id": "call_1a2b", "name": "weather"}
TALKS: list[list[dict[str, Any]]] = [
    [QUESTION],
    [SYSTEM, QUESTION],
    [QUESTION, ANSWER],
    [QUESTION, ANSWER, QUESTION],
    [SYSTEM, QUESTION, ANSWER, QUESTION],
    [QUESTION, THOUGHT, QUESTION],
    [QUESTION, {**ANSWER, "reasoning_content": "hm"}, QUESTION],
    [QUESTION, QUESTION],
    [SYSTEM, SYSTEM, QUESTION],
    [QUESTION, CALLED, RESULT],
    [SYSTEM, QUESTION, CALLED, RESULT, ANSWER, QUESTION],
    [{"role": "user", "content": ""}],
]
EXTRAS: list[dict[str, Any]] = [
    {},
    {"enable_thinking": True},
    {"enable_thinking": False},
    {"thinking": True},
    {"reasoning_effort": "low"},
]


def theirs(source: str, talk: list[dict[str, Any]], tools: Any, prompt: bool, extra: dict[str, Any]) -> str | None:
    """What transformers writes; None when the template refuses or fails."""
    try:
        rendered, _ = render_jinja_template(
            [talk],
            tools=tools,
            chat_template=source,
            add_generation_prompt=prompt,
            bos_token="<s>",
            eos_token="</s>",
            **extra,
        )
    except (jinja2.TemplateError, TypeError, KeyError):
        return None
    return rendered[0]


def ours(template: ChatTemplate, talk: list[dict[str, Any]], tools: Any, prompt: bool, extra: dict[str, Any]) -> Any:
    try:
        return template.render(talk, prompt, tools, **extra)
    except GreenroomError:
        return None


@pytest.mark.parametrize("name", NAMES)
def test_a_published_template_renders_as_transformers_renders_it(name: str) -> None:
    source = (FOLDER / f"{name}.jinja").read_text(encoding="utf-8")
    template = ChatTemplate(source, "<s>", "</s>")
    written = 0
    for talk, tools, prompt, extra in itertools.product(TALKS, (None, TOOLS), (True, False), EXTRAS):
        expected = theirs(source, talk, tools, prompt, extra)
        assert ours(template, talk, tools, prompt, extra) == expected, (talk, bool(tools), prompt, extra)
        written += expected is not None
    assert written > 100


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("qwen3", (Choice("enable_thinking", (False, True), True),)),
        ("glm-4.6", (Choice("enable_thinking", (False, True), True),)),
        ("smollm3", (Choice("enable_thinking", (False, True), True),)),
        ("gpt-oss", (Choice("reasoning_effort", ("low", "medium", "high"), "medium"),)),
        ("deepseek-v3.1", (Choice("enable_thinking", (False, True), False),)),
        ("granite-4.0", ()),
        ("phi-3.5", ()),
    ],
)
def test_what_can_be_chosen_about_thinking(name: str, choices: tuple[Choice, ...]) -> None:
    assert ChatTemplate((FOLDER / f"{name}.jinja").read_text(encoding="utf-8")).thinking == choices


def test_levels_of_thinking_that_a_template_names_itself() -> None:
    named = """{%- if effort is defined %}never{% endif %}{{ messages[0].content }}
    {%- if enable_thinking and reasoning_effort == 'high' %} think hard{% endif %}
    {%- if reasoning_effort == 'none' %} no thought{% endif %}"""
    assert ChatTemplate(named).thinking == (Choice("reasoning_effort", ("none", None, "high"), None),)
    strict = """{%- if reasoning_effort is not defined %}{% set reasoning_effort = 'low' %}{% endif %}
    {%- if reasoning_effort not in ['low', 'max'] %}{{ raise_exception('low or max') }}{% endif %}
    {{- messages[0].content ~ reasoning_effort }}"""
    assert ChatTemplate(strict).thinking == (Choice("reasoning_effort", ("low", "max"), "low"),)
    assert ChatTemplate("{# thinking is not for enable_thinking #}{{ messages[0].content }}").thinking == ()


@pytest.mark.parametrize(
    ("name", "wish", "variables"),
    [
        ("qwen3", "off", {"enable_thinking": False}),
        ("qwen3", "on", {"enable_thinking": True}),
        ("gpt-oss", "high", {"reasoning_effort": "high"}),
        ("deepseek-v3.1", "on", {"enable_thinking": True}),
    ],
)
def test_a_wish_about_thinking_becomes_the_templates_own_variable(
    name: str, wish: str, variables: dict[str, Any]
) -> None:
    template = ChatTemplate((FOLDER / f"{name}.jinja").read_text(encoding="utf-8"))
    assert template.thinking_variables(wish) == variables


def test_a_level_turns_thinking_on_and_the_lowest_may_be_none() -> None:
    template = ChatTemplate(
        """{{ messages[0].content }}{%- if thinking %} think {{ reasoning_effort }}{% endif %}
        {%- if reasoning_effort == 'none' %} no thought{% endif %}"""
    )
    assert template.thinking_variables("high") == {"thinking": True, "reasoning_effort": "high"}
    silent = ChatTemplate("{{ messages[0].content }}{%- if reasoning_effort == 'none' %} no thought{% endif %}")
    assert silent.thinking_variables("off") == silent.thinking_variables("none") == {"reasoning_effort": "none"}


@pytest.mark.parametrize(("name", "reason"), [("gpt-oss", "knows low, medium, high"), ("phi-3.5", "leaves no choice")])
def test_a_wish_that_a_template_does_not_know_is_refused(name: str, reason: str) -> None:
    with pytest.raises(GreenroomError, match=rf'think "off".*{reason}'):
        ChatTemplate((FOLDER / f"{name}.jinja").read_text(encoding="utf-8")).thinking_variables("off")
