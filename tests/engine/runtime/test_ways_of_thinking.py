"""Thought and answer are told apart in every way that models mark them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from scripted_model import ScriptedExecutor
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from engine.checkpoints.chat_template import ChatTemplate
from engine.checkpoints.tokenizer import Tokenizer
from engine.runtime.answer_split import overlap
from engine.runtime.engine import Engine
from engine.runtime.events import Begun, GenerationEvent, Message, SamplingParams
from engine.runtime.prompt import PromptWriter
from engine.runtime.thinking import TOKEN, Thinking

TEMPLATES = Path(__file__).parents[1] / "checkpoints" / "templates"
HARMONY = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>", "<|constrain|>")
PLAIN = "{{ messages[-1].content }}{% if add_generation_prompt %}<|a|>{% endif %}"
QUESTION = [Message("user", "Which city?")]
GREEDY = SamplingParams(temperature=0)


def published(name: str) -> str:
    return (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")


def tokenizer_with(special: Iterable[str] = (), added: Iterable[str] = ()) -> Tokenizer:
    """One token for each byte, the special ones and those that are only looked for first."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(letters)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([*special, "<|im_end|>"])
    backend.add_tokens([AddedToken(name, normalized=False) for name in added])
    return Tokenizer(backend, bos_id=None, eos_ids=(), add_bos=False)


def engine_that(
    writes: str, source: str = PLAIN, special: Iterable[str] = (), added: Iterable[str] = (), end: str = "<|im_end|>"
) -> Engine:
    """An engine whose model writes just that, whatever it is asked, and ends with the token `end`."""
    tokenizer = tokenizer_with(special, added)
    tokens = [*tokenizer.encode(writes), tokenizer.token_id(end)]

    def script(so_far: list[int]) -> int:
        # The first call brings the whole prompt.
        written = len(so_far) - executor.forwarded[0]
        return tokens[min(max(written, 0), len(tokens) - 1)]

    executor = ScriptedExecutor(script, 8192, tokenizer.vocab_size)
    executor.chunk = 8192
    checkpoint = SimpleNamespace(chat_template=lambda: ChatTemplate(source), path="scripted")
    spec = SimpleNamespace(vocab=tokenizer.vocab_size, context_length=8192)
    return Engine(checkpoint, spec, SimpleNamespace(device="cpu"), tokenizer, executor)  # type: ignore[arg-type]


def said(events: Iterable[GenerationEvent]) -> tuple[str, str]:
    events = list(events)
    return "".join(event.thought for event in events), "".join(event.text for event in events)


