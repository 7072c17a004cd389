"""Where the stage's activity comes from: the model that is loaded, or a run that was kept."""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import QObject, Signal, Slot

from app.host import AnswerDelta, EngineHost, HostState
from app.stage.activity import Activity, Watcher
from app.stage.recording import Recording
from engine.placement.plan import OffloadPlan

#: Seconds between two looks at the engine's counts.
LOOK_S = 1 / 15


class LiveRun(QObject):
    """Follows the host: each answer is a run, and is recorded.

    activity is None while no model with experts is loaded.
    """

    #: Another model, or another run: `activity` is another one.
    changed = Signal()

    def __init__(self, host: EngineHost, clock: Callable[[], float] = time.monotonic, parent: QObject | None = None):
        super().__init__(parent)
        self._host, self._clock = host, clock
        self.activity: Activity | None = None
        #: The run that is going on, or the last one.
        self.recording: Recording | None = None
        self._watcher: Watcher | None = None
        self._began = self._looked = 0.0
        self._tokens = 0
        host.stateChanged.connect(self._follow)
        host.answerEvent.connect(self._count)
        self._follow(host.state)

    @property
    def running(self) -> bool:
        return self._watcher is not None

    @property
    def expert_bytes(self) -> int:
        """Of one routed expert; 0 when the plan does not say."""
        plan = self._host.state.plan
        return 0 if plan is None or self.activity is None else _expert_bytes(plan, self.activity.cells)

    def tick(self, seconds: float) -> None:
        """Let so much time pass: the glow fades, and the counts are looked at when it is time."""
        if self.activity is None:
            return
        self.activity.fade(seconds)
        if self._watcher is not None and self._clock() - self._looked >= LOOK_S * 0.9:
            self._look()

    @Slot(object)
    def _follow(self, state: HostState) -> None:
        if state.kind == "generating":
            if self._watcher is None:
                self._begin(state)
        elif self._watcher is not None:
            self._look()
            self._watcher = None
            self.changed.emit()
        elif state.kind in ("ready", "empty"):
            self._rest()

    def _rest(self) -> None:
        """A model that has been loaded shows where its experts are; what was before is over."""
        usage = self._host.usage()
        if usage is None:
            self.activity = self.recording = None
        elif self.activity is None or self.activity.uses.shape != usage.counts.shape:
            self.activity, self.recording = Activity(usage.layers, usage.counts.shape[1]), None
            self.activity.in_vram[:] = usage.in_vram
        self.changed.emit()

    def _begin(self, state: HostState) -> None:
        usage = self._host.usage()
        if usage is None:
            return
        self.activity = Activity(usage.layers, usage.counts.shape[1])
        self.recording = Recording(state.model_name, usage.layers, usage.counts.shape[1], self.expert_bytes)
        self._watcher, self._tokens, self._began = Watcher(usage.counts), 0, self._clock()
        self._look()
        self.changed.emit()

    @Slot(object)
    def _count(self, delta: AnswerDelta) -> None:
        first, self._tokens = self._tokens == 0, delta.stats.completion_tokens
        # Where no panel ticks, this alone tells the prompt's uses from those of the answer.
        if first and self._tokens and self._watcher is not None:
            self._look()

    def _look(self) -> None:
        usage = self._host.usage()
        self._looked = self._clock()
        if usage is None or self._watcher is None or self.activity is None or self.recording is None:
            return
        if usage.counts.shape != self.activity.uses.shape:
            return
        frame = self._watcher.look(self._looked - self._began, self._tokens, usage.counts, usage.in_vram)
        self.activity.play(frame)
        self.recording.add(frame)


def _expert_bytes(plan: OffloadPlan, cells: int) -> int:
    # With cached copies in VRAM the experts still lie in RAM, whole.
    total = plan.bytes.ram.get("experts", 0) + plan.bytes.vram.get("experts", 0)
    return total // cells if cells else 0


class Replay(QObject):
    """A run that was kept, played again."""

    #: Another place in the run, or it plays or stands.
    changed = Signal()

    def __init__(self, recording: Recording, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.recording = recording
        self.activity = recording.activity()
        self.expert_bytes = recording.expert_bytes
        #: Whether an expert was in VRAM at any time.
        self.has_vram = any(len(frame.moved) for frame in recording.frames)
        self.seconds = 0.0
        self.speed = 1.0
        self._next = 0
        self._running = False

    @property
    def running(self) -> bool:
        return self._running

    @property
    def ended(self) -> bool:
        """Whether all of it has been played."""
        return not self._running and self.seconds >= self.recording.seconds

    def play(self) -> None:
        """From here on; from the beginning when it is at its end."""
        if self.seconds >= self.recording.seconds:
            self.seek(0.0)
        self._running = True
        self.changed.emit()

    def pause(self) -> None:
        self._running = False
        self.changed.emit()

    def seek(self, seconds: float) -> None:
        """What was then, as if it had been watched so far."""
        seconds = min(max(seconds, 0.0), self.recording.seconds)
        if seconds < self.seconds:
            self.activity, self._next, self.seconds = self.recording.activity(), 0, 0.0
        self._play_until(seconds)
        self.changed.emit()

    def tick(self, seconds: float) -> None:
        """Let so much time pass. What is replayed fades in its own time: slowly, or not at all while it stands."""
        if not self._running:
            return
        self._play_until(min(self.seconds + seconds * self.speed, self.recording.seconds))
        if self.seconds >= self.recording.seconds:
            self.pause()

    def _play_until(self, seconds: float) -> None:
        frames = self.recording.frames
        while self._next < len(frames) and frames[self._next].seconds <= seconds:
            frame = frames[self._next]
            self.activity.fade(frame.seconds - self.seconds)
            self.activity.play(frame)
            self.seconds = frame.seconds
            self._next += 1
        self.activity.fade(seconds - self.seconds)
        self.seconds = seconds
