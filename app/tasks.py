"""The only door from the UI thread to background work.

    task = run(work, argument, done=self._show, failed=self._complain)

`work` runs on a background thread; `done(result)`, `failed(GreenroomError)` and `progress(Progress)` are called
on the UI thread. Handlers that are methods of a widget that has died meanwhile are not called. A task that is cancelled
gives up what it asks of the network.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from queue import SimpleQueue
from typing import Any

from PySide6.QtCore import QCoreApplication, QEventLoop, QObject, Qt, Signal, Slot
from shiboken6 import isValid

from app.faults import as_greenroom_error
from engine.control import Control, controlled_by
from engine.errors import Cancelled, GreenroomError
from engine.progress import Progress
from engine.words import say

log = logging.getLogger(__name__)

_THREADS = 4


class Task(QObject):
    """One piece of background work. Lives on the UI thread."""

    _progressed = Signal(object)
    _ended = Signal(object, object)

    def __init__(
        self,
        done: Callable[[Any], object] | None,
        failed: Callable[[GreenroomError], object] | None,
        progress: Callable[[Progress], object] | None,
        to_its_end: bool = False,
    ) -> None:
        super().__init__()
        self.to_its_end = to_its_end
        self._done, self._failed, self._progress = done, failed, progress
        self._control = Control()
        self._finished = False
        self._progressed.connect(self._deliver_progress, Qt.ConnectionType.QueuedConnection)
        self._ended.connect(self._deliver_end, Qt.ConnectionType.QueuedConnection)

    def cancel(self) -> None:
        """Nothing more is delivered; work stops at its next report, or where it waits for the network."""
        self._control.stop()

    @property
    def running(self) -> bool:
        return not self._finished and not self._control.stopped

    def _work(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """On the background thread."""
        if self._control.stopped:
            self._ended.emit(None, None)
            return
        try:
            with controlled_by(self._control):
                result = fn(*args, progress=self._report) if self._progress else fn(*args)
        except Cancelled:
            self._control.stop()
            self._ended.emit(None, None)
        except Exception as error:
            work = getattr(fn, "__name__", "Background work").strip("_").replace("_", " ").capitalize()
            self._ended.emit(None, as_greenroom_error(error, say("{work} failed", work=work)))
        else:
            self._ended.emit(result, None)

    def _report(self, progress: Progress) -> None:
        self._control.check()
        self._progressed.emit(progress)

    @Slot(object)
    def _deliver_progress(self, progress: Progress) -> None:
        if self.running and self._progress and alive(self._progress):
            self._progress(progress)

    @Slot(object, object)
    def _deliver_end(self, result: Any, error: GreenroomError | None) -> None:
        wanted = self.running
        self._finished = True
        pool = self.parent()
        if isinstance(pool, _Pool):
            pool.forget(self)
        if not wanted:
            return
        if error is None:
            if self._done and alive(self._done):
                self._done(result)
        elif self._failed and alive(self._failed):
            self._failed(error)
        elif self._failed is None:
            log.error("nobody handled: %s", error)


def alive(handler: Callable[..., object]) -> bool:
    """False for a method of a QObject that Qt has deleted."""
    while isinstance(handler, partial):
        handler = handler.func
    owner = getattr(handler, "__self__", None)
    return not isinstance(owner, QObject) or isValid(owner)


class _Pool(QObject):
    """The threads, owned by the application object.

    They are daemons, unlike those of an executor: work that hangs, on a network drive for instance, must not keep the
    program from ending.
    """

    def __init__(self, app: QCoreApplication) -> None:
        super().__init__(app)
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._running: dict[Task, Future[None]] = {}
        self._closing = False

    def start(self, task: Task, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if self._closing and not task.to_its_end:
            task.cancel()
            return
        task.setParent(self)
        ended: Future[None] = Future()
        self._running[task] = ended
        self._work.put(partial(_do, task, fn, args, ended))
        if len(self._threads) < min(_THREADS, len(self._running)):
            name = f"greenroom-task_{len(self._threads)}"
            self._threads.append(threading.Thread(target=_serve, args=(self._work,), name=name, daemon=True))
            self._threads[-1].start()

    def forget(self, task: Task) -> None:
        self._running.pop(task, None)
        task.setParent(None)

    @property
    def busy(self) -> bool:
        return bool(self._running)

    def wait(self, seconds: float) -> None:
        """Until a piece of work has ended, or for that long."""
        wait(self._running.values(), seconds, FIRST_COMPLETED)

    def shutdown(self, timeout: float) -> bool:
        self._closing = True  # a timer may want something while this waits
        ended, until = True, time.monotonic() + timeout
        # Again for what was promised while this waits.
        while self._threads and (left := until - time.monotonic()) > 0:
            for task in self._running:
                if not task.to_its_end:
                    task.cancel()
            ended = wait_for(_join, self._dismiss(), left) and ended
        self._running.clear()
        self.setParent(None)
        return ended

    def _dismiss(self) -> list[threading.Thread]:
        """The threads end after what is queued; later work gets others, and a queue of their own."""
        threads, self._threads = self._threads, []
        work, self._work = self._work, SimpleQueue()
        for _ in threads:
            work.put(None)
        return threads


def _join(threads: list[threading.Thread], timeout: float) -> bool:
    end = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def _serve(work: SimpleQueue[Callable[[], None] | None]) -> None:
    while (piece := work.get()) is not None:
        piece()


def _do(task: Task, fn: Callable[..., Any], args: tuple[Any, ...], ended: Future[None]) -> None:
    try:
        task._work(fn, args)
    except BaseException as error:
        ended.set_exception(error)
    else:
        ended.set_result(None)


def _pool() -> _Pool:
    app = QCoreApplication.instance()
    if app is None:
        raise RuntimeError("tasks.run needs a Qt application")
    found = app.findChild(_Pool, options=Qt.FindChildOption.FindDirectChildrenOnly)
    return found if found is not None else _Pool(app)


def run(
    fn: Callable[..., Any],
    *args: Any,
    done: Callable[[Any], object] | None = None,
    failed: Callable[[GreenroomError], object] | None = None,
    progress: Callable[[Progress], object] | None = None,
    to_its_end: bool = False,
) -> Task:
    """Runs fn(*args) in the background; with a `progress` handler fn gets a `progress=` callback as well.

    to_its_end: `shutdown` does not cancel it: the user has been told that it is done when the program ends

    That callback raises Cancelled once the task is cancelled. Any other exception than GreenroomError is
    logged and delivered to `failed` as one.
    """
    task = Task(done, failed, progress, to_its_end)
    _pool().start(task, fn, args)
    return task


def idle() -> bool:
    """True when no background work is running or waiting to be delivered."""
    return not _pool().busy


def finish() -> None:
    """Runs the event loop until all background work has been delivered. For tests."""
    while not idle():
        QCoreApplication.processEvents(QEventLoop.ProcessEventsFlag.AllEvents, 20)
        # Not at full speed: the background threads need the interpreter.
        _pool().wait(0.005)


def wait_for(fn: Callable[..., bool], *args: Any) -> bool:
    """What fn(*args) returns, which waits and has a limit of its own. The event loop runs meanwhile."""
    done: Future[bool] = Future()

    def work() -> None:
        try:
            done.set_result(fn(*args))
        except BaseException as error:
            done.set_exception(error)

    thread = threading.Thread(target=work, name="greenroom-wait", daemon=True)
    thread.start()
    while not done.done():
        QCoreApplication.processEvents(QEventLoop.ProcessEventsFlag.AllEvents, 20)
        wait([done], 0.01)
    thread.join()
    return done.result()


def shutdown(timeout: float = 5.0) -> bool:
    """Cancels what runs and lets it end for up to `timeout` seconds; False when something would not stop.

    What was to go to its end is not cancelled. A later `run` starts afresh.
    """
    app = QCoreApplication.instance()
    pool = app.findChild(_Pool, options=Qt.FindChildOption.FindDirectChildrenOnly) if app else None
    return pool.shutdown(timeout) if pool is not None else True
