"""What a tokenizer.json says of normalizing and of cutting texts into words, checked part by part.

Only kinds and settings named here reach the tokenizers library, and a pattern only when it cannot search for hours.
All functions raise ValueError.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from engine.checkpoints.pretokenizers import LINEAR_PATTERNS
from engine.checkpoints.regex_cost import is_linear, most_steps
from engine.checkpoints.vocabulary import check_charsmap

_MAX_STEPS = 32  # of a chain; published ones have 8
_MAX_DEPTH = 4  # sequences within sequences; published ones have 2
_MAX_TEXT = 1_024  # characters of a text that is replaced or put in; published ones have some dozens
_MAX_FIXED_LENGTH = 1 << 20

# A pattern from a file may have to look at all that follows, from every place of a text. Where it might, the text is
# first cut into parts of some hundred characters, where words end in any case if there is such a place.
_PART = 512
_MAX_PATTERN_STEPS = 24 * _PART  # at one place of a part, all patterns together; GPT-4o's takes 18 times its length
_ENDS = r"(?<=\S)(?= \S)|(?<=\p{L})(?=[\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f])"
_PARTS = rf"\G(?m:.{{{_PART // 2},{_PART}}}?)(?:{_ENDS})|\G(?m:.{{{_PART}}})"

_Check = Callable[[Any], bool]


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_TEXT


def _letter(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 1


def _pattern(value: Any) -> bool:
    if not isinstance(value, dict) or len(value) != 1:
        return False
    return _text(value.get("String")) or isinstance(value.get("Regex"), str)


def _charsmap(value: Any) -> bool:
    if isinstance(value, str):
        check_charsmap(base64.b64decode(value, validate=True))
    return isinstance(value, str)


def _one_of(*names: str) -> _Check:
    return lambda value: value in names


_BEHAVIOR = _one_of("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")

_NORMALIZERS: Mapping[str, Mapping[str, _Check]] = {
    **{kind: {} for kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel")},
    "Strip": {"strip_left": _flag, "strip_right": _flag},
    "BertNormalizer": dict.fromkeys(("clean_text", "handle_chinese_chars", "strip_accents", "lowercase"), _flag),
    "Replace": {"pattern": _pattern, "content": _text},
    "Prepend": {"prepend": _text},
    "Precompiled": {"precompiled_charsmap": _charsmap},
}
_PRE_TOKENIZERS: Mapping[str, Mapping[str, _Check]] = {
    **{kind: {} for kind in ("BertPreTokenizer", "Whitespace", "WhitespaceSplit", "UnicodeScripts")},
    "ByteLevel": dict.fromkeys(("add_prefix_space", "trim_offsets", "use_regex"), _flag),
    "CharDelimiterSplit": {"delimiter": _letter},
    "Metaspace": {
        "replacement": _letter,
        "add_prefix_space": _flag,
        "prepend_scheme": _one_of("first", "never", "always"),
        "split": _flag,
    },
    "Split": {"pattern": _pattern, "behavior": _BEHAVIOR, "invert": _flag},
    "Punctuation": {"behavior": _BEHAVIOR},
    "Digits": {"individual_digits": _flag},
    "FixedLength": {"length": lambda value: type(value) is int and 0 < value <= _MAX_FIXED_LENGTH},
}


def normalizer(record: Any) -> dict[str, Any] | None:
    """The steps that change a text before it is cut, as one checked record for the library; None for none."""
    steps = list(_steps(record, "normalizers", _NORMALIZERS))
    for step in steps:
        if (pattern := _regex(step)) is not None and not is_linear(pattern):
            raise _too_slow(pattern)
    return {"type": "Sequence", "normalizers": steps} if steps else None


def pre_tokenizer(record: Any) -> dict[str, Any] | None:
    """The steps that cut a text into words, as one checked record for the library; None for none."""
    steps = list(_steps(record, "pretokenizers", _PRE_TOKENIZERS))
    kinds = [step["type"] for step in steps]
    if kinds.count("ByteLevel") + kinds.count("Metaspace") > 1:
        raise ValueError("it spells a text in another alphabet twice")
    unsure = [i for i, step in enumerate(steps) if not _is_linear(_regex(step))]
    if unsure:
        _check_patterns([pattern for i in unsure if (pattern := _regex(steps[i])) is not None])
        if "ByteLevel" in kinds[unsure[0] : unsure[-1]]:
            raise ValueError("it cuts a text into words before and after spelling its bytes")
        parts = {"type": "Split", "pattern": {"Regex": _PARTS}, "behavior": "Isolated", "invert": False}
        steps.insert(unsure[0], parts)
    return {"type": "Sequence", "pretokenizers": steps} if steps else None


def _steps(record: Any, sequence: str, known: Mapping[str, Mapping[str, _Check]]) -> Iterator[dict[str, Any]]:
    """One after the other, sequences resolved. sequence: what the list of steps in a sequence is called."""
    found = list(_resolved(record, sequence, 0))
    if len(found) > _MAX_STEPS:
        raise ValueError(f"it has {len(found):,} steps, more than any tokenizer")
    for step in found:
        kind = step.get("type")
        if not isinstance(kind, str) or kind not in known:
            raise ValueError(f"it has a step of the unknown kind {str(kind)[:40]!r}")
        # An unset value stands for the usual one.
        values = {name: step[name] for name in known[kind] if step.get(name) is not None}
        for name, value in values.items():
            if not known[kind][name](value):
                raise ValueError(f"its step {kind} has an impossible {name}")
        yield {"type": kind, **values}


def _resolved(record: Any, sequence: str, depth: int) -> Iterator[dict[str, Any]]:
    if record is None:
        return
    if not isinstance(record, dict):
        raise ValueError("it has a step that is no record")
    if record.get("type") != "Sequence":
        yield record
        return
    inner = record.get(sequence)
    if not isinstance(inner, list) or depth == _MAX_DEPTH:
        raise ValueError("it has an impossible sequence of steps")
    for step in inner:
        yield from _resolved(step, sequence, depth + 1)


def _regex(step: Mapping[str, Any]) -> str | None:
    pattern: str | None = step.get("pattern", {}).get("Regex")
    return pattern


def _is_linear(pattern: str | None) -> bool:
    return pattern is None or pattern in LINEAR_PATTERNS or is_linear(pattern)


def _check_patterns(patterns: list[str]) -> None:
    steps = 0.0
    for pattern in patterns:
        steps += most_steps(pattern, _PART)
        if not steps <= _MAX_PATTERN_STEPS:
            raise _too_slow(pattern)


def _too_slow(pattern: str) -> ValueError:
    return ValueError(f"its pattern {pattern[:60]!r} might search for hours")
