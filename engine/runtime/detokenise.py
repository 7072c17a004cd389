"""Tokens to text, one at a time, without ever showing half a character."""

from __future__ import annotations

import codecs
from collections.abc import Callable


class Detokeniser:
    """Turns a stream of token ids into text.

    A token may end in the middle of a UTF-8 character; the bytes wait for the tokens that complete it. All pieces
    and the flush together are exactly the tokens' bytes decoded as UTF-8, invalid bytes shown as U+FFFD.

    token_bytes:         the bytes a token stands for; b"" for a special token, which is not text
    strip_leading_space: drop one space at the very beginning (SentencePiece puts one before the first word)
    """

    def __init__(self, token_bytes: Callable[[int], bytes], strip_leading_space: bool = False) -> None:
        self._token_bytes = token_bytes
        self._strip = strip_leading_space
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token: int) -> str:
        """What became readable with this token; may be empty."""
        data = self._token_bytes(token)
        if self._strip and data:
            data = data.removeprefix(b" ")
            self._strip = False
        return self._decoder.decode(data)

    def flush(self) -> str:
        """The rest, at the end of an answer: U+FFFD if it broke off inside a character, else empty."""
        return self._decoder.decode(b"", final=True)
