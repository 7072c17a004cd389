"""Routed experts in RAM: read in parallel, packed for our kernels, computed where they lie."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine import _native
from engine.errors import Cancelled
from engine.executors.loading import REPORT_INTERVAL, Loader, check_ram
from engine.executors.mlp import kernel_name, native_experts
from engine.executors.threads import settle
from engine.hardware.numa import ThreadPlaces, place_threads
from engine.hardware.sources import Sources
from engine.models.spec import MoeSpec
from engine.status import ExpertUsage
from engine.words import say

if TYPE_CHECKING:
    import torch

    from engine.executors.devices import Device

log = logging.getLogger(__name__)

#: Parallel readers: enough to keep an NVMe drive busy while others pack, few enough for a hard disk's head; no more
#: than cores, because threads that ask the system for huge pages at once hold each other up (0.4 instead of 1.9 GB/s
#: per core with 4 on 2 cores when free memory was in pieces).
READERS = 4

_PARTS = ("gate", "up", "down")

#: x float32 [T, hidden], ids int32 and weights float32 [T, top_k]
BeforeExperts = Callable[[npt.NDArray[np.float32], npt.NDArray[np.int32], npt.NDArray[np.float32]], None]


class ExpertStore:
    """The routed experts of every MoE layer.

    overlaps: hidden states come from an accelerator; a worker thread computes while that goes on
    locked:   every layer is locked in RAM, safe from being paged out
    seconds:  that the kernels took for the last job
    """

    def __init__(self, pool: _native.ThreadPool, device: Device | None, layers: Mapping[int, _native.Experts]) -> None:
        self.overlaps = device is not None and device.accelerator
        self.locked = all(experts.locked for experts in layers.values())
        self.seconds = 0.0
        self._handoffs, self._handoff_seconds = 0, 0.0
        self._asked = self._begun = self._ended = 0.0
        self._pool = pool
        self._device = device
        self._layers = dict(layers)
        self._worker = ThreadPoolExecutor(1, "experts") if self.overlaps else None
        self._running: Future[None] | None = None
        self._buffers: _HostBuffers | None = None

    @classmethod
    def load(
        cls,
        pool: _native.ThreadPool,
        device: Device | None,
        loader: Loader,
        recode: str | None = None,
        isa: str | None = None,
        besides: int = 0,
        places: ThreadPlaces | None = None,
    ) -> ExpertStore:
        """device: that hidden states come from; None where nothing but our kernels computes.
        besides: bytes of RAM that the rest of the model will take after this. places: None asks this machine.

        Raises GreenroomError when RAM would not hold everything, and whatever the progress callback raises.
        """
        moe = {i: layer.ffn for i, layer in enumerate(loader.spec.layers) if isinstance(layer.ffn, MoeSpec)}
        sizes = {i: _packed_nbytes(loader, i, spec, recode, isa) for i, spec in moe.items()}
        check_ram(sum(sizes.values()) + besides, loader.checkpoint.name, say("its weights and context"))
        places = place_threads(pool.threads, Sources()) if places is None else places
        layers: dict[int, _native.Experts] = {}
        readers = ThreadPoolExecutor(max(2, min(READERS, pool.threads)), "reader", initializer=_start_reader)
        try:
            for i, spec in moe.items():
                # Others may have taken memory since the first look.
                check_ram(sizes[i], loader.checkpoint.name, say("the experts of layer {layer}", layer=i + 1))
                layers[i] = _read_layer(readers, loader, i, spec, recode, isa, places)
                if not layers[i].lock():
                    log.debug("experts of layer %d could not be locked in RAM", i)
        except BaseException:
            readers.shutdown(cancel_futures=True)
            layers.clear()
            raise
        readers.shutdown()
        store = cls(pool, device, layers)
        if layers and not store.locked:
            log.info("Experts are not locked in RAM: the system's limit for locked memory is too low (ulimit -l).")
        return store

    @property
    def handoff_s(self) -> float:
        """Mean seconds that handing over one token's work took beside the work, of all layers and tokens so far: until
        the worker had the inputs, with what the device had still to do before, and until its end was noticed.
        """
        return self._handoff_seconds / self._handoffs if self._handoffs else 0.0

    @property
    def nbytes(self) -> int:
        return sum(experts.nbytes for experts in self._layers.values())

    def experts(self, layer: int) -> _native.Experts:
        return self._layers[layer]

    @property
    def kernel(self) -> str:
        """ "int4 avx512vnni", or "int4/int8 avx2" when the parts differ; empty without experts."""
        if not self._layers:
            return ""
        return kernel_name(next(iter(self._layers.values())))

    def usage(self) -> ExpertUsage | None:
        """What the kernels counted; any thread may ask."""
        # One step of the interpreter: `close` may empty the layers meanwhile.
        layers = list(self._layers.items())
        return ExpertUsage.of({layer: experts.counts for layer, experts in layers})

    def forward(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, out: torch.Tensor) -> None:
        """out += sum over slots of weight * expert(x), in the order of the experts' numbers.

        On the CPU, contiguous: x, out float32 [T, hidden]; ids int32, weights float32 [T, top_k].
        """
        self._compute(layer, x, ids, weights, out, accumulate=True)

    def submit(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> None:
        """Start the same on tensors of the device; one job at a time."""
        self.start(layer, x, ids, weights)

    def start(
        self,
        layer: int,
        x: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
        before: BeforeExperts | None = None,
    ) -> Future[None]:
        """The same as `submit`. The future is only for watching: `wait` takes the result.

        before: called on the worker's thread with the inputs, once they are there; it may set ids to -1 to have those
                experts left out
        """
        import torch

        device = self._device
        if device is None or self._worker is None or self._running is not None:
            raise RuntimeError("submit needs a device with handoff and no other job")
        self._asked = perf_counter()
        buffers = self._host_buffers(device, x.shape, ids.shape)
        tokens, top_k = ids.shape
        host = buffers.inputs(tokens, top_k)
        if tokens == 1:
            # One small copy costs a device less than three; of prompts the detour would take room.
            joined = torch.cat([part.contiguous().view(torch.uint8).flatten() for part in (x, ids, weights)])
            device.download(joined, buffers.bytes[: joined.numel()])
        else:
            for tensor, part in zip((x, ids, weights), host, strict=True):
                device.download(tensor, part)
        copied = device.mark()

        def run() -> None:
            copied.synchronize()
            self._begun = perf_counter()
            x, chosen, shares = host
            if before is not None:
                before(x.numpy(), chosen.numpy(), shares.numpy())
            start = perf_counter()
            self._compute(layer, x, chosen, shares, buffers.y, accumulate=False)
            self._ended = perf_counter()
            self.seconds = self._ended - start

        self._running = self._worker.submit(run)
        return self._running

    def later(
        self,
        layer: int,
        x: npt.NDArray[np.float32],
        ids: npt.NDArray[np.int32],
        weights: npt.NDArray[np.float32],
        y: npt.NDArray[np.float32],
    ) -> Future[None]:
        """Have the worker compute, after its present job, into y float32 [T, hidden]; arrays on the CPU."""
        if self._worker is None:
            raise RuntimeError("later needs a device with handoff")
        tokens, top_k = ids.shape

        def run() -> None:
            at = [array.ctypes.data for array in (x, ids, weights, y)]
            self._layers[layer].forward(self._pool, at[0], tokens, at[1], at[2], top_k, at[3])

        return self._worker.submit(run)

    def wait(self, out: torch.Tensor) -> None:
        """Add the submitted job's result to out, float32 [T, hidden] on the device. Raises what the job raised."""
        running, self._running = self._running, None
        if running is None or self._buffers is None or self._device is None:
            raise RuntimeError("wait without submit")
        waiting = perf_counter()
        running.result()
        if len(out) == 1:
            self._handoffs += 1
            self._handoff_seconds += self._begun - self._asked + perf_counter() - max(self._ended, waiting)
        # The next job writes y only after its own inputs have been copied, which the device queues behind this.
        out += self._device.upload(self._buffers.y[: out.shape[0]])

    def drain(self) -> None:
        """Wait for a job whose result nobody wants any more."""
        running, self._running = self._running, None
        if running is not None:
            wait([running])

    def close(self) -> None:
        self.drain()
        if self._worker is not None:
            self._worker.shutdown()
        self._layers.clear()
        self._buffers = None

    def _compute(
        self,
        layer: int,
        x: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
        out: torch.Tensor,
        *,
        accumulate: bool,
    ) -> None:
        tokens, top_k = ids.shape
        self._layers[layer].forward(
            self._pool,
            x.data_ptr(),
            tokens,
            ids.data_ptr(),
            weights.data_ptr(),
            top_k,
            out.data_ptr(),
            accumulate,
        )

    def _host_buffers(self, device: Device, x: torch.Size, ids: torch.Size) -> _HostBuffers:
        old = self._buffers
        if old is None or old.tokens < x[0] or old.top_k < ids[1]:
            device.synchronise()
            self._buffers = _HostBuffers(device, x[0], x[1], ids[1])
        assert self._buffers is not None
        return self._buffers


