"""The models of the tokenizers library, made only within bounds: a file must not ask it for all memory, or for hours.

An allocation that fails inside the library ends the program, so everything is counted before it is handed over. Each
bound is several times what published vocabularies have. All functions raise ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ParamSpec, TypeVar

import tokenizers
from tokenizers import AddedToken, models

_P = ParamSpec("_P")
_T = TypeVar("_T")

MAX_TOKENS = 1 << 20  # Gemma has 262,144; the largest of any published model (XLM-V) has 902,000
MAX_MERGES = 1 << 21  # Gemma has 514,906
MAX_ID = 1 << 24  # tables of as many entries are made
_MAX_TOKEN = 8_192  # characters; the longest are runs of spaces or dashes, some hundreds
_MAX_AFFIX = 64  # characters of what is put at each letter; published ones have 4
# Unigram pieces are tried one by one at every position, and kept as a tree with some 200 bytes for each letter.
_MAX_PIECE = 256  # bytes; SentencePiece makes pieces of up to 16 characters
_MAX_PIECES_SIZE = 6_000_000  # bytes; mT5's 250,000 pieces have 2,500,000
# WordPiece tries every end of a word from every place in it.
_MAX_WORD = 256  # characters; BERT has 100
# Added tokens are searched all at once; to prepare that takes some microseconds for each letter they do not share.
_MAX_ADDED = 1 << 18  # speech models add some 65,000, one for each sound
_MAX_ADDED_TOKEN = 512  # characters; published ones have some dozens
_MAX_ADDED_LETTERS = 1 << 19  # "<|s_1|>" to "<|s_262144|>" have 300,000
_MAX_CHARSMAP = 4_000_000  # bytes; published ones have up to 330,000


@dataclass(frozen=True)
class StoredTokenizer:
    """backend: cuts texts; it puts nothing before or after them
    first:   the token that the file puts before every text, None for none
    size:    one more than the highest id, None where nobody has counted
    """

    backend: tokenizers.Tokenizer
    first: int | None
    size: int | None = None


def checked(make: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """A part of a tokenizer. Raises ValueError where the library objects, be it by a panic, which is no Exception."""
    try:
        return make(*args, **kwargs)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        text = " ".join(str(error).split())[:200]
        raise ValueError("".join(sign if sign.isprintable() else "?" for sign in text)) from error


def bpe(
    vocabulary: dict[str, int],
    merges: Sequence[tuple[str, str]],
    *,
    unk_token: str | None = None,
    continuing_subword_prefix: str | None = None,
    end_of_word_suffix: str | None = None,
    fuse_unk: bool = False,
    byte_fallback: bool = False,
    ignore_merges: bool = False,
) -> models.BPE:
    """Neighbours are merged, those of the first merges first."""
    _check_ids(vocabulary)
    if len(merges) > MAX_MERGES:
        raise ValueError(f"it has {len(merges):,} merges, more than any vocabulary")
    prefix = continuing_subword_prefix or ""
    texts = {
        "unk_token": unk_token,
        "continuing_subword_prefix": continuing_subword_prefix,
        "end_of_word_suffix": end_of_word_suffix,
    }
    if any(len(text or "") > _MAX_AFFIX for text in texts.values()):
        raise ValueError("it puts a long text at each letter")
    if prefix and not all(right.startswith(prefix) for _, right in merges):
        # The library cuts as many bytes off without looking at them.
        raise ValueError("a merge lacks the mark of what continues a word")
    return checked(
        models.BPE,
        vocab=vocabulary,
        merges=merges,
        **{name: text for name, text in texts.items() if text is not None},
        fuse_unk=fuse_unk,
        byte_fallback=byte_fallback,
        ignore_merges=ignore_merges,
    )


def unigram(pieces: Sequence[tuple[str, float]], unknown: int | None, byte_fallback: bool) -> models.Unigram:
    """The likeliest cut of a text into pieces."""
    _check_count(len(pieces))
    if {type(text) for text, _ in pieces} - {str}:
        raise ValueError("a piece of it is no text")
    lengths = [len(text.encode()) for text, _ in pieces]
    if max(lengths, default=0) > _MAX_PIECE or sum(lengths) > _MAX_PIECES_SIZE:
        raise ValueError("its pieces are longer than those of any vocabulary")
    if not all(math.isfinite(score) for _, score in pieces):
        raise ValueError("a piece has no score")
    return checked(models.Unigram, pieces, unknown, byte_fallback)


def word_piece(vocabulary: dict[str, int], unknown: str, prefix: str, longest_word: int) -> models.WordPiece:
    """The longest piece first, within one word."""
    _check_ids(vocabulary)
    if not 0 <= longest_word <= _MAX_WORD or len(prefix) > _MAX_AFFIX:
        raise ValueError("it cuts words longer than any vocabulary does")
    return checked(
        models.WordPiece,
        vocab=vocabulary,
        unk_token=unknown,
        continuing_subword_prefix=prefix,
        max_input_chars_per_word=longest_word,
    )


def word_level(vocabulary: dict[str, int], unknown: str) -> models.WordLevel:
    """One token for each word."""
    _check_ids(vocabulary)
    return checked(models.WordLevel, vocab=vocabulary, unk_token=unknown)


def add_tokens(backend: tokenizers.Tokenizer, tokens: Iterable[AddedToken]) -> None:
    """Tokens that are found in a text before it is cut. Set the normalizer first."""
    added = list(tokens)
    if len(added) > _MAX_ADDED or any(len(token.content) > _MAX_ADDED_TOKEN for token in added):
        raise ValueError("it adds more or longer tokens than any tokenizer")
    normalizer = backend.normalizer
    plain, changed = [], 0
    for token in added:
        if token.normalized and token.content and normalizer is not None:
            text = checked(normalizer.normalize_str, token.content)
            if not text:
                raise ValueError("it adds a token of which nothing is left")  # a search for nothing may never end
            changed += len(text)
        else:
            plain.append(token.content)
        if changed > _MAX_ADDED_LETTERS:
            break
    if changed + sum(map(len, plain)) > _MAX_ADDED_LETTERS and changed + _letters(plain) > _MAX_ADDED_LETTERS:
        raise ValueError("it adds more or longer tokens than any tokenizer")
    checked(backend.add_tokens, added)


def shared_letters(one: str, other: str) -> int:
    """How many letters both begin with."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _letters(texts: Iterable[str]) -> int:
    """Letters of all texts, beginnings that texts share counted once."""
    ordered = sorted(texts)
    return sum(len(text) - shared_letters(before, text) for before, text in pairwise(["", *ordered]))


def check_charsmap(rules: bytes) -> None:
    """rules: the length of a table (four bytes), the table, and texts that end with a zero."""
    if not 4 <= len(rules) <= _MAX_CHARSMAP or int.from_bytes(rules[:4], "little") > len(rules) - 4:
        raise ValueError("its table of replacements is no such table")


def _check_ids(vocabulary: dict[str, int]) -> None:
    if not isinstance(vocabulary, dict):
        raise ValueError("its vocabulary is no record")
    _check_count(len(vocabulary))
    if max(map(len, vocabulary), default=0) > _MAX_TOKEN:
        raise ValueError("it has tokens longer than those of any vocabulary")
    ids: Any = vocabulary.values()
    if set(map(type, ids)) - {int} or (ids and not 0 <= min(ids) <= max(ids) < MAX_ID):
        raise ValueError("it does not number its tokens")


def _check_count(tokens: int) -> None:
    if tokens > MAX_TOKENS:
        raise ValueError(f"it has {tokens:,} tokens, more than any vocabulary")
