"""How much longer a tokenizer out of a file may make a text, before it is cut into tokens."""

from __future__ import annotations

import base64
import json
from typing import Any

import tokenizers

#: Characters for one. Compatibility forms of Unicode take 18; ten replacements of one letter by ten take all memory.
_MAX_GROWTH = 10_000


def check_growth(backend: tokenizers.Tokenizer) -> None:
    """Raises ValueError when its normalizer could make thousands of characters of one, step upon step."""
    if backend.normalizer is not None and _growth(json.loads(backend.normalizer.__getstate__())) > _MAX_GROWTH:
        raise ValueError("it makes texts far longer")


def _growth(record: dict[str, Any]) -> int:
    """Characters that may become of one; a text put in front counts as well."""
    match record.get("type"):
        case "Sequence":
            product = 1
            for step in record["normalizers"]:
                product *= _growth(step)
            return product
        case "Replace":
            content = len(record["content"])
            # An expression may match what is empty, between any two letters.
            return max(1, content) if record["pattern"].get("String") else content + 1
        case "Prepend":
            return len(record["prepend"]) + 1
        case "Precompiled":
            # The length of the table of rules, the table, and what characters are replaced with, ended by zeros.
            rules = base64.b64decode(record["precompiled_charsmap"])
            replacements = rules[4 + int.from_bytes(rules[:4], "little") :]
            return max(1, *map(len, replacements.split(b"\0")))
    return 1
