"""Texts of the program that hold a count, found by how they read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Words on -s after a hole that is no count: verbs, and what is no plural.
NO_NOUN = frozenset(
    {"asks", "claims", "does", "fits", "has", "is", "its", "kernels", "lacks", "ms", "runs", "takes", "this", "times"}
    | {"µs", "was", "weights"}
)
#: Verbs that agree with the number in the hole before them.
VERBS = ("are", "were", "have", "do")


def counted(template: str) -> list[str]:
    """Nouns in the plural behind a number's hole, one word between them allowed."""
    found = re.findall(r"\{\w+[^}]*\}(?: [a-z-]+)?? (\w+s)\b", template, re.IGNORECASE)
    return [word for word in found if word not in NO_NOUN]


def agreeing(template: str) -> list[str]:
    """Verbs in the plural behind a hole, one word between them allowed."""
    return re.findall(rf"\{{\w+[^}}]*\}}(?: [a-z-]+)?? ({'|'.join(VERBS)})\b", template, re.IGNORECASE)


def calls(folders: Sequence[str], names: Sequence[str]) -> Iterator[tuple[str, ast.Call, str]]:
    """Every call of these functions with a literal text, such as say("..."): where, the call, its text."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                    text = node.args[0]
                    if isinstance(text, ast.Constant):
                        yield f"{path.relative_to(ROOT)}:{node.lineno}", node, text.value
