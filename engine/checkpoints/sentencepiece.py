"""SentencePiece vocabularies, from a tokenizer.model or as GGUF carries them, made into a tokenizer.

The file is a protocol buffer ("ModelProto" of SentencePiece's sentencepiece_model.proto); the few fields that matter
are read here, each bounded by the file's own length.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from engine.checkpoints.growth import growth
from engine.checkpoints.vocabulary import MAX_MERGES, MAX_TOKENS, bpe, check_charsmap, checked, shared_letters, unigram

SPACE_MARK = "▁"

# What a piece is, by the same numbers in tokenizer.model and in GGUF's token_type.
NORMAL = 1
UNKNOWN = 2
CONTROL = 3
USER_DEFINED = 4
UNUSED = 5
BYTE = 6

# No trained vocabulary has longer pieces; every split of each is tried.
_MAX_MERGED_PIECE = 512
_MAX_SPLITS = 1 << 23  # of all pieces together; Gemma's have some 1,800,000
_MAX_FIELDS = 6_000_000  # of a file: four for each piece, and what it was trained with
_MAX_ISOLATED = 1 << 19  # letters of all together; Gemma's some 6,500 have about 80,000
_MAX_ISOLATED_PIECE = 256  # letters; a pattern is nested as deeply
_BPE = 2
_MAX_GAP = 1 << 17  # ids that models keep free for tokens to come
_HOPELESS = -1e9  # the score of a piece that a text must not be cut into


@dataclass(frozen=True)
class Pieces:
    """tokens:       by id
    scores:       by id, higher is better; empty when unknown
    kinds:        by id; empty when all are normal
    unigram:      the likeliest cut of the whole text; else BPE, the best-scored neighbours are merged first
    unknown:      the id for what is in no piece
    space_first:  a space is put before the text
    squeeze:      runs of spaces become one, those at both ends go
    charsmap:     compiled rules that replace characters (SentencePiece's own format), b"" for none
    isolated:     pieces of the text's own spelling that are always taken whole and never merged
    """

    tokens: Sequence[str]
    scores: Sequence[float] = ()
    kinds: Sequence[int] = ()
    unigram: bool = False
    unknown: int = 0
    bos: int | None = None
    eos: int | None = None
    space_first: bool = True
    squeeze: bool = False
    charsmap: bytes = b""
    isolated: Collection[str] = field(default=())

    def kind(self, token: int) -> int:
        return self.kinds[token] if self.kinds else NORMAL

    def with_added(self, added: Mapping[int, tuple[str, bool]]) -> Pieces:
        """The same with more tokens: id -> (text, whether it is special). Ids between the two get no text to match.

        Raises ValueError for an id far beyond the vocabulary.
        """
        if max(added, default=0) > len(self.tokens) + _MAX_GAP:
            raise ValueError(f"an added token has the id {max(added):,}, far beyond its {len(self.tokens):,} pieces")
        tokens, scores = list(self.tokens), list(self.scores)
        kinds = [self.kind(token) for token in range(len(tokens))]
        for token, (text, special) in sorted(added.items()):
            while len(tokens) <= token:
                tokens.append(f"<unused id {len(tokens)}>")
                kinds.append(UNUSED)
                scores += [0.0] if self.scores else []
            tokens[token], kinds[token] = text, CONTROL if special else USER_DEFINED
        return replace(self, tokens=tokens, scores=scores, kinds=kinds)


def without_space(pieces: Pieces) -> Pieces:
    """The same with nothing put before a text."""
    return replace(pieces, space_first=False)


def build(pieces: Pieces) -> tokenizers.Tokenizer:
    """A tokenizer that knows the pieces; control and user-defined tokens are the caller's to add.

    Raises ValueError when the parts do not fit together.
    """
    model: Any
    if pieces.unigram:
        free = [pieces.kind(token) in (CONTROL, UNUSED) for token in range(len(pieces.tokens))]
        scores = pieces.scores or [0.0] * len(pieces.tokens)
        vocabulary = [
            (text, _HOPELESS if skip else score) for text, score, skip in zip(pieces.tokens, scores, free, strict=True)
        ]
        model = unigram(vocabulary, pieces.unknown, BYTE in pieces.kinds)
    else:
        vocabulary_ids = {text: token for token, text in enumerate(pieces.tokens)}
        model = spaced_model(vocabulary_ids, _merges(pieces, vocabulary_ids), pieces.tokens[pieces.unknown])
    return wrap(
        model,
        space_first=pieces.space_first,
        squeeze=pieces.squeeze,
        charsmap=pieces.charsmap,
        isolated=pieces.isolated,
    )


def spaced_model(vocabulary: dict[str, int], merges: list[tuple[str, str]], unknown: str | None) -> models.BPE:
    """BPE over characters, which are spelled byte by byte ("<0xF0>") where the vocabulary lacks them."""
    return bpe(vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)


def wrap(
    model: Any, *, space_first: bool, squeeze: bool = False, charsmap: bytes = b"", isolated: Collection[str] = ()
) -> tokenizers.Tokenizer:
    """With "▁" for spaces before the model and back after it. Raises ValueError for a charsmap that is none."""
    backend = tokenizers.Tokenizer(model)
    if charsmap:
        check_charsmap(charsmap)
    steps: list[normalizers.Normalizer] = [checked(normalizers.Precompiled, charsmap)] if charsmap else []
    if squeeze:
        steps.append(normalizers.Replace(tokenizers.Regex(r"\A +| +\z| +(?= )"), ""))
    if space_first:
        steps.append(normalizers.Prepend(SPACE_MARK))
    steps.append(normalizers.Replace(" ", SPACE_MARK))
    backend.normalizer = normalizers.Sequence(steps)
    growth(backend)  # raises
    if isolated:
        lengths = list(map(len, isolated))
        if max(lengths) > _MAX_ISOLATED_PIECE or sum(lengths) > _MAX_ISOLATED:
            raise ValueError("it keeps more or longer pieces whole than any vocabulary")
        pattern = checked(tokenizers.Regex, longest_of(isolated))
        backend.pre_tokenizer = pre_tokenizers.Split(pattern, "isolated")
        if isinstance(model, models.BPE):
            model.ignore_merges = True
    backend.decoder = decoders.Sequence([decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()])
    return backend


def longest_of(texts: Iterable[str]) -> str:
    """A pattern for the longest of some texts. Beginnings that they share are looked at once, not for each text."""
    by_letter: dict[str, list[str]] = {}
    for text in sorted(set(texts)):
        by_letter.setdefault(text[:1], []).append(text)
    ends = by_letter.pop("", None) is not None
    branches = []
    for same in by_letter.values():
        shared = shared_letters(same[0], same[-1])
        branches.append(re.escape(same[0][:shared]) + longest_of(text[shared:] for text in same))
    if not branches:
        return ""
    return f"(?:{'|'.join(branches)})" + "?" * ends


def merges_by_rank(ranked: Iterable[str], known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Every way to merge two known pieces into one of `ranked`, in their order: the first is the best merge.

    Raises ValueError where that is more than any vocabulary has.
    """
    splits = found = 0
    for piece in ranked:
        if len(piece) > _MAX_MERGED_PIECE:
            continue
        splits += len(piece)
        if splits > _MAX_SPLITS or found > MAX_MERGES:
            raise ValueError("its pieces can be merged in more ways than those of any vocabulary")
        for cut in range(1, len(piece)):
            left = piece[:cut]
            if left in known and piece[cut:] in known:
                found += 1
                yield left, piece[cut:]


def _merges(pieces: Pieces, vocabulary: Collection[str]) -> list[tuple[str, str]]:
    mergeable = [token for token in range(len(pieces.tokens)) if pieces.kind(token) not in (CONTROL, BYTE)]
    if pieces.scores:
        mergeable.sort(key=lambda token: -pieces.scores[token])  # stable: of equals the lower id first
    return list(merges_by_rank((pieces.tokens[token] for token in mergeable), vocabulary))


def added_tokens(pieces: Pieces) -> Iterator[AddedToken]:
    """The pieces that are found in a text before it is cut: control tokens, and user-defined ones without a space."""
    for token, text in enumerate(pieces.tokens):
        kind = pieces.kind(token)
        if text and (kind == CONTROL or (kind == USER_DEFINED and SPACE_MARK not in text)):
            yield AddedToken(text, special=kind == CONTROL, normalized=False)


# tokenizer.model


def read_model(data: bytes) -> Pieces:
    """The vocabulary in a tokenizer.model. Raises ValueError when it is none."""
    tokens: list[str] = []
    scores: list[float] = []
    kinds: list[int] = []
    trainer: dict[int, Any] = {}
    rules: dict[int, Any] = {}
    left = iter(range(_MAX_FIELDS))
    for number, value in _fields(memoryview(data), left):
        if number == 1:
            if len(tokens) == MAX_TOKENS:
                raise ValueError(f"it holds more than {MAX_TOKENS:,} pieces, which no vocabulary does")
            piece = dict(_fields(_message(value), left))
            tokens.append(bytes(_message(piece.get(1, b""))).decode("utf-8", "replace"))
            scores.append(_float(piece.get(2, 0)))
            kinds.append(_integer(piece.get(3, NORMAL)))
        elif number == 2:
            trainer.update(_fields(_message(value), left))
        elif number == 3:
            rules.update(_fields(_message(value), left))
    if not tokens:
        raise ValueError("it holds no pieces")
    kind = _integer(trainer.get(3, 1))
    if kind not in (1, _BPE):
        raise ValueError("it cuts texts into words or letters, not into pieces")
    ids = [_integer(trainer.get(40 + i, default)) for i, default in enumerate((0, 1, 2))]
    unknown, bos, eos = (token if 0 <= token < len(tokens) else None for token in ids)
    return Pieces(
        tokens,
        scores,
        kinds,
        unigram=kind != _BPE,
        unknown=unknown or 0,
        bos=bos,
        eos=eos,
        space_first=bool(_integer(rules.get(3, 1))),
        squeeze=bool(_integer(rules.get(4, 1))),
        charsmap=bytes(_message(rules.get(2, b""))),
        isolated=tuple(text for text, kind in zip(tokens, kinds, strict=True) if text and kind == USER_DEFINED),
    )


def _fields(data: memoryview, left: Iterator[int]) -> Iterator[tuple[int, int | memoryview]]:
    """(field number, integer or bytes) of one message; four- and eight-byte values come as bytes.

    left: yields once for each field that may be read
    """
    at = 0
    while at < len(data):
        if next(left, None) is None:
            raise ValueError("it holds more than any vocabulary does")
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(wire)
        if wire == 2:
            size, at = _varint(data, at)
        if size is None or size > len(data) - at:
            raise ValueError("it is cut short or no SentencePiece model")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            # Negative numbers are stored as 64-bit two's complement.
            return value - (1 << 64) if value >> 63 else value, at
        shift += 7
    raise ValueError("it is cut short or no SentencePiece model")


def _message(value: Any) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number stands where a text should")
    return memoryview(value)


def _integer(value: Any) -> int:
    if not isinstance(value, int):
        raise ValueError("a text stands where a number should")
    return value


def _float(value: Any) -> float:
    if value == 0:
        return 0.0
    data = _message(value)
    score = struct.unpack("<f", data)[0] if len(data) == 4 else math.nan
    if not math.isfinite(score):
        raise ValueError("a piece has no score")
    return float(score)
