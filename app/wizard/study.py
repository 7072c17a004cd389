"""What the wizard finds out in the background: the machine, its memory's speed, and the catalogue's plans for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QObject, Signal, Slot

from app import tasks
from app.hardware.gauge import Measure
from app.language import tr
from app.settings.store import Settings
from app.wizard.ranking import Fits, plan_catalogue
from engine.errors import GreenroomError
from engine.hardware.report import HardwareReport
from engine.progress import Progress

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Study:
    """api: the `engine` package. measure: times the memory. demo_is_here: whether it needs no download."""

    api: Any
    values: Settings
    measure: Measure
    demo_is_here: Callable[[], bool]


@dataclass(frozen=True)
class Part:
    """A field of the report that has become known, and the report so far."""

    field: str
    report: HardwareReport


def look(api: Any, progress: Callable[[Part], None]) -> HardwareReport:
    """Tells each part as it is known."""
    return api.probe(found=lambda field, report: progress(Part(field, report)))


class Findings(QObject):
    """Everything is None until it is known. Nothing here asks the network."""

    changed = Signal()
    #: Progress
    progressed = Signal(object)

    def __init__(self, study: Study, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._study = study
        self.report: HardwareReport | None = None
        #: Of a report that is not whole yet: what is known of it, by field.
        self.partial: HardwareReport | None = None
        self.known: set[str] = set()
        self.fits: Fits | None = None
        self.demo_here: bool | None = None
        self.probe_error: GreenroomError | None = None
        self.measure_error: GreenroomError | None = None
        self.fits_error: GreenroomError | None = None
        self._probing: tasks.Task | None = None
        self._measuring: tasks.Task | None = None
        self._planning: tasks.Task | None = None
        self._demo: tasks.Task | None = None

    @property
    def measuring(self) -> bool:
        return self._measuring is not None and self._measuring.running

    @property
    def api(self) -> Any:
        return self._study.api

    def begin(self) -> None:
        """Safe to call again: what failed is tried anew, what is known stays."""
        if self.demo_here is None and not _runs(self._demo):
            self._demo = tasks.run(self._study.demo_is_here, done=self._take_demo, failed=self._demo_unknown)
        if self.report is None and not _runs(self._probing):
            self.probe_error = None
            self.partial, self.known = None, set()
            self._probing = tasks.run(
                look,
                self._study.api,
                done=self._take_report,
                failed=self._probe_failed,
                progress=self._take_part,
            )
            self.changed.emit()

    @Slot()
    def measure(self) -> None:
        if self.measuring:
            return
        self.measure_error = None
        self._measuring = tasks.run(
            self._study.measure, done=self._take_measured, failed=self._measure_failed, progress=self.progressed.emit
        )
        self.progressed.emit(Progress(0, 0, tr("Starting to measure memory speed")))
        self.changed.emit()

    @Slot()
    def skip(self) -> None:
        if self._measuring is not None:
            self._measuring.cancel()
            self.changed.emit()

    def stop(self) -> None:
        for task in (self._probing, self._measuring, self._planning, self._demo):
            if task is not None:
                task.cancel()

    def _take_demo(self, here: bool) -> None:
        self.demo_here = here
        self.changed.emit()

    def _demo_unknown(self, error: GreenroomError) -> None:
        log.info("%s", error)
        self._take_demo(False)

    def _take_part(self, part: Part) -> None:
        self.partial = part.report
        self.known.add(part.field)
        self.changed.emit()

    def _take_report(self, report: HardwareReport) -> None:
        self.report = report
        if report.memory.bandwidth_gbs:
            self._plan()
        else:
            # Measuring wants the PC for itself; the plans follow it, or the user who skips it.
            self.measure()
        self.changed.emit()

    def _take_measured(self, report: HardwareReport) -> None:
        self.report = report
        self._plan()
        self.changed.emit()

    def _probe_failed(self, error: GreenroomError) -> None:
        self.probe_error = error
        self.changed.emit()

    def _measure_failed(self, error: GreenroomError) -> None:
        self.measure_error = error
        self.want_plans()
        self.changed.emit()

    def want_plans(self) -> None:
        """For who does not wait for the measurement."""
        if self.report is not None and self.fits is None and not _runs(self._planning):
            self._plan()

    def _plan(self) -> None:
        if self._planning is not None:
            self._planning.cancel()
        self.fits_error = None
        self._planning = tasks.run(
            plan_catalogue,
            self._study.api,
            self.report,
            self._study.values,
            done=self._take_fits,
            failed=self._fits_failed,
        )

    def _take_fits(self, fits: Fits) -> None:
        self.fits = fits
        self.changed.emit()

    def _fits_failed(self, error: GreenroomError) -> None:
        self.fits_error = error
        self.changed.emit()


def _runs(task: tasks.Task | None) -> bool:
    return task is not None and task.running
