"""Names behind fences: what models write finds its colours, and its ending as a file."""

from __future__ import annotations

import pytest
from pygments.token import Comment, Keyword, Operator, String, Token

from app.chat.rendering.languages import ALIASES, file_name_for, known, lexer_for

COMMON = (
    "python py python3 javascript js jsx typescript ts tsx bash sh shell zsh console terminal cmd bat powershell json "
    "jsonc json5 jsonl yaml yml toml ini env xml html svg vue svelte css scss less sql mysql postgresql sqlite c h cpp "
    "c++ hpp cuda cu csharp cs java kotlin kt swift go golang rust rs ruby php perl lua r matlab julia scala dart "
    "haskell elixir ocaml zig dockerfile docker makefile cmake nginx hcl terraform graphql protobuf diff patch "
    "markdown clojure latex tex mermaid http nasm assembly wasm glsl verilog vhdl solidity vba groovy gradle "
    "jinja2 vim vb objective-c"
)


@pytest.mark.parametrize("name", COMMON.split())
def test_common_names_have_a_lexer(name):
    assert known(name)
    assert lexer_for(name) is not None
    assert lexer_for(name.upper()) is lexer_for(name.upper())


@pytest.mark.parametrize("name", ["", "text", "brainwave", "no such language", "../../etc", "\x00"])
def test_other_names_have_no_colours_and_are_no_failure(name):
    assert all(kind in Token.Text for kind, _ in lexer_for(name).get_tokens("x")) if lexer_for(name) else True
    assert file_name_for(name) == "code.txt"


@pytest.mark.parametrize("alias", ALIASES)
def test_every_alias_leads_somewhere(alias):
    assert lexer_for(alias) is not None


@pytest.mark.parametrize(
    ("language", "name"),
    [
        ("jsonc", "code.json"),
        ("jsonl", "code.jsonl"),
        ("mysql", "code.sql"),
        ("hpp", "code.hpp"),
        ("csv", "code.csv"),
        ("mermaid", "code.mmd"),
        ("Dockerfile", "Dockerfile"),
        ("svelte", "code.svelte"),
        ("python", "code.py"),
        ("C++", "code.cpp"),
        ("makefile", "Makefile"),
        ("klingon", "code.txt"),
    ],
)
def test_files_are_called_as_people_call_them(language, name):
    assert file_name_for(language) == name


def test_diagrams_are_coloured():
    text = 'graph TD\n  A[Start here] -->|yes| B{"Really?"}\n  %% a comment\n  subgraph one\n  B -.-> C\n  end\n'
    tokens = [(kind, word) for _, kind, word in lexer_for("mermaid").get_tokens_unprocessed(text)]
    assert "".join(word for _, word in tokens) == text
    assert (Keyword, "graph") in tokens
    assert (Keyword, "subgraph") in tokens
    assert (Operator, "-->") in tokens
    assert (Operator, "-.->") in tokens
    assert (String, "|yes|") in tokens
    assert (String, "[Start here]") in tokens
    assert (Comment, "%% a comment") in tokens


def test_comments_of_json_are_comments():
    tokens = [*lexer_for("jsonc").get_tokens('// so\n{"a": 1}')]
    assert any(kind in Comment for kind, _ in tokens)
    assert not any(kind in Token.Error for kind, _ in tokens)
