"""The thread that owns the engine. Knows nothing of Qt: it takes requests and posts what happened.

All engine objects are created, used and closed on this one thread, in the order the requests came.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.checkpoint_facts import limit_of, suggested_sampling, thinking_choices
from app.faults import as_greenroom_error
from app.language import tr
from app.planning import active_bytes, plan_with
from app.words import file_name
from engine.errors import Cancelled, GreenroomError
from engine.hardware.report import HardwareReport
from engine.placement.plan import OffloadPlan
from engine.progress import Progress
from engine.runtime.events import Begun, GenerationStats, Message, SamplingParams
from engine.units import size_up
from engine.words import say

if TYPE_CHECKING:
    from engine.status import EngineStatus, ExpertUsage

log = logging.getLogger(__name__)

#: Shortest time between two progress reports that are passed on, in seconds.
PROGRESS_INTERVAL = 0.05
#: What `load` takes for the built-in demonstration model.
DEMO = "demo"


@dataclass(frozen=True)
class HostState:
    """What the engine is doing, as the window shows it.

    kind:     "empty" | "planning" | "loading" | "ready" | "generating" | "failed"
    path:     what was asked for: a path, or "demo"
    plan:     from "loading" on, and with "failed" when the plan itself is the reason
    progress: while planning or loading
    error:    with "failed"
    kernel:   what computes, e.g. "int4 avx512vnni, 8 threads"; from "ready" on
    hardware: the machine that the plan was made for; from "loading" on
    unloads:  the plan of the model in memory that makes room, and its name, while another is loaded
    family:   the model's architecture as its file names it, e.g. "qwen3moe"; from "ready" on, as all below
    thinking: what can be wished about its thinking, least first, as `Engine.encode` takes it; () for no choice
    suggested: sampling that came with the model's files, by the names of SamplingParams
    limit:    the most tokens of context the model was made for; 0 where that is not known
    active_bytes: weights that one token reads, as the file stores them; 0.0 where that is not known
    """

    kind: str = "empty"
    model_name: str = ""
    path: str | None = None
    plan: OffloadPlan | None = None
    progress: Progress | None = None
    error: GreenroomError | None = None
    kernel: str = ""
    hardware: HardwareReport | None = None
    unloads: tuple[str, OffloadPlan] | None = None
    family: str = ""
    thinking: tuple[str, ...] = ()
    suggested: Mapping[str, float] = field(default_factory=dict)
    limit: int = 0
    active_bytes: float = 0.0

    @property
    def busy(self) -> bool:
        """True while a model is on its way."""
        return self.kind in ("planning", "loading")


@dataclass(frozen=True)
class AnswerDelta:
    """What became readable of answer and thought since the last one, and the figures so far.

    marks: of each step since then, when it ended (monotonic seconds) and how many tokens there were by then
    """

    text: str
    stats: GenerationStats
    marks: tuple[tuple[float, int], ...] = ()
    thought: str = ""


@dataclass(frozen=True)
class AnswerResult:
    """A whole answer. stop_reason: a key of `engine.runtime.events.STOP_REASONS`; error with "error" only.

    thought: what the model said to itself before it
    stepped_down: what was given up for want of memory since the answer before it, or since the model was loaded
    lost:    the failure has closed the model
    """

    text: str
    stats: GenerationStats
    stop_reason: str
    error: GreenroomError | None = None
    thought: str = ""
    stepped_down: tuple[str, ...] = ()
    lost: bool = False


@dataclass(frozen=True)
class LoadRequest:
    path: str
    force: bool
    context: int | None
    wishes: dict[str, Any]
    cancelled: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class AnswerRequest:
    """thinking, begun: as of `Engine.generate`."""

    messages: Sequence[Message]
    params: SamplingParams
    thinking: str | None = None
    begun: Begun | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class StatePosted:
    """A request's news. loaded: the ready state of the model in memory now, None when there is none."""

    request: LoadRequest | None
    state: HostState
    loaded: HostState | None


