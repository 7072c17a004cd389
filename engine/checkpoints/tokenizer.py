"""Text to token ids and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cached_property

import tokenizers

from engine.checkpoints.pretokenizers import LETTERS

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
        added = backend.get_added_tokens_decoder()
        self._added = {token: record.content for token, record in added.items()}
        self.special_ids = frozenset(token for token, record in added.items() if record.special)
        if vocab_size is None:
            vocab_size = max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        self.vocab_size = vocab_size
        self.bos_id = bos_id
        self.add_bos = add_bos and bos_id is not None
        self.eos_ids = frozenset(token for token in eos_ids if 0 <= token < self.vocab_size) | self._named_ends()
        self._spell, self._byte_level = _speller(backend)

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token ids of a text; special tokens written in it ("<|im_end|>") become their one id.

        special: put bos_id first if the model wants it (add_bos) and the text does not already begin with it.
        False for the output of a chat template, which writes its own.
        """
        # A lone surrogate, as a broken paste may carry, has no UTF-8; it becomes "?".
        clean = text.encode("utf-8", "replace").decode("utf-8")
        ids: list[int] = self._backend.encode(clean, add_special_tokens=False).ids
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

    def _named_ends(self) -> frozenset[int]:
        names = {content: token for token, content in self._added.items() if content in END_NAMES}
        if "<|return|>" in names and "<|call|>" in names:
            # Harmony templates (gpt-oss) end a message, not the answer, with <|end|>.
            names.pop("<|end|>", None)
        return frozenset(names.values())


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
