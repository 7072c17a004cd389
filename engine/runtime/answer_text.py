"""Tokens in, readable text out: what was thought and what was answered."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from engine.runtime.answer_split import Splitter
from engine.runtime.detokenise import Detokeniser
from engine.runtime.stop_strings import StopStrings
from engine.runtime.thinking import TOKEN

if TYPE_CHECKING:
    from engine.checkpoints.tokenizer import Tokenizer

#: Control tokens around a call of a tool. Nothing here can run it, so that it is shown as it was written.
_CALLS = re.compile("tool|function|action|python_tag", re.IGNORECASE)


class AnswerText:
    """Detokeniser, splitter and stop strings in a row. A stop string ends the answer, and only there.

    marks: of the splitter, by token id
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        splitter: Splitter,
        marks: Mapping[int, str],
        stop: Sequence[str],
        *,
        strip_leading_space: bool,
    ) -> None:
        special = tokenizer.special_ids

        def token_bytes(token: int) -> bytes:
            if token in marks:
                return (TOKEN + marks[token]).encode()
            data = tokenizer.token_bytes(token)
            return b"" if token in special and not _CALLS.search(data.decode("utf-8", "replace")) else data

        self._detokeniser = Detokeniser(token_bytes, strip_leading_space and tokenizer.adds_space)
        self._splitter = splitter
        self._stops = StopStrings(stop)

    def feed(self, token: int) -> tuple[str, str, bool]:
        """(thought and answer that became readable, whether a stop string ended the answer)."""
        thought, text = self._splitter.feed(self._detokeniser.feed(token))
        return thought, *self._stops.feed(text)

    def rest(self) -> tuple[str, str]:
        """(thought, answer) held back until the end of an answer that met no stop string."""
        thought, text = self._splitter.feed(self._detokeniser.flush())
        last_thought, last_text = self._splitter.flush()
        text, stopped = self._stops.feed(text + last_text)
        return thought + last_thought, text if stopped else text + self._stops.flush()
