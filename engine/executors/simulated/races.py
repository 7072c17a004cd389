"""Who may touch which bytes of a simulated accelerator when: accesses of streams that nothing orders are races.

Real devices do operations late and side by side, the simulated one does most at once; a wait that is missing would not
show there. So every stream counts its work and knows how far each other stream was when it waited for it (a vector
clock). An access must know of every earlier access by another stream to the same bytes, if one of the two writes.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import torch

#: How far each stream was, by its number.
Clock = dict[int, int]


@dataclass(frozen=True)
class _Access:
    """Bytes first..end of a storage, touched by a stream as its tick-th work."""

    first: int
    end: int
    stream: int
    tick: int
    write: bool


class Races:
    """The host counts as one: what one of its threads has waited for, all of them have. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._host: Clock = {}
        self._streams: list[Clock] = []
        self._names: list[str] = []
        self._accesses: dict[int, list[_Access]] = {}
        #: Streams that storages were handed out on, and what was still going on in storages of theirs that were let go.
        self._homes: dict[int, int] = {}
        self._let_go: dict[int, list[_Access]] = {}

    def add_stream(self, name: str) -> int:
        """Its number."""
        with self._lock:
            self._streams.append({})
            self._names.append(name)
            return len(self._streams) - 1

    def mark(self, stream: int) -> Clock:
        """What an event behind all work of the stream so far knows."""
        with self._lock:
            return dict(self._known(stream))

    def wait(self, stream: int, clock: Clock) -> None:
        """The stream's further work comes behind the event."""
        with self._lock:
            _merge(self._known(stream), clock)

    def host_waited(self, clock: Clock) -> None:
        with self._lock:
            _merge(self._host, clock)

    def host_waited_for(self, stream: int) -> None:
        """For all of its work so far."""
        with self._lock:
            _merge(self._host, self._known(stream))

    def touch(self, stream: int, reads: list[torch.Tensor], writes: list[torch.Tensor]) -> str | None:
        """Work queued on the stream. Returns what is wrong with it, or None."""
        found = None
        with self._lock:
            clock = self._known(stream)
            clock[stream] = clock.get(stream, 0) + 1
            for tensor, write in [*((t, False) for t in reads), *((t, True) for t in writes)]:
                key, first, end = _span(tensor)
                # What the host has waited for comes before everything that it will queue.
                open_ = [a for a in self._accesses.get(key, ()) if a.tick > self._host.get(a.stream, 0)]
                for before in open_:
                    if (
                        before.stream != stream
                        and (write or before.write)
                        and before.first < end
                        and first < before.end
                        and before.tick > clock.get(before.stream, 0)
                    ):
                        does, did = ("writes" if kind else "reads" for kind in (write, before.write))
                        found = found or (
                            f"a race: {self._names[stream]} {does} {[*tensor.shape]}, which "
                            f"{self._names[before.stream]} {did}, without waiting for that"
                        )
                kept = [a for a in open_ if not (a.stream == stream and a.write == write and _within(a, first, end))]
                self._accesses[key] = [*kept, _Access(first, end, stream, clock[stream], write)]
        return found

    def hand_out(self, key: int, stream: int) -> str | None:
        """A storage begins its life. Returns what is wrong with that, or None.

        A device's allocator hands memory out again in the order of the stream that it was handed out on before; it
        does not know what other streams do with it.
        """
        found = None
        with self._lock:
            clock = self._known(stream)
            for use in self._let_go.pop(stream, []):
                if use.tick > clock.get(use.stream, 0):
                    does = "writes" if use.write else "reads"
                    found = found or (
                        f"a race: {use.end - use.first} bytes that {self._names[use.stream]} {does} were let go, and "
                        f"may be handed out again on {self._names[stream]}, without waiting for that"
                    )
            self._homes[key] = stream
        return found

    def let_go(self, key: int) -> None:
        """Nobody holds a storage any more, but for copies queued."""
        with self._lock:
            home = self._homes.get(key)
            if home is not None:
                uses = self._accesses.pop(key, [])
                self._let_go.setdefault(home, []).extend(use for use in uses if use.stream != home)

    def forget(self, key: int) -> None:
        """A storage is gone; another may come to have its number."""
        with self._lock:
            self.let_go(key)
            self._accesses.pop(key, None)
            self._homes.pop(key, None)

    def _known(self, stream: int) -> Clock:
        clock = self._streams[stream]
        _merge(clock, self._host)
        return clock


def _merge(clock: Clock, other: Clock) -> None:
    for stream, tick in other.items():
        if clock.get(stream, 0) < tick:
            clock[stream] = tick


def _within(access: _Access, first: int, end: int) -> bool:
    return first <= access.first and access.end <= end


def _span(tensor: torch.Tensor) -> tuple[int, int, int]:
    """Its storage's number, and from which byte to which it lies there, with what other tensors may have between."""
    size = tensor.element_size()
    first = int(tensor.storage_offset()) * size
    steps = sum(int((length - 1) * step) for length, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.untyped_storage()._cdata, first, first + (steps + 1) * size if tensor.numel() else first
