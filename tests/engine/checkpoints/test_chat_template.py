from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import transformers
from checkpoint_files import write_folder, write_gguf
from tokenizers import models

from engine.checkpoints.chat_template import ChatTemplate
from engine.checkpoints.opening import open_checkpoint
from engine.errors import GreenroomError

CHATML = """{% for message in messages %}
{% if loop.first and message['role'] != 'system' %}
{{ '<|im_start|>system\nBe helpful.<|im_end|>\n' }}
{% endif %}
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] | trim + '<|im_end|>' }}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\n' }}
{%- endif %}"""

HEADERS = """{{- bos_token }}
{%- set ns = namespace(system='', last=-1) %}
{%- for message in messages if message.role == 'system' %}
    {%- set ns.system = ns.system ~ message.content %}
{%- endfor %}
{%- if tools is not none %}
    {%- set ns.system = ns.system ~ '\nTools: ' ~ (tools | tojson(indent=2)) %}
{%- endif %}
{%- if ns.system %}{{ '<|start|>system<|end|>\n\n' ~ ns.system ~ '<|eot|>' }}{% endif %}
{%- for message in messages %}
    {%- if message.role == 'system' %}{% continue %}{% endif %}
    {%- if loop.last %}{% set ns.last = loop.index0 %}{% endif %}
    {{- '<|start|>' ~ message.role ~ '<|end|>\n\n' ~ (message.content if message.content is string else 'parts') }}
    {{- '<|eot|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant<|end|>\n\n' }}{% endif %}
{{- '[last ' ~ ns.last ~ ']' }}"""

INSTRUCT = """{{ bos_token }}{% for message in messages %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{%- endif -%}
{%- if message.role == 'user' %}{{ '[INST] ' + message.content + ' [/INST]' }}
{%- else %}{% generation %}{{ message.content + eos_token }}{% endgeneration %}{% endif -%}
{% endfor %}"""

MACROS = """{%- macro turn(role, text) -%}
<{{ role }}>{{ text | replace('<', '&lt;') }}</{{ role }}>
{%- endmacro -%}
{%- set roles = {'user': 'human', 'assistant': 'bot'} -%}
{%- for m in messages | rejectattr('role', 'equalto', 'system') | list -%}
{{ turn(roles.get(m.role, m.role), m.content) }}{{ ', ' if not loop.last else '.' }}
{%- if loop.index > 5 %}{% break %}{% endif %}
{%- endfor -%}
{{ ['a', 'b'] | join('-') }} {{ '%s=%d' % ('n', 3) }} {{ "{}".format(messages | length) }} {{ 'x' * 3 }}
{%- if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}
{{ messages[-1].content.split(' ')[-1].strip('.').upper() }} {{ {'b': 1, 'a': 'é<'} | tojson }}"""

TEMPLATES = {"chatml": CHATML, "headers": HEADERS, "instruct": INSTRUCT, "macros": MACROS}
TALK = [
    {"role": "user", "content": 'What is 1 < 2 & "é"?  '},
    {"role": "assistant", "content": "True."},
    {"role": "user", "content": "Thanks 🎉 a lot."},
]
TOOLS = [{"type": "function", "function": {"name": "now", "description": "Time <now>", "parameters": {}}}]


@dataclass(frozen=True)
class Line:
    role: str
    content: str


@pytest.fixture(scope="module")
def reference() -> transformers.PreTrainedTokenizerFast:
    backend = tokenizers.Tokenizer(models.BPE(vocab={"<s>": 0, "</s>": 1}, merges=[]))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("prompt", [True, False])
@pytest.mark.parametrize("extra", [{}, {"tools": TOOLS}, {"enable_thinking": False}])
@pytest.mark.parametrize("length", [1, 3])
def test_templates_are_rendered_as_transformers_renders_them(
    name: str, prompt: bool, extra: dict[str, Any], length: int, reference: transformers.PreTrainedTokenizerFast
) -> None:
    expected = reference.apply_chat_template(
        TALK[:length], chat_template=TEMPLATES[name], tokenize=False, add_generation_prompt=prompt, **extra
    )
    template = ChatTemplate(TEMPLATES[name], "<s>", "</s>")
    assert template.render(TALK[:length], add_generation_prompt=prompt, **extra) == expected
    assert template.render([Line(**turn) for turn in TALK[:length]], add_generation_prompt=prompt, **extra) == expected


def test_the_templates_own_complaint_reaches_the_user() -> None:
    template = ChatTemplate(INSTRUCT)
    with pytest.raises(GreenroomError, match="roles must alternate"):
        template.render([Line("system", "Be brief."), Line("user", "Hi")])


@pytest.mark.parametrize(
    "source", ["{% for x in %}", "{{ ", "{% endfor %}", "{% unknown %}", "{{ x | nofilter }}", "{{ " + "(" * 5000]
)
def test_a_broken_template_is_refused_on_loading(source: str) -> None:
    with pytest.raises(GreenroomError, match="chat template cannot be used"):
        ChatTemplate(source)


@pytest.mark.parametrize("source", ["{{ messages.nothing.at.all }}", "{{ 1 / 0 }}", "{{ 'a' + 1 }}", "{{ [][3].x }}"])
def test_a_failing_template_says_why(source: str) -> None:
    with pytest.raises(GreenroomError, match="cannot write this conversation"):
        ChatTemplate(source).render(TALK)


