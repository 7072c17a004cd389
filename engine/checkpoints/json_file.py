"""Small JSON files of a model folder, read with bounds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from engine.checkpoints.file_bytes import DOWNLOAD_AGAIN, file_size, read_bytes
from engine.errors import GreenroomError
from engine.units import size_text
from engine.words import say

_LIMIT = 16_000_000
_MAX_PARTS = (
    1 << 22
)  # lists and records; each takes some 70 bytes of memory. The merges of Gemma's tokenizer are 514,906
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_object(path: Path, limit: int = _LIMIT) -> dict[str, Any]:
    """The JSON object in a file of at most `limit` bytes. Raises GreenroomError when there is none."""
    size = file_size(path)
    if size > limit:
        why = say("it is {size} long, which no such file should be", size=size_text(size))
        raise GreenroomError(say("{name} cannot be read", name=path.name), why, DOWNLOAD_AGAIN)
    return parse_object(read_bytes(path, 0, size).tobytes(), path)


def read_optional_object(path: Path) -> dict[str, Any]:
    """The same, empty when the file does not exist."""
    return read_object(path) if path.exists() else {}


def parse_object(data: bytes, path: Path) -> dict[str, Any]:
    """path only names the file in errors. A key given twice is refused: readers would disagree on which one counts."""
    try:
        if data.count(b"[") + data.count(b"{") > _MAX_PARTS:
            raise ValueError("it has more parts than any such file")
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique)
        if _SURROGATE.search(data):
            # Half of a pair is no character: nothing that takes UTF-8 takes it, so it must not get further.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        reason = say("nested too deeply") if isinstance(error, RecursionError) else str(error)[:120]
        why = say("its JSON is damaged ({value})", value=reason)
        raise GreenroomError(say("{name} cannot be read", name=path.name), why, DOWNLOAD_AGAIN) from error
    if not isinstance(value, dict):
        raise GreenroomError(
            say("{name} cannot be read", name=path.name), say("its JSON is not an object"), DOWNLOAD_AGAIN
        )
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key is given twice")
    return value
