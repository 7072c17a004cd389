"""The executor for every family: small blocks on a torch device, our kernels wherever the CPU does the work."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch

from engine import _native
from engine.checkpoints.checkpoint import Checkpoint
from engine.errors import Cancelled, GreenroomError
from engine.executors.building import Builder
from engine.executors.device_experts import DeviceExperts
from engine.executors.devices import DenseDevice
from engine.executors.embedding import embedding
from engine.executors.expert_store import ExpertStore
from engine.executors.kv_cache import KvCache
from engine.executors.layer import Layer
from engine.executors.loading import Loader
from engine.executors.mlp import NativeMlp
from engine.executors.native_decoder import NativeDecoder
from engine.executors.rope import Rope
from engine.executors.step import Step
from engine.executors.threads import thread_pool
from engine.models.spec import ROLLBACK, ModelSpec, RopeSpec
from engine.placement.plan import OffloadPlan
from engine.progress import ProgressCallback, ignore_progress


def load(
    checkpoint: Checkpoint, spec: ModelSpec, plan: OffloadPlan, progress: ProgressCallback = ignore_progress
) -> TorchExecutor:
    """Bring the model into memory as planned.

    Raises GreenroomError for a tensor that cannot be read or used, a device that is not there, or too little RAM;
    Cancelled when progress raises it. Nothing stays allocated then.
    """
    return TorchExecutor(checkpoint, spec, plan, progress)


@contextmanager
def _memory_errors(what: str) -> Iterator[None]:
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        # C++ says no more than "std::bad_alloc".
        known = isinstance(error, torch.OutOfMemoryError)
        raise GreenroomError(
            f"{what} does not fit in memory",
            str(error).partition("\n")[0] if known else "the system has no memory left for this program",
            "Close other programs, choose a shorter context, or a smaller file of this model.",
        ) from error


class TorchExecutor:
    """Implements `engine.executors.executor.Executor`.

    Reproducible: with dense_dtype "quantised" the logits have the same bits for any number of threads, and whether the
    tokens came in one piece, in chunks or one by one. torch's own products (dense_dtype "float32" and "bfloat16", and
    attention where `fallbacks` names it) add in an order that depends on both.

    fallbacks: kinds of blocks that torch computes although the plan is for our kernels, e.g. ("attention",)
    """

    def __init__(self, checkpoint: Checkpoint, spec: ModelSpec, plan: OffloadPlan, progress: ProgressCallback) -> None:
        self.context = plan.context
        self._spec = spec
        #: Tokens that one call may bring: where windows forget the oldest, no more than can be taken back.
        self._most = ROLLBACK if any(attention.reach is not None for attention in spec.attentions) else plan.context
        self._threads = plan.threads
        self._cancelled = threading.Event()
        self._device = DenseDevice.of_plan(plan)
        self._pool = thread_pool(plan.threads)
        self._layers: list[Layer] = []
        self._experts: ExpertStore | DeviceExperts | None = None
        self._closed = False
        try:
            with torch.inference_mode(), _memory_errors(checkpoint.name):
                self._load(Loader(checkpoint, spec, progress), plan)
        except BaseException as error:
            # The traceback's frames would keep half-read tensors alive for as long as the error is.
            traceback.clear_frames(error.__traceback__)
            self.close()
            raise

    @property
    def length(self) -> int:
        return self._cache.length

    def forward(self, token_ids: npt.NDArray[np.int64], logits: str = "last") -> npt.NDArray[np.float32]:
        tokens = len(token_ids)
        most = min(self._most, self.context - self.length)
        if not 1 <= tokens <= most:
            raise ValueError(f"{tokens} tokens where {most} have room")
        if token_ids.min() < 0 or token_ids.max() >= self._spec.vocab:
            raise ValueError(f"a token id outside 0..{self._spec.vocab - 1}")
        if logits not in ("last", "all", "draft"):
            raise ValueError(f"logits {logits!r}")
        # Every call, because OpenMP keeps the number per calling thread. Where our kernels do all the work, its threads
        # would only be in their way: a region ends with the last of them, which may be waiting for a core.
        torch.set_num_threads(1 if self._device.native and not self.fallbacks else self._threads)
        self._cancelled.clear()
        try:
            with torch.inference_mode(), _memory_errors("The answer"):
                return self._forward(token_ids, last_only=logits == "last", draft=logits == "draft")
        except _native.Interrupted as error:
            raise Cancelled from error
        finally:
            if self._experts is not None:
                self._experts.drain()

    def truncate(self, length: int) -> int:
        with torch.inference_mode():
            return self._cache.truncate(length)

    def cancel(self) -> None:
        self._cancelled.set()
        self._pool.cancel()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._experts is not None:
            self._experts.close()
        self._pool.close()
        for part in (
            "_decoder",
            "_layers",
            "_experts",
            "_embedding",
            "_head",
            "_norm",
            "_cache",
            "_ropes",
            "_head_bias",
        ):
            self.__dict__.pop(part, None)
        self._device.release()

    def _load(self, loader: Loader, plan: OffloadPlan) -> None:
        spec, device = self._spec, self._device
        build = Builder(loader, device, self._pool, plan)
        loader.report("Making room for the context", always=True)
        cached = spec.kv_bytes(plan.context, plan.kv_type)
        self._experts = self._load_experts(loader, plan, cached)
        for i, layer in enumerate(spec.layers):
            loader.report(f"Reading attention of layer {i + 1} of {len(spec.layers)}")
            self._layers.append(build.layer(i, layer, self._experts))
        self._cache = KvCache(plan.context, build.states)
        loader.report("Reading the output head")
        self._norm = build.norm("norm")
        self._head = build.linear(["lm_head" if loader.has("lm_head") else "embed"])
        self._embedding = embedding(loader, self._head)
        self._head_bias = build.vector("lm_head_bias") if loader.has("lm_head_bias") else None
        ropes = {attention.rope.at_context(plan.context) for attention in spec.attentions if attention.rope is not None}
        self._ropes: dict[RopeSpec, Rope] = {rope: Rope(rope, device.device) for rope in ropes}
        self.fallbacks = tuple(sorted(build.fallbacks))
        self.takes_drafts = device.native and not self.fallbacks
        self._decoder = NativeDecoder.of(self._pool, self._layers, self._norm, self._head, self._ropes)
        self.kernel = self._kernel(plan)
        loader.report("Ready", always=True)

    def _load_experts(self, loader: Loader, plan: OffloadPlan, cached: int) -> ExpertStore | DeviceExperts:
        """cached: bytes that the KV cache will take."""
        if plan.mode == "all_gpu":
            return DeviceExperts.load(self._device, loader)
        recode = None if plan.experts == "stored" else plan.experts
        if plan.dense_dtype == "float32":
            recode = "float32"
        besides = 0
        if self._device.device.type == "cpu":
            width = None if self._device.native else self._device.dtype.itemsize
            besides = loader.dense_nbytes(width) + cached
        return ExpertStore.load(self._pool, self._device, loader, recode, plan.isa, besides)

    def _kernel(self, plan: OffloadPlan) -> str:
        """What computes most of the weights, for the status bar."""
        if isinstance(self._experts, DeviceExperts):
            return self._experts.kernel
        threads = f"{plan.threads} thread{'s' if plan.threads > 1 else ''}"
        if self.fallbacks:
            threads += f", {' and '.join(self.fallbacks)} in torch"
        ffn = self._layers[0].ffn
        name = self._experts.kernel if self._experts is not None else ""
        if not name and isinstance(ffn, NativeMlp):
            name = ffn.kernel
        if not name:
            return f"{str(self._device.dtype).removeprefix('torch.')} on {self._device.device}, {threads}"
        return f"{name}, {threads}"

    def _forward(self, token_ids: npt.NDArray[np.int64], *, last_only: bool, draft: bool) -> npt.NDArray[np.float32]:
        spec, cache, tokens = self._spec, self._cache, len(token_ids)
        x = self._embedding(token_ids).to(self._device.device)
        if spec.embedding_multiplier != 1.0:
            x *= spec.embedding_multiplier
        if self._decoder is None:
            logits = self._block_by_block(x, last_only=last_only, draft=draft)
        else:
            logits = self._decoder.forward(x, cache.length, last_only=last_only, draft=draft)
        logits = self._finished(logits)
        if self._cancelled.is_set():
            raise Cancelled
        # Only now do the tokens count: an interrupted call leaves the sequence as it was.
        cache.advance(tokens)
        result: npt.NDArray[np.float32] = logits.cpu().numpy()
        return result

    def _block_by_block(self, x: torch.Tensor, *, last_only: bool, draft: bool) -> torch.Tensor:
        step = Step(self._cache.length, x.shape[0], self._ropes, self._device.device, draft=draft)
        for layer in self._layers:
            if self._cancelled.is_set():
                raise Cancelled
            layer(x, step)
        return self._head(self._norm(x[-1:] if last_only else x))

    def _finished(self, logits: torch.Tensor) -> torch.Tensor:
        spec = self._spec
        if self._head_bias is not None:
            logits += self._head_bias
        if spec.logit_multiplier != 1.0:
            logits *= spec.logit_multiplier
        if spec.logit_softcap is not None:
            logits = logits.div_(spec.logit_softcap).tanh_().mul_(spec.logit_softcap)
        return logits
