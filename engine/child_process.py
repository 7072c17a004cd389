"""How Greenroom starts a part of itself in a process of its own: one that may crash, hang, or be killed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

#: A child's module, and the option of `greenroom` that runs it in a frozen program, which has no interpreter to call.
PROBE = ("engine.hardware.child", "--probe-child")
TEMPLATES = ("engine.checkpoints.template_child", "--template-child")

#: What a child needs of the environment to start, and to tell the time. No tokens, no proxies, no passwords.
_NEEDED = ("SYSTEMROOT", "PATH", "TZ", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TEMP", "TMP")


def command(child: tuple[str, str], arguments: Sequence[str] = ()) -> list[str]:
    """The command line. -P keeps a folder named `engine` in the current directory from being run instead."""
    module, option = child
    if getattr(sys, "frozen", False):
        return [sys.executable, option, *arguments]
    return [sys.executable, "-P", "-m", module, *arguments]


def environment() -> dict[str, str]:
    """Ours, in which the child finds this very `engine`."""
    return _with_engine(os.environ)


def bare_environment() -> dict[str, str]:
    """For a child that works on untrusted input: only what it needs to start."""
    return _with_engine({name: os.environ[name] for name in (*_NEEDED, "PYTHONPATH") if name in os.environ})


def _with_engine(variables: Mapping[str, str]) -> dict[str, str]:
    here = str(Path(__file__).resolve().parents[1])
    paths = filter(None, [here, variables.get("PYTHONPATH", "")])
    return {**variables, "PYTHONPATH": os.pathsep.join(paths)}


_LENGTH_BYTES = 8


def write_message(stream: IO[bytes], document: Any) -> None:
    """A JSON document behind its length. Raises OSError when the other side is gone."""
    # As UTF-8, in which most of what people write is shorter; lone surrogates pass.
    body = json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")
    stream.write(len(body).to_bytes(_LENGTH_BYTES, "little") + body)
    stream.flush()


def read_message(stream: IO[bytes], most: int) -> Any:
    """The next document; None when the other side is gone.

    Raises ValueError for one of more than `most` bytes, or that is not JSON, RecursionError for one nested too deeply.
    """
    head = stream.read(_LENGTH_BYTES)
    length = int.from_bytes(head, "little")
    if length > most:
        raise ValueError(f"a message of {length} bytes")
    body = stream.read(length)
    return json.loads(body) if len(head) == _LENGTH_BYTES and len(body) == length else None
