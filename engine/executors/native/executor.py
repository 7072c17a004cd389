"""The executor without torch: a CPU plan whose every block is a kernel of ours, so that a token is one call."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.executors.embedding import embedding
from engine.executors.kv_cache import KvCache
from engine.executors.loaded_model import Floats, LoadedModel
from engine.executors.loading import Loader, thread_words
from engine.executors.mlp import NativeMlp
from engine.executors.native.building import Builder
from engine.executors.native.decoder import NativeDecoder
from engine.executors.native.expert_store import ExpertStore
from engine.executors.rope import ropes_of
from engine.placement.plan import OffloadPlan
from engine.status import EngineStatus, ExpertUsage
from engine.words import joined, say


class NativeExecutor(LoadedModel):
    """Implements `engine.executors.executor.Executor`, for plans that `engine.placement.sizes.all_native` takes.

    Reproducible: the logits have the same bits for any number of threads, and whether the tokens came in one piece, in
    chunks or one by one.
    """

    takes_drafts = True
    #: Kinds of blocks that torch computes.
    fallbacks = ()

    def _load(self, loader: Loader, plan: OffloadPlan) -> None:
        spec = self._spec
        build = Builder(loader, self._pool, plan)
        loader.report(say("Making room for the context"), always=True)
        cached = spec.kv_bytes(plan.context, plan.kv_type)
        recode = None if plan.experts == "stored" else plan.experts
        besides = loader.dense_nbytes(None) + cached
        experts = ExpertStore.load(self._pool, None, loader, recode, plan.isa, besides)
        self._experts = experts
        layers = []
        for i, layer in enumerate(spec.layers):
            loader.report(say("Reading attention of layer {layer} of {layers}", layer=i + 1, layers=len(spec.layers)))
            layers.append(build.layer(i, layer, experts))
        self._cache = KvCache(plan.context, build.states)
        loader.report(say("Reading the output head"))
        norm = build.norm("norm")
        head = build.linear(["lm_head" if loader.has("lm_head") else "embed"])
        self._embedding = embedding(loader, head)
        self._head_bias = build.values("lm_head_bias") if loader.has("lm_head_bias") else None
        self._decoder = NativeDecoder(self._pool, layers, norm, head, ropes_of(spec, plan.context))
        name = experts.kernel
        ffn = layers[0].ffn
        if not name and isinstance(ffn, NativeMlp):
            name = ffn.kernel
        self.kernel = joined(", ", (name, thread_words(plan.threads)))
        self._status = EngineStatus(
            kernel=self.kernel, locked=experts.nbytes > 0 and experts.locked, ram_bytes=experts.nbytes + besides
        )
        loader.report(say("Ready"), always=True)

    def usage(self) -> ExpertUsage | None:
        experts = self.__dict__.get("_experts")
        return None if experts is None else experts.usage()

    def status(self) -> EngineStatus:
        return self._status

    def _compute(self, token_ids: npt.NDArray[np.int64], *, last_only: bool, draft: bool) -> Floats:
        x = self._embedded(self._embedding(token_ids))
        return self._decoder.forward(x, self._cache.length, last_only=last_only, draft=draft)

    def _release(self) -> None:
        if "_experts" in self.__dict__:
            self._experts.close()
        for part in ("_decoder", "_experts", "_embedding"):
            self.__dict__.pop(part, None)
