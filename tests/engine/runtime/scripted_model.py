"""A model small enough to see through: bytes are tokens, and the answer is written beforehand."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from engine.checkpoints.chat_template import ChatTemplate
from engine.errors import Cancelled
from engine.runtime.engine import Engine
from engine.status import EngineStatus

END, SPECIAL = 256, 257
VOCAB = 258


class ByteTokenizer:
    """Token ids 0 to 255 are bytes; END ends a text, SPECIAL is a token that is not text."""

    eos_ids = frozenset({END})
    special_ids = frozenset({END, SPECIAL})
    adds_space = add_bos = False
    bos_id: int | None = None

    added_tokens: ClassVar[dict[int, str]] = {}

    def encode(self, text: str, special: bool = True, **_: object) -> list[int]:
        return list(text.encode())

    def token_bytes(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else b"<special>"


def bracket_template() -> ChatTemplate:
    return ChatTemplate(
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )


class ScriptedExecutor:
    """Predicts whatever `script` says follows the tokens so far, with certainty. Remembers what it was asked."""

    kernel = "scripted"
    takes_drafts = True

    def __init__(self, script: Callable[[list[int]], int], context: int, vocab: int = VOCAB) -> None:
        self._script = script
        self.context = context
        self.vocab = vocab
        self.chunk = 512
        self.tokens: list[int] = []
        #: Lengths of the forward calls.
        self.forwarded: list[int] = []
        self.closed = 0
        #: Called at the start of each forward; may raise.
        self.before: Callable[[], None] = lambda: None
        self.cancelled = False
        self.value: float = 1.0

    @property
    def length(self) -> int:
        return len(self.tokens)

    def forward(self, token_ids: npt.NDArray[np.int64], logits: str = "last") -> npt.NDArray[np.float32]:
        assert not self.closed
        assert 1 <= len(token_ids) <= self.context - self.length
        assert token_ids.dtype == np.int64
        self.cancelled = False
        self.before()
        if self.cancelled:
            raise Cancelled
        self.forwarded.append(len(token_ids))
        rows = []
        for token in token_ids:
            self.tokens.append(int(token))
            row = np.zeros(self.vocab, dtype=np.float32)
            row[self._script(self.tokens)] = self.value
            rows.append(row)
        return np.stack(rows) if logits != "last" else rows[-1][None]

    def truncate(self, length: int) -> int:
        assert length <= self.length
        del self.tokens[length:]
        return length

    def cancel(self) -> None:
        self.cancelled = True

    def usage(self) -> None:
        return None

    def status(self) -> EngineStatus:
        return EngineStatus(kernel=self.kernel)

    def close(self) -> None:
        self.closed += 1


def scripted_engine(script: Callable[[list[int]], int], context: int = 4096) -> tuple[Engine, ScriptedExecutor]:
    executor = ScriptedExecutor(script, context)
    checkpoint = SimpleNamespace(chat_template=bracket_template, path="scripted")
    spec = SimpleNamespace(vocab=VOCAB, context_length=8192)
    return Engine(checkpoint, spec, SimpleNamespace(device="cpu"), ByteTokenizer(), executor), executor


def saying(answer: str, prompt_length: int) -> Callable[[list[int]], int]:
    """A script that answers `answer` and ends, after a prompt of that many tokens."""
    tokens = [*answer.encode(), END]
    return lambda so_far: tokens[min(max(len(so_far) - prompt_length, 0), len(tokens) - 1)]