TAGS = ("<think>", "</think>")
#: What a model of each way writes, and what of it is thought and answer.
WAYS: dict[str, tuple[dict[str, Any], str, tuple[str, str]]] = {
    "harmony": (
        {"source": published("gpt-oss"), "special": HARMONY, "end": "<|return|>"},
        "<|channel|>analysis<|message|>Capital?<|end|><|start|>assistant<|channel|>final<|message|>Paris.",
        ("Capital?", "Paris."),
    ),
    "harmony thinks twice": (
        {"source": published("gpt-oss"), "special": HARMONY, "end": "<|return|>"},
        "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>Two.<|end|>"
        "<|start|>assistant<|channel|>final<|message|>A <|b|> `<|start`.",
        ("One.\n\nTwo.", "I look.\n\nA <|b|> `<|start`."),
    ),
    "harmony calls a tool": (
        {"source": published("gpt-oss"), "special": HARMONY, "end": "<|call|>"},
        "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
        '<|constrain|>json<|message|>{"city": "Paris"}',
        ("Look.", 'functions.weather: {"city": "Paris"}'),
    ),
    "harmony calls a tool while it thinks": (
        {"source": published("gpt-oss"), "special": HARMONY, "end": "<|call|>"},
        "<|channel|>analysis to=python<|message|>1 + 1",
        ("", "python: 1 + 1"),
    ),
    "harmony without a header": (
        {"source": published("gpt-oss"), "special": HARMONY, "end": "<|return|>"},
        "Paris.",
        ("", "Paris."),
    ),
    "Qwen3": (
        {"source": published("qwen3"), "added": TAGS},
        "<think>\nCapital?\n</think>\n\nParis, not `<think>` or </think>.",
        ("Capital?", "Paris, not `<think>` or </think>."),
    ),
    "Qwen3 without a thought": (
        {"source": published("qwen3"), "added": TAGS},
        "Use <think> first.",
        ("", "Use <think> first."),
    ),
    "GLM 4.6": (
        {"source": published("glm-4.6"), "added": TAGS},
        "\n<think>Capital?</think>\nParis.",
        ("Capital?", "Paris."),
    ),
    "tags that are control tokens": (
        {"source": published("smollm3"), "special": TAGS},
        "<think>Capital?</think>Paris. <think>Sure?</think>Sure.",
        ("Capital?\n\nSure?", "Paris. Sure."),
    ),
    "tags that are no tokens": (
        {"source": published("qwen3")},
        "<think>\nCapital? </thin\n</think>\n\nParis, not </think>.",
        ("Capital? </thin", "Paris, not </think>."),
    ),
    "Mistral": (
        {"special": ("[THINK]", "[/THINK]")},
        "[THINK]Capital?[/THINK]Paris [THINK.",
        ("Capital?", "Paris [THINK."),
    ),
    "Gemma 4": (
        {"special": ("<|channel>", "<channel|>", "<|turn>")},
        "<|channel>thought\nCapital?\n<channel|>Paris.",
        ("Capital?", "Paris."),
    ),
    "Seed": (
        {"special": ("<seed:think>", "</seed:think>", "<seed:cot_budget_reflect>")},
        "<seed:think>Cap<seed:cot_budget_reflect>ital?</seed:think>Paris.",
        ("Capital?", "Paris."),
    ),
    "Granite": (
        {"source": "{# <think></think> <response></response> #}" + PLAIN},
        "<think>Capital?</think>\n<response>Paris: `</response>` ends.</response>\n",
        ("Capital?", "Paris: `</response>` ends."),
    ),
    "Granite answers plainly": (
        {"source": "{# <think></think> <response></response> #}" + PLAIN},
        "<think>Capital?</think>\n<respect> Paris.</response>",
        ("Capital?", "<respect> Paris.</response>"),
    ),
    "Hunyuan": (
        {"source": "{# </think> <answer> #}" + PLAIN},
        "<think>\nCapital?\n</think>\n<answer>\nParis.\n</answer>",
        ("Capital?", "Paris.\n"),
    ),
    "Apriel": (
        {"source": "{# [BEGIN FINAL RESPONSE] #}" + PLAIN + "Here are my reasoning steps:\n"},
        "Capital?\n[BEGIN FINAL RESPONSE]\nParis.\n[END FINAL RESPONSE]",
        ("Capital?", "Paris.\n"),
    ),
    "opened by the template": (
        {"source": PLAIN + "<think>\n{# </think> #}", "added": TAGS},
        "Capital? <think>\n</think>\n\nParis.",
        ("Capital? <think>", "Paris."),
    ),
    "opened by the template, as letters": (
        {"source": PLAIN + "<think>\n{# </think> #}"},
        "Capital?\n</think>\n\nParis.",
        ("Capital?", "Paris."),
    ),
    "opened by the template and never closed": (
        {"source": PLAIN + "<think>\n{# </think> #}", "added": TAGS},
        "Capital? ",
        ("Capital?", ""),
    ),
    "closed by the template": (
        {"source": PLAIN + "<think>\n\n</think>\n\n", "added": TAGS},
        "Paris.",
        ("", "Paris."),
    ),
    "said nowhere": ({}, "<think>\nCapital?\n</think>\n\nParis.", ("Capital?", "Paris.")),
    "said nowhere, a tag in a sentence": ({}, "<think> opens it.\n</think>\n", ("", "<think> opens it.\n</think>\n")),
    "a call of a tool": (
        {"special": ("[TOOL_CALLS]", "<pad>")},
        '[TOOL_CALLS]<pad>[{"name": "weather"}]',
        ("", '[TOOL_CALLS][{"name": "weather"}]'),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_way_of_thinking(way: str) -> None:
    options, writes, expected = WAYS[way]
    events = list(engine_that(writes, **options).generate(QUESTION, GREEDY))
    assert said(events) == expected
    assert events[-1].stop_reason == "end"
    assert not any(TOKEN in event.text + event.thought for event in events)


def test_letters_that_spell_a_token_are_none() -> None:
    splitter = Thinking(published("qwen3"), tokenizer_with(added=TAGS)).splitter("")
    assert splitter.feed("<think>\nhm\n</think>\n") == ("", "<think>\nhm\n</think>\n")


@pytest.mark.parametrize(
    ("wish", "expected"), [("on", ("Capital?", "Paris.")), ("off", ("", "Capital?</think>Paris."))]
)
def test_a_wish_decides_whether_the_prompt_opens_the_thought(wish: str, expected: tuple[str, str]) -> None:
    engine = engine_that("Capital?</think>Paris.", published("deepseek-v3.1"), added=TAGS)
    assert said(engine.generate(QUESTION, GREEDY, thinking=wish)) == expected


def test_a_thought_that_meets_the_limit_is_a_thought() -> None:
    engine = engine_that("<think>\nCapital of what?", published("qwen3"), added=TAGS)
    events = list(engine.generate(QUESTION, SamplingParams(temperature=0, max_tokens=10)))
    assert said(events) == ("Capital", "")
    assert events[-1].stop_reason == "length"


def test_stop_strings_are_looked_for_in_the_answer_only() -> None:
    engine = engine_that("<think>\nParis or Rome?</think>I say Paris. Or Rome.", published("qwen3"), added=TAGS)
    events = list(engine.generate(QUESTION, SamplingParams(temperature=0, stop=("Paris",))))
    assert said(events) == ("Paris or Rome?", "I say ")
    assert events[-1].stop_reason == "stop_string"


def test_raw_text_is_continued_as_it_is() -> None:
    engine = engine_that("<think>\nhm\n</think>", published("qwen3"), added=TAGS)
    assert said(engine.generate("Once", GREEDY)) == ("", "<think>\nhm\n</think>")


@pytest.mark.parametrize(
    ("options", "begun", "writes", "expected"),
    [
        (WAYS["harmony"][0], Begun("Pa", "Capital?"), "ris.", ("", "ris.")),
        (WAYS["harmony"][0], Begun("Pa"), "ris.", ("", "ris.")),
        (
            WAYS["harmony"][0],
            Begun("", "Cap"),
            "ital?<|end|><|start|>assistant<|channel|>final<|message|>Paris.",
            ("ital?", "Paris."),
        ),
        (WAYS["Qwen3"][0], Begun("Pa", "Capital?"), "ris. <think>", ("", "ris. <think>")),
        (WAYS["Qwen3"][0], Begun("", "Cap"), " ital?\n</think>\n\nParis.", (" ital?", "Paris.")),
        (WAYS["opened by the template"][0], Begun("Pa"), "ris.", ("", "ris.")),
        (WAYS["opened by the template"][0], Begun("", "Cap"), "ital?</think>Paris.", ("ital?", "Paris.")),
        (WAYS["Gemma 4"][0], Begun("Pa", "Capital?"), "ris.", ("", "ris.")),
    ],
)
def test_a_begun_answer_goes_on_where_it_was(
    options: dict[str, Any], begun: Begun, writes: str, expected: tuple[str, str]
) -> None:
    assert said(engine_that(writes, **options).generate(QUESTION, GREEDY, begun=begun)) == expected


@pytest.mark.parametrize(
    ("way", "begun", "end"),
    [
        (
            "harmony",
            Begun("Pa", "Capital?"),
            "<|channel|>analysis<|message|>Capital?<|end|><|start|>assistant<|channel|>final<|message|>Pa",
        ),
        ("Qwen3", Begun("Pa", "Capital?"), "assistant\n<think>\nCapital?\n</think>\n\nPa"),
        ("opened by the template", Begun("Pa", "Capital?"), "<|a|><think>\nCapital?\n</think>\n\nPa"),
        ("opened by the template", Begun("Pa"), "<|a|><think>\n\n</think>\n\nPa"),
        ("said nowhere", Begun("Pa"), "<|a|>Pa"),
    ],
)
def test_what_is_written_for_a_begun_answer(way: str, begun: Begun, end: str) -> None:
    engine = engine_that("", **WAYS[way][0])
    assert engine.tokenizer.decode(engine.encode(QUESTION, begun=begun)).endswith(end)


def test_thoughts_of_earlier_turns_are_not_in_a_harmony_prompt() -> None:
    engine = engine_that("", **WAYS["harmony"][0])
    text = engine.tokenizer.decode(engine.encode([*QUESTION, Message("assistant", "Paris."), *QUESTION]))
    assert "<|start|>assistant<|channel|>final<|message|>Paris.<|end|>" in text
    assert text.count("<|channel|>analysis") == 0
    assert text.endswith("<|start|>assistant")


# Control tokens in what was said


@pytest.mark.parametrize("name", ["gpt-oss", "qwen3", "phi-3.5", "deepseek-v3.1"])
@pytest.mark.parametrize("content", ["a {} b", " {}{}\n", "{}"])
def test_a_control_token_in_a_message_stays_text(name: str, content: str) -> None:
    source = published(name)
    names = sorted(set(re.findall(r"<[|｜][^<>{}\s']+[|｜]>", source)))
    writer = PromptWriter(ChatTemplate(source), tokenizer := tokenizer_with(names[::2], [*names[1::2], "\n\n", "<b>"]))
    harmless = writer.write([Message("user", content.format("<b>", "<b>"))]).ids
    controls = {token for token, spelling in tokenizer.added_tokens.items() if spelling in source and spelling.strip()}
    for spelled in names:
        ids = writer.write([Message("user", content.format(spelled, spelled))]).ids
        assert [t for t in ids if t in controls] == [t for t in harmless if t in controls]
        assert tokenizer.decode(ids) == tokenizer.decode(harmless).replace("<b>", spelled)
    assert tokenizer.token_id("<b>") in harmless, "other tokens are what they are"


def test_an_answer_that_speaks_of_tags_reaches_the_template_whole() -> None:
    engine = engine_that("", **WAYS["Qwen3"][0])
    talk = [*QUESTION, Message("assistant", "First <think>, then </think>."), *QUESTION]
    text = engine.tokenizer.decode(engine.encode(talk))
    assert "assistant\nFirst <think>, then </think>.<|im_end|>" in text


def test_a_template_that_cuts_what_is_said_gets_to_see_it() -> None:
    writer = PromptWriter(ChatTemplate("{{ messages[0].content[:2] }}<|a|>"), tokenizer := tokenizer_with(["<|a|>"]))
    assert tokenizer.decode(writer.write([Message("user", "<|a|>bc")]).ids) == "<|<|a|>"


# However the text is cut

PIECES = [
    *(TOKEN + name for name in (*HARMONY[:6], *TAGS)),
    *("assistant", "analysis", "final", " to=x", "<think>", "hm ", "\n", "</think>", "</response>"),
]


@pytest.mark.parametrize("source", ["<|channel|>", "<think></think><response>", ""])
@given(st.lists(st.sampled_from(PIECES), max_size=12), st.data())
def test_the_cuts_change_nothing(source: str, pieces: list[str], data: st.DataObject) -> None:
    tokenizer = tokenizer_with(HARMONY if source == "<|channel|>" else (), TAGS)

    def split(parts: list[str]) -> tuple[str, str]:
        splitter = Thinking(source, tokenizer).splitter("<|start|>")
        told = [*map(splitter.feed, parts), splitter.flush()]
        return "".join(thought for thought, _ in told), "".join(answer for _, answer in told)

    cut = []
    for piece in pieces:
        at = data.draw(st.integers(0, len(piece))) if TOKEN not in piece else 0
        cut += [piece[:at], piece[at:]]
    assert split(cut) == split(["".join(pieces)])


@given(st.text("ab", max_size=5), st.text("ab", min_size=1, max_size=4))
def test_overlap(text: str, mark: str) -> None:
    expected = max(n for n in range(len(mark)) if n <= len(text) and text[len(text) - n :] == mark[:n])
    assert overlap(text, mark) == expected
