"""A loaded model that answers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.errors import Cancelled, GreenroomError
from engine.executors.executor import TryAgain
from engine.progress import ProgressCallback, ignore_progress
from engine.runtime.answer_text import AnswerText
from engine.runtime.events import Begun, GenerationEvent, Message, SamplingParams
from engine.runtime.lookup import CallCosts, Lookup
from engine.runtime.prompt import Prompt, PromptWriter, raw_prompt
from engine.runtime.sampler import Sampler
from engine.runtime.stats import StatsMeter
from engine.status import EngineStatus, ExpertUsage
from engine.words import say

if TYPE_CHECKING:
    from engine.checkpoints.checkpoint import Checkpoint
    from engine.checkpoints.tokenizer import Tokenizer
    from engine.executors.executor import Executor
    from engine.models.spec import ModelSpec
    from engine.placement.plan import OffloadPlan

_log = logging.getLogger(__name__)

#: Smaller when every position's logits are wanted: 128 x 150,000 float32 are 77 MB.
_SCORING_CHUNK = 128


def load(checkpoint: Checkpoint, plan: OffloadPlan, progress: ProgressCallback | None = None) -> Engine:
    """Bring the model into memory as planned.

    Raises GreenroomError when the model or its tokenizer is not supported or memory runs out, and lets Cancelled
    through when `progress` raises it; nothing stays allocated then.
    """
    from engine.models import model_spec
    from engine.models.shortcuts import with_fewer_experts

    spec = model_spec(checkpoint)
    if plan.experts_per_token is not None:
        spec = with_fewer_experts(spec, plan.experts_per_token)
    tokenizer = checkpoint.tokenizer()
    # After everything that can be refused without a library of kernels or torch.
    from engine.executors import load as load_executor

    executor = load_executor(checkpoint, spec, plan, progress or ignore_progress)
    _log.info("loaded %s: %s, %s", checkpoint.path, plan.mode, executor.kernel)
    return Engine(checkpoint, spec, plan, tokenizer, executor)


class Engine:
    """One model in memory with one sequence in its KV cache; made by `load`, given back by `close`.

    One generation at a time. `cancel`, `close`, `usage` and `status` may be called from any thread, everything else
    from one thread at a time. The checkpoint stays the caller's: closing the engine does not close it.
    """

    def __init__(
        self, checkpoint: Checkpoint, spec: ModelSpec, plan: OffloadPlan, tokenizer: Tokenizer, executor: Executor
    ) -> None:
        self.checkpoint = checkpoint
        self.spec = spec
        self.plan = plan
        self.tokenizer = tokenizer
        self._executor: Executor | None = executor
        self._kernel = executor.kernel
        self._context = executor.context
        self._costs = CallCosts() if executor.takes_drafts else None
        #: The tokens whose keys and values are in the cache, so that the next prompt can reuse them.
        self._cached: list[int] = []
        self._generating = threading.Lock()
        #: Held while the executor works, so that `close` waits for it.
        self._stepping = threading.Lock()
        self._stop = False
        self._closed = False

    @property
    def kernel(self) -> str:
        """What computes the routed experts, e.g. "int4 avx512vnni, 2 threads"."""
        return self._kernel

    @property
    def context(self) -> int:
        """Tokens the KV cache holds: prompt and answer together."""
        return self._context

    @property
    def loaded(self) -> bool:
        """False once it is closed, also where a failure has closed it: a device that broke down in an answer."""
        return self._executor is not None

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def generate(
        self,
        prompt: str | Sequence[Message],
        params: SamplingParams | None = None,
        cancel: threading.Event | None = None,
        thinking: str | None = None,
        begun: Begun | None = None,
    ) -> Iterator[GenerationEvent]:
        """Answer a prompt, one event per prompt chunk (empty text) and per token; the last one has a stop_reason.

        prompt: raw text to continue, or messages for the model's chat template. What the KV cache already holds of
                it is not computed again.
        cancel: set it to end the answer (stop_reason "cancelled") before the next token or prompt chunk;
                `Engine.cancel` also breaks off the chunk being computed.
        thinking, begun: as of `encode`; the events have only what follows `begun`

        The end-of-text token is not part of the answer. Raises GreenroomError for a prompt longer than the context,
        a setting out of range, or when another generation is running.
        """
        if not self._generating.acquire(blocking=False):
            raise _busy()
        try:
            self._stop = False
            if self._executor is not None:
                self._executor.remembers = True
            meter = StatsMeter()
            written = self._write(prompt, thinking, begun)
            fresh = not isinstance(prompt, str) and not begun
            yield from self._answer(written, fresh, params or SamplingParams(), cancel or threading.Event(), meter)
        finally:
            self._generating.release()

    def cancel(self) -> None:
        """End the generation running now at once, also in the middle of a prompt chunk. Any thread may call it."""
        self._stop = True
        executor = self._executor
        if executor is not None and self._stepping.locked():
            executor.cancel()

    def usage(self) -> ExpertUsage | None:
        """Which routed experts were called how often since loading; None for a model without, or once closed.

        Cheap, from any thread, also while an answer is written.
        """
        executor = self._executor
        return None if executor is None else executor.usage()

    def status(self) -> EngineStatus:
        """The path really in use, and what of the plan was stepped down. As `usage`, from any thread."""
        executor = self._executor
        if executor is None:
            return EngineStatus(self.plan.device, self._kernel, notes=("The model is no longer loaded.",))
        return executor.status()

    def logits(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """float32 [T, vocab]: row t is the prediction after token_ids[: t + 1]. Starts the sequence anew."""
        return np.concatenate(list(self.iter_logits(token_ids)))

    def iter_logits(self, token_ids: Sequence[int]) -> Iterator[npt.NDArray[np.float32]]:
        """The rows of `logits` in blocks, for texts whose logits would not fit in memory at once."""
        self._check_length(token_ids)
        self.reset()
        for start in range(0, len(token_ids), _SCORING_CHUNK):
            yield self._forward(token_ids[start : start + _SCORING_CHUNK], "all")

    def append(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Append tokens to the sequence (see `reset`); float32 [vocab], the prediction after the last one."""
        self._check_idle()
        self._check_length(token_ids, already=len(self._cached))
        start = 0
        while start < len(token_ids):
            piece = token_ids[start : start + self._chunk]
            rows = self._forward(piece)
            start += len(piece)
        last: npt.NDArray[np.float32] = rows[-1]
        return last

    def reset(self) -> None:
        """Start the sequence anew. Like everything that changes it, refused while an answer is being written."""
        self._check_idle()
        self._rewind(0)

    def encode(
        self, prompt: str | Sequence[Message], thinking: str | None = None, begun: Begun | None = None
    ) -> list[int]:
        """The token ids `generate` would use for this prompt.

        thinking: whether or how much the model thinks before it answers messages: "on", "off" or one of its template's
                  levels (see `ChatTemplate.thinking`); None as it was made to. Raises GreenroomError for another.
        begun:    what there is of the answer already, to be continued from there
        """
        return self._write(prompt, thinking, begun).ids

    def _write(self, prompt: str | Sequence[Message], thinking: str | None, begun: Begun | None) -> Prompt:
        if isinstance(prompt, str):
            return raw_prompt(self.tokenizer.encode(prompt + (begun.text if begun else "")))
        return self._writer.write(prompt, thinking, begun)

    @cached_property
    def _writer(self) -> PromptWriter:
        return PromptWriter(self.checkpoint.chat_template(), self.tokenizer)

    def count_tokens(self, prompt: str | Sequence[Message], thinking: str | None = None) -> int:
        """How much of the context this prompt takes."""
        return len(self.encode(prompt, thinking))

    def close(self) -> None:
        """Give all memory back; a running generation ends as cancelled. Safe to call twice, from any thread."""
        self._closed = True
        executor = self._executor
        if executor is None:
            return
        executor.cancel()
        with self._stepping:
            if self._executor is not None:
                self._executor = None
                self._cached = []
                executor.close()

    def _answer(
        self, prompt: Prompt, fresh: bool, params: SamplingParams, cancel: threading.Event, meter: StatsMeter
    ) -> Iterator[GenerationEvent]:
        """fresh: an answer begins here, so that a space before its first word says nothing."""
        ids = prompt.ids
        self._check_length(ids)
        sampler = Sampler(params, self.spec.vocab, ids)
        # At least the last token is computed: its logits are needed.
        reused = self._rewind(min(_common_prefix(self._cached, ids), len(ids) - 1))
        meter.prefill_starts(len(ids), reused)
        text = AnswerText(self.tokenizer, prompt.splitter, prompt.marks, params.stop, strip_leading_space=fresh)
        try:
            start = reused
            while start < len(ids):
                self._raise_if_stopped(cancel)
                chunk = ids[start : start + self._chunk]
                logits = self._forward(chunk)
                start += len(chunk)
                meter.prefilled(len(chunk))
                yield GenerationEvent("", (), meter.snapshot())
            lookup = None
            if params.lookup and self._costs is not None:
                lookup = Lookup(ids, self._context, self._costs)
            yield from self._decode(logits, sampler, lookup, text, params.max_tokens, cancel, meter)
        except Cancelled:
            thought, rest = text.rest()
            yield GenerationEvent(rest, (), meter.snapshot(), "cancelled", thought)

    def _decode(
        self,
        logits: npt.NDArray[np.float32],
        sampler: Sampler,
        lookup: Lookup | None,
        text: AnswerText,
        max_tokens: int | None,
        cancel: threading.Event,
        meter: StatsMeter,
    ) -> Iterator[GenerationEvent]:
        """logits [1, vocab]: what follows the prompt."""
        length = len(self._cached)
        produced = at = 0
        draft: list[int] = []
        reason = None
        try:
            while reason is None:
                self._raise_if_stopped(cancel)
                token = self._sample(sampler, logits[at])
                drafted = at < len(draft) and token == draft[at]
                if drafted:
                    meter.accepted()
                if token in self.tokenizer.eos_ids:
                    thought, rest = text.rest()
                    yield GenerationEvent(rest, (), meter.snapshot(), "end", thought)
                    return
                meter.token()
                produced += 1
                thought, readable, stopped = text.feed(token)
                if stopped:
                    reason = "stop_string"
                elif produced == max_tokens:
                    reason = "length"
                elif length == self._context:
                    reason = "context"
                if reason in ("length", "context"):
                    last_thought, rest = text.rest()
                    thought, readable = thought + last_thought, readable + rest
                yield GenerationEvent(readable, (token,), meter.snapshot(), reason, thought)
                if reason is not None:
                    return
                if lookup is not None:
                    lookup.add(token)
                if drafted:
                    # What follows it has been computed together with it.
                    at += 1
                else:
                    self._take_back(length)
                    # The call's last logits give a token beyond the draft, and there must be room and wish for it.
                    most = self._context - length - 1
                    if max_tokens is not None:
                        most = min(most, max_tokens - produced - 1)
                    draft, at = [] if lookup is None else lookup.draft(most), 0
                    meter.drafted(len(draft))
                    logits = self._step([token, *draft])
                length += 1
        finally:
            self._take_back(length)

    def _step(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """The predictions after each of a token of the answer and its draft."""
        start = perf_counter()
        logits = self._forward(token_ids, "last" if len(token_ids) == 1 else "draft")
        if self._costs is not None:
            self._costs.add(len(token_ids), perf_counter() - start)
        return logits

    def _take_back(self, length: int) -> None:
        """Keep `length` tokens in the KV cache, without those of a draft that came to nothing."""
        with self._stepping:
            if self._executor is not None and len(self._cached) > length:
                self._truncate(self._executor, length)

    def _sample(self, sampler: Sampler, logits: npt.NDArray[np.float32]) -> int:
        try:
            return sampler.sample(logits)
        except GreenroomError:
            # Whatever spoiled the logits may be in the KV cache too.
            self._forget()
            raise

    def _forward(self, token_ids: Sequence[int], logits: str = "last") -> npt.NDArray[np.float32]:
        with self._stepping:
            rows: list[npt.NDArray[np.float32]] = []
            while len(token_ids):
                executor = self._executor
                if executor is None:
                    raise Cancelled
                piece = token_ids[: executor.chunk]
                try:
                    rows.append(executor.forward(np.asarray(piece, dtype=np.int64), logits))
                except TryAgain:
                    continue
                except Cancelled:
                    raise
                except BaseException:
                    self._forget()
                    raise
                self._cached.extend(piece)
                token_ids = token_ids[len(piece) :]
            return rows[-1] if logits == "last" or len(rows) == 1 else np.concatenate(rows)

    @property
    def _chunk(self) -> int:
        executor = self._executor
        return 1 if executor is None else executor.chunk

    def _forget(self) -> None:
        """After a failure: nothing in the KV cache is trusted, and an executor that cannot even drop it goes too."""
        self._cached = []
        if self._executor is None:
            return
        try:
            self._executor.truncate(0)
        except Exception:
            _log.exception("the executor cannot be reset; closing the model")
            executor, self._executor = self._executor, None
            executor.close()

    def _rewind(self, length: int) -> int:
        """Keep at most `length` tokens of the sequence; returns how many the executor could keep."""
        with self._stepping:
            if self._executor is None:
                raise GreenroomError(
                    say("The model cannot answer"), say("it is no longer loaded"), say("Load it again.")
                )
            return self._truncate(self._executor, length)

    def _truncate(self, executor: Executor, length: int) -> int:
        # In this order: an interrupt between them must not leave tokens here that the cache has lost.
        cached, self._cached = self._cached[:length], []
        kept = executor.truncate(length)
        self._cached = cached[:kept]
        return kept

    def _check_idle(self) -> None:
        if self._generating.locked():
            raise _busy()

    def _raise_if_stopped(self, cancel: threading.Event) -> None:
        if cancel.is_set() or self._stop or self._closed:
            raise Cancelled

    def _check_length(self, token_ids: Sequence[int], already: int = 0) -> None:
        if not token_ids:
            raise GreenroomError(say("There is nothing to answer"), say("the prompt is empty"), say("Write something."))
        if already + len(token_ids) > self._context:
            limit = self.spec.context_length
            remedy = say("Shorten it.")
            if self._context < limit:
                remedy = say("Shorten it or load the model with a longer context (it allows {limit}).", limit=limit)
            raise GreenroomError(
                say("The prompt is too long"),
                say(
                    "it has %n tokens and the context holds {context}",
                    n=already + len(token_ids),
                    one="it has %n token and the context holds {context}",
                    context=self._context,
                ),
                remedy,
            )


def _busy() -> GreenroomError:
    why = say("the model is still busy with an answer")
    return GreenroomError(say("The model cannot do this now"), why, say("Wait until it is done, or stop it."))


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
