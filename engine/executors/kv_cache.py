"""What layers remember of the tokens so far, and how much of it can be taken back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from engine import _native
from engine.errors import GreenroomError
from engine.models.spec import AttentionSpec
from engine.words import say

if TYPE_CHECKING:
    import torch

Bytes = npt.NDArray[np.uint8]
Buffer = TypeVar("Buffer", Bytes, "torch.Tensor")

#: Bytes at whose multiples our kernels read whole cache lines.
_LINE = 64


class LayerState(Protocol):
    """One layer's memory of the sequence.

    A block writes what its tokens leave; they count once `advance` was called. Until then, and after an interrupted
    call, the state of the tokens before is still there.
    """

    @property
    def nbytes(self) -> int: ...

    def advance(self, length: int) -> None:
        """The sequence now has `length` tokens, all written."""

    def restorable(self, length: int) -> int:
        """The most tokens, at most `length`, that `truncate` can go back to."""

    def truncate(self, length: int) -> None:
        """Forget every token from `length` on; `restorable(length)` is `length`."""


class KvCache:
    """The states of all layers, and how many tokens they hold."""

    def __init__(self, context: int, states: Sequence[LayerState]) -> None:
        self.context = context
        self.length = 0
        self._states = states

    @property
    def nbytes(self) -> int:
        return sum(state.nbytes for state in self._states)

    def advance(self, tokens: int) -> None:
        """Count tokens that every layer has written."""
        if self.length + tokens > self.context:
            raise ValueError(f"{self.length} + {tokens} tokens in a cache of {self.context}")
        self.length += tokens
        for state in self._states:
            state.advance(self.length)

    def truncate(self, length: int) -> int:
        """Forget tokens from the end, so that at most `length` stay. Returns how many do.

        Fewer than asked where a layer no longer has what those tokens saw; they must then be computed again.
        """
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot keep {length} of {self.length} tokens")
        kept = length
        while True:
            most = min((state.restorable(kept) for state in self._states), default=kept)
            if most == kept:
                break
            kept = most
        for state in self._states:
            state.truncate(kept)
        self.length = kept
        return kept


class Kv(Generic[Buffer]):
    """Keys and values of one layer. With a window or chunks only the last tokens stay, ROLLBACK of them beyond what the
    next one sees, so that a call of as many can be undone; and a copy of the buffer as it was before the last piece of
    a prompt, so that an answer of any length can be taken back.
    """

    def __init__(self, spec: AttentionSpec, context: int, buffer: Buffer, another: Callable[[Buffer], Buffer]) -> None:
        """another: makes room for a copy of the buffer."""
        self.buffer: Buffer = buffer
        self._spec = spec
        self._kept = spec.kept(context)
        #: End of the positions ever written and not forgotten wholly: older ones than kept are overwritten.
        self._written = 0
        self._copy: Buffer | None = None if self._kept == context else another(buffer)
        #: Length of the sequence in the copy, 0 for none, and what `_written` was.
        self._copied, self._copied_written = 0, 0

    @property
    def nbytes(self) -> int:
        return self.buffer.nbytes * (1 if self._copy is None else 2)

    def first_seen(self, position: int) -> int:
        """The earliest position that the token at `position` sees."""
        if self._spec.window is not None:
            return max(0, position - self._spec.window + 1)
        if self._spec.chunk is not None:
            return position // self._spec.chunk * self._spec.chunk
        return 0

    def reserve(self, start: int, end: int, *, draft: bool = False) -> None:
        """Positions start..end-1 are about to be written, behind a sequence of `start` tokens.

        draft: they are a guess and no piece of a prompt; the copy from before one stays
        """
        if self._copy is not None and start > 0 and end - start > 1 and not draft:
            self._copy[:] = self.buffer
            self._copied, self._copied_written = start, self._written
        self._written = max(self._written, end)

    def advance(self, length: int) -> None:
        pass

    def restorable(self, length: int) -> int:
        if self._holds(length):
            return length
        return self._copied if self._copied <= length else 0

    def truncate(self, length: int) -> None:
        if not self._holds(length):
            assert self._copy is not None
            self.buffer[:] = self._copy
            self._written = self._copied_written
        if length < self._copied:
            self._copied = 0
        if length == 0:
            self._written = 0

    def _holds(self, length: int) -> bool:
        """Whether everything that the token behind `length` tokens sees is still in the buffer."""
        return length == 0 or self.first_seen(length) >= self._written - self._kept


class NativeKv(Kv[Bytes]):
    """In the CPU's memory, bytes in our kernel's layout. An untouched part is not committed.

    kv_type: "f32", "bf16", "f16" or "q8"
    """

    def __init__(self, spec: AttentionSpec, context: int, kv_type: str) -> None:
        nbytes = _native.kv_cache_nbytes(
            spec.kv_heads, spec.head_dim, context, kv_type, spec.reach or 0, spec.rollback(context)
        )
        try:
            super().__init__(spec, context, _aligned(nbytes), np.empty_like)
        except MemoryError as error:
            raise no_room(context) from error
        self.address = self.buffer.ctypes.data


def _aligned(nbytes: int) -> Bytes:
    room = np.empty(nbytes + _LINE, np.uint8)
    first = -room.ctypes.data % _LINE
    return room[first : first + nbytes]


def no_room(context: int) -> GreenroomError:
    return GreenroomError(
        say("The model cannot be loaded"),
        say(
            "there is no room for the memory of a conversation of %n tokens",
            n=context,
            one="there is no room for the memory of a conversation of %n token",
        ),
        say("Choose a shorter context."),
    )
