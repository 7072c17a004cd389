"""Routed experts between RAM and VRAM: all of them in RAM, copies of the hottest in slots on the device.

A token's experts that have a slot are computed on the device, the others at the same time on the CPU. Prompts are
computed on the CPU, or on the device with weights streamed there layer by layer, whichever was measured to be faster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
import numpy.typing as npt
import torch

from engine.errors import Cancelled
from engine.executors.devices import DenseDevice
from engine.executors.hybrid.deferred_experts import DeferredExperts
from engine.executors.hybrid.hot_cache import HotCache, Policy
from engine.executors.hybrid.packed_layer import PackedLayer
from engine.executors.hybrid.slot_uploads import MOST_UPLOADS, SlotUploads
from engine.executors.hybrid.streaming import Carrier, ExpertStream, Key, Pieces, PrefillSpeeds, measure_link
from engine.executors.native.expert_store import ExpertStore
from engine.models.spec import ModelSpec, MoeSpec
from engine.placement.sizes import DEQUANTISED_AT_ONCE, LEAST_RING, RING_SHARE
from engine.status import EngineStatus, ExpertUsage
from engine.words import say

log = logging.getLogger(__name__)

#: Slots are allocated in blocks of so many bytes, so that some can be given back when memory gets short.
BLOCK_BYTES = 64 << 20
#: Share of the planned slots below which it is said that there are fewer: allocators round.
NEARLY_ALL = 0.95
#: Slots that prompts are streamed through, at most.
MOST_RING = 32
_TIMED_RUNS = 7

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class _Job:
    """What was submitted, all of it on the device; hits of a token: what the worker finds in slots."""

    layer: int
    x: torch.Tensor
    ids: torch.Tensor
    weights: torch.Tensor
    hits: Future[_Hits] | None = None
    streamed: bool = False


@dataclass(frozen=True)
class _Hits:
    """What of one token's experts lies on the device: slots, experts and weights, in the order of the experts."""

    slots: list[int]
    experts: list[int]
    weights: list[float]


