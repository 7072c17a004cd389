"""The executor for every family and device: small blocks of torch, our kernels wherever the CPU does the work."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from engine.checkpoints.checkpoint import Checkpoint
from engine.errors import Cancelled, GreenroomError
from engine.executors.device.building import TorchBuilder
from engine.executors.device.experts import DeviceExperts
from engine.executors.devices import DENSE, device_errors, out_of_memory
from engine.executors.embedding import embedding
from engine.executors.executor import TryAgain
from engine.executors.hybrid import hot_cache_statistics
from engine.executors.hybrid.expert_slots import HybridExperts
from engine.executors.kv_cache import KvCache
from engine.executors.layer import Layer
from engine.executors.loaded_model import Floats, LoadedModel
from engine.executors.loading import Loader, thread_words
from engine.executors.mlp import NativeMlp
from engine.executors.native.expert_store import ExpertStore
from engine.executors.opening import dense_device
from engine.executors.rope import ropes_of
from engine.executors.step import Step
from engine.folders import cache_folder
from engine.hardware.simulated import is_simulated
from engine.models.spec import ModelSpec
from engine.placement.plan import OffloadPlan
from engine.placement.sizes import CUDA_CONTEXT_BYTES
from engine.progress import ProgressCallback
from engine.status import EngineStatus, ExpertUsage
from engine.words import joined, say

log = logging.getLogger(__name__)

#: Tokens that are not divided further when memory is short.
SMALLEST_CHUNK = 16
#: Share of the planned work space that answers do with: devices hand memory out in steps, of which sums know nothing.
ENOUGH = 0.98
#: Calls per layer, of all experts together, after which it is worth keeping which ones were called.
WORTH_KEEPING = 256
#: Dense weights that are rounded more.
_ROUNDED = {"bfloat16": "int8", "int8": "int4"}


class TorchExecutor(LoadedModel):
    """Implements `engine.executors.executor.Executor`.

    Reproducible as the native executor is, and with its bits, where our kernels compute everything but short
    convolutions. torch's own products (dense_dtype "float32" and "bfloat16", and attention where `fallbacks` names it)
    add in an order that depends on threads and on how the tokens came.

    fallbacks: kinds of blocks that torch computes although the plan is for our kernels, e.g. ("attention",)
    """

    def __init__(self, checkpoint: Checkpoint, spec: ModelSpec, plan: OffloadPlan, progress: ProgressCallback) -> None:
        self._threads = plan.threads
        self._device = dense_device(plan)
        self._layers: list[Layer] = []
        self._checkpoint = checkpoint
        #: What does not work here.
        self._notes: list[str] = []
        #: What was given up for want of memory while loading, and since then; by what it is about.
        self._steps: dict[str, str] = {}
        self._broken = False
        self._experts: ExpertStore | HybridExperts | DeviceExperts | None = None
        super().__init__(checkpoint, spec, plan, progress)

    def forward(self, token_ids: npt.NDArray[np.int64], logits: str = "last") -> Floats:
        # Every call, because OpenMP keeps the number per calling thread. Where our kernels do all the work, its threads
        # would only be in their way: a region ends with the last of them, which may be waiting for a core.
        torch.set_num_threads(1 if self._device.native and not self.fallbacks else self._threads)
        try:
            return super().forward(token_ids, logits)
        finally:
            if self._experts is not None:
                self._experts.drain()

    def usage(self) -> ExpertUsage | None:
        experts = self.__dict__.get("_experts")
        return None if experts is None else experts.usage()

    def status(self) -> EngineStatus:
        experts = self.__dict__.get("_experts")
        status, handoff = self._status, 0.0
        if isinstance(experts, HybridExperts):
            status, handoff = experts.told(status), experts.store.handoff_s
        steps = (*self._steps.values(), *status.stepped_down)
        notes = (*steps, *self._notes, *self._device.device.notes, *status.notes)
        return replace(status, notes=notes, stepped_down=steps, handoff_s=handoff)

    def truncate(self, length: int) -> int:
        if self._broken:
            raise GreenroomError(
                say("The model cannot answer"), say("its device has stopped working"), say("Load it again.")
            )
        with torch.inference_mode(), self._device.device.working():
            return super().truncate(length)

    @contextmanager
    def memory_errors(self, what: str) -> Iterator[None]:
        with super().memory_errors(what):
            try:
                yield
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
                raise MemoryError(str(error)) from error

    def _load(self, loader: Loader, plan: OffloadPlan) -> None:
        device, what = self._device.device, say("{name} could not be loaded", name=loader.checkpoint.name)
        while True:
            try:
                with (
                    torch.inference_mode(),
                    device.working(),
                    device_errors(device, what),
                ):
                    self._load_blocks(loader, plan)
                return
            except RuntimeError as error:
                smaller = narrower(plan, has_experts=self._spec.is_moe)
                if not device.accelerator or not out_of_memory(error) or smaller is None:
                    raise
                # Frames hold what was loaded.
                traceback.clear_frames(error.__traceback__)
            plan, note = smaller
            self._tell(f"{plan.mode} {plan.kv_type} {plan.dense_dtype}", note)
            self._forget_blocks()
            loader = loader.again()
            dtype, code = DENSE[plan.dense_dtype]
            self._device = replace(self._device, dtype=dtype, code=code)

    def _load_blocks(self, loader: Loader, plan: OffloadPlan) -> None:
        spec = self._spec
        build = TorchBuilder(loader, self._device, self._pool, plan)
        loader.report(say("Making room for the context"), always=True)
        cached = spec.kv_bytes(plan.context, plan.kv_type)
        self._experts = self._load_experts(loader, plan, cached)
        for i, layer in enumerate(spec.layers):
            loader.report(say("Reading attention of layer {layer} of {layers}", layer=i + 1, layers=len(spec.layers)))
            self._layers.append(build.layer(i, layer, self._experts))
        self._cache = KvCache(plan.context, build.states)
        loader.report(say("Reading the output head"))
        self._norm = build.norm("norm")
        self._head = build.linear(["lm_head" if loader.has("lm_head") else "embed"])
        self._embedding = embedding(loader, self._head)
        self._head_bias = build.values("lm_head_bias") if loader.has("lm_head_bias") else None
        self._ropes = ropes_of(spec, plan.context)
        held = self._check_room(plan)
        if isinstance(self._experts, HybridExperts):
            self._open_slots(self._experts, loader, plan)
        self.fallbacks = tuple(sorted(build.fallbacks))
        self.takes_drafts = self._device.native and not self.fallbacks
        self.kernel = self._kernel(plan)
        self._status = self._status_of(loader, plan, cached, held)
        loader.report(say("Ready"), always=True)

    def _check_room(self, plan: OffloadPlan) -> int:
        """Bytes held on the device, before slots take what is left. Raises OutOfMemoryError without room to answer."""
        device = self._device.device
        memory = device.memory()
        work = _work_bytes(plan)
        if device.accelerator and memory.free < ENOUGH * work:
            if memory.free < work // 4:
                raise torch.OutOfMemoryError(f"{memory.free} bytes are left for {work} of work space")
            self.chunk = max(SMALLEST_CHUNK, self.chunk * memory.free // work)
            self._tell(
                "chunk",
                say(
                    "VRAM is shorter than planned: prompts are read {chunk} tokens at a time, which takes longer.",
                    chunk=self.chunk,
                ),
            )
        return memory.held

    def _load_experts(
        self, loader: Loader, plan: OffloadPlan, cached: int
    ) -> ExpertStore | HybridExperts | DeviceExperts:
        """cached: bytes that the KV cache will take."""
        if plan.mode == "all_gpu":
            return DeviceExperts.load(self._device, loader)
        if isinstance(self._experts, HybridExperts):  # from an earlier try
            for role in self._spec.weights:
                if ".moe.experts." in role:
                    loader.skip(role)
            return self._experts
        recode = None if plan.experts == "stored" else plan.experts
        if plan.dense_dtype == "float32":
            recode = "float32"
        besides = 0
        if self._device.device.torch_device.type == "cpu":
            width = None if self._device.native else self._device.dtype.itemsize
            besides = loader.dense_nbytes(width) + cached
        store = ExpertStore.load(self._pool, self._device.device, loader, recode, plan.isa, besides)
        if not self._device.device.accelerator:
            return store
        return HybridExperts(store, self._device, self._spec, self._cancelled.is_set)

    def _open_slots(self, experts: HybridExperts, loader: Loader, plan: OffloadPlan) -> None:
        loader.report(say("Copying experts to the GPU"), always=True)
        experts.defer(plan.defer_experts)
        layers, most = experts.cacheable, experts.most_experts
        known = hot_cache_statistics.read(cache_folder(), self._checkpoint, layers, most) if plan.hot_slots else None
        experts.open_slots(
            plan.hot_slots,
            known,
            keep_free=int(ENOUGH * _work_bytes(plan)),
            # A simulated device is there to be looked at, not to be fast.
            measured=not is_simulated(plan.device),
            report=lambda: loader.report(say("Copying experts to the GPU")),
        )

    def _keep_statistics(self, experts: HybridExperts) -> None:
        cache = experts.cache
        if cache is not None and self.remembers and cache.hits + cache.misses >= WORTH_KEEPING * len(cache.layers):
            hot_cache_statistics.write(cache_folder(), self._checkpoint, cache.layers, cache.statistics())

    def _kernel(self, plan: OffloadPlan) -> str:
        """What computes most of the weights, for the status bar."""
        if isinstance(self._experts, DeviceExperts):
            return self._experts.kernel
        parts = [thread_words(plan.threads)]
        if self.fallbacks:
            parts.append(say("{blocks} in torch", blocks=" and ".join(self.fallbacks)))
        ffn = self._layers[0].ffn
        name = self._experts.kernel if self._experts is not None else ""
        if not name and isinstance(ffn, NativeMlp):
            name = ffn.kernel
        if not name:
            dtype = str(self._device.dtype).removeprefix("torch.")
            name = say("{dtype} on {device}", dtype=dtype, device=self._device.device.name)
        return joined(", ", (name, *parts))

    def _status_of(self, loader: Loader, plan: OffloadPlan, cached: int, vram: int) -> EngineStatus:
        """cached: bytes of the KV cache; vram: held on the device, but for slots."""
        device, experts = self._device, self._experts
        apart = device.device.accelerator  # dense weights and KV cache lie in the device's memory
        if apart and (why := device.device.no_graphs()):
            self._notes.append(say("Steps are launched one by one, graphs cannot be captured ({why}).", why=why))
        on_device = isinstance(experts, DeviceExperts)
        store = experts.store if isinstance(experts, HybridExperts) else experts
        ram = store.nbytes if isinstance(store, ExpertStore) else 0
        if apart:
            ram += self._embedding.nbytes
        else:
            ram += loader.dense_nbytes(None if device.native else device.dtype.itemsize) + cached
        return EngineStatus(
            device=device.device.name,
            kernel=self.kernel,
            path="all_gpu" if on_device else "hybrid" if apart else "cpu",
            # With everything there, nothing but numbers of tokens and logits travels, as it lies.
            pinned=apart and not on_device and device.device.pinned,
            locked=isinstance(store, ExpertStore) and store.nbytes > 0 and store.locked,
            ram_bytes=ram,
            vram_bytes=vram,
            prefill="device" if on_device else "cpu",
        )

    def _compute(self, token_ids: npt.NDArray[np.int64], *, last_only: bool, draft: bool) -> Floats:
        device = self._device.device
        try:
            with device_errors(device, say("The answer was interrupted")):
                return self._computed(token_ids, last_only=last_only, draft=draft)
        except GreenroomError:
            self._broken = True
            raise
        except RuntimeError as error:
            if not device.accelerator or not out_of_memory(error):
                raise
            traceback.clear_frames(error.__traceback__)
            if not self._make_room(len(token_ids)):
                raise
        raise TryAgain

    def _make_room(self, tokens: int) -> bool:
        """Give something up after a call with so many tokens ran out of memory. False when nothing is left."""
        experts, device = self._experts, self._device.device
        if isinstance(experts, HybridExperts):
            experts.drain()
            if experts.cache is not None and experts.cache.slots:
                left = experts.shrink(experts.cache.slots // 2)
                note = say("VRAM ran short in an answer: no experts are left in it, so answers are slower.")
                if left:
                    note = say(
                        "VRAM ran short in an answer: %n experts are left in it, so answers are slower.",
                        n=left,
                        one="VRAM ran short in an answer: %n expert is left in it, so answers are slower.",
                    )
                self._tell("slots", note)
                return True
        device.release()
        if tokens <= SMALLEST_CHUNK:
            return False
        self.chunk = max(SMALLEST_CHUNK, tokens // 2)
        self._tell(
            "chunk",
            say(
                "VRAM ran short in an answer: prompts are read {chunk} tokens at a time, which takes longer.",
                chunk=self.chunk,
            ),
        )
        return True

    def _tell(self, about: str, note: str) -> None:
        """In the place of what was told about this before."""
        log.warning("%s", note)
        self._steps[about] = note

    def _computed(self, token_ids: npt.NDArray[np.int64], *, last_only: bool, draft: bool) -> Floats:
        device = self._device.device
        with torch.inference_mode(), device.working():
            x = device.upload(torch.from_numpy(self._embedded(self._embedding(token_ids))))
            step = Step(self._cache.length, x.shape[0], self._ropes, device, draft=draft)
            experts = self._experts
            with experts.step(len(x)) if isinstance(experts, HybridExperts) else nullcontext():
                for layer in self._layers:
                    if self._cancelled.is_set():
                        raise Cancelled
                    layer(x, step)
            logits: Floats = device.download(self._head(self._norm(x[-1:] if last_only else x))).numpy()
            return logits

    def _forget_blocks(self) -> None:
        """Give back what lies on the device, for another try to load; experts in RAM stay."""
        if isinstance(self._experts, DeviceExperts):
            self._experts.close()
            self._experts = None
        self._layers.clear()
        for part in ("_embedding", "_head", "_norm", "_cache"):
            self.__dict__.pop(part, None)
        self._device.device.release()

    def _release(self) -> None:
        device = self._device.device
        try:
            if self._experts is not None:
                with device.working():
                    if isinstance(self._experts, HybridExperts):
                        self._keep_statistics(self._experts)
                    self._experts.close()
            device.release()
        except torch.AcceleratorError as error:
            log.info("closing what a broken device has held: %s", str(error).partition("\n")[0])
        for part in ("_layers", "_experts", "_embedding", "_head", "_norm", "_cache"):
            self.__dict__.pop(part, None)
        device.close()


def _work_bytes(plan: OffloadPlan) -> int:
    """What answers need of VRAM beside all that is loaded."""
    context = 0 if is_simulated(plan.device) else CUDA_CONTEXT_BYTES
    return max(0, plan.bytes.vram.get("buffers", 0) - context)


def narrower(plan: OffloadPlan, *, has_experts: bool) -> tuple[OffloadPlan, str] | None:
    """What a load gives up next when the device has less memory than planned, and what the user is told; None when
    nothing is left.

    Slots for hot experts are no matter of this: they take what is left in the end. Exact plans stay exact.
    """
    exact = plan.dense_dtype == "float32"
    all_gpu = plan.mode == "all_gpu" and has_experts
    if not exact and plan.kv_type != "q8":
        why = say(
            "VRAM is shorter than planned: the KV cache is held in q8 instead of {kv_type}, a little less exactly.",
            kv_type=plan.kv_type,
        )
        return replace(plan, kv_type="q8"), why
    rounded = _ROUNDED.get(plan.dense_dtype)
    if rounded is not None and not (all_gpu and rounded == "int4"):
        why = say(
            "VRAM is shorter than planned: dense weights are held as {rounded} instead of {planned}, a little less "
            "exactly.",
            rounded=rounded,
            planned=plan.dense_dtype,
        )
        return replace(plan, dense_dtype=rounded), why
    if all_gpu:
        why = say("VRAM is shorter than planned: the experts stay in RAM and are computed by the CPU, which is slower.")
        return replace(plan, mode="hybrid", hot_slots=0), why
    return None
