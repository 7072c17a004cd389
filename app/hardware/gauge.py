"""Measures the memory's speed once on a PC that was never measured: in the background, while no answer is written."""

from __future__ import annotations

import logging
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app import tasks
from app.host import EngineHost, HostState
from app.language import told, tr
from engine.errors import GreenroomError
from engine.hardware.report import HardwareReport
from engine.progress import Progress, ProgressCallback

log = logging.getLogger(__name__)

#: How long the program must have had nothing to do, in milliseconds.
QUIET_MS = 1500

#: Takes `progress=`, which ends it by raising Cancelled; returns a report with the measured bandwidth.
Measure = Callable[..., HardwareReport]


def doing(progress: Progress) -> str:
    """What is measured now, and how long all of it will take yet."""
    said = told(progress.message)
    if progress.seconds_left is None:
        return said
    left = tr("about {seconds} s left", seconds=max(1, round(progress.seconds_left)))
    return f"{left} · {said}"


def measure_memory(progress: ProgressCallback) -> HardwareReport:
    """Takes 3 to 5 s of all cores; the result is remembered for this hardware."""
    from engine.hardware.probe import probe

    return probe(calibrate=True, progress=progress)


class MemoryGauge(QObject):
    """An answer that begins while it measures interrupts it: both would be wrong. It is tried again afterwards."""

    #: HardwareReport
    measured = Signal(object)

    def __init__(self, host: EngineHost, measure: Measure = measure_memory, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._host, self._measure = host, measure
        self._task: tasks.Task | None = None
        self._given_up = False
        self._quiet = QTimer(self, singleShot=True, interval=QUIET_MS)
        self._quiet.timeout.connect(self._begin)
        host.stateChanged.connect(self._follow)

    @property
    def running(self) -> bool:
        return self._task is not None and self._task.running

    @Slot()
    def give_way(self) -> None:
        """The user has the memory measured: two at once would slow each other."""
        self._given_up = True
        self._quiet.stop()
        if self._task is not None:
            self._task.cancel()

    @Slot(object)
    def _follow(self, state: HostState) -> None:
        if state.kind == "ready":
            if self._wanted(state) and not self.running:
                self._quiet.start()
        else:
            self._quiet.stop()
            if self._task is not None:
                self._task.cancel()

    @Slot()
    def _begin(self) -> None:
        if self._host.state.kind == "ready" and self._wanted(self._host.state) and not self.running:
            self._task = tasks.run(self._measure, done=self._end, failed=self._fail, progress=self._ignore)

    def _wanted(self, state: HostState) -> bool:
        return not self._given_up and state.hardware is not None and not state.hardware.memory.bandwidth_gbs

    def _end(self, report: HardwareReport) -> None:
        self.measured.emit(report)

    def _ignore(self, progress: Progress) -> None:
        """Nobody waits for it. That there is a handler lets the work be cancelled."""

    def _fail(self, error: GreenroomError) -> None:
        self._given_up = True
        log.info("%s", error)