@dataclass(frozen=True)
class PredictionPosted:
    """The loaded model's state with a new prediction."""

    loaded: HostState


@dataclass(frozen=True)
class CountRequest:
    """How many tokens a prompt takes. key: who asks; a newer request of the same key takes the place of an older."""

    key: str
    prompt: str | Sequence[Message]
    thinking: str | None = None


@dataclass(frozen=True)
class TokenCount:
    """tokens: None when no model is loaded, or its template refuses the conversation."""

    request: CountRequest
    tokens: int | None


@dataclass(frozen=True)
class ContextPlan:
    """What the loaded model would take with another context. plan: None when it cannot be had."""

    context: int
    plan: OffloadPlan | None


def _name(path: str, checkpoint: Any) -> str:
    return str(checkpoint.name) if path == DEMO else file_name(Path(path))


def _refusal(name: str, plan: OffloadPlan) -> GreenroomError:
    what = say("{name} was not loaded", name=name)
    if plan.mode == "too_large":
        takes = size_up(plan.bytes.ram_total)
        why = say("it is too large for this PC: it needs {takes} of RAM", takes=takes)
        return GreenroomError(what, why, say("Choose a smaller model, or load it anyway."))
    return GreenroomError(what, plan.label, say("Close other programs, choose a smaller model, or load it anyway."))