class HybridExperts:
    """Implements `engine.executors.moe.RoutedExperts` for an accelerator.

    cache: which experts are in slots; None without slots
    """

    overlaps = True

    def __init__(
        self, store: ExpertStore, dense: DenseDevice, spec: ModelSpec, cancelled: Callable[[], bool] = lambda: False
    ) -> None:
        self.store = store
        self.cache: HotCache | None = None
        self.notes: list[str] = []
        #: Those that say what was given up for want of memory.
        self.stepped_down: tuple[str, ...] = ()
        self.prefill = "cpu"
        self.speeds = PrefillSpeeds()
        self._dense, self._device = dense, dense.device
        self._cancelled = cancelled
        self._moe = {i: layer.ffn for i, layer in enumerate(spec.layers) if isinstance(layer.ffn, MoeSpec)}
        self._hidden = spec.hidden
        self._layers: dict[int, PackedLayer] = {}
        self._rows = {layer: row for row, layer in enumerate(self._moe)}
        most = max((moe.experts for moe in self._moe.values()), default=0)
        #: Of those that the kernels did not count, because they were computed here.
        self._counts = np.zeros((len(self._moe), most), np.uint64)
        self._blocks: list[torch.Tensor] = []
        self._per_block = 1
        self._carrier: Carrier | None = None
        self._stream: ExpertStream | None = None
        self._streaming = False
        self.uploads: SlotUploads | None = None
        self._step_seconds = 0.0
        self._job: _Job | None = None
        self._deferred: DeferredExperts | None = None
        #: Computing hits on the device is sooner than on the CPU.
        self._hits_pay = True

    def defer(self, count: int) -> None:
        """From now on the `count` weakest experts of a token take effect a layer later, where the CPU computes them."""
        if count and len(self._moe) > 1:
            self._deferred = DeferredExperts(self.store, self._device, count, tuple(self._moe), self._hidden)

    @property
    def kernel(self) -> str:
        return self.store.kernel

    @property
    def slot_nbytes(self) -> int:
        """Of the slots in VRAM."""
        return sum(block.nbytes for block in self._blocks)

    def open_slots(
        self,
        slots: int,
        statistics: npt.NDArray[np.floating] | None = None,
        policy: Policy | None = None,
        keep_free: int = 0,
        measured: bool = False,
        report: Callable[[], None] = lambda: None,
    ) -> None:
        """Take VRAM for so many experts, or as many as it holds, and fill it. Last thing of a load.

        statistics: float [L, E] of the layers in `cacheable`, most called experts first into the slots
        keep_free:  bytes of VRAM that answers need beside
        measured:   find out by timing whether the device computes hits soon enough, and leave them to the CPU if not
        report:     called now and then; may raise Cancelled
        """
        self._drop_slots()
        for number in self.cacheable:
            packed = self.store.experts(number)
            self._layers[number] = PackedLayer.of(packed, self._moe[number], self._hidden, self._device)
        left_out = len(self._moe) - len(self._layers)
        if left_out:
            self.notes.append(
                say(
                    "The experts of %n layers are stored in an order that only the CPU can use: none of them has a "
                    "place in VRAM.",
                    n=left_out,
                    one="The experts of %n layer are stored in an order that only the CPU can use: none of them has a "
                    "place in VRAM.",
                )
            )
        if not self._layers or slots < 1:
            return
        nbytes = max(layer.packed.nbytes for layer in self._layers.values())
        found = self._allocate(slots, nbytes, keep_free)
        if found < NEARLY_ALL * slots:
            note = say(
                "VRAM had room for fewer experts than planned, {found} of {slots}: answers are slower.",
                found=found,
                slots=slots,
            )
            self.stepped_down = (note,)
        if not found:
            return
        total = sum(layer.spec.experts for layer in self._layers.values())
        ring = 0 if found >= total else min(MOST_RING, found // RING_SHARE)
        ring = ring if ring >= LEAST_RING else 0
        self.cache = HotCache(
            tuple(self._layers), self._counts.shape[1], found - ring, policy, self._checked(statistics)
        )
        self._carrier = Carrier(self._device, nbytes)
        if not self._carrier.staging.pinned:
            self.notes.append(say("Experts are copied to VRAM more slowly: the system page-locks no memory for it."))
        self.speeds.link = measure_link(self._device, self._carrier, self._slot(0)[:nbytes])
        if ring:
            buffers = [self._slot(found - ring + i) for i in range(ring)]
            self._stream = ExpertStream(self._device, self._carrier, buffers, self._cancelled)
        self.uploads = SlotUploads(self._device, self._carrier, self.cache, self._slot, self._pieces)
        for upload in self.cache.fill():
            self.uploads.start(upload)
            if self.uploads.under_way == MOST_UPLOADS:
                self.uploads.settle()
                report()
        self.uploads.settle()
        if measured:
            self._time_hits(self.cache)

    @property
    def most_experts(self) -> int:
        """Of any layer."""
        return self._counts.shape[1]

    @property
    def cacheable(self) -> tuple[int, ...]:
        """Layers whose experts the device can compute."""
        return tuple(number for number in self._moe if not self.store.experts(number).reordered)

    def shrink(self, slots: int) -> int:
        """Give VRAM back until at most so many slots are left; returns how many there are. Between steps only.

        Prompts are then computed on the CPU.
        """
        if self.cache is None or self.uploads is None:
            return 0
        self.uploads.settle()
        blocks = min(len(self._blocks), -(-slots // self._per_block))
        if self._stream is not None:
            self._stream.stop()
            self._stream = None
            if self._carrier is not None:
                self._carrier.staging.wait_behind()
        del self._blocks[blocks:]
        self.cache.shrink(min(slots, sum(map(len, self._blocks))))
        self._device.release()
        return self.cache.slots

    @contextmanager
    def step(self, tokens: int) -> Iterator[None]:
        """Around all layers of one forward call."""
        start = perf_counter()
        if self.uploads is not None:
            self.uploads.receive()
            if tokens == 1 and self._hits_pay:
                self.uploads.ask(self._step_seconds * (self.speeds.link or 0.0))
        sent = self._carrier.bytes_sent if self._carrier is not None else 0
        yield
        seconds = perf_counter() - start
        if self._streaming and self._carrier is not None:
            self._end_stream()
            self.speeds.add_stream(self._carrier.bytes_sent - sent, seconds)
        if self.cache is not None:
            self.cache.advance(tokens)
        if tokens == 1:
            self._step_seconds = seconds if not self._step_seconds else 0.9 * self._step_seconds + 0.1 * seconds

    def forward(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, out: torch.Tensor) -> None:
        self.submit(layer, x, ids, weights)
        self.wait(out)

    def submit(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> None:
        cached = self.cache is not None and layer in self._layers
        self._job = _Job(layer, x, ids, weights)
        if len(x) == 1 and ((cached and self._hits_pay) or self._deferred is not None):
            hits: Future[_Hits] = Future()
            self._job = _Job(layer, x, ids, weights, hits)
            running = self.store.start(layer, x, ids, weights, lambda *inputs: self._leave_out(layer, hits, *inputs))
            # Whatever goes wrong before it gets so far must not leave anybody waiting.
            running.add_done_callback(lambda ended: _pass_on(ended, hits))
        elif cached and self._streams(layer, len(x)):
            self.prefill = "streamed"
            self._job = _Job(layer, x, ids, weights, streamed=True)
        elif cached:
            self.prefill = "cpu"
            self.store.start(layer, x, ids, weights, lambda _, chosen, __: self._observe(layer, chosen))
        else:
            self.store.submit(layer, x, ids, weights)

    def wait(self, out: torch.Tensor) -> None:
        job, self._job = self._job, None
        if job is None:
            raise RuntimeError("wait without submit")
        if job.streamed:
            self._compute_streamed(job, out)
            return
        if job.hits is not None:
            self._compute_hits(job, job.hits.result(), out)
        self.store.wait(out)
        if len(job.x) > 1:
            self.speeds.add_cpu(len(job.x), self.store.seconds)
        elif self._deferred is not None:
            self._deferred.add(job.layer, out)

    def drain(self) -> None:
        """End whatever a call that was broken off has left running."""
        self._job = None
        self.store.drain()
        if self._deferred is not None:
            self._deferred.drain()
        self._end_stream()

    def _end_stream(self) -> None:
        if self._streaming and self._stream is not None:
            self._stream.stop()
        self._streaming = False

    def close(self) -> None:
        self.drain()
        self._drop_slots()
        self.store.close()

    def _drop_slots(self) -> None:
        if self._carrier is not None:
            self._carrier.close()
        self._carrier = self._stream = self.uploads = None
        self._layers.clear()
        self._blocks.clear()

    def usage(self) -> ExpertUsage | None:
        usage = self.store.usage()
        if usage is None:
            return None
        in_vram = np.zeros(usage.counts.shape, np.bool_)
        cache = self.cache
        if cache is not None:
            in_vram[[self._rows[layer] for layer in cache.layers]] = cache.resident()
        return replace(usage, counts=usage.counts + self._counts, in_vram=in_vram)

    def told(self, status: EngineStatus) -> EngineStatus:
        """The status with what is known here."""
        cache, carrier = self.cache, self._carrier
        return replace(
            status,
            ram_bytes=status.ram_bytes + (0 if carrier is None else carrier.staging.nbytes),
            vram_bytes=status.vram_bytes + self.slot_nbytes,
            cache_slots=0 if cache is None else cache.slots,
            hits=0 if cache is None else cache.hits,
            misses=0 if cache is None else cache.misses,
            bytes_uploaded=0 if carrier is None else carrier.bytes_sent,
            prefill=self.prefill,
            stepped_down=self.stepped_down,
            notes=(*status.notes, *self.notes, *(self.uploads.notes if self.uploads is not None else ())),
        )

    def _checked(self, statistics: npt.NDArray[np.floating] | None) -> npt.NDArray[np.floating] | None:
        """Without experts that layers of fewer do not have."""
        if statistics is None or statistics.shape != (len(self._layers), self._counts.shape[1]):
            return None
        for row, layer in enumerate(self._layers.values()):
            statistics[row, layer.spec.experts :] = 0
        return statistics

    def _allocate(self, slots: int, nbytes: int, keep_free: int) -> int:
        """Returns how many slots there is room for."""
        self._per_block = max(1, BLOCK_BYTES // nbytes)
        found = 0
        while found < slots:
            room = (self._device.memory().free - keep_free) // nbytes
            count = min(self._per_block, slots - found, room)
            if count < 1:
                break
            try:
                self._blocks.append(self._device.empty(count, nbytes, dtype=torch.uint8))
            except torch.OutOfMemoryError:
                break
            found += count
            if count < self._per_block:  # only the last block may be shorter
                break
        return found

    def _slot(self, slot: int) -> torch.Tensor:
        """uint8 [nbytes of the largest expert]"""
        return self._blocks[slot // self._per_block][slot % self._per_block]

    def _pieces(self, layer: int, expert: int) -> Pieces:
        return self.store.experts(layer).pieces(expert)

    def _time_hits(self, cache: HotCache) -> None:
        """One token's experts of a layer: half of them on the device against all of them on the CPU.

        Without kernels of its own a device takes dozens of small operations for them, which can cost more than small
        experts do on the CPU.
        """
        layer = max(cache.layers, key=lambda number: int((cache.table(number) >= 0).sum()))
        table, used = cache.table(layer), self._moe[layer].top_k
        inside = np.flatnonzero(table >= 0)[: max(1, used // 2)]
        hits = _Hits(table[inside].tolist(), inside.tolist(), [1.0] * len(inside))
        host = np.zeros((1, self._hidden), np.float32)
        x, out = (self._device.upload(torch.from_numpy(host.copy())) for _ in range(2))
        job = _Job(layer, x, x, x)
        ids, weights = np.arange(used, dtype=np.int32)[None], np.ones((1, used), np.float32)
        on_device, on_cpu = [], []
        for _ in range(_TIMED_RUNS):
            start = perf_counter()
            self._compute_hits(job, hits, out)
            self._device.synchronise()
            middle = perf_counter()
            self.store.later(layer, host, ids, weights, host.copy()).result()
            on_device.append(middle - start)
            on_cpu.append(perf_counter() - middle)
        # The first ones wake caches and clocks up.
        device_us, cpu_us = min(on_device) * 1e6, min(on_cpu) * 1e6
        log.info("experts of a layer: %d in VRAM %.0f us, %d on the CPU %.0f us", len(inside), device_us, used, cpu_us)
        if device_us >= cpu_us:
            self._hits_pay = False
            self.notes.append(
                say(
                    "Experts in VRAM serve prompts only: in answers the GPU would take {gpu:.0f} µs for {some} of a "
                    "layer's, the CPU takes {cpu:.0f} µs for all {used}.",
                    gpu=device_us,
                    some=len(inside),
                    cpu=cpu_us,
                    used=used,
                )
            )

    def _leave_out(self, layer: int, hits: Future[_Hits], x: Floats, ids: Ints, weights: Floats) -> None:
        """On the worker's thread, before it computes one token: ids of what it shall not compute become -1."""
        try:
            if self.cache is not None and layer in self._layers and self._hits_pay:
                hits.set_result(self._look_up(self.cache, layer, ids, weights))
            else:
                hits.set_result(_Hits([], [], []))
            if self._deferred is not None:
                self._deferred.split(layer, x, ids, weights)
        except BaseException as error:
            if not hits.done():
                hits.set_exception(error)
            raise

    def _look_up(self, cache: HotCache, layer: int, ids: Ints, weights: Floats) -> _Hits:
        """What is in slots; their ids become -1. ids, weights [1, top_k]."""
        slots = cache.lookup(layer, ids[0])
        columns = np.flatnonzero(slots >= 0)
        columns = columns[np.argsort(ids[0, columns])]
        experts = ids[0, columns]
        self._counts[self._rows[layer], experts] += np.uint64(1)
        found = _Hits(slots[columns].tolist(), experts.tolist(), weights[0, columns].tolist())
        ids[0, columns] = -1
        return found

    def _observe(self, layer: int, ids: Ints) -> None:
        """On the worker's thread: what a prompt's chunk calls."""
        assert self.cache is not None
        self.cache.observe(layer, np.bincount(ids.ravel(), minlength=self.cache.experts), len(ids))

    def _streams(self, layer: int, tokens: int) -> bool:
        """Whether this chunk is computed on the device from this layer on: where streaming what is not in slots is
        sooner, or where all of it is.
        """
        if self._streaming or self.cache is None:
            return self._streaming
        numbers = [number for number in self._layers if number >= layer]
        absent = {number: np.flatnonzero(self._absent(number)) for number in numbers}
        nbytes = sum(self._layers[number].packed.nbytes * len(absent[number]) for number in numbers)
        if nbytes and (self._stream is None or not self.speeds.stream(tokens, nbytes // len(numbers))):
            return False
        self._streaming = True
        if self._stream is None:
            return True

        def experts() -> Iterator[tuple[Key, Callable[[], Pieces]]]:
            for number in numbers:
                for expert in absent[number].tolist():
                    yield (number, expert), lambda number=number, expert=expert: self._pieces(number, expert)  # type: ignore[misc]

        self._stream.start(experts())
        return True

    def _absent(self, layer: int) -> npt.NDArray[np.bool_]:
        assert self.cache is not None
        return self.cache.table(layer)[: self._layers[layer].spec.experts] < 0

    def _compute_streamed(self, job: _Job, out: torch.Tensor) -> None:
        """out += the layer's result, expert after expert."""
        cache, stream, layer = self.cache, self._stream, job.layer
        assert cache is not None
        chosen = self._device.download(job.ids).numpy()
        uses = np.bincount(chosen.ravel(), minlength=cache.experts)
        called = np.flatnonzero(uses)
        table = cache.table(layer)
        if stream is not None:
            stream.want(layer, called[table[called] < 0].tolist())
        self._counts[self._rows[layer]] += uses[: self._counts.shape[1]].astype(np.uint64)
        cache.observe(layer, uses, len(chosen))
        # Pairs of a token and an expert, sorted by expert, then by token.
        order = self._device.upload(torch.from_numpy(np.argsort(chosen.ravel(), kind="stable")))
        tokens, shares = order // chosen.shape[1], job.weights.flatten()[order]
        narrow = job.x.to(self._dense.dtype)
        start = 0
        for expert in called.tolist():
            if self._cancelled():
                raise Cancelled
            end = start + int(uses[expert])
            slot = int(table[expert])
            if slot >= 0:
                packed = self._slot(slot)
            else:
                assert stream is not None
                packed = stream.take((layer, expert))
            mine = tokens[start:end]
            y = self._layers[layer].compute([expert], packed[None], narrow[mine][None])[0]
            out.index_add_(0, mine, y * shares[start:end, None])
            start = end

    def _compute_hits(self, job: _Job, hits: _Hits, out: torch.Tensor) -> None:
        """out [1, H] += a token's experts in slots."""
        x = job.x.to(self._dense.dtype)[None]
        layer = self._layers[job.layer]
        most = max(1, DEQUANTISED_AT_ONCE // (3 * self._hidden * layer.spec.intermediate))
        for start in range(0, len(hits.slots), most):
            some = slice(start, start + most)
            packed = torch.stack([self._slot(slot) for slot in hits.slots[some]])
            y = layer.compute(hits.experts[some], packed, x.expand(len(packed), -1, -1))
            for result, weight in zip(y, hits.weights[some], strict=True):
                out.add_(result, alpha=weight)


def _pass_on(ended: Future[None], hits: Future[_Hits]) -> None:
    if not hits.done():
        hits.set_exception(ended.exception() or RuntimeError("the experts were never looked up"))