@pytest.mark.parametrize("number", ["1", "99", "9" * 5000])
@pytest.mark.parametrize("kept", [True, False])
def test_a_template_that_makes_up_what_is_said_breaks_nothing(number: str, kept: bool) -> None:
    """In place of what may be taken for control tokens it is given a sign, and the number of the message."""
    source = "{{ '\\ue000' ~ '" + number + "' ~ '\\ue000' }}"
    text, places = ChatTemplate(source).render_apart([Line("user", "Hi")], lambda said: kept)
    assert text == f"\ue000{number}\ue000"
    assert places == []


def test_what_is_said_is_not_put_in_more_often_than_a_prompt_may_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.checkpoints.chat_template.LONGEST", 1000)
    asked = []
    template = ChatTemplate("{{ messages[0].content * 20 }}")
    rendered = template.render
    monkeypatch.setattr(template, "render", lambda turns: asked.append(turns) or rendered(turns))
    short, long = Line("user", "a" * 50), Line("user", "a" * 51)
    assert template.render_apart([short], bool) == ("a" * 1000, [(n, n + 50) for n in range(0, 1000, 50)])
    assert len(asked) == 1
    # The child is asked for the whole text, and knows a limit.
    assert template.render_apart([long], bool) == ("a" * 1020, [])
    assert asked[-1] == [long]


def test_a_template_without_end_is_refused() -> None:
    with pytest.raises(GreenroomError, match="characters long"):
        ChatTemplate("x" * 1_000_001)


def test_plain_chatml() -> None:
    template = ChatTemplate.plain(chatml=True)
    assert (template.name, template.is_plain) == ("ChatML", True)
    assert template.render([Line("system", "S"), Line("user", " U\n")]) == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n U\n<|im_end|>\n<|im_start|>assistant\n"
    )


def test_plain_turns() -> None:
    template = ChatTemplate.plain("<s>", "</s>", chatml=False)
    assert template.name == "User/Assistant"
    talk = [Line("system", "S"), Line("user", "U"), Line("assistant", "A"), Line("user", "V")]
    assert template.render(talk) == "<s>S\n\nUser: U\nAssistant: A</s>\nUser: V\nAssistant:"


# Where templates come from


def vocabulary(*tokens: str) -> dict[str, Any]:
    return {
        "tokenizer__ggml__model": "gpt2",
        "tokenizer__ggml__tokens": list(tokens),
        "tokenizer__ggml__bos_token_id": 0,
        "tokenizer__ggml__eos_token_id": 1,
    }


def test_a_gguf_template_knows_its_tokens(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "m.gguf",
        tokenizer__chat_template="{{ bos_token }}|{{ eos_token }}|{{ messages[0].content }}",
        **vocabulary("<a>", "<b>"),
    )
    template = open_checkpoint(path).chat_template()
    assert not template.is_plain
    assert template.render(TALK[1:2]) == "<a>|<b>|True."


def test_a_gguf_template_for_tools_is_used_when_tools_are_given(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "m.gguf",
        tokenizer__chat_template="talk",
        **{"tokenizer.chat_template.tool_use": "tools {{ tools | length }}"},
    )
    template = open_checkpoint(path).chat_template()
    assert template.render(TALK) == "talk"
    assert template.render(TALK, tools=TOOLS) == "tools 1"


@pytest.mark.parametrize(("tokens", "name"), [(("<s>", "<|im_start|>"), "ChatML"), (("<s>", "x"), "User/Assistant")])
def test_a_gguf_without_a_template_gets_a_plain_one(tokens: tuple[str, ...], name: str, tmp_path: Path) -> None:
    assert open_checkpoint(write_gguf(tmp_path / "m.gguf", **vocabulary(*tokens))).chat_template().name == name


def folder_with(tmp_path: Path, **files: Any) -> Path:
    return write_folder(tmp_path / "m", {"w": np.zeros(2, np.float32)}, **files)


def test_a_folder_template_as_text(tmp_path: Path) -> None:
    settings = {"chat_template": "{{ bos_token }}{{ pad_token }}", "bos_token": {"content": "<s>"}, "pad_token": "<p>"}
    assert open_checkpoint(folder_with(tmp_path, tokenizer_config=settings)).chat_template().render(TALK) == "<s><p>"


def test_a_folder_template_by_name(tmp_path: Path) -> None:
    named = [
        {"name": "tool_use", "template": "tools"},
        {"name": "default", "template": "talk"},
        "nonsense",
        {"name": 3},
    ]
    template = open_checkpoint(folder_with(tmp_path, tokenizer_config={"chat_template": named})).chat_template()
    assert (template.render(TALK), template.render(TALK, tools=TOOLS)) == ("talk", "tools")


def test_a_template_file_comes_first(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, tokenizer_config={"chat_template": "settings"})
    (folder / "chat_template.jinja").write_text("file", encoding="utf-8")
    assert open_checkpoint(folder).chat_template().render(TALK) == "file"


def test_a_folder_without_a_template_gets_a_plain_one(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, tokenizer_config={"chat_template": 5, "bos_token": "<s>"})
    assert open_checkpoint(folder).chat_template().name == "User/Assistant"
    backend = tokenizers.Tokenizer(models.BPE(vocab={"<|im_start|>": 0}, merges=[]))
    backend.save(str(folder / "tokenizer.json"))
    assert open_checkpoint(folder).chat_template().name == "ChatML"


def test_smollm2_writes_its_system_message(smollm: Path) -> None:
    prompt = open_checkpoint(smollm).chat_template().render([Line("user", "Hi")])
    assert prompt.startswith("<|im_start|>system\nYou are a helpful AI assistant")
    assert prompt.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert json.loads(json.dumps(prompt)) == prompt