class AnswerBuffer:
    """Text between the worker that adds it and the window that takes it, merged in between."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._text: list[str] = []
        self._thought: list[str] = []
        self._marks: list[tuple[float, int]] = []
        self._stats: GenerationStats | None = None

    def add(self, text: str, stats: GenerationStats, thought: str = "") -> None:
        now = time.monotonic()
        with self._lock:
            self._text.append(text)
            self._thought.append(thought)
            self._marks.append((now, stats.completion_tokens))
            self._stats = stats

    def take(self) -> AnswerDelta | None:
        """Everything since the last call, or None when nothing came."""
        with self._lock:
            if self._stats is None:
                return None
            delta = AnswerDelta("".join(self._text), self._stats, tuple(self._marks), "".join(self._thought))
            self._text, self._thought, self._marks, self._stats = [], [], [], None
            return delta


class EngineWorker:
    """api:   the `engine` package, or something with its probe, open_checkpoint, plan and load
    demo:  called with `progress=`, makes the demonstration model if it is missing and returns its path
    post:  called on the worker's thread with StatePosted and AnswerResult
    """

    def __init__(
        self, api: Any, demo: Callable[..., str | Path], buffer: AnswerBuffer, post: Callable[[object], None]
    ) -> None:
        self._api, self._demo, self._buffer, self._post = api, demo, buffer, post
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._engine: Any = None
        self._checkpoint: Any = None
        #: The context and the wishes that the loaded model was planned with.
        self._asked: tuple[int | None, dict[str, Any]] = (None, {})
        #: What answers have told of being stepped down.
        self._told: tuple[str, ...] = ()
        self._loaded: HostState | None = None
        self._counting = threading.Lock()
        self._counts: dict[str, CountRequest] = {}
        self._thread = threading.Thread(target=self._run, name="greenroom-engine", daemon=True)
        self._thread.start()

    def load(self, request: LoadRequest) -> None:
        self._jobs.put(lambda: self._load(request))

    def unload(self) -> None:
        self._jobs.put(self._unload)

    def predict(self, bandwidth_gbs: dict[str, float]) -> None:
        self._jobs.put(lambda: self._predict(bandwidth_gbs))

    def generate(self, request: AnswerRequest) -> None:
        self._jobs.put(lambda: self._generate(request))

    def count(self, request: CountRequest) -> None:
        """Counts when the engine has time. Only the newest request of a key is answered."""
        with self._counting:
            waiting = request.key in self._counts
            self._counts[request.key] = request
        if not waiting:
            self._jobs.put(lambda: self._count(request.key))

    def plan_context(self, context: int) -> None:
        self._jobs.put(lambda: self._plan_context(context))

    def usage(self) -> ExpertUsage | None:
        """From any thread, also while an answer is written."""
        engine = self._engine
        return None if engine is None else engine.usage()

    def status(self) -> EngineStatus | None:
        """As `usage`."""
        engine = self._engine
        return None if engine is None else engine.status()

    def interrupt(self, request: AnswerRequest) -> None:
        """Ends that answer within one token, also in the middle of a long prompt. From any thread."""
        request.cancelled.set()
        engine = self._engine
        if engine is not None:
            engine.cancel()

    def close(self, timeout: float) -> bool:
        """Ends the thread after what is queued (cancel that first). False when it is still busy after `timeout` s."""
        self._jobs.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
        self._release()

    def _load(self, request: LoadRequest) -> None:
        name = tr("Demo model") if request.path == DEMO else file_name(Path(request.path))
        state = HostState("planning", name, request.path)
        checkpoint = None
        try:
            report = self._progress_to(request, state)
            report(Progress(0, 0, say("Reading the model header")))
            path = self._demo(progress=report) if request.path == DEMO else request.path
            checkpoint = self._api.open_checkpoint(path)
            state = replace(state, model_name=_name(request.path, checkpoint))
            report = self._progress_to(request, state)
            report(Progress(0, 0, say("Checking this PC")))
            hardware = self._api.probe(present=True)
            report(Progress(0, 0, say("Planning what goes where")))
            wishes = dict(request.wishes)
            if self._loaded and self._loaded.plan:
                wishes["unload_bytes"] = self._loaded.plan.bytes.ram_total
                state = replace(state, unloads=(self._loaded.model_name, self._loaded.plan))
            asked = (request.context, wishes)
            plan = plan_with(self._api, checkpoint, hardware, *asked)
            state = replace(state, plan=plan, hardware=hardware)
            if not plan.runnable and not request.force:
                raise _refusal(state.model_name, plan)
            state = replace(state, kind="loading")
            report = self._progress_to(request, state)
            report(Progress(0, 0, say("Starting the engine")))
            self._release()
            engine = self._api.load(checkpoint, plan, progress=report)
            self._engine, self._checkpoint, checkpoint = engine, checkpoint, None
            self._asked = asked
            self._told = ()
            if request.cancelled.is_set():
                raise Cancelled
        except Cancelled:
            if self._loaded is None:
                self._release()
            self._post(StatePosted(request, self._loaded or HostState(), self._loaded))
        except Exception as error:
            failure = as_greenroom_error(error, say("{name} could not be loaded", name=state.model_name))
            self._post(StatePosted(request, replace(state, kind="failed", error=failure), self._loaded))
        else:
            self._loaded = replace(
                state,
                kind="ready",
                active_bytes=self._active_bytes(),
                unloads=None,
                kernel=engine.kernel,
                family=str(self._checkpoint.architecture),
                thinking=thinking_choices(self._checkpoint),
                suggested=suggested_sampling(self._checkpoint),
                limit=limit_of(self._checkpoint),
            )
            self._post(StatePosted(request, self._loaded, self._loaded))
        finally:
            if checkpoint is not None:
                checkpoint.close()

    def _progress_to(self, request: LoadRequest, state: HostState) -> Callable[[Progress], None]:
        """A progress callback that shows up in the state and raises Cancelled when asked to."""
        last = 0.0

        def report(progress: Progress) -> None:
            nonlocal last
            if request.cancelled.is_set():
                raise Cancelled
            now = time.monotonic()
            if now - last >= PROGRESS_INTERVAL:
                last = now
                self._post(StatePosted(request, replace(state, progress=progress), self._loaded))

        return report

    def _predict(self, bandwidth_gbs: dict[str, float]) -> None:
        """Plans again for the machine as it was at loading, but for the measurement: only the prediction changes."""
        loaded = self._loaded
        if loaded is None or loaded.plan is None or loaded.hardware is None:
            return
        memory = replace(loaded.hardware.memory, bandwidth_gbs=bandwidth_gbs, present_gbs=None)
        hardware = replace(loaded.hardware, memory=memory)
        try:
            plan = plan_with(self._api, self._checkpoint, hardware, *self._asked)
        except Exception:
            log.exception("the prediction stays as it is")
            return
        self._loaded = replace(loaded, plan=replace(loaded.plan, prediction=plan.prediction), hardware=hardware)
        self._post(PredictionPosted(self._loaded))

    def _count(self, key: str) -> None:
        with self._counting:
            request = self._counts.pop(key)
        tokens = None
        if self._engine is not None:
            try:
                tokens = self._engine.count_tokens(request.prompt, request.thinking)
            except GreenroomError as error:
                log.info("tokens were not counted: %s", error)
        self._post(TokenCount(request, tokens))

    def _plan_context(self, context: int) -> None:
        """As `_load` would plan it now."""
        plan = None
        loaded = self._loaded
        if loaded is not None and loaded.plan is not None:
            wishes = {**self._asked[1], "unload_bytes": loaded.plan.bytes.ram_total}
            try:
                plan = plan_with(self._api, self._checkpoint, self._api.probe(), context, wishes)
            except Exception:
                log.exception("no plan for a context of %d", context)
        self._post(ContextPlan(context, plan))

    def _unload(self) -> None:
        self._release()
        self._post(StatePosted(None, HostState(), None))

    def _release(self) -> None:
        engine, checkpoint = self._engine, self._checkpoint
        self._engine = self._checkpoint = self._loaded = None
        for part in (engine, checkpoint):
            if part is None:
                continue
            try:
                part.close()
            except Exception:
                log.exception("closing %s", type(part).__name__)

    def _generate(self, request: AnswerRequest) -> None:
        text: list[str] = []
        thought: list[str] = []
        from engine.hardware.busy import OtherPrograms

        stats, reason, failure = GenerationStats(), "cancelled", None
        others = OtherPrograms()
        try:
            if self._engine is None:
                raise GreenroomError(
                    say("The message was not answered"), say("no model is loaded"), say("Load a model first.")
                )
            if not request.cancelled.is_set():
                events = self._engine.generate(
                    request.messages,
                    request.params,
                    request.cancelled,
                    thinking=request.thinking,
                    begun=request.begun,
                )
                for event in events:
                    stats = event.stats
                    text.append(event.text)
                    thought.append(event.thought)
                    self._buffer.add(event.text, stats, event.thought)
                    reason = event.stop_reason or reason
        except Exception as error:
            reason, failure = "error", as_greenroom_error(error, say("The answer was interrupted"))
        steps, lost = self._stepped_down(), False
        if failure is not None and self._engine is not None and not self._engine.loaded:
            self._release()
            remedy = say("Greenroom will load the model again. If that fails, restart Greenroom.")
            failure, lost = GreenroomError(failure.what, failure.why, remedy), True
        self._post(AnswerResult("".join(text), stats, reason, failure, "".join(thought), steps, lost))
        self._learn(stats, others.share())

    def _stepped_down(self) -> tuple[str, ...]:
        """What no answer has told yet."""
        if self._engine is None:
            return ()
        before, self._told = self._told, self._engine.status().stepped_down
        return tuple(step for step in self._told if step not in before)

    def _active_bytes(self) -> float:
        try:
            return active_bytes(self._checkpoint)
        except Exception:
            log.exception("how much a token reads stays unknown")
            return 0.0

    def _learn(self, stats: GenerationStats, others: float) -> None:
        """The next prediction for this model on this PC knows how fast it was."""
        loaded = self._loaded
        if loaded is None or loaded.plan is None or loaded.hardware is None or self._checkpoint is None:
            return
        try:
            self._api.learn(self._checkpoint, loaded.hardware, loaded.plan, stats, others)
        except Exception:
            log.exception("nothing was learnt from the answer")
