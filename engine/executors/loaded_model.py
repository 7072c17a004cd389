"""What every executor does around its arithmetic: checks, cancelling, giving memory back."""

from __future__ import annotations

import ctypes
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from engine import _native
from engine.checkpoints.checkpoint import Checkpoint
from engine.errors import Cancelled, GreenroomError
from engine.executors.kv_cache import KvCache
from engine.executors.loading import Loader
from engine.executors.threads import thread_pool
from engine.models.spec import ROLLBACK, ModelSpec
from engine.placement.plan import OffloadPlan
from engine.progress import ProgressCallback
from engine.status import EngineStatus, ExpertUsage
from engine.words import say

Floats = npt.NDArray[np.float32]


class LoadedModel(ABC):
    """Implements `engine.executors.executor.Executor` but for what loads and computes."""

    kernel: str
    takes_drafts: bool
    remembers = False
    #: Set by `_load`.
    _cache: KvCache
    _head_bias: Floats | None

    def __init__(self, checkpoint: Checkpoint, spec: ModelSpec, plan: OffloadPlan, progress: ProgressCallback) -> None:
        self.context = plan.context
        self._spec = spec
        #: Tokens that one call may bring: where windows forget the oldest, no more than can be taken back.
        self._most = ROLLBACK if any(attention.reach is not None for attention in spec.attentions) else plan.context
        self.chunk = min(self._most, plan.prefill_chunk)
        self._cancelled = threading.Event()
        self._pool = thread_pool(plan.threads)
        self._closed = False
        try:
            with self.memory_errors(checkpoint.name):
                self._load(Loader(checkpoint, spec, progress), plan)
        except BaseException as error:
            # The traceback's frames would keep half-read tensors alive for as long as the error is.
            traceback.clear_frames(error.__traceback__)
            self.close()
            raise

    @property
    def length(self) -> int:
        return self._cache.length

    def forward(self, token_ids: npt.NDArray[np.int64], logits: str = "last") -> Floats:
        tokens = len(token_ids)
        most = min(self._most, self.context - self.length)
        if not 1 <= tokens <= most:
            raise ValueError(f"{tokens} tokens where {most} have room")
        if token_ids.min() < 0 or token_ids.max() >= self._spec.vocab:
            raise ValueError(f"a token id outside 0..{self._spec.vocab - 1}")
        if logits not in ("last", "all", "draft"):
            raise ValueError(f"logits {logits!r}")
        self._cancelled.clear()
        try:
            with self.memory_errors(say("The answer")):
                result = self._finished(self._compute(token_ids, last_only=logits == "last", draft=logits == "draft"))
        except _native.Interrupted as error:
            raise Cancelled from error
        if self._cancelled.is_set():
            raise Cancelled
        # Only now do the tokens count: an interrupted call leaves the sequence as it was.
        self._cache.advance(tokens)
        return result

    def truncate(self, length: int) -> int:
        return self._cache.truncate(length)

    def cancel(self) -> None:
        self._cancelled.set()
        self._pool.cancel()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._release()
        self._pool.close()
        self.__dict__.pop("_cache", None)
        trim()

    @abstractmethod
    def usage(self) -> ExpertUsage | None: ...

    @abstractmethod
    def status(self) -> EngineStatus: ...

    @abstractmethod
    def _load(self, loader: Loader, plan: OffloadPlan) -> None: ...

    @abstractmethod
    def _compute(self, token_ids: npt.NDArray[np.int64], *, last_only: bool, draft: bool) -> Floats:
        """The output head's products [T, vocab] or [1, vocab]; states written, not advanced. Raises Interrupted."""

    @abstractmethod
    def _release(self) -> None:
        """Let everything go that `_load` may have made."""

    @contextmanager
    def memory_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except MemoryError as error:
            # C++ says no more than "std::bad_alloc".
            known = str(error) not in ("", "std::bad_alloc")
            raise GreenroomError(
                say("{what} does not fit in memory", what=what),
                str(error).partition("\n")[0] if known else say("the system has no memory left for this program"),
                say("Close other programs, choose a shorter context, or a smaller file of this model."),
            ) from error

    def _embedded(self, rows: Floats) -> Floats:
        if self._spec.embedding_multiplier != 1.0:
            rows *= self._spec.embedding_multiplier
        return rows

    def _finished(self, logits: Floats) -> Floats:
        spec = self._spec
        if self._head_bias is not None:
            logits += self._head_bias
        if spec.logit_multiplier != 1.0:
            logits *= spec.logit_multiplier
        if spec.logit_softcap is not None:
            logits /= spec.logit_softcap
            np.tanh(logits, out=logits)
            logits *= spec.logit_softcap
        return logits


def trim() -> None:
    """Give freed memory back to the system: the allocator keeps it for itself otherwise."""
    if sys.platform == "linux":
        malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc; musl has none
        if malloc_trim is not None:
            malloc_trim(0)
