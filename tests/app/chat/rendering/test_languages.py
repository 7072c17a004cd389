"""Names behind fences: what models write finds its colours, and its ending as a file."""

from __future__ import annotations

import time

import pytest
from pygments.token import Comment, Keyword, Operator, String, Token

from app.chat.rendering.code_view import colourable
from app.chat.rendering.languages import ALIASES, file_name_for, known, lexer_for

COMMON = (
    "python py python3 javascript js jsx typescript ts tsx bash sh shell zsh console terminal cmd bat powershell json "
    "jsonc json5 jsonl yaml yml toml ini env xml html svg vue svelte css scss less sql mysql postgresql sqlite c h cpp "
    "c++ hpp cuda cu csharp cs java kotlin kt swift go golang rust rs ruby php perl lua r matlab julia scala dart "
    "haskell elixir ocaml zig dockerfile docker makefile cmake nginx hcl terraform graphql protobuf diff patch "
    "markdown clojure latex tex mermaid http nasm assembly wasm glsl verilog vhdl solidity vba groovy gradle "
    "jinja2 vim vb objective-c"
)

UNITS = [
    *(
        "a",
        "_",
        "0",
        " ",
        "\n",
        "\t",
        "\\",
        '"',
        "'",
        "`",
        "/*",
        "(*",
        "{",
        "(",
        "[",
        "<a ",
        "=",
        "${",
        "@a",
        "#",
        "&",
        "-",
    ),
    *(
        ".",
        ":",
        ",",
        '"""',
        '\\"',
        "\\\n",
        "a b ",
        "1.",
        "$",
        "|",
        "!",
        "é",
        "%",
        "A",
        ";\n",
        "<",
        ">",
        "a=",
        "--",
        "//",
    ),
]


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


@pytest.mark.parametrize("name", ["maple", "rita", "chpl", "apdl", "smithy"])
def test_lexers_that_never_end_are_not_used(name):
    assert not known(name)
    assert lexer_for(name) is None


@pytest.mark.parametrize(
    ("name", "file"), [("scala", "code.scala"), ("fish", "code.fish"), ("csh", "code.csh"), ("rego", "code.rego")]
)
def test_what_has_another_lexer_keeps_its_ending(name, file):
    assert file_name_for(name) == file


@pytest.mark.parametrize(
    "code",
    ["\n" * 3000, "[" + " " * 3000, "a::" * 1000, "x = 1\n" * 9 + "\t \n" * 40, "'" * 3000],
    ids=["newlines", "blanks", "a line", "blanks and newlines", "quotation marks"],
)
def test_code_that_nobody_writes_is_not_read(code):
    assert not colourable(code)
    assert colourable("\n".join(["x = 'some code'" + " " * 60 + "# and a remark", "", "", "-" * 120]) * 100)


def test_common_lexers_read_hostile_code_in_small_steps(fuzzer):
    """A step is one token: the window is asleep until it is found."""
    for rng in fuzzer.rounds():
        name = rng.choice(COMMON.split())
        unit = "".join(rng.choice(UNITS) for _ in range(rng.choice((1, 1, 2, 3))))
        code = rng.choice(["", '"', "'", "<", "{", "[", "(", "/*", "a "]) + unit * (2000 // len(unit))
        if "\n" not in code:
            code = "\n".join(code[n : n + 900] for n in range(0, len(code), 900))
        if not colourable(code):
            continue
        tokens = lexer_for(name).get_tokens_unprocessed(code)
        begun = time.thread_time()
        for _ in tokens:
            before, begun = begun, time.thread_time()
            assert begun - before < 1.0, f"{name}, seed {fuzzer.seed}"
