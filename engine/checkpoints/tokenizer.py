"""Text to token ids and back."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cached_property
from typing import TypeVar

import tokenizers

from engine.checkpoints.growth import growth
from engine.checkpoints.pretokenizers import LETTERS
from engine.checkpoints.vocabulary import checked
from engine.errors import GreenroomError
from engine.units import size_text
from engine.words import say

#: Tokens that end an answer, by the names public model families give them.
END_NAMES = frozenset(
    {
        "</s>",
        "<eos>",
        "[EOS]",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<end_of_turn>",
        "<turn|>",
        "<|tool_response>",
        "[e~[",
        "<end_of_utterance>",
        "<EOT>",
        "<|EOT|>",
        "[EOT]",
        "<｜end▁of▁sentence｜>",
    }
)
_SPACE_MARK = "▁"
#: Bytes of a text once it is normalized. A token takes some 230 bytes of memory while a text is cut, and in the worst
#: case every byte is one. A million tokens, more than almost any context, are about four million bytes.
MAX_TEXT = 8 << 20

# A text is cut in the thread that asks. The library's own threads would not help with one text.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

_T = TypeVar("_T")


def cut(make: Callable[[], _T]) -> _T:
    """What the library makes of a text. Raises GreenroomError where it objects, be it by a panic, no Exception."""
    try:
        return checked(make)
    except ValueError as error:
        raise GreenroomError(
            say("The model's tokenizer cannot cut this text into tokens"),
            say("its rules fail at it ({value})", value=str(error)[:120]),
            say("Choose another file of this model."),
        ) from error


class Tokenizer:
    """Wraps the `tokenizers` library; safe to use from several threads.

    backend:  splits and merges; its post-processor is not used
    bos_id:   begins every text of a model that wants one (add_bos)
    eos_ids:  every id that ends an answer
    vocab_size: one more than the highest id; None to find out, which takes a while for a large vocabulary
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        bos_id: int | None,
        eos_ids: Iterable[int],
        add_bos: bool,
        vocab_size: int | None = None,
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._growth = growth(backend)
        added = backend.get_added_tokens_decoder()
        self._added = {token: record.content for token, record in added.items()}
        self._added_letters = frozenset(content for content in self._added.values() if len(content) < 2)
        self.special_ids = frozenset(token for token, record in added.items() if record.special)
        if vocab_size is None:
            vocab_size = max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        self.vocab_size = vocab_size
        self.bos_id = bos_id
        self.add_bos = add_bos and bos_id is not None
        self.eos_ids = self._ends(token for token in eos_ids if 0 <= token < self.vocab_size)
        self._spell, self._byte_level = _speller(backend)

    @property
    def added_tokens(self) -> Mapping[int, str]:
        """Tokens that are looked for before a text is split, with their spelling; control tokens are among them."""
        return self._added

    def encode(
        self,
        text: str,
        special: bool = True,
        literal: Sequence[tuple[int, int]] = (),
        controls: Set[int] = frozenset(),
    ) -> list[int]:
        """Token ids of a text; special tokens written in it ("<|im_end|>") become their one id.

        special: put bos_id first if the model wants it (add_bos) and the text does not already begin with it.
                 False for the output of a chat template, which writes its own.
        literal: where in the text (start, end) tokens of `controls` are nothing but what they spell
        Raises GreenroomError when the text is longer than MAX_TEXT, or the vocabulary's own rules fail at it.
        """
        # A lone surrogate, as a broken paste may carry, has no UTF-8; it becomes "?".
        data = text.encode("utf-8", "replace")
        clean = data.decode("utf-8")
        if len(data) * self._growth > MAX_TEXT:
            self._check_length(clean)
        # Unlike for one text alone, other threads may run meanwhile.
        encoded = cut(lambda: self._backend.encode_batch([clean], add_special_tokens=False)[0])
        ids: list[int] = encoded.ids
        if literal and not controls.isdisjoint(ids):
            ids = self._spelled_out(clean, ids, encoded.offsets, literal, controls)
        if special and self.add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            return [self.bos_id, *ids]
        return ids

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """Text of token ids. Bytes that form no character become U+FFFD."""
        kept = (token for token in ids if not (skip_special and token in self.special_ids))
        data = b"".join(map(self.token_bytes, kept))
        return (data[1:] if self.adds_space and data.startswith(b" ") else data).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """UTF-8 bytes a token stands for, possibly a part of a character; b"" for an id without a token."""
        added = self._added.get(token)
        if added is not None:
            return added.replace(_SPACE_MARK, " ").encode() if not self._byte_level else added.encode()
        piece = self._backend.id_to_token(token) if 0 <= token < self.vocab_size else None
        return b"" if piece is None else self._spell(piece)

    def token_id(self, token: str) -> int | None:
        """The id of one token by its own spelling in the vocabulary."""
        found: int | None = self._backend.token_to_id(token)
        return found

    @cached_property
    def adds_space(self) -> bool:
        """Whether a text's first word gets a space put before it (SentencePiece), to be taken away on decoding."""
        first = self.encode("a", special=False)[:1]
        return not self._byte_level and bool(first) and self.token_bytes(first[0]).startswith(b" ")

    def _check_length(self, text: str) -> None:
        """Raises GreenroomError for a text that is too long once it is normalized. Tried on parts that cannot be."""
        part, length = max(1, MAX_TEXT // (4 * self._growth)), 0
        for start in range(0, len(text), part):
            length += len(self._normalized(text[start : start + part]).encode())
            if length > MAX_TEXT:
                raise GreenroomError(
                    say("This text is too long for the model"),
                    say("it takes more than {size}", size=size_text(MAX_TEXT)),
                    say("Shorten it."),
                )

    def _normalized(self, text: str) -> str:
        normalizer = self._backend.normalizer
        return text if normalizer is None else cut(lambda: normalizer.normalize_str(text))

    def _spelled_out(
        self,
        text: str,
        ids: list[int],
        offsets: list[tuple[int, int]],
        literal: Sequence[tuple[int, int]],
        controls: Set[int],
    ) -> list[int]:
        """The same ids, with other tokens for a control token that stands in a literal part."""
        spelled: list[int] = []
        for token, (start, end) in zip(ids, offsets, strict=True):
            if token in controls and any(first <= start and end <= last for first, last in literal):
                spelled += self._letters(text[start:end])
            else:
                spelled.append(token)
        return spelled

    def _letters(self, text: str) -> list[int]:
        """Tokens for a text of which the whole is one token, without that one.

        The model's own merges decide behind the first letter. Some vocabularies know a control token's spelling as a
        word: what still holds one is halved, and halved again.
        """
        found: list[int] = []
        parts = [text[1:], text[:1]]
        while parts:
            part = parts.pop()
            words = self._words(part)
            if words and self._added.keys().isdisjoint(words):
                found += words
            elif len(part) > 1:
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]
            elif part not in self._added_letters:
                found += words
        return found

    def _words(self, text: str) -> list[int]:
        if self._byte_level:
            spelling = "".join(LETTERS[byte] for byte in text.encode("utf-8", "replace"))
        else:
            spelling = text.replace(" ", _SPACE_MARK)
        return cut(lambda: [token.id for token in self._backend.model.tokenize(spelling)])

    def _ends(self, told: Iterable[int]) -> frozenset[int]:
        names = {content: token for token, content in self._added.items() if content in END_NAMES}
        ends = {*told, *names.values()}
        if "<|return|>" in names and "<|call|>" in names:
            # Harmony templates (gpt-oss) end a message, not the answer, with <|end|>, whatever some files say.
            ends.discard(names.get("<|end|>", -1))
        return frozenset(ends)


def _speller(backend: tokenizers.Tokenizer) -> tuple[Callable[[str], bytes], bool]:
    """(vocabulary piece -> bytes, whether pieces are spelled in the byte-level alphabet)."""
    kinds = _decoder_kinds(backend)
    if "ByteLevel" in kinds:
        return _spell_byte_level, True
    return _spell_sentencepiece, False


def _decoder_kinds(backend: tokenizers.Tokenizer) -> set[str]:
    if backend.decoder is None:
        return set()
    record = json.loads(backend.decoder.__getstate__())
    return {part["type"] for part in record.get("decoders", [record])}


_BYTES = {letter: byte for byte, letter in LETTERS.items()}


def _spell_byte_level(piece: str) -> bytes:
    try:
        return bytes(_BYTES[char] for char in piece)
    except KeyError:
        return piece.encode("utf-8", "replace")


def _spell_sentencepiece(piece: str) -> bytes:
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        try:
            return bytes([int(piece[3:5], 16)])
        except ValueError:
            pass
    return piece.replace(_SPACE_MARK, " ").encode("utf-8", "replace")
