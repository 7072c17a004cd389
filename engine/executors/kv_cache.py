"""What layers remember of the tokens so far: keys and values, or the end of a convolution's input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch

from engine import _native
from engine.errors import GreenroomError
from engine.models.spec import CHECKPOINT_INTERVAL, DRAFT, AttentionSpec, ShortConvSpec


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


class _Kv:
    """Keys and values of one layer. With a window or chunks only the last tokens stay, ROLLBACK of them beyond what the
    next one sees, so that a call of as many can be undone; and a copy of the buffer as it was before the last piece of
    a prompt, so that an answer of any length can be taken back.
    """

    def __init__(self, spec: AttentionSpec, context: int, buffer: torch.Tensor) -> None:
        self.buffer = buffer
        self._spec = spec
        self._kept = spec.kept(context)
        #: End of the positions ever written and not forgotten wholly: older ones than kept are overwritten.
        self._written = 0
        self._copy = None if self._kept == context else torch.empty_like(buffer)
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
            self._copy.copy_(self.buffer)
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
            self.buffer.copy_(self._copy)
            self._written = self._copied_written
        if length < self._copied:
            self._copied = 0
        if length == 0:
            self._written = 0

    def _holds(self, length: int) -> bool:
        """Whether everything that the token behind `length` tokens sees is still in the buffer."""
        return length == 0 or self.first_seen(length) >= self._written - self._kept


class NativeKv(_Kv):
    """In the CPU's memory, bytes in our kernel's layout. An untouched part is not committed.

    kv_type: "f32", "bf16", "f16" or "q8"
    """

    def __init__(self, spec: AttentionSpec, context: int, kv_type: str) -> None:
        nbytes = _native.kv_cache_nbytes(
            spec.kv_heads, spec.head_dim, context, kv_type, spec.reach or 0, spec.rollback(context)
        )
        with _enough_memory(context):
            super().__init__(spec, context, torch.empty(nbytes, dtype=torch.uint8))


class TorchKv(_Kv):
    """On a torch device, [2 * kv_heads, kept, head_dim], keys before values. Position p lies in row p modulo `kept`."""

    def __init__(self, spec: AttentionSpec, context: int, dtype: torch.dtype, device: torch.device) -> None:
        #: What attention computes in: on the CPU the cache is widened, because that costs less than half-precision
        #: attention there.
        self.arithmetic = torch.float32 if device.type == "cpu" else dtype
        with _enough_memory(context):
            shape = (2 * spec.kv_heads, spec.kept(context), spec.head_dim)
            super().__init__(spec, context, torch.empty(shape, dtype=dtype, device=device))

    def append(self, start: int, keys_values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Write [T, 2 * kv_heads, head_dim] at positions start..start+T-1; with a reach, T is at most ROLLBACK.

        Returns keys and values [kv_heads, n, head_dim], in `arithmetic`, of the positions from `first_seen(start)` to
        the last of these.
        """
        new = keys_values.transpose(0, 1)
        end = start + new.shape[1]
        self.reserve(start, end)
        for at, row, count in self._pieces(start, end):
            self.buffer.narrow(1, row, count).copy_(new.narrow(1, at, count))
        seen = self._read(self.first_seen(start), end).to(self.arithmetic)
        kv_heads = seen.shape[0] // 2
        return seen[:kv_heads], seen[kv_heads:]

    def _read(self, first: int, end: int) -> torch.Tensor:
        """Positions first..end-1 in order; a view where they lie together."""
        pieces = [self.buffer.narrow(1, row, count) for _, row, count in self._pieces(first, end)]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, 1)

    def _pieces(self, first: int, end: int) -> list[tuple[int, int, int]]:
        """Runs of positions first..end-1 in the buffer: (offset from first, row, count)."""
        row, count = first % self._kept, end - first
        before_wrap = min(count, self._kept - row)
        wrapped = count - before_wrap
        return [(0, row, before_wrap)] + ([(before_wrap, 0, wrapped)] if wrapped else [])


class ConvState:
    """The last width - 1 inputs of a causal convolution, float32 [width - 1, channels], and earlier ones.

    One token's share is large next to that of a layer with attention, so that only every CHECKPOINT_INTERVAL-th
    position can be gone back to, and those of a last call of at most DRAFT tokens.
    """

    def __init__(self, spec: ShortConvSpec, context: int, device: torch.device) -> None:
        past = spec.width - 1
        with _enough_memory(context):
            self._saved = torch.zeros((1 + context // CHECKPOINT_INTERVAL, past, spec.channels), device=device)
            #: The last inputs, width - 1 of them and those of the last call if it was short.
            self._recent = torch.zeros((past, spec.channels), device=device)
        self._next = self._recent
        self._past = past
        self._length = 0

    @property
    def nbytes(self) -> int:
        """With the longest draft in it."""
        return self._saved.nbytes + (self._past + DRAFT) * self._saved[0, 0].nbytes

    def append(self, start: int, inputs: torch.Tensor) -> torch.Tensor:
        """Inputs [T, channels] from position start on -> [width - 1 + T, channels]: the same behind those before."""
        past, tokens = self._past, inputs.shape[0]
        joined = torch.cat((self._recent[len(self._recent) - past :], inputs))
        self._next = joined if tokens <= DRAFT else joined[tokens:].clone()
        first = start // CHECKPOINT_INTERVAL + 1
        for number in range(first, (start + tokens) // CHECKPOINT_INTERVAL + 1):
            at = number * CHECKPOINT_INTERVAL - start
            self._saved[number].copy_(joined[at : at + past])
        return joined

    def advance(self, length: int) -> None:
        self._recent, self._length = self._next, length

    def restorable(self, length: int) -> int:
        return length if self._remembers(length) else length // CHECKPOINT_INTERVAL * CHECKPOINT_INTERVAL

    def truncate(self, length: int) -> None:
        if self._remembers(length):
            self._recent = self._recent[: len(self._recent) - (self._length - length)]
        else:
            self._recent = self._saved[length // CHECKPOINT_INTERVAL].clone()
        self._length = length

    def _remembers(self, length: int) -> bool:
        return self._length - length <= len(self._recent) - self._past


@contextmanager
def _enough_memory(context: int) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise GreenroomError(
            "The model cannot be loaded",
            f"there is no room for the memory of a conversation of {context} tokens",
            "Choose a shorter context.",
        ) from error
