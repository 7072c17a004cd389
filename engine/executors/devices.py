"""The device that computes everything except the routed experts that stay in RAM."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from engine.errors import GreenroomError
from engine.words import say

#: A plan's dense_dtype -> arithmetic, and what matrices are re-coded to.
DENSE = {
    "float32": (torch.float32, None),
    "bfloat16": (torch.bfloat16, None),
    "int8": (torch.bfloat16, "int8"),
    "int4": (torch.bfloat16, "int4"),
}
KV_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


class Event(Protocol):
    """A point in a stream."""

    def synchronize(self) -> None:
        """Hold the calling thread until everything before this point is done."""

    def query(self) -> bool:
        """Whether it is done."""


class Stream(Protocol):
    """Work that is done in order, beside other streams' work. Only its device looks inside."""


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes. held and peak: of this program's tensors there, now and at most since `reset_peak`."""

    total: int
    free: int
    held: int
    peak: int


class Device(ABC):
    """What holds tensors, and moves them there and back.

    name:         "cuda:0", "xpu:0", "cpu", "sim"
    torch_device: that torch makes its tensors on
    accelerator:  it has memory of its own, and works beside the CPU
    pinned:       `host_buffer` gives page-locked memory; copies elsewhere hold the caller until they are done
    notes:        what does not work here as wished, a sentence each

    Calls that queue work do so on the stream named, or on the current one of the calling thread.
    """

    accelerator = True

    def __init__(self, name: str, torch_device: torch.device) -> None:
        self.name = name
        self.torch_device = torch_device
        self.pinned = True
        self.notes: list[str] = []
        #: Of torch, tried on this device: whether they are there and right.
        self.operators: dict[str, bool] = {}

    def working(self) -> AbstractContextManager[Any]:
        """Around all torch operations on the device's tensors, on the thread that calls them."""
        return contextlib.nullcontext()

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """A tensor on the device. Raises torch.OutOfMemoryError."""
        return torch.empty(shape, dtype=dtype, device=self.torch_device)

    @abstractmethod
    def upload(
        self, source: torch.Tensor, out: torch.Tensor | None = None, stream: Stream | None = None
    ) -> torch.Tensor:
        """Copy a host tensor to out, or to a new tensor of its shape and type.

        From a `host_buffer` this only queues the copy: the buffer must stay as it is until an event behind it is done.
        """

    @abstractmethod
    def download(
        self, source: torch.Tensor, out: torch.Tensor | None = None, stream: Stream | None = None
    ) -> torch.Tensor:
        """Copy a tensor of the device to out, a `host_buffer`, or to a new host tensor.

        Without out the values are there on return; into a buffer they are once an event behind the copy is done.
        """

    @abstractmethod
    def new_stream(self) -> Stream: ...

    @abstractmethod
    def on(self, stream: Stream) -> AbstractContextManager[Any]:
        """Makes it the calling thread's current stream inside `working`."""

    @abstractmethod
    def mark(self, stream: Stream | None = None) -> Event:
        """An event behind everything queued so far."""

    @abstractmethod
    def wait_for(self, event: Event, stream: Stream | None = None) -> None:
        """What is queued from now on is done only after the event. Does not hold the caller."""

    @abstractmethod
    def host_buffer(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        """Host memory that copies from and to the device can use while the caller goes on, page-locked where that
        works; `pinned` and `notes` say so when it does not.
        """

    def no_graphs(self) -> str:
        """Why a step's operations cannot be captured and replayed as one, found out by trying; "" if they can."""
        return say("torch has no graphs for it")

    @abstractmethod
    def memory(self) -> DeviceMemory: ...

    @abstractmethod
    def reset_peak(self) -> None: ...

    @abstractmethod
    def synchronise(self) -> None:
        """Wait for everything queued on the device. Raises what went wrong there."""

    @abstractmethod
    def release(self) -> None:
        """Give freed memory back to the device: its allocator keeps it for itself otherwise."""

    def close(self) -> None:  # noqa: B027 - most devices have nothing that runs
        """Stop what runs for the device. Safe after an error, and twice."""

    def _unpinned(self, why: str) -> None:
        self.pinned = False
        note = say("Copies between RAM and the GPU hold up the work: memory could not be page-locked ({why}).", why=why)
        if note not in self.notes:
            self.notes.append(note)


class _Done:
    """An event of a device that does everything at once."""

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True


class HostDevice(Device):
    """The CPU itself: nothing is copied, everything is done when a call returns."""

    accelerator = False

    def __init__(self) -> None:
        super().__init__("cpu", torch.device("cpu"))

    def upload(
        self, source: torch.Tensor, out: torch.Tensor | None = None, stream: Stream | None = None
    ) -> torch.Tensor:
        return source if out is None else out.copy_(source)

    def download(
        self, source: torch.Tensor, out: torch.Tensor | None = None, stream: Stream | None = None
    ) -> torch.Tensor:
        return source if out is None else out.copy_(source)

    def new_stream(self) -> Stream:
        return _Done()

    def on(self, stream: Stream) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def mark(self, stream: Stream | None = None) -> Event:
        return _Done()

    def wait_for(self, event: Event, stream: Stream | None = None) -> None:
        pass

    def host_buffer(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype)

    def memory(self) -> DeviceMemory:
        return DeviceMemory(0, 0, 0, 0)

    def reset_peak(self) -> None:
        pass

    def synchronise(self) -> None:
        pass

    def release(self) -> None:
        pass


class TorchDevice(Device):
    """A GPU that torch drives: cuda (AMD's too, under the same name), xpu, mps.

    torch.mps has no streams to choose from: there every copy is done at once.
    """

    def __init__(self, name: str) -> None:
        """Raises GreenroomError when it is not there."""
        device = torch.device(name)
        try:
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError) as error:
            raise GreenroomError(
                say("The model cannot be loaded on {name}", name=name),
                say("this device does not answer ({value})", value=str(error).splitlines()[0]),
                say("Check its driver, or load the model on the CPU."),
            ) from error
        super().__init__(name, device)
        self._module: Any = getattr(torch, device.type)
        self._streams = hasattr(self._module, "Stream")
        self.pinned = self._streams

    def working(self) -> AbstractContextManager[Any]:
        return self._module.device(self.torch_device) if self._streams else contextlib.nullcontext()

    def upload(
        self, source: torch.Tensor, out: torch.Tensor | None = None, stream: Stream | None = None
    ) -> torch.Tensor:
        with self._current(stream):
            if out is None:
                out = torch.empty_like(source, device=self.torch_device)
            return out.copy_(source, non_blocking=source.is_pinned())

    def download(
        self, source: torch.Tensor, out: torch.Tensor | None = None, stream: Stream | None = None
    ) -> torch.Tensor:
        with self._current(stream):
            return source.cpu() if out is None else out.copy_(source, non_blocking=out.is_pinned())

    def new_stream(self) -> Stream:
        return self._module.Stream(self.torch_device) if self._streams else _Done()

    def on(self, stream: Stream) -> AbstractContextManager[Any]:
        return self._current(stream)

    def mark(self, stream: Stream | None = None) -> Event:
        if not self._streams:
            self._module.synchronize()
            return _Done()
        event = self._module.Event()
        event.record(stream or self._module.current_stream(self.torch_device))
        return event  # type: ignore[no-any-return]

    def wait_for(self, event: Event, stream: Stream | None = None) -> None:
        if self._streams:
            on: Any = stream or self._module.current_stream(self.torch_device)
            on.wait_event(event)

    def host_buffer(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        if self._streams:
            try:
                return torch.empty(shape, dtype=dtype, pin_memory=True)
            except RuntimeError as error:
                self._unpinned(str(error).splitlines()[0])
        return torch.empty(shape, dtype=dtype)

    def no_graphs(self) -> str:
        if self.torch_device.type != "cuda":
            return super().no_graphs()
        try:
            with torch.inference_mode(), self.working():
                x, weights = (torch.ones(rows, 64, device=self.torch_device) for rows in (1, 64))
                recorded = torch.cuda.CUDAGraph()
                with torch.cuda.graph(recorded, capture_error_mode="thread_local"):
                    y = torch.nn.functional.linear(x, weights)
                x.fill_(2.0)
                recorded.replay()
                return "" if float(y[0, 0]) == 128.0 else say("a replayed product is wrong")
        except RuntimeError as error:
            return str(error).partition("\n")[0]

    def memory(self) -> DeviceMemory:
        if not self._streams:
            held = self._module.current_allocated_memory()
            total = self._module.recommended_max_memory()
            return DeviceMemory(total, max(0, total - held), held, held)
        free, total = self._module.mem_get_info(self.torch_device)
        held = self._module.memory_allocated(self.torch_device)
        # What the allocator keeps for itself is free for the next tensor.
        free += self._module.memory_reserved(self.torch_device) - held
        return DeviceMemory(total, free, held, self._module.max_memory_allocated(self.torch_device))

    def reset_peak(self) -> None:
        if self._streams:
            self._module.reset_peak_memory_stats(self.torch_device)

    def synchronise(self) -> None:
        self._module.synchronize()

    def release(self) -> None:
        self._module.empty_cache()

    def _current(self, stream: Stream | None) -> AbstractContextManager[Any]:
        if stream is None or not self._streams:
            return contextlib.nullcontext()
        return self._module.stream(stream)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class DenseDevice:
    """Where the dense part lives, and how it is computed.

    dtype:  arithmetic of dense projections; activations between them stay float32
    native: dense projections run in our kernels, on the stored codes
    code:   "int8" or "int4" where matrices are re-coded; None keeps them in dtype
    """

    device: Device
    dtype: torch.dtype
    native: bool
    code: str | None = None

    @property
    def own_attention(self) -> bool:
        """Whether norms and attention run in our kernels: on the CPU, unless it plays an accelerator."""
        return not self.device.accelerator


def out_of_memory(error: RuntimeError) -> bool:
    """Also where a library below torch says so in its own words."""
    words = str(error)
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in words or "ALLOC_FAILED" in words


@contextlib.contextmanager
def device_errors(device: Device, what: str) -> Iterator[None]:
    """Says in words what torch raises when a device breaks down. Running out of memory is another matter."""
    try:
        yield
    except torch.AcceleratorError as error:
        if out_of_memory(error):
            raise
        raise GreenroomError(
            what,
            say("{name} has stopped working ({value})", name=device.name, value=str(error).splitlines()[0]),
            say("Load the model again; if that fails too, restart Greenroom."),
        ) from error
