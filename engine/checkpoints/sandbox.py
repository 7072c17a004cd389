"""A Jinja environment for templates of unknown origin: no reach into Python, and a bound on work and memory.

Jinja's sandbox keeps a template away from Python's internals but lets it loop and build texts without end.
Here every iteration, call and text is counted against a budget that one rendering gets.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, cast

import jinja2
import jinja2.ext
from jinja2 import nodes, pass_context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_TEXT = 16_000_000
_MAX_STEPS = 1_000_000
_CALL_STEPS = 10  # a call costs about as much as ten turns of an empty loop
_MAX_SECONDS = 5.0
_MAX_ITEMS = 1_000_000
_MAX_WIDTH = 10_000
_MAX_BITS = 4_096
_WIDE_FORMAT = re.compile(r"\d{5,}|\*|:[^}]*\{")


class TooMuch(jinja2.TemplateError):
    """The template used up its budget."""


class _Budget:
    def __init__(self) -> None:
        self._steps = _MAX_STEPS
        self._deadline = time.monotonic() + _MAX_SECONDS

    def spend(self, steps: int = 1) -> None:
        self._steps -= steps
        if self._steps < 0 or time.monotonic() > self._deadline:
            raise TooMuch("it works without end")


_budget: ContextVar[_Budget] = ContextVar("budget")


@contextmanager
def budget() -> Iterator[None]:
    """What is rendered inside shares one budget."""
    token = _budget.set(_Budget())
    try:
        yield
    finally:
        _budget.reset(token)


def _check(size: int, limit: int = MAX_TEXT) -> None:
    if size > limit:
        raise TooMuch("it builds a text or list without end")


def _weigh(value: Any) -> None:
    """Refuse a value whose printed form would be huge: lists may hold the same list over and over."""
    if not isinstance(value, (list, tuple, dict)):
        return
    left, stack = _MAX_ITEMS, [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            left -= len(item)
            stack.extend(item.values())
        elif isinstance(item, (list, tuple)):
            left -= len(item)
            stack.extend(item)
        elif isinstance(item, str):
            left -= len(item) // 16
        if left < 0:
            raise TooMuch("it prints a value without end")


def _concat(parts: Iterable[Any]) -> str:
    texts, size = [], 0
    for part in parts:
        size += len(part)
        _check(size)
        texts.append(part)
    return "".join(texts)


def _text(value: Any) -> str:
    _weigh(value)
    return str(value)


@pass_context
def _counted(_context: jinja2.runtime.Context, values: Iterable[Any]) -> Iterator[Any]:
    spend = _budget.get().spend
    for value in values:
        spend()
        yield value


@pass_context
def _concatenated(_context: jinja2.runtime.Context, values: Iterable[Any]) -> str:
    return _concat(map(_text, values))


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    _check(len(text) + (len(text) + 1 if not old else text.count(old)) * len(new))
    return text.replace(old, new, count)


def _join(separator: str, values: Iterable[Any]) -> str:
    texts: list[str] = []
    size = 0
    for value in values:
        text = _text(value)
        size += len(text) + len(separator)
        _check(size)
        texts.append(text)
    return separator.join(texts)


#: String methods whose result can be far larger than what they are given.
_GROWING = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs", "translate"})
#: The same among Jinja's filters.
_GROWING_FILTERS = ("center", "indent", "wordwrap", "format", "batch", "slice", "truncate")


def _check_widths(text: Any, arguments: Iterable[Any], is_format: bool) -> None:
    if is_format and isinstance(text, str) and _WIDE_FORMAT.search(text):
        raise TooMuch("it formats a text too wide")
    for argument in arguments:
        if isinstance(argument, int) and not is_format:
            _check(abs(argument), _MAX_WIDTH)
        _weigh(argument)


def _bounded_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    # Jinja marks filters that want its environment or context as their first argument.
    passes = getattr(function, "jinja_pass_arg", None)

    @pass_context
    def bounded(context: jinja2.runtime.Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        _check_widths(value, [*args, *kwargs.values()], name == "format")
        if passes is None:
            return function(value, *args, **kwargs)
        first = {"context": context, "eval_context": context.eval_ctx, "environment": context.environment}[passes.name]
        return function(first, value, *args, **kwargs)

    return bounded


@pass_context
def _join_filter(
    context: jinja2.runtime.Context, values: Iterable[Any], d: str = "", attribute: str | int | None = None
) -> str:
    if attribute is not None:
        values = (context.environment.getitem(value, attribute) for value in values)
    return _join(str(d), values)


@pass_context
def _replace_filter(_context: jinja2.runtime.Context, s: Any, old: Any, new: Any, count: int | None = None) -> str:
    return _replace(_text(s), str(old), str(new), -1 if count is None else count)


@pass_context
def _string_filter(_context: jinja2.runtime.Context, value: Any) -> str:
    return _text(value)


@pass_context
def _json_filter(
    _context: jinja2.runtime.Context,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: unlike Jinja's own filter it does not escape for HTML."""
    _weigh(value)
    if indent is not None:
        _check(indent, 16)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@pass_context
