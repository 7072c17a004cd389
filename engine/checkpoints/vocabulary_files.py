"""Tokenizers of folders without a tokenizer.json: tokenizer.model, vocab.json with merges.txt, or a tiktoken file."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from engine.checkpoints import sentencepiece
from engine.checkpoints.file_bytes import DOWNLOAD_AGAIN, file_size, read_bytes
from engine.checkpoints.json_file import read_object, read_optional_object
from engine.checkpoints.pretokenizers import LETTERS, PRE_TOKENIZERS, byte_level
from engine.checkpoints.vocabulary import MAX_ID, StoredTokenizer, add_tokens
from engine.errors import GreenroomError
from engine.units import size_text
from engine.words import say

_LIMIT = 64_000_000  # bytes; a vocabulary of 260,000 takes about 5 MB

#: How texts are cut into words, which these files do not say, by tokenizer_class and by model_type.
_RULES = {
    "GPT2Tokenizer": "gpt-2",
    "Qwen2Tokenizer": "qwen2",
    "Qwen3_5Tokenizer": "qwen35",
    "TikTokenTokenizer": "kimi-k2",
    "qwen2": "qwen2",
    "qwen2_moe": "qwen2",
    "qwen3": "qwen2",
    "qwen3_moe": "qwen2",
    "qwen3_next": "qwen2",
    "kimi_k2": "kimi-k2",
    "hunyuan_v1_moe": "hunyuan",
}
Added = Mapping[int, tuple[str, bool]]


def read_vocabulary(folder: Path, settings: Mapping[str, Any]) -> StoredTokenizer:
    """settings: tokenizer_config.json's. Raises GreenroomError when there is no such file or it is damaged."""
    added = _added(folder, settings)
    tiktoken = next(iter(sorted((*folder.glob("tiktoken.model"), *folder.glob("*.tiktoken")))), None)
    if (folder / "tokenizer.model").exists():
        return _sentencepiece(folder / "tokenizer.model", settings, added)
    if (folder / "vocab.json").exists() and (folder / "merges.txt").exists():
        return StoredTokenizer(_gpt2(folder, settings, added), None)
    if tiktoken is not None and added:
        return StoredTokenizer(_tiktoken(tiktoken, settings, added), None)
    why = say("it has no tokenizer.json, tokenizer.model, or vocab.json with merges.txt")
    if tiktoken is not None:
        why = say("its {name} lacks the special tokens, which are only in program code", name=tiktoken.name)
    raise GreenroomError(
        say("{name} cannot be used", name=folder.name), why, say("Download tokenizer.json into the model's folder.")
    )


def _sentencepiece(path: Path, settings: Mapping[str, Any], added: Added) -> StoredTokenizer:
    try:
        pieces = sentencepiece.read_model(_read(path))
        if settings.get("add_prefix_space") is False:
            pieces = sentencepiece.without_space(pieces)
        backend = sentencepiece.build(pieces.with_added(added))
        # Control tokens are found in texts, as in the other file forms; user-defined ones when the text is cut.
        add_tokens(backend, (token for token in sentencepiece.added_tokens(pieces) if token.special))
        add_tokens(backend, _tokens(added))
    except ValueError as error:
        raise GreenroomError(
            say("{name} cannot be read", name=path.name), say("it is damaged ({error})", error=error), DOWNLOAD_AGAIN
        ) from error
    return StoredTokenizer(backend, pieces.bos)


def _gpt2(folder: Path, settings: Mapping[str, Any], added: Added) -> tokenizers.Tokenizer:
    path = folder / "vocab.json"
    vocabulary = read_object(path, _LIMIT)
    if not all(type(token) is int and 0 <= token < MAX_ID for token in vocabulary.values()):
        raise GreenroomError(
            say("{name} cannot be read", name=path.name), say("it does not number its tokens"), DOWNLOAD_AGAIN
        )
    lines = _read(folder / "merges.txt").decode("utf-8", "replace").splitlines()
    pairs = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    if not all(len(pair) == 2 for pair in pairs):
        raise GreenroomError(
            say("merges.txt cannot be read"), say("a line of it does not hold two parts"), DOWNLOAD_AGAIN
        )
    return _build(folder, settings, vocabulary, [(left, right) for left, right in pairs], added)


def _tiktoken(path: Path, settings: Mapping[str, Any], added: Added) -> tokenizers.Tokenizer:
    """One token per line: its bytes in base64, and its rank, which is its id; lower ranks are merged first."""
    vocabulary: dict[str, int] = {}
    for line in _read(path).splitlines():
        try:
            data, rank = line.split()
            vocabulary["".join(LETTERS[byte] for byte in base64.b64decode(data, validate=True))] = int(rank)
        except ValueError as error:
            why = say("a line of it is damaged ({value})", value=str(error)[:80])
            raise GreenroomError(say("{name} cannot be read", name=path.name), why, DOWNLOAD_AGAIN) from error
    ranked = sorted(vocabulary, key=vocabulary.__getitem__)
    return _build(path.parent, settings, vocabulary, list(sentencepiece.merges_by_rank(ranked, vocabulary)), added)


def _build(
    folder: Path,
    settings: Mapping[str, Any],
    vocabulary: dict[str, int],
    merges: list[tuple[str, str]],
    added: Added,
) -> tokenizers.Tokenizer:
    family = str(read_optional_object(folder / "config.json").get("model_type"))
    name = _RULES.get(str(settings.get("tokenizer_class")).removesuffix("Fast"), _RULES.get(family))
    if name is None:
        why = say("its vocabulary does not say how texts are cut into words")
        raise GreenroomError(
            say("{name} cannot be used", name=folder.name), why, say("Download tokenizer.json into the model's folder.")
        )
    known = {text: token for token, (text, _) in added.items()}
    try:
        backend = byte_level(vocabulary | known, merges, PRE_TOKENIZERS[name])
        add_tokens(backend, _tokens(added))
        return backend
    except ValueError as error:
        why = say("its vocabulary is damaged ({value})", value=str(error)[:120])
        raise GreenroomError(say("{name} cannot be used", name=folder.name), why, DOWNLOAD_AGAIN) from error


def _tokens(added: Added) -> list[AddedToken]:
    return [AddedToken(text, special=special, normalized=False) for text, special in added.values()]


def _added(folder: Path, settings: Mapping[str, Any]) -> dict[int, tuple[str, bool]]:
    """id -> (text, whether special) of tokens beyond the trained vocabulary, in the order of their ids."""
    found: dict[int, tuple[str, bool]] = {}
    for text, token in read_optional_object(folder / "added_tokens.json").items():
        if type(token) is int and 0 <= token < MAX_ID and text:
            found[token] = (text, True)
    records = settings.get("added_tokens_decoder")
    for key, record in records.items() if isinstance(records, dict) else ():
        content = record.get("content") if isinstance(record, dict) else None
        if key.isascii() and key.isdecimal() and int(key[:9]) < MAX_ID and isinstance(content, str) and content:
            found[int(key[:9])] = (content, record.get("special") is not False)
    return dict(sorted(found.items()))


def _read(path: Path) -> bytes:
    size = file_size(path)
    if size > _LIMIT:
        why = say("it is {size} long, which no vocabulary is", size=size_text(size))
        raise GreenroomError(say("{name} cannot be read", name=path.name), why, DOWNLOAD_AGAIN)
    return read_bytes(path, 0, size).tobytes()
