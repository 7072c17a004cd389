"""tokenizer.json, read and checked here; the tokenizers library gets only what writing text as tokens needs.

The library itself trusts such a file: it pads texts to any length, chains any number of steps, and what it cannot
allocate ends the program. So padding, truncation, decoders and post-processors never reach it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders

from engine.checkpoints import vocabulary
from engine.checkpoints.growth import growth
from engine.checkpoints.json_file import read_object
from engine.checkpoints.tokenizer_parts import normalizer, pre_tokenizer
from engine.checkpoints.vocabulary import StoredTokenizer, checked
from engine.errors import GreenroomError
from engine.words import say

log = logging.getLogger(__name__)

_MAX_FILE = 100_000_000  # bytes; Gemma's has 33 MB
_MAX_DEPTH = 4  # post-processors within post-processors; published ones have 2


def read_tokenizer_json(path: Path) -> StoredTokenizer:
    """Raises GreenroomError when the file is damaged, or asks for more than any published tokenizer does."""
    record = read_object(path, _MAX_FILE)
    try:
        return _build(record)
    except (KeyError, TypeError, ValueError) as error:
        log.warning("%s", path, exc_info=True)
        why = str(error)[:160] if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"[:160]
        raise GreenroomError(
            say("{name} cannot be read", name=path.name),
            say("it is damaged ({value})", value=why),
            say("Download it again."),
        ) from error


def _build(record: Mapping[str, Any]) -> StoredTokenizer:
    if record.get("version", "1.0") != "1.0":
        raise ValueError("it is of another version")
    parts = {
        "normalizer": normalizer(record.get("normalizer")),
        "pre_tokenizer": pre_tokenizer(record.get("pre_tokenizer")),
        "model": {"type": "BPE", "vocab": {}, "merges": []},  # until the real one is made, which takes no text
    }
    backend = checked(tokenizers.Tokenizer.from_str, json.dumps({"version": "1.0", "added_tokens": [], **parts}))
    growth(backend)  # raises
    model, highest = _model(record["model"])
    backend.model = model
    vocabulary.add_tokens(backend, _added_tokens(record.get("added_tokens")))
    if "ByteLevel" in _kinds(record.get("decoder"), "decoders"):
        backend.decoder = decoders.ByteLevel()
    size = max(highest, *backend.get_added_tokens_decoder(), -1) + 1
    return StoredTokenizer(backend, _first_token(record.get("post_processor")), size)


def _model(record: Any) -> tuple[Any, int]:
    """(the model, its highest id)"""
    if not isinstance(record, dict):
        raise ValueError("its model is no record")
    entries = record["vocab"]
    kind = record.get("type") or _untold_kind(record)
    if kind == "Unigram":
        pieces = [(text, score) for text, score in entries]
        return vocabulary.unigram(pieces, record.get("unk_id"), record.get("byte_fallback", False)), len(pieces) - 1
    model: Any
    if kind == "BPE":
        # Dropout is left out: it is for training.
        names = ("unk_token", "continuing_subword_prefix", "end_of_word_suffix")
        flags = ("fuse_unk", "byte_fallback", "ignore_merges")
        options: dict[str, Any] = {name: record.get(name) for name in names}
        options |= {name: record.get(name) or False for name in flags}
        model = vocabulary.bpe(entries, _merges(record["merges"]), **options)
    elif kind == "WordPiece":
        prefix, longest = record["continuing_subword_prefix"], record["max_input_chars_per_word"]
        model = vocabulary.word_piece(entries, record["unk_token"], prefix, longest)
    elif kind == "WordLevel":
        model = vocabulary.word_level(entries, record["unk_token"])
    else:
        raise ValueError(f"it is of the unknown kind {str(kind)[:40]!r}")
    return model, max(entries.values(), default=-1)


def _untold_kind(record: Mapping[str, Any]) -> str:
    """Files of GPT-2's time do not say it."""
    if "merges" in record:
        return "BPE"
    return "WordPiece" if "max_input_chars_per_word" in record else "WordLevel"


def _merges(stored: Any) -> list[tuple[str, str]]:
    """As pairs, or as texts with a space between both parts."""
    if not isinstance(stored, list):
        raise ValueError("its merges are no list")
    kinds = set(map(type, stored))
    if kinds == {str}:
        stored = [line.split(" ") for line in stored if not line.startswith("#version")]
    elif kinds - {list}:
        raise ValueError("its merges are no pairs")
    if set(map(len, stored)) - {2}:
        raise ValueError("one of its merges has not two parts")
    return [(left, right) for left, right in stored]


def _added_tokens(stored: Any) -> Iterator[AddedToken]:
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    for record in stored or ():
        flags = {name: record[name] for name in names}
        if set(map(type, flags.values())) != {bool} or not isinstance(record["content"], str):
            raise ValueError("one of its added tokens is no token")
        yield AddedToken(record["content"], **flags)


def _kinds(record: Any, sequence: str) -> set[Any]:
    """What kinds of steps there are."""
    if not isinstance(record, dict):
        return set()
    inner = record.get(sequence)
    return {record.get("type")} | {step.get("type") for step in inner or () if isinstance(step, dict)}


def _first_token(record: Any, depth: int = 0) -> int | None:
    """The id that a post-processor puts before every text."""
    found: Any = None
    match record:
        case {"type": "Sequence", "processors": [*steps]} if depth < _MAX_DEPTH:
            # Each puts its own before what the ones before it made.
            firsts = (_first_token(step, depth + 1) for step in reversed(steps))
            found = next((first for first in firsts if first is not None), None)
        case {"type": "BertProcessing" | "RobertaProcessing", "cls": [_, token]}:
            found = token
        case {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": str(name)}}, *_],
            "special_tokens": dict(known),
        }:
            match known.get(name):
                case {"ids": [token, *_]}:
                    found = token
    return found if type(found) is int else None