class _HostBuffers:
    """What travels to the experts and back.

    bytes: uint8, the inputs of a job one behind the other, for so many tokens and experts of a token at most
    y:     float32 [tokens, hidden]
    """

    def __init__(self, device: Device, tokens: int, hidden: int, top_k: int) -> None:
        import torch

        self.tokens, self.top_k = tokens, top_k
        self.bytes = device.host_buffer(4 * tokens * (hidden + 2 * top_k), dtype=torch.uint8)
        self.y = device.host_buffer(tokens, hidden, dtype=torch.float32)

    def inputs(self, tokens: int, top_k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """x float32 [tokens, hidden], ids int32 and weights float32 [tokens, top_k], lying there."""
        import torch

        words, hidden = self.bytes.view(torch.int32), self.y.shape[1]
        first, last = tokens * hidden, tokens * (hidden + top_k)
        x = words[:first].view(torch.float32).view(tokens, hidden)
        ids = words[first:last].view(tokens, top_k)
        weights = words[last : last + tokens * top_k].view(torch.float32).view(tokens, top_k)
        return x, ids, weights


_reader = threading.local()


def _start_reader() -> None:
    """Each reader packs what it read by itself: a pool of one is the calling thread."""
    _reader.pool = _native.ThreadPool(1)


def _packed_nbytes(loader: Loader, layer: int, spec: MoeSpec, recode: str | None, isa: str | None) -> int:
    roles = [f"layers.{layer}.moe.experts.0.{part}" for part in _PARTS]
    try:
        total = 0
        for role in roles:
            rows, columns = loader.shape(role)
            total += _native.packed_nbytes(rows, columns, loader.format(role), recode, isa)
        return spec.experts * total
    except ValueError as error:
        raise loader.refuse(roles[0], error) from error


def _read_layer(
    readers: ThreadPoolExecutor,
    loader: Loader,
    layer: int,
    spec: MoeSpec,
    recode: str | None,
    isa: str | None,
    places: ThreadPlaces,
) -> _native.Experts:
    prefix = f"layers.{layer}.moe.experts"
    formats = {part: loader.format(f"{prefix}.0.{part}") for part in _PARTS}
    hidden = loader.spec.hidden
    stop = threading.Event()
    try:
        experts = native_experts(
            spec.expert,
            spec.experts,
            hidden,
            (formats["gate"], formats["up"], formats["down"]),
            recode,
            isa,
            places.memory,
        )
    except ValueError as error:
        raise loader.refuse(f"{prefix}.0.gate", error) from error
    settle([experts], places)

    def read(expert: int) -> None:
        for part, form in formats.items():
            if stop.is_set():
                raise Cancelled
            role = f"{prefix}.{expert}.{part}"
            try:
                if loader.format(role) != form:
                    raise ValueError(f"other experts of this layer are stored as {form}")
                loader.pack_expert(f"{prefix}.{expert}", _reader.pool, experts, expert, part, bias=spec.bias)
            except ValueError as error:
                raise loader.refuse(role, error) from error

    message = say("Reading experts of layer {layer} of {layers}", layer=layer + 1, layers=len(loader.spec.layers))
    _run(readers, [partial(read, e) for e in range(spec.experts)], stop, lambda: loader.report(message))
    return experts


def _run(
    readers: ThreadPoolExecutor, jobs: list[Callable[[], None]], stop: threading.Event, report: Callable[[], None]
) -> None:
    """Run jobs to the end while reporting; the first error stops the rest."""
    futures = [readers.submit(job) for job in jobs]
    try:
        while True:
            report()
            done, pending = wait(futures, REPORT_INTERVAL, FIRST_EXCEPTION)
            for future in done:
                future.result()
            if not pending:
                return
    except BaseException:
        stop.set()
        for future in futures:
            future.cancel()
        wait(futures)
        raise
