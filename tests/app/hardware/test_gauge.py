"""The memory is measured once, while nothing else is done."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from fakes import FakeApi, make_report
from pytestqt.qtbot import QtBot

from app import tasks
from app.hardware.gauge import MemoryGauge, doing
from app.host import EngineHost
from engine.errors import GreenroomError
from engine.hardware.report import HardwareReport, MemoryReport
from engine.progress import Progress
from engine.runtime.events import Message, SamplingParams

MEASURED = make_report(memory=MemoryReport(64_000_000_000, 50_000_000_000, {"8": 52.0}))
LONG = 20_000


def impatient(gauge: MemoryGauge) -> MemoryGauge:
    gauge._quiet.setInterval(0)
    return gauge


@pytest.mark.parametrize(
    ("seconds", "said"), [(None, "Reading"), (6.4, "about 6 s left · Reading"), (0.1, "about 1 s")]
)
def test_what_is_done_says_how_long_it_takes_yet(seconds: float | None, said: str) -> None:
    assert doing(Progress(1, 4, "Reading RAM with 8 threads", seconds)).startswith(said)


def test_measures_after_loading_and_says_so(host: EngineHost, load: Callable[..., None], qtbot: QtBot) -> None:
    gauge = impatient(MemoryGauge(host, lambda progress: MEASURED))
    with qtbot.waitSignal(gauge.measured, timeout=LONG) as said:
        load(host)
    assert said.args == [MEASURED]


def test_a_measured_pc_is_left_alone(host: EngineHost, api: FakeApi, load: Callable[..., None], qtbot: QtBot) -> None:
    api.report = MEASURED
    gauge = impatient(MemoryGauge(host, lambda progress: MEASURED))
    load(host)
    assert not gauge._quiet.isActive()
    assert not gauge.running


def test_an_answer_interrupts_it_and_it_is_tried_again(
    host: EngineHost, api: FakeApi, load: Callable[..., None], qtbot: QtBot
) -> None:
    api.gate = threading.Semaphore(0)
    runs: list[int] = []

    def measure(progress: Callable[[Progress], None]) -> HardwareReport:
        runs.append(len(runs))
        while runs == [0]:  # the first run ends only by being interrupted
            progress(Progress(1, 4, "Reading RAM"))
        return MEASURED

    gauge = impatient(MemoryGauge(host, measure))
    load(host)
    qtbot.waitUntil(lambda: runs == [0], timeout=LONG)
    host.generate([Message("user", "Hello")], SamplingParams())
    assert not gauge.running
    tasks.finish()
    with qtbot.waitSignal(gauge.measured, timeout=LONG):
        host.stop()
    assert runs == [0, 1]


def test_what_cannot_be_measured_is_not_tried_again(host: EngineHost, load: Callable[..., None], qtbot: QtBot) -> None:
    runs = []

    def measure(progress: Callable[[Progress], None]) -> HardwareReport:
        runs.append(1)
        raise GreenroomError("RAM bandwidth cannot be measured", "too little is free", "Close other programs.")

    gauge = impatient(MemoryGauge(host, measure))
    load(host)
    qtbot.waitUntil(lambda: len(runs) == 1, timeout=LONG)
    tasks.finish()
    load(host)
    assert not gauge._quiet.isActive()
    assert len(runs) == 1


def test_it_gives_way_to_a_measurement_that_was_asked_for(
    host: EngineHost, load: Callable[..., None], qtbot: QtBot
) -> None:
    started = threading.Event()

    def measure(progress: Callable[[Progress], None]) -> HardwareReport:
        while True:  # ends only by being interrupted
            progress(Progress(1, 4, "Reading RAM"))
            started.set()

    gauge = impatient(MemoryGauge(host, measure))
    load(host)
    qtbot.waitUntil(started.is_set, timeout=LONG)
    with qtbot.assertNotEmitted(gauge.measured):
        gauge.give_way()
        tasks.finish()
    load(host)
    assert not gauge._quiet.isActive()
