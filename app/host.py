"""The engine as the window sees it: one state, a few verbs, everything on the UI thread.

The engine itself lives on the worker's thread; see `app.engine_worker`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QCoreApplication, QObject, Qt, QTimer, Signal, Slot

from app.engine_worker import (
    DEMO,
    AnswerBuffer,
    AnswerDelta,
    AnswerRequest,
    AnswerResult,
    ContextPlan,
    CountRequest,
    EngineWorker,
    HostState,
    LoadRequest,
    PredictionPosted,
    StatePosted,
    TokenCount,
)
from app.language import tr
from app.tasks import wait_for
from app.words import file_name
from engine.runtime.events import Begun, GenerationStats, Message, SamplingParams

if TYPE_CHECKING:
    from engine.status import EngineStatus, ExpertUsage

__all__ = ["DEMO", "AnswerDelta", "AnswerResult", "ContextPlan", "EngineHost", "HostState", "TokenCount"]

log = logging.getLogger(__name__)

#: Time between two deliveries of answer text, in milliseconds.
ANSWER_INTERVAL_MS = 33


class EngineHost(QObject):
    """The only owner of an engine.

    Everything here is called and every signal is emitted on the UI thread; nothing waits, except `shutdown`.
    """

    #: HostState
    stateChanged = Signal(object)
    #: AnswerDelta, at most one every ANSWER_INTERVAL_MS while an answer is written, and what is left before its end
    answerEvent = Signal(object)
    #: AnswerResult, once for every `generate`
    answerFinished = Signal(object)
    #: TokenCount, for the newest `count` of its key
    tokensCounted = Signal(object)
    #: ContextPlan, once for every `plan_context`
    contextPlanned = Signal(object)
    _posted = Signal(object)

    def __init__(
        self, api: Any = None, demo: Callable[..., str | Path] | None = None, parent: QObject | None = None
    ) -> None:
        """api: stands in for the `engine` package; demo: for preparing the demo model. Both for tests."""
        super().__init__(parent)
        if api is None:
            import engine as api
        self.api = api
        self._state = HostState()
        self._loaded: HostState | None = None
        self._load: LoadRequest | None = None
        #: What has brought the model in memory there.
        self._loaded_by: LoadRequest | None = None
        self._answer: AnswerRequest | None = None
        self._closed = False
        self._buffer = AnswerBuffer()
        self._timer = QTimer(self)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(ANSWER_INTERVAL_MS)
        self._timer.timeout.connect(self._deliver_text)
        self._posted.connect(self._receive, Qt.ConnectionType.QueuedConnection)
        self._worker = EngineWorker(api, demo or _prepare_demo, self._buffer, self._posted.emit)

    @property
    def state(self) -> HostState:
        return self._state

    @property
    def loaded(self) -> HostState | None:
        """The "ready" state of the model in memory, also while another one is planned or has failed."""
        return self._loaded

    def load(self, path: str | Path, force: bool = False, context: int | None = None, **wishes: Any) -> None:
        """Plans and loads a model (a path, or "demo"). Replaces what is loaded, only once the plan is good.

        force:   load although the plan says that memory will not do
        context: the most tokens to make room for; None leaves it to the planner
        wishes:  fields of `engine.placement.plan.Wishes`
        """
        if self._closed:
            return
        self.stop()
        self._cancel_request()
        self._load = LoadRequest(str(path), force, context, wishes)
        self._set(HostState("planning", tr("Demo model") if str(path) == DEMO else file_name(Path(path)), str(path)))
        self._worker.load(self._load)

    def cancel_load(self) -> None:
        """The state returns to what it was before (or "empty") as soon as the engine has let go."""
        if self._load is not None:
            self._load.cancelled.set()

    def dismiss_failure(self) -> None:
        """Leaves "failed": back to the model that is still in memory, or to "empty"."""
        if self._state.kind == "failed":
            self._set(self._loaded or HostState())

    def unload(self) -> None:
        if self._closed:
            return
        self.stop()
        self._cancel_request()
        self._load = None
        self._worker.unload()

    def predict(self, bandwidth_gbs: dict[str, float]) -> None:
        """Works out anew how fast the loaded model should be, after memory was measured (threads: GB/s)."""
        if not self._closed:
            self._worker.predict(bandwidth_gbs)

    def usage(self) -> ExpertUsage | None:
        """Which experts were called how often; None without a model that has some. Cheap, from any thread."""
        return self._worker.usage()

    def status(self) -> EngineStatus | None:
        """The path really in use; None without a model. Cheap, from any thread."""
        return self._worker.status()

    def count(self, key: str, prompt: str | list[Message], thinking: str | None = None) -> None:
        """Counts the tokens of a prompt when the engine has time: `tokensCounted` follows.

        key: who asks; a newer request of the same key takes the place of one that waits
        """
        if not self._closed:
            self._worker.count(CountRequest(key, prompt if isinstance(prompt, str) else tuple(prompt), thinking))

    def plan_context(self, context: int) -> None:
        """Works out what the loaded model would take with another context: `contextPlanned` follows."""
        if not self._closed:
            self._worker.plan_context(context)

    def generate(
        self, messages: list[Message], params: SamplingParams, thinking: str | None = None, begun: Begun | None = None
    ) -> None:
        """Starts an answer. Without a ready model it ends at once with an error; never while another is written.

        thinking: as of `Engine.encode`, one of `HostState.thinking`; None as the model was made to
        begun:    what there is of the answer already; only what follows it is delivered
        """
        if self._answer is not None:
            raise RuntimeError("an answer is being written already")
        self._answer = AnswerRequest(tuple(messages), params, thinking, begun)
        if self._state.kind == "ready":
            self._set(replace(self._state, kind="generating"))
        self._timer.start()
        self._worker.generate(self._answer)

    def stop(self) -> None:
        """Ends the answer within one token; `answerFinished` follows with "cancelled"."""
        if self._answer is not None:
            self._worker.interrupt(self._answer)

    def shutdown(self, timeout: float = 20.0) -> bool:
        """Stops everything and frees the engine, in up to `timeout` seconds. False when it would not end."""
        if self._closed:
            return True
        self._closed = True
        self.stop()
        self._cancel_request()
        ended = wait_for(self._worker.close, timeout)
        if not ended:
            log.error("the engine's thread did not end within %.0f s", timeout)
        # What the worker posted last: the end of an answer must reach those who save it.
        QCoreApplication.sendPostedEvents(self)
        if self._answer is not None:
            self._finish(AnswerResult("", GenerationStats(), "cancelled"))
        return ended

    def _load_again(self) -> None:
        """A failure has closed the model. The next answer needs it as it was."""
        request, self._loaded = self._loaded_by, None
        if request is not None and self._load is None:
            self.load(request.path, request.force, request.context, **request.wishes)

    def _cancel_request(self) -> None:
        if self._load is not None:
            self._load.cancelled.set()

    @Slot(object)
    def _receive(self, news: object) -> None:
        if isinstance(news, AnswerResult):
            if self._answer is not None:
                self._deliver_text()
                self._finish(news)
                if news.lost:
                    self._load_again()
        elif isinstance(news, StatePosted):
            self._loaded = news.loaded
            if news.request is not self._load:
                return  # a newer request has taken its place
            if not news.state.busy:
                self._load = None
            if news.state.kind == "ready" and news.request is not None:
                self._loaded_by = news.request
            self._set(news.state)
        elif isinstance(news, TokenCount):
            self.tokensCounted.emit(news)
        elif isinstance(news, ContextPlan):
            self.contextPlanned.emit(news)
        elif isinstance(news, PredictionPosted):
            self._loaded = news.loaded
            if self._state.kind in ("ready", "generating"):
                self._set(replace(self._state, plan=news.loaded.plan, hardware=news.loaded.hardware))

    @Slot()
    def _deliver_text(self) -> None:
        delta = self._buffer.take()
        if delta is not None:
            self.answerEvent.emit(delta)

    def _finish(self, result: AnswerResult) -> None:
        self._timer.stop()
        self._answer = None
        if self._state.kind == "generating":
            self._set(replace(self._state, kind="ready"))
        self.answerFinished.emit(result)

    def _set(self, state: HostState) -> None:
        self._state = state
        self.stateChanged.emit(state)


def _prepare_demo(progress: Any) -> str | Path:
    from engine.hub.demo import prepare_demo

    return prepare_demo(progress=progress)
