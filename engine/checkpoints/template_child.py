"""The process that renders one model's chat template: it may run wild here, and is killed if it does.

Requests come on stdin, answers go to stdout (`child_process.read_message`). The first request compiles: {"source": ...,
"tool_source": ..., "memory": bytes of address space, "longest": characters of a prompt}; each one after it renders:
{"variables": {...}, "tools": bool}. All have "cpu_seconds", the time they may take. An answer is {"text": ...}, or
{"failed": kind, "detail": ...}. Kinds: refused (by the template itself, or it is not Jinja), error (a Python error),
depth, memory, size (too much of it). The parent is template_process.py.
"""

from __future__ import annotations

# Some of these are only for Jinja, which imports them when a template needs them: by then no file can be opened.
import encodings.unicode_escape  # noqa: F401
import html  # noqa: F401
import json
import os
import pprint  # noqa: F401
import sys
import textwrap  # noqa: F401
import time
import unicodedata  # noqa: F401 (names in texts: "\\N{BULLET}")
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import jinja2
import jinja2.constants
import jinja2.debug
import jinja2.ext
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.child_limits import allow_cpu, limit_this_process
from engine.child_process import read_message, write_message


class _Generation(jinja2.ext.Extension):
    """{% generation %} marks, for training, what the assistant wrote; here its body is simply printed."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's own declaration)

    def parse(self, parser: jinja2.parser.Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: unlike Jinja's own filter it does not escape for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def environment() -> ImmutableSandboxedEnvironment:
    """Jinja's sandbox with the settings and helpers that chat templates are written for."""
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = _json
    made.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": lambda form: datetime.now().strftime(form),
    }
    return made


class _TooLongError(Exception):
    pass


class _Renderer:
    """request: the one that compiles."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._longest = request["longest"]
        self._sources = {False: request["source"], True: request["tool_source"]}
        self._templates: dict[bool, jinja2.Template] = {}

    def compile(self) -> str:
        made = environment()
        self._templates = {
            tools: made.from_string(source) for tools, source in self._sources.items() if source is not None
        }
        return ""

    def render(self, request: dict[str, Any]) -> str:
        template = self._templates.get(request["tools"], self._templates[False])
        text = template.render(request["variables"])
        if len(text) > self._longest:
            raise _TooLongError
        return text


def _answer(work: Callable[[], str]) -> dict[str, str]:
    try:
        return {"text": work()}
    except jinja2.TemplateError as error:
        return {"failed": "refused", "detail": str(error.message or type(error).__name__)[:1000]}
    except RecursionError:
        return {"failed": "depth"}
    except MemoryError:
        return {"failed": "memory"}
    except _TooLongError:
        return {"failed": "size"}
    except Exception as error:  # a template can make Python raise anything
        return {"failed": "error", "detail": f"{type(error).__name__} ({error})"[:1000]}


def main() -> int:
    """Answers requests until the parent closes the pipe. Exit code: 0."""
    requests, answers = os.fdopen(0, "rb"), os.fdopen(1, "wb")
    time.localtime()  # reads the time zone's file
    renderer: _Renderer | None = None
    while (request := read_message(requests, sys.maxsize)) is not None:
        if renderer is None:
            limit_this_process(request["memory"])
            renderer = _Renderer(request)
            work = renderer.compile
        else:
            work = partial(renderer.render, request)
        allow_cpu(request["cpu_seconds"])
        write_message(answers, _answer(work))
        allow_cpu(0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
