"""Experts on their way from ordinary RAM to the device: a ring of page-locked buffers, and streams of whole layers.

Systems page-lock little (Windows often a few hundred MB in all), so experts are not locked themselves: a thread copies
each one into a small page-locked buffer, from where the device fetches it beside its work.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
import numpy.typing as npt
import torch

from engine.errors import Cancelled
from engine.executors.devices import Device, Event
from engine.placement.sizes import STAGING_BUFFERS, STAGING_BYTES

log = logging.getLogger(__name__)

#: How long a wait lasts before it looks whether the answer was cancelled, in seconds.
LOOK_AROUND = 0.05

Pieces = Sequence[npt.NDArray[np.uint8]]
#: (the model's number of the layer, expert)
Key = tuple[int, int]


class Staging:
    """A ring of page-locked buffers, filled by one thread at a time.

    pinned: they are page-locked; else copies to the device hold up the sending thread
    """

    def __init__(self, device: Device, nbytes: int) -> None:
        """nbytes: of the largest expert. Takes as many buffers as the system lets it lock, at least one."""
        self._device = device
        self._stream = device.new_stream()
        self._buffers: list[torch.Tensor] = []
        # Two keep the link busy; more even out the copies into them, which other programs may hold up.
        most = max(2, min(STAGING_BUFFERS, STAGING_BYTES // max(1, nbytes)))
        self.pinned = False
        while len(self._buffers) < most:
            buffer = device.host_buffer(nbytes, dtype=torch.uint8)
            if self.pinned and not device.pinned:
                break  # those that could be locked must do
            self._buffers.append(buffer)
            self.pinned = device.pinned
            if not self.pinned:
                break
        self._busy: list[Event | None] = [None] * len(self._buffers)
        self._next = 0

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self._buffers)

    def send(self, pieces: Pieces, out: torch.Tensor, after: Event | None = None) -> Event:
        """Copies to out, uint8 [at least all pieces] on the device, once `after` is done; the event is behind it."""
        turn, self._next = self._next, (self._next + 1) % len(self._buffers)
        busy, self._busy[turn] = self._busy[turn], None
        if busy is not None:
            busy.synchronize()
        at = 0
        buffer = self._buffers[turn].numpy()
        for piece in pieces:
            np.copyto(buffer[at : at + len(piece)], piece)
            at += len(piece)
        if after is not None:
            self._device.wait_for(after, self._stream)
        self._device.upload(self._buffers[turn][:at], out[:at], self._stream)
        event = self._device.mark(self._stream)
        self._busy[turn] = event
        return event

    def wait_behind(self) -> None:
        """What is queued on the current stream from now on comes after all copies so far: buffers may be let go."""
        self._device.wait_for(self._device.mark(self._stream))


class Carrier:
    """The one thread that fills the staging ring: jobs are done in order."""

    def __init__(self, device: Device, nbytes: int) -> None:
        self._device = device
        self.staging = Staging(device, nbytes)
        self.bytes_sent = 0
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="experts-carrier", daemon=True)
        self._thread.start()

    def do(self, job: Callable[[], None]) -> None:
        """Queue a job, which must not raise."""
        self._jobs.put(job)

    def send(self, pieces: Pieces, out: torch.Tensor, after: Event | None = None) -> Event:
        """For jobs: see `Staging.send`."""
        event = self.staging.send(pieces, out, after)
        self.bytes_sent += sum(map(len, pieces))
        return event

    def idle(self) -> None:
        """Wait until all jobs so far are done."""
        done = threading.Event()
        self.do(done.set)
        done.wait()

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()
        self.staging.wait_behind()

    def _work(self) -> None:
        # How many threads torch takes is kept per thread.
        torch.set_num_threads(1)
        with self._device.working():
            while (job := self._jobs.get()) is not None:
                job()
                del job


@dataclass
class _Sent:
    key: Key
    turn: int
    arrived: Event


@dataclass
class _Failed:
    error: BaseException


class ExpertStream:
    """Experts of all layers of one prompt chunk, sent ahead through a ring of buffers on the device.

    One thread takes, in the order in which they were asked for; experts sent in vain are passed over.
    """

    def __init__(
        self, device: Device, carrier: Carrier, buffers: Sequence[torch.Tensor], cancelled: Callable[[], bool]
    ) -> None:
        """buffers: uint8 [nbytes of the largest expert] each, on the device; two at least."""
        if len(buffers) < 2:
            raise ValueError("a stream needs two buffers")
        self._device, self._carrier = device, carrier
        self._buffers = list(buffers)
        self._cancelled = cancelled
        self._changed = threading.Condition()
        #: Buffers that may be written after the event.
        self._free: deque[tuple[int, Event | None]] = deque((turn, None) for turn in range(len(buffers)))
        self._sent: deque[_Sent | _Failed] = deque()
        self._wanted: dict[int, frozenset[int]] = {}
        self._running = False
        self._stop = False
        self._taken: _Sent | None = None

    def start(self, experts: Iterable[tuple[Key, Callable[[], Pieces]]]) -> None:
        """Begin sending these, in order. The stream before must have been stopped."""
        if self._running:
            raise RuntimeError("the stream runs already")
        self._running, self._stop, self._wanted = True, False, {}
        self._carrier.do(lambda: self._send_all(experts))

    def want(self, layer: int, experts: Iterable[int]) -> None:
        """Of this layer only these are needed: the others are left out, as far as they have not been sent."""
        with self._changed:
            self._wanted[layer] = frozenset(experts)

    def take(self, key: Key) -> torch.Tensor:
        """An expert's bytes, for work queued on the current stream before the next `take` or `stop`.

        Raises Cancelled, and what went wrong while it was sent.
        """
        self._give_back()
        while True:
            with self._changed:
                while not self._sent:
                    if self._cancelled():
                        raise Cancelled
                    if not self._running:
                        raise RuntimeError(f"expert {key} was never sent")
                    self._changed.wait(LOOK_AROUND)
                sent = self._sent.popleft()
            if isinstance(sent, _Failed):
                raise sent.error
            self._taken = sent
            if sent.key == key:
                self._device.wait_for(sent.arrived)
                return self._buffers[sent.turn]
            # Sent before anybody knew that it was not needed.
            self._give_back(sent.arrived)

    def stop(self) -> None:
        """Send nothing more, and have all buffers back. Waits for what is being sent; safe at any time."""
        self._give_back()
        with self._changed:
            self._stop = True
            self._changed.notify_all()
            while self._running:
                self._changed.wait()
            for sent in self._sent:
                if isinstance(sent, _Sent):
                    self._free.append((sent.turn, sent.arrived))
            self._sent.clear()

    def _give_back(self, after: Event | None = None) -> None:
        """The last buffer taken may be written again after the work queued so far, or after an event."""
        taken, self._taken = self._taken, None
        if taken is None:
            return
        event = self._device.mark() if after is None else after
        with self._changed:
            self._free.append((taken.turn, event))
            self._changed.notify_all()

    def _send_all(self, experts: Iterable[tuple[Key, Callable[[], Pieces]]]) -> None:
        try:
            for key, pieces in experts:
                with self._changed:
                    while not self._free and not self._stop:
                        self._changed.wait()
                    if self._stop:
                        return
                    if key[1] not in self._wanted.get(key[0], (key[1],)):
                        continue
                    turn, after = self._free.popleft()
                arrived = None
                try:
                    arrived = self._carrier.send(pieces(), self._buffers[turn], after)
                finally:
                    with self._changed:
                        if arrived is None:
                            self._free.append((turn, after))
                        else:
                            self._sent.append(_Sent(key, turn, arrived))
                        self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._sent.append(_Failed(error))
        finally:
            with self._changed:
                self._running = False
                self._changed.notify_all()


@dataclass
class PrefillSpeeds:
    """Where a chunk of a prompt is computed sooner, from what the chunks before took.

    cpu:  seconds per token and layer in our kernels, by the number of tokens (as a power of two)
    link: bytes per second that arrived, computing included; None before the first
    """

    cpu: dict[int, float] = field(default_factory=dict)
    link: float | None = None

    def add_cpu(self, tokens: int, seconds: float) -> None:
        """One layer's experts took so long."""
        size = tokens.bit_length()
        known = self.cpu.get(size)
        spent = seconds / tokens
        self.cpu[size] = spent if known is None else (known + spent) / 2

    def add_stream(self, nbytes: int, seconds: float) -> None:
        if nbytes > 0 and seconds > 0:
            rate = nbytes / seconds
            self.link = rate if self.link is None else (self.link + rate) / 2

    def cpu_seconds(self, tokens: int) -> float | None:
        """One layer's, from the nearest number of tokens that was timed; None before any was."""
        if not self.cpu:
            return None
        size = tokens.bit_length()
        return tokens * self.cpu[min(self.cpu, key=lambda known: abs(known - size))]

    def stream(self, tokens: int, nbytes: int) -> bool | None:
        """Whether to stream a layer's experts of so many bytes; None while that cannot be known."""
        cpu = self.cpu_seconds(tokens)
        if cpu is None or self.link is None:
            return None
        return nbytes / self.link < cpu


def measure_link(device: Device, carrier: Carrier, target: torch.Tensor, seconds: float = 0.02) -> float:
    """Bytes per second through the staging ring into target, uint8 [nbytes] on the device; on the carrier's thread.

    Stops after so many seconds, at the earliest after three copies.
    """
    source = np.zeros(target.nbytes, np.uint8)
    result: queue.SimpleQueue[float | BaseException] = queue.SimpleQueue()

    def run() -> None:
        try:
            carrier.staging.send([source], target).synchronize()  # wakes the link
            start, copies = perf_counter(), 0
            while copies < 3 or perf_counter() - start < seconds:
                event = carrier.staging.send([source], target)
                copies += 1
            event.synchronize()
            result.put(copies * len(source) / (perf_counter() - start))
        except BaseException as error:
            result.put(error)

    carrier.do(run)
    measured = result.get()
    if isinstance(measured, BaseException):
        raise measured
    return measured
