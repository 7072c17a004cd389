"""A simulated accelerator: CPU tensors behind queues and a memory limit of their own.

For whoever writes code for a GPU on a PC without one. What would go wrong on a GPU goes wrong here as well:
- Copies are done late, on a thread per stream, streams in no fixed order, and what they write is NaN until then.
- Tensors count against a limit, and beyond it torch's out-of-memory error is raised.
- Tensors of the host and of the device cannot meet in one operation.
- Work that does not wait for what it needs, or for what it overwrites, breaks the device down and is named; so does a
  host that changes a copy's source or target before its event, and memory that is let go and handed out again while
  another stream still uses it.
- Page-locking can fail, and the device can break down.
Arithmetic is done at once by the calling thread, after the copies queued before it on the same stream.
"""

from __future__ import annotations

import contextlib
import queue
import random
import threading
import time
import weakref
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from engine.executors.devices import Device, DeviceMemory, Event, Stream
from engine.executors.simulated.races import Clock, Races
from engine.hardware.simulated import Simulated
from engine.words import say

#: Bytes at whose multiples GPU allocators hand out memory.
GRANULE = 512

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class SimDevice(Device):
    """syncs: operations so far whose result the host had to wait for, which holds up the queue of a GPU"""

    def __init__(self, settings: Simulated) -> None:
        super().__init__("sim", torch.device("cpu"))
        self.settings = settings
        self.syncs = 0
        self.races = Races()
        self.memory_in_use = _Memory(settings.vram, self.races.forget)
        self._page_locked: set[int] = set()
        self._chance = random.Random(settings.seed)
        self._operations = 0
        self._broken: str | None = None
        self._lock = threading.Lock()
        self._local = threading.local()
        self._streams: list[_Stream] = []
        #: Storages that copies still to be done read or write.
        self._touched: Counter[int] = Counter()
        self._compute = self._open_stream("sim-compute")

    def working(self) -> AbstractContextManager[Any]:
        return contextlib.nullcontext() if getattr(self._local, "working", False) else self._working()

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        nbytes = torch.Size(shape).numel() * dtype.itemsize
        self.memory_in_use.check(nbytes)
        with self._outside(), self.memory_in_use.scratch():
            tensor = torch.empty(shape, dtype=dtype)
            # What a GPU hands out holds whatever was there before.
            poison(tensor)
            self._hand_out(tensor, self._stream(None))
        return tensor

    def upload(
        self, source: torch.Tensor, out: torch.Tensor | None = None, stream: Stream | None = None
    ) -> torch.Tensor:
        if self.memory_in_use.holds(source):
            raise RuntimeError("the source of an upload is on the device already")
        if out is None:
            with self.on(self._stream(stream)):
                out = self.empty(*source.shape, dtype=source.dtype)
        elif not self.memory_in_use.holds(out):
            raise RuntimeError("the target of an upload is not on the device")
        self._copy(source, out, source, stream)
        return out

    def download(
        self, source: torch.Tensor, out: torch.Tensor | None = None, stream: Stream | None = None
    ) -> torch.Tensor:
        if not self.memory_in_use.holds(source):
            raise RuntimeError("the source of a download is not on the device")
        if out is None:
            with self._outside():
                out = torch.empty(source.shape, dtype=source.dtype)
        elif self.memory_in_use.holds(out):
            raise RuntimeError("the target of a download is on the device")
        self._copy(source, out, out, stream)
        return out

    def new_stream(self) -> Stream:
        return self._open_stream(f"sim-stream-{len(self._streams)}")

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        before, self._local.stream = self._stream(None), stream
        try:
            yield
        finally:
            self._local.stream = before

    def mark(self, stream: Stream | None = None) -> Event:
        on = self._stream(stream)
        event = _Event(self, self.races.mark(on.number))
        on.queue(event.set)
        return event

    def wait_for(self, event: Event, stream: Stream | None = None) -> None:
        assert isinstance(event, _Event)
        on = self._stream(stream)
        self.races.wait(on.number, event.clock)
        on.queue(event.wait)

    def host_buffer(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        with self._outside():
            buffer = torch.empty(shape, dtype=dtype)
        if self.settings.fail == "pin":
            self._unpinned(say("as the simulated device was told"))
        else:
            storage = buffer.untyped_storage()
            key = storage._cdata
            self._page_locked.add(key)
            weakref.finalize(storage, self._unlock, key).atexit = False
        return buffer

    def no_graphs(self) -> str:
        return say("as the simulated device was told") if self.settings.fail == "capture" else ""

    def memory(self) -> DeviceMemory:
        use = self.memory_in_use
        return DeviceMemory(use.limit, use.limit - use.held, use.held, use.peak)

    def reset_peak(self) -> None:
        self.memory_in_use.peak = self.memory_in_use.held

    def synchronise(self) -> None:
        for stream in list(self._streams):
            self._host_waits(stream)
        self.check()

    def release(self) -> None:
        pass

    def close(self) -> None:
        with self._lock:
            streams, self._streams = self._streams, []
        for stream in streams:
            stream.close()

    def check(self) -> None:
        """Raises torch.AcceleratorError once the device has broken down."""
        if self._broken is not None:
            raise torch.AcceleratorError(self._broken)

    def break_down(self, why: str) -> None:
        """From now on nothing works any more."""
        self._broken = self._broken or f"simulated failure: {why}"

    def run(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One torch operation inside `working`."""
        if getattr(self._local, "outside", False):
            return function(*args, **kwargs)
        tensors = [*_tensors(args), *_tensors(kwargs.values())]
        here = [tensor for tensor in tensors if self.memory_in_use.holds(tensor)]
        if tensors and not here:
            return function(*args, **kwargs)
        name = function._schema.name
        if len(here) < len(tensors) and name != "aten::copy_":
            elsewhere = [t for t in tensors if t.dim() and not self.memory_in_use.holds(t)]
            if elsewhere:
                raise RuntimeError(f"{name}: a tensor {[*elsewhere[0].shape]} of the host meets one of the device")
        self._count()
        on = self._stream(None)
        on.drain()
        with self.memory_in_use.scratch():
            result = function(*args, **kwargs)
            made = list(_tensors((result,)))
            for tensor in made:
                self._hand_out(tensor, on)
        changed = [*_changed(function._schema, args, kwargs)]
        storages = {tensor.untyped_storage()._cdata for tensor in here}
        if changed or not any(tensor.untyped_storage()._cdata in storages for tensor in made):  # else it is a view
            self._touch(on, here, [*changed, *made])
        if name in _SYNCHRONISING:
            self.syncs += 1
            self._host_waits(on)
        return result

    @contextmanager
    def _working(self) -> Iterator[None]:
        self._local.working = True
        try:
            with _Operations(self):
                yield
        finally:
            self._local.working = False

    @contextmanager
    def _outside(self) -> Iterator[None]:
        """Torch operations in here are the host's."""
        before, self._local.outside = getattr(self._local, "outside", False), True
        try:
            yield
        finally:
            self._local.outside = before

    def _copy(self, source: torch.Tensor, out: torch.Tensor, host: torch.Tensor, stream: Stream | None) -> None:
        self._count()
        settings, on = self.settings, self._stream(stream)
        with self._lock:
            delay = settings.latency * self._chance.uniform(0.5, 1.5) + source.nbytes / settings.copy
        locked = host.untyped_storage()._cdata in self._page_locked
        self._touch(on, [source] if locked or host is out else [], [out] if locked or host is source else [])
        with self._outside(), torch.inference_mode():
            on.copy(source, out, delay, host_reads=host is source)
        if not locked:
            self._host_waits(on)
            self.check()

    def _hand_out(self, tensor: torch.Tensor, on: _Stream) -> None:
        """Count a tensor of the device, unless its storage is known."""
        if not self.memory_in_use.add(tensor):
            return
        with _touching:
            # Nobody but copies still queued holds them: a real device would not know of those.
            let_go = [key for key, copies in self._touched.items() if copies >= torch._C._storage_Use_Count(key) - 1]
        for key in let_go:
            self.races.let_go(key)
        wrong = self.races.hand_out(tensor.untyped_storage()._cdata, on.number)
        if wrong is not None:
            self.break_down(wrong)
            self.check()

    def _touch(self, on: _Stream, reads: list[torch.Tensor], writes: list[torch.Tensor]) -> None:
        wrong = self.races.touch(on.number, reads, writes)
        if wrong is not None:
            self.break_down(wrong)
            self.check()

    def _host_waits(self, stream: _Stream) -> None:
        """For all that is queued there now."""
        clock = self.races.mark(stream.number)
        stream.drain()
        self.races.host_waited(clock)

    def _unlock(self, key: int) -> None:
        self._page_locked.discard(key)
        self.races.forget(key)

    def _count(self) -> None:
        self._operations += 1
        if self._operations == self.settings.error_after:
            self.break_down(f"operation {self._operations}")
        self.check()

    def _stream(self, stream: Stream | None) -> _Stream:
        found = stream or getattr(self._local, "stream", self._compute)
        assert isinstance(found, _Stream)
        return found

    def _open_stream(self, name: str) -> _Stream:
        stream = _Stream(name, self.races.add_stream(name), self.break_down, self._touched)
        with self._lock:
            self._streams.append(stream)
        return stream


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Brings torch's operations before the device."""

    def __init__(self, device: SimDevice) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled in here. torch would import its compiler to say so: 72 MB and a second."""
        return False

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._device.run(function, args, kwargs or {})


_touching = threading.Lock()

#: Operations that give the host a number or a shape.
_SYNCHRONISING = frozenset(
    f"aten::{name}" for name in ("item", "_local_scalar_dense", "nonzero", "where", "masked_select", "equal", "unique")
)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _changed(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    """Arguments that an operation writes to."""
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from _tensors((args[position] if position < len(args) else kwargs.get(argument.name),))


def poison(tensor: torch.Tensor) -> None:
    """All bits set: NaN for floats, -1 for integers."""
    _bits(tensor).fill_(-1)


def _checksum(tensor: torch.Tensor) -> int:
    return zlib.crc32(_bits(tensor).contiguous().numpy().data)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.view(_INTEGERS[tensor.dtype.itemsize])


class _Memory:
    """Which storages lie on the device, and how many bytes they take."""

    def __init__(self, limit: int, freed: Callable[[int], None]) -> None:
        """freed: told the number of a storage that is gone"""
        self._freed = freed
        self.limit = limit
        self.held = self.peak = 0
        #: Operations under way, and done: see `scratch`.
        self.working = self.worked = 0
        self._sizes: dict[int, tuple[Any, int]] = {}
        # Storages die on any thread, also while this one holds the lock.
        self._lock = threading.RLock()

    def holds(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._sizes

    def check(self, nbytes: int) -> None:
        """Raises torch.OutOfMemoryError when so many more have no room."""
        if self.held + _rounded(nbytes) > self.limit:
            raise torch.OutOfMemoryError(
                f"simulated accelerator out of memory: {nbytes} bytes asked for, {self.limit - self.held} of "
                f"{self.limit} free"
            )

    @contextmanager
    def scratch(self) -> Iterator[None]:
        """Around the CPU's arithmetic, which takes RAM that no device would."""
        with self._lock:
            self.working += 1
        try:
            yield
        finally:
            with self._lock:
                self.working -= 1
                self.worked += 1

    def add(self, tensor: torch.Tensor) -> bool:
        """Count a tensor's storage, unless that is done already; whether it was not."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        with self._lock:
            if key in self._sizes:
                return False
            nbytes = storage.nbytes()
            self.check(nbytes)
            self._sizes[key] = weakref.ref(storage, lambda _: self._free(key)), _rounded(nbytes)
            self.held += _rounded(nbytes)
            self.peak = max(self.peak, self.held)
            return True

    def _free(self, key: int) -> None:
        with self._lock:
            self.held -= self._sizes.pop(key)[1]
            self._freed(key)


def _rounded(nbytes: int) -> int:
    return -(-nbytes // GRANULE) * GRANULE


class _Event:
    def __init__(self, device: SimDevice, clock: Clock) -> None:
        self.clock = clock
        self._done = threading.Event()
        self._device = device
        self.set, self.wait = self._done.set, self._done.wait

    def synchronize(self) -> None:
        self._done.wait()
        self._device.races.host_waited(self.clock)
        self._device.check()

    def query(self) -> bool:
        if not self._done.is_set():
            return False
        self._device.races.host_waited(self.clock)
        return True


class _Stream:
    """A thread that does one thing after the other.

    touched: of all streams, storages that copies still to be done read or write
    """

    def __init__(self, name: str, number: int, failed: Callable[[str], None], touched: Counter[int]) -> None:
        self.number = number
        self._failed = failed
        self._touched = touched
        self._jobs: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._queued = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def queue(self, job: Callable[[], Any]) -> None:
        with self._changed:
            self._queued += 1
        self._jobs.put(job)

    def copy(self, source: torch.Tensor, out: torch.Tensor, delay: float, *, host_reads: bool) -> None:
        """host_reads: the source is the host's, who must leave it as it is; else the target."""
        # Tensors of its own, so that it can be told whether anybody else still holds theirs.
        source, out = source.detach(), out.detach()
        keys = source.untyped_storage()._cdata, out.untyped_storage()._cdata
        with _touching:
            used = self._touched[keys[1]] > 0
            self._touched.update(keys)
        if not used:
            poison(out)
        sent = _checksum(source) if host_reads else None

        def run() -> None:
            if used:
                poison(out)
            time.sleep(delay)
            try:
                if sent is not None and sent != _checksum(source):
                    raise RuntimeError(f"a race: the host has changed {[*source.shape]} before it was copied")
                if sent is None and not bool((_bits(out) == -1).all()):
                    raise RuntimeError(f"a race: the host has written to {[*out.shape]} before the copy to it was done")
                out.copy_(source)
            finally:
                with _touching:
                    self._touched.subtract(keys)
                    for key in keys:
                        if not self._touched[key]:
                            del self._touched[key]

        self.queue(run)

    def drain(self) -> None:
        """Hold the caller until nothing is queued."""
        if self._queued:
            with self._changed:
                self._changed.wait_for(lambda: not self._queued)

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        torch.set_num_threads(1)
        with torch.inference_mode():
            while (job := self._jobs.get()) is not None:
                try:
                    job()
                except Exception as error:
                    self._failed(f"{type(error).__name__}: {error}")
                del job
                with self._changed:
                    self._queued -= 1
                    self._changed.notify_all()
