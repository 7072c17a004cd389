"""How fast the answers of this session were, step by step, beside what was predicted. Knows no widget."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from PySide6.QtCore import QObject, Qt, Signal, SignalInstance, Slot

from app.host import AnswerDelta, AnswerResult, HostState
from engine.placement.plan import Prediction
from engine.runtime.events import GenerationStats

if TYPE_CHECKING:
    from engine.status import EngineStatus

#: Answers whose steps are kept, and steps of one answer; what comes after is left out of the chart.
KEPT, MOST_STEPS = 200, 40_000


@dataclass
class Measured:
    """One answer.

    state: of the engine when it began: model, plan, prediction, machine
    marks: (monotonic seconds, tokens until then) of each step
    """

    message_id: int
    state: HostState
    marks: list[tuple[float, int]] = field(default_factory=list)
    stats: GenerationStats = field(default_factory=GenerationStats)
    finished: bool = False
    #: What the engine really did; once it is finished, where the engine can say.
    status: EngineStatus | None = None

    @property
    def prediction(self) -> Prediction | None:
        return self.state.plan.prediction if self.state.plan is not None else None

    @property
    def step_times(self) -> list[tuple[int, float]]:
        """(tokens until then, milliseconds for each of the step's tokens) of every step after the first.

        A step gives several tokens where drafts were accepted.
        """
        return [
            (tokens, (when - before) / (tokens - had) * 1e3)
            for (before, had), (when, tokens) in pairwise(self.marks)
            if tokens > had
        ]

    @property
    def decode_s(self) -> float:
        """From the first token to the last."""
        return self.marks[-1][0] - self.marks[0][0] if self.marks else 0.0

    @property
    def decode_gbs(self) -> float | None:
        """1e9 bytes of weights, as the file stores them, that were used each second; None while unknown."""
        speed = self.state.active_bytes * self.stats.decode_tps / 1e9
        return speed or None

    @property
    def read_gbs(self) -> float | None:
        """Measured bandwidth of RAM with the plan's threads, or with the nearest fewer; None if it was not measured."""
        hardware, plan = self.state.hardware, self.state.plan
        speeds = hardware.memory.bandwidth_gbs if hardware is not None else None
        if not speeds or plan is None:
            return None
        return max(speeds.items(), key=lambda item: (int(item[0]) <= plan.threads, int(item[0])))[1]

    @property
    def bandwidth_share(self) -> float | None:
        """Of the measured bandwidth; None where not all weights come from RAM, or while something is unknown."""
        plan, used, there = self.state.plan, self.decode_gbs, self.read_gbs
        if plan is None or plan.bytes.vram_total or used is None or not there:
            return None
        return used / there


class Source(Protocol):
    """What is needed of an EngineHost."""

    answerEvent: SignalInstance
    answerFinished: SignalInstance

    @property
    def state(self) -> HostState: ...

    def status(self) -> EngineStatus | None: ...


class PerformanceLog(QObject):
    """Keeps the figures of the answers of this session, the newest ones only."""

    #: Measured: one has grown or ended
    changed = Signal(object)

    def __init__(self, host: Source, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._host = host
        self._answers: OrderedDict[int, Measured] = OrderedDict()
        self._current: Measured | None = None
        host.answerEvent.connect(self._grow)
        host.answerFinished.connect(self._finish)

    @property
    def newest(self) -> Measured | None:
        return next(reversed(self._answers.values()), None)

    def of(self, message_id: int) -> Measured | None:
        """The figures of an answer of this session."""
        return self._answers.get(message_id)

    @Slot(int)
    def begin(self, message_id: int) -> None:
        """An answer begins in this message, or goes on in it. 0: what is written now is not for a message."""
        if not message_id:
            self._current = None
            return
        self._current = Measured(message_id, self._host.state)
        self._answers[message_id] = self._current
        self._answers.move_to_end(message_id)
        while len(self._answers) > KEPT:
            self._answers.popitem(last=False)

    @Slot(object)
    def _grow(self, delta: AnswerDelta) -> None:
        if self._current is not None:
            self._current.stats = delta.stats
            # What reads the prompt has no token yet.
            marks = [mark for mark in delta.marks if mark[1] > 0]
            self._current.marks += marks[: max(0, MOST_STEPS - len(self._current.marks))]
            self.changed.emit(self._current)

    @Slot(object)
    def _finish(self, result: AnswerResult) -> None:
        measured, self._current = self._current, None
        if measured is not None:
            if result.stats.prompt_tokens:
                measured.stats = result.stats
            measured.finished = True
            measured.status = self._host.status()
            self.changed.emit(measured)


def performance_log(host: Any) -> PerformanceLog:
    """The log of an EngineHost, made on first use. It lives as long as the host, whatever is shown meanwhile."""
    found = host.findChild(PerformanceLog, options=Qt.FindChildOption.FindDirectChildrenOnly)
    return found if found is not None else PerformanceLog(host, host)
