"""What the name behind a fence means: which lexer colours the code, and what a file of it is called."""

from __future__ import annotations

import re
from functools import cache, lru_cache

from pygments.lexer import Lexer, RegexLexer
from pygments.lexers import get_all_lexers, get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Operator, String, Text
from pygments.util import ClassNotFound

#: Names that models write for what pygments calls otherwise, or for a relative close enough to colour it.
ALIASES = {
    **dict.fromkeys(("jsonc", "jsonl", "ndjson", "json-schema", "geojson", "ipynb"), "json"),
    **dict.fromkeys(("h", "opencl", "cl", "ino"), "c"),
    **dict.fromkeys(("cc", "hpp", "hh", "cxx", "metal"), "cpp"),
    **dict.fromkeys(("node", "mjs", "cjs", "ejs"), "javascript"),
    **dict.fromkeys(("mts", "cts"), "typescript"),
    **dict.fromkeys(("svelte", "astro", "aspx"), "html"),
    **dict.fromkeys(("svg", "xaml", "plist", "rss", "xhtml", "csproj", "pom"), "xml"),
    **dict.fromkeys(("sqlite", "plsql", "mssql", "bigquery", "snowflake", "duckdb", "oracle"), "sql"),
    **dict.fromkeys(("terminal", "cli", "command", "commandline"), "console"),
    **dict.fromkeys(("env", "dotenv", "conf", "config", "editorconfig", "gitconfig", "desktop"), "ini"),
    **dict.fromkeys(("assembly", "x86asm", "asm64", "x86"), "nasm"),
    **dict.fromkeys(("armasm", "arm", "aarch64"), "gas"),
    **dict.fromkeys(("ipython", "python-repl", "triton", "py2", "micropython"), "python"),
    **dict.fromkeys(("vb", "vba", "vbscript"), "vb.net"),
    **dict.fromkeys(("yacc", "lex", "grammar"), "ebnf"),
    # Relatives of those that are ENDLESS.
    **dict.fromkeys(("fish", "fishshell", "tcsh", "csh"), "bash"),
    "scala": "kotlin",
    "registry": "ini",
    "cmd": "bat",
    "dos": "bat",
    "kt": "kotlin",
    "kts": "kotlin",
    "patch": "diff",
    "gradle": "groovy",
    "jenkinsfile": "groovy",
    "jinja2": "jinja",
    "viml": "vim",
    "sol": "solidity",
    "wasm": "wast",
    "rescript": "reasonml",
    "vlang": "v",
    "guile": "scheme",
    "gitignore": "bash",
    "crontab": "bash",
    "mysql": "sql",
}
#: Lexers with expressions that take longer than anybody waits for a string that is not closed, and nothing can
#: interrupt an expression. Found in pygments 2.21 by trying them all.
ENDLESS = frozenset(
    [
        *("ansys", "cddl", "chapel", "factor", "fish", "maple", "ncl", "pan", "registry", "rego", "rell", "rita"),
        *("scala", "smithy", "tcsh", "urbiscript"),
    ]
)
#: Names that are endings of files too, though the lexer has another one, or there is none.
ENDINGS = frozenset(
    [
        *("cc", "cxx", "h", "hh", "hpp", "cjs", "mjs", "cts", "mts", "kt", "kts", "vb", "svelte"),
        *("scala", "fish", "tcsh", "csh", "rego"),
        *("csv", "tsv", "jsonl", "ndjson", "env", "log", "patch", "svg", "dot", "mmd"),
    ]
)


class Mermaid(RegexLexer):
    """Diagrams written as text. pygments knows none."""

    name = "Mermaid"
    aliases = ("mermaid", "mmd")
    filenames = ("*.mmd",)
    _DIAGRAMS = (
        "graph|flowchart|sequenceDiagram|classDiagram|stateDiagram-v2|stateDiagram|erDiagram|gantt|pie|journey|gitGraph"
        "|mindmap|timeline|quadrantChart|requirementDiagram|C4Context|sankey-beta|xychart-beta|block-beta"
    )
    _WORDS = (
        "subgraph|end|participant|actor|activate|deactivate|note|loop|alt|else|opt|par|and|rect|class|state|section|title"
        "|style|classDef|linkStyle|click|direction|dateFormat|as|over|left of|right of|TB|TD|BT|RL|LR"
    )
    tokens = {  # noqa: RUF012
        "root": [
            (r"%%.*", Comment),
            (rf"(?:{_DIAGRAMS})\b", Keyword),
            (rf"(?:{_WORDS})\b", Keyword),
            (r'"[^"\n]*"', String),
            (r"\|[^|\n]*\|", String),
            (r"[<ox]?(?:--+|==+|-\.+-?|\.\.+)[->xo)]*|[<>]\|?--|~~~|:::?", Operator),
            (r"[\[({]+[^\]\[(){}\n]*[\])}]+", String),
            (r"[^\W\d]\w*", Name),
            (r"\s+|.", Text),
        ]
    }


@lru_cache(maxsize=1000)
def lexer_for(language: str) -> Lexer | None:
    """The lexer of a language by one of its names; None when there is none."""
    name = _plain(language)
    if name in Mermaid.aliases:
        return Mermaid(stripnl=False, ensurenl=False)
    if not known(language):
        return None
    try:
        return get_lexer_by_name(name, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def known(language: str) -> bool:
    """Whether there is a lexer of that name. Does not make it."""
    name = _plain(language)
    return name in Mermaid.aliases or name in _languages()


def file_name_for(language: str) -> str:
    """A name for code in that language: "code.py", "Makefile", or "code.txt" for one that is not known."""
    if language.lower() in ENDINGS:
        return f"code.{language.lower()}"
    lexer = lexer_for(language)
    patterns = lexer.filenames if lexer is not None else []
    endings = [pattern[1:] for pattern in patterns if re.fullmatch(r"\*\.\w+", pattern)]
    named = [pattern for pattern in patterns if re.fullmatch(r"\w+", pattern)]
    same = [pattern for pattern in named if pattern.lower() == language.lower()]
    return next(iter([*same, *(f"code{ending}" for ending in endings), *named]), "code.txt")


def _plain(language: str) -> str:
    name = language.lower()
    return ALIASES.get(name, name)


@cache
def _languages() -> frozenset[str]:
    """All names that are known. For any other one pygments asks every installed package, which takes 30 ms."""
    lexers = (aliases for _, aliases, _, _ in get_all_lexers(plugins=False) if ENDLESS.isdisjoint(aliases))
    return frozenset(alias.lower() for aliases in lexers for alias in aliases)