def _finalize(_context: jinja2.runtime.Context, value: Any) -> Any:
    _weigh(value)
    return value


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    if _WIDE_FORMAT.search(form):
        raise TooMuch("it formats a text too wide")
    return datetime.now().strftime(form)


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    """In place of the type itself, whose attributes lead into Python."""
    return dict(*args, **kwargs)


class _Namespace(jinja2.utils.Namespace):
    """Jinja's namespace without names that begin with "_", which Python gives a meaning."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        values = dict(*args[1:], **kwargs)
        for name in values:
            _check_name(name)
        jinja2.utils.Namespace.__init__(args[0], values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: Any) -> None:
    if str(name).startswith("_"):
        raise jinja2.TemplateError(f"it stores something under the name {name}")


class _Generation(jinja2.ext.Extension):
    """{% generation %} marks, for training, what the assistant wrote; here its body is simply printed."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's own declaration)

    def parse(self, parser: jinja2.parser.Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The settings and helpers that chat templates are written for, with bounds. Render inside `budget()`."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})
    concat = staticmethod(_concat)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_finalize,
            extensions=[_Generation, jinja2.ext.loopcontrols],
        )
        for name in _GROWING_FILTERS:
            self.filters[name] = _bounded_filter(name, self.filters[name])
        self.filters |= {
            "join": _join_filter,
            "replace": _replace_filter,
            "string": _string_filter,
            "tojson": _json_filter,
            "counted ": _counted,  # with a space: no template can name or replace them
            "concat ": _concatenated,
        }
        del self.filters["pprint"], self.filters["xmlattr"], self.filters["urlize"], self.globals["lipsum"]
        self.globals |= {
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
            "dict": _dict,
            "namespace": _Namespace,
        }

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return cast(nodes.Template, _guard(super()._parse(source, name, filename)))

    def call(self, context: jinja2.runtime.Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        _budget.get().spend(_CALL_STEPS)
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        if isinstance(owner, str):
            # In a loop, or a block, Jinja adds what is set there; a text's methods have no use for it.
            plain = {key: value for key, value in kwargs.items() if key not in ("_loop_vars", "_block_vars")}
            if name == "replace":
                return _replace(owner, *args, **plain)
            if name == "join":
                return _join(owner, *args, **plain)
            if name in _GROWING:
                _check_widths(owner, [*args, *plain.values()], is_format=False)
        return super().call(context, obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        # Jinja hands out its own, safe version of "...".format, which no longer shows its text.
        safe = super().wrap_str_format(value)
        if safe is None:
            return None

        def bounded(*args: Any, **kwargs: Any) -> str:
            _check_widths(value.__self__, [*args, *kwargs.values()], is_format=True)
            return safe(*args, **kwargs)

        return bounded

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str):
            _check_widths(left, [right] if not isinstance(right, tuple) else right, is_format=True)
        elif isinstance(left, int) and isinstance(right, int):
            if operator == "*":
                _check(left.bit_length() + right.bit_length(), _MAX_BITS)
            elif operator == "**":
                _check(left.bit_length() * abs(right), _MAX_BITS)
        elif operator == "*":
            for sequence, times in ((left, right), (right, left)):
                if isinstance(sequence, (str, list, tuple)) and isinstance(times, int):
                    _check(len(sequence) * times, _MAX_ITEMS)
        elif operator == "+" and isinstance(left, (str, list, tuple)) and isinstance(right, (str, list, tuple)):
            _check(len(left) + len(right), MAX_TEXT if isinstance(left, str) else _MAX_ITEMS)
        return super().call_binop(context, operator, left, right)


def _guard(node: nodes.Node) -> nodes.Node:
    """Count what every loop goes through, and bound every "~"."""
    for child in node.iter_child_nodes():
        _guard(child)
    for field, value in node.iter_fields():
        if isinstance(value, nodes.Concat):
            setattr(node, field, _bounded_concat(value))
        elif isinstance(value, list):
            value[:] = [_bounded_concat(item) if isinstance(item, nodes.Concat) else item for item in value]
    if isinstance(node, nodes.For):
        node.iter = _filtered(cast(nodes.Expr, node.iter), "counted ")
    return node


def _bounded_concat(node: nodes.Concat) -> nodes.Filter:
    return _filtered(nodes.List(node.nodes, lineno=node.lineno), "concat ")


def _filtered(value: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(value, name, [], [], None, None, lineno=value.lineno)
