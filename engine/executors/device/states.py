"""What layers remember on a torch device: keys and values, or the end of a convolution's input."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from engine.executors.devices import Device
from engine.executors.kv_cache import Kv, no_room
from engine.models.spec import CHECKPOINT_INTERVAL, DRAFT, AttentionSpec, ShortConvSpec


class TorchKv(Kv[torch.Tensor]):
    """On a torch device, [2 * kv_heads, kept, head_dim], keys before values. Position p lies in row p modulo `kept`."""

    def __init__(
        self, spec: AttentionSpec, context: int, dtype: torch.dtype, device: Device, width: int | None = None
    ) -> None:
        """width: of a row of the buffer, where that is not head_dim."""
        #: What attention computes in: on the CPU the cache is widened, because that costs less than half-precision
        #: attention there.
        self.arithmetic = dtype if device.accelerator else torch.float32
        with _enough_memory(context):
            shape = (2 * spec.kv_heads, spec.kept(context), width or spec.head_dim)
            buffer = device.empty(*shape, dtype=dtype)
            super().__init__(spec, context, buffer, torch.empty_like)

    def append(self, start: int, keys_values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Write [T, 2 * kv_heads, head_dim] at positions start..start+T-1; with a reach, T is at most ROLLBACK.

        Returns keys and values [kv_heads, n, head_dim], in `arithmetic`, of the positions from `first_seen(start)` to
        the last of these.
        """
        new = keys_values.transpose(0, 1)
        end = start + new.shape[1]
        self.reserve(start, end)
        for at, row, count in self._pieces(start, end):
            self._write(self.buffer.narrow(1, row, count), new.narrow(1, at, count))
        seen = self._read(self.first_seen(start), end).to(self.arithmetic)
        kv_heads = seen.shape[0] // 2
        return seen[:kv_heads], seen[kv_heads:]

    def _write(self, rows: torch.Tensor, values: torch.Tensor) -> None:
        """values float32 [2 * kv_heads, n, head_dim] into rows [2 * kv_heads, n, width] of the buffer."""
        rows.copy_(values)

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


class TorchKvQ8(TorchKv):
    """The same in int8, with a float32 scale per head and token behind the numbers it belongs to."""

    def __init__(self, spec: AttentionSpec, context: int, arithmetic: torch.dtype, device: Device) -> None:
        super().__init__(spec, context, torch.int8, device, spec.head_dim + 4)
        self.arithmetic = arithmetic

    def _write(self, rows: torch.Tensor, values: torch.Tensor) -> None:
        scales = values.abs().amax(-1, keepdim=True) / 127
        rows[..., :-4].copy_((values / scales.clamp(min=1e-30)).round_())
        rows[..., -4:].copy_(scales.view(torch.int8))

    def _read(self, first: int, end: int) -> torch.Tensor:
        stored = super()._read(first, end)
        scales = stored[..., -4:].clone(memory_format=torch.contiguous_format).view(torch.float32)
        return stored[..., :-4].to(self.arithmetic).mul_(scales.to(self.arithmetic))


class ConvState:
    """The last width - 1 inputs of a causal convolution, float32 [width - 1, channels], and earlier ones.

    One token's share is large next to that of a layer with attention, so that only every CHECKPOINT_INTERVAL-th
    position can be gone back to, and those of a last call of at most DRAFT tokens.
    """

    def __init__(self, spec: ShortConvSpec, context: int, device: Device) -> None:
        past = spec.width - 1
        with _enough_memory(context):
            self._saved = device.empty(1 + context // CHECKPOINT_INTERVAL, past, spec.channels).zero_()
            #: The last inputs, width - 1 of them and those of the last call if it was short.
            self._recent = device.empty(past, spec.channels).zero_()
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
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise no_room(context) from error
