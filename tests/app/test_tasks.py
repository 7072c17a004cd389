"""Background work: results on the UI thread, errors in words, nothing left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot
from shiboken6 import delete

from app import tasks
from engine.errors import Cancelled, GreenroomError
from engine.progress import Progress

LONG = 20_000


def test_the_result_arrives_on_the_ui_thread(qtbot: QtBot) -> None:
    seen: list[tuple[object, str]] = []

    def work(number: int) -> tuple[int, str]:
        return number + 1, threading.current_thread().name

    tasks.run(work, 41, done=lambda result: seen.append((result, threading.current_thread().name)))
    tasks.finish()
    (result, delivered_on), *rest = seen
    assert rest == []
    assert result[0] == 42
    assert result[1].startswith("greenroom-task")
    assert delivered_on == threading.main_thread().name


def test_a_readable_error_is_handed_on_as_it_is(qtbot: QtBot) -> None:
    error = GreenroomError("a", "b", "c")
    failures: list[GreenroomError] = []

    def work() -> None:
        raise error

    tasks.run(work, failed=failures.append)
    tasks.finish()
    assert failures == [error]


def test_a_fault_becomes_a_readable_error_and_is_logged(qtbot: QtBot, caplog: pytest.LogCaptureFixture) -> None:
    failures: list[GreenroomError] = []

    def find_models() -> None:
        raise KeyError("shape")

    tasks.run(find_models, failed=failures.append)
    tasks.finish()
    assert failures[0].what == "Find models failed"
    assert "KeyError" in failures[0].why
    assert "Traceback" in caplog.text


def test_progress_arrives_in_order_before_the_result(qtbot: QtBot) -> None:
    seen: list[object] = []

    def work(progress: Callable[[Progress], None]) -> str:
        for step in range(5):
            progress(Progress(step, 5, "working"))
        return "done"

    tasks.run(work, done=seen.append, progress=lambda p: seen.append(p.done))
    tasks.finish()
    assert seen == [0, 1, 2, 3, 4, "done"]


def test_cancelled_work_stops_at_its_next_report_and_delivers_nothing(qtbot: QtBot) -> None:
    seen: list[object] = []
    started, stopped = threading.Event(), threading.Event()

    def work(progress: Callable[[Progress], None]) -> None:
        started.set()
        try:
            while True:
                progress(Progress(0, 0, "working"))
        except Cancelled:
            stopped.set()
            raise

    task = tasks.run(work, done=seen.append, failed=seen.append, progress=lambda _: None)
    assert started.wait(20)
    task.cancel()
    assert not task.running
    tasks.finish()
    assert stopped.is_set()
    assert seen == []


def test_a_dead_widgets_handler_is_not_called(qtbot: QtBot) -> None:
    called: list[object] = []

    class Receiver(QObject):
        def receive(self, result: object) -> None:
            called.append(result)

    receiver = Receiver()
    gate = threading.Event()
    tasks.run(gate.wait, 20, done=receiver.receive)
    delete(receiver)
    gate.set()
    tasks.finish()
    assert called == []


def test_shutdown_waits_for_running_work_and_leaves_no_thread(qtbot: QtBot) -> None:
    started = threading.Event()

    def work(progress: Callable[[Progress], None]) -> None:
        while True:
            started.set()
            progress(Progress(0, 0, "working"))

    tasks.run(work, progress=lambda _: None)
    assert started.wait(20)
    assert tasks.shutdown(timeout=20)
    assert not [t for t in threading.enumerate() if t.name.startswith("greenroom-task")]


def test_shutdown_says_when_something_would_not_stop(qtbot: QtBot) -> None:
    gate = threading.Event()
    tasks.run(gate.wait, 20)
    late = [t for t in threading.enumerate() if t.name.startswith("greenroom-task")]
    assert not tasks.shutdown(timeout=0.05)
    gate.set()
    for thread in late:
        thread.join(20)
