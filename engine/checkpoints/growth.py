"""How much longer the normalizer of a tokenizer from a file may make a text, before it is cut into tokens."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import tokenizers

#: Bytes for one. A published normalizer takes up to 400, step upon step; ten replacements of one letter by ten take all
#: memory.
_MAX_GROWTH = 10_000

#: Bytes for one, by a step that no setting of a file changes. The Unicode forms are measured by the Unicode Consortium
#: (normalization FAQ, "maximum expansion factor" in UTF-8).
_GROWTHS = {"NFC": 3, "NFD": 3, "NFKC": 11, "NFKD": 11, "Lowercase": 2, "BertNormalizer": 12, "ByteLevel": 2}


def growth(backend: tokenizers.Tokenizer) -> int:
    """Bytes that its normalizer may make of one. Raises ValueError where that is thousands, step upon step."""
    if backend.normalizer is None:
        return 1
    most = _growth(json.loads(backend.normalizer.__getstate__()))
    if most > _MAX_GROWTH:
        raise ValueError("it makes texts far longer")
    return most


def _growth(record: dict[str, Any]) -> int:
    """Bytes that may become of one; a text put in front counts as well."""
    match record.get("type"):
        case "Sequence":
            return math.prod(map(_growth, record["normalizers"]))
        case "Replace":
            content = len(record["content"].encode())
            replaced = record["pattern"].get("String", "").encode()
            # An expression may match what is empty, between any two letters.
            return max(1, -(-content // len(replaced))) if replaced else content + 1
        case "Prepend":
            return len(record["prepend"].encode()) + 1
        case "Precompiled":
            # The length of the table of rules, the table, and what characters are replaced with, ended by zeros.
            rules = base64.b64decode(record["precompiled_charsmap"])
            replacements = rules[4 + int.from_bytes(rules[:4], "little") :]
            return max(1, *map(len, replacements.split(b"\0")))
        case kind:
            return _GROWTHS.get(str(kind), 1)
