"""The program ends, whatever the network or a disk does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QDialog, QWidget
from pytestqt.qtbot import QtBot
from window_fakes import Open

from app import tasks
from app.engine_worker import EngineWorker
from app.host import EngineHost
from app.main_window import MainWindow
from app.models.download_host import DownloadHost
from app.models.page import ModelsPage
from app.models.survey import search_hub
from app.settings.store import SettingsStore
from engine import own_folders
from engine.hub.download_store import RUNNING, DownloadStore
from engine.hub.downloads import DownloadManager
from engine.hub.network import NetworkSettings
from engine.hub.repository import RemoteFile, RemoteModel
from engine.hub.trash import Trash
from tests.fake_hub import COMMIT
from tests.raw_server import RawServer, silent

ROOT = Path(__file__).parents[2]
LONG = 20_000
FILE = RemoteFile("model-Q4_0.gguf", 1000, None, None)
MODEL = RemoteModel("maker/model", COMMIT, "Q4_0", "model-Q4_0", "gguf", (FILE,))


def environment(data: Path) -> dict[str, str]:
    proxies = {"http_proxy", "https_proxy", "all_proxy"}
    kept = {name: value for name, value in os.environ.items() if name.lower() not in proxies}
    return {**kept, "GREENROOM_DATA": str(data), "QT_QPA_PLATFORM": "offscreen", "PYTHONPATH": str(ROOT)}


@pytest.mark.skipif(sys.platform == "win32", reason="needs a signal that closes the window")
def test_the_program_ends_while_a_download_waits_for_a_silent_server(private_data: Path) -> None:
    with RawServer(silent) as server:
        SettingsStore().change(hub=f"http://{server.address}", welcomed=True)
        store = DownloadStore(private_data / "downloads.db")
        download = store.add(f"http://{server.address}", MODEL, private_data / "models/maker/model")
        store.set_state(download, RUNNING)
        store.close()
        program = subprocess.Popen([sys.executable, "-m", "app"], env=environment(private_data))
        try:
            assert server.reached.wait(60)
            program.send_signal(signal.SIGTERM)
            # A connection may be silent for 30 s, and is then tried again for minutes.
            assert program.wait(25) == 0
        finally:
            program.kill()
            program.wait()
    store = DownloadStore(private_data / "downloads.db")
    assert [each.state for each in store.all()] == [RUNNING]
    assert store.claim(download)
    store.close()


def test_work_that_hangs_does_not_keep_the_program(private_data: Path) -> None:
    program = """
import threading
from PySide6.QtCore import QCoreApplication
from app import tasks
app = QCoreApplication([])
begun = threading.Event()
def hang():
    begun.set()
    threading.Event().wait()
tasks.run(hang)
begun.wait(20)
print(tasks.shutdown(0.1))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environment(private_data), capture_output=True, text=True, timeout=60
    )
    assert ran.stdout.strip() == "False", ran.stderr
    assert ran.returncode == 0


def test_cancelled_work_gives_up_what_it_asks_of_the_network(qtbot: QtBot) -> None:
    with RawServer(silent) as server:
        settings = NetworkSettings(endpoint=f"http://{server.address}", stall_s=1000)
        seen: list[object] = []
        task = tasks.run(search_hub, settings, "model", done=seen.append, failed=seen.append)
        assert server.reached.wait(20)
        task.cancel()
        qtbot.waitUntil(tasks.idle, timeout=LONG)
    assert seen == []


def test_closing_gives_up_what_is_asked_of_the_network(qtbot: QtBot) -> None:
    with RawServer(silent) as server:
        settings = NetworkSettings(endpoint=f"http://{server.address}", stall_s=1000)
        for _ in range(6):  # more than there are threads
            tasks.run(search_hub, settings, "model")
        assert server.reached.wait(20)
        assert tasks.shutdown(timeout=20)


def test_a_manager_that_is_still_being_opened_does_not_begin_after_the_end(
    settings: SettingsStore, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, go_on = threading.Event(), threading.Event()
    started: list[object] = []
    real = DownloadManager.__init__

    def slow(self: DownloadManager, *args: object) -> None:
        opening.set()
        go_on.wait(20)
        real(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(DownloadManager, "__init__", slow)
    monkeypatch.setattr(DownloadManager, "start", started.append)
    monkeypatch.setattr("app.models.download_host.CLOSE_S", 0.1)
    host = DownloadHost(settings)
    host.pause(1)
    assert opening.wait(20)
    host.shutdown()
    go_on.set()
    tasks.finish()
    assert started == []
    assert host._manager is None


def test_the_event_loop_runs_while_closing_waits(qtbot: QtBot) -> None:
    """A desktop asks a program on its way out whether it still answers, and offers to kill it if not."""
    ended = threading.Event()
    answered: list[bool] = []

    def answer() -> None:
        answered.append(ended.is_set())
        ended.set()

    QTimer.singleShot(0, answer)
    assert tasks.wait_for(ended.wait, 20)
    assert answered == [False]


def test_no_end_of_a_part_keeps_the_event_loop(
    settings: SettingsStore, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part of the program that takes long to end: the engine, a download, and work in the background."""
    threads: list[str] = []

    def watched(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def called(*args: object) -> object:
            threads.append(threading.current_thread().name)
            return real(*args)

        monkeypatch.setattr(owner, name, called)

    watched(EngineWorker, "close")
    watched(DownloadManager, "close")
    watched(tasks, "_join")
    with RawServer(silent) as server:
        settings.change(hub=f"http://{server.address}")
        downloads, host = DownloadHost(settings), EngineHost()
        downloads.add(MODEL)
        assert server.reached.wait(20)
        tasks.run(int)
        for part in (host, downloads, tasks):
            part.shutdown()
    assert len(threads) == 3
    assert threading.current_thread().name not in threads


def test_nothing_begins_while_the_program_ends(qtbot: QtBot) -> None:
    """A thread that is still in native code when the interpreter goes takes the program down."""
    began: list[int] = []
    hanging = threading.Event()
    tasks.run(hanging.wait, 20)

    def late() -> None:
        tasks.run(began.append, 1)
        hanging.set()

    QTimer.singleShot(0, late)
    assert tasks.shutdown(20)
    assert began == []


def test_a_thread_that_hangs_is_not_ended_in_the_middle_of_native_code(private_data: Path) -> None:
    SettingsStore().change(welcomed=True, start="nothing")
    program = """
import atexit, functools, sys, threading
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from app import __main__, tasks
tasks.shutdown = functools.partial(tasks.shutdown, 0.1)
real = QApplication.exec
def end():
    tasks.run(threading.Event().wait)
    (window,) = [each for each in QApplication.topLevelWidgets() if hasattr(each, "end_now")]
    window.end_now()
def exec_(*_):
    QTimer.singleShot(0, end)
    return real()
QApplication.exec = exec_
atexit.register(print, "the interpreter ended its threads")
sys.exit(__main__.main([]))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environment(private_data), capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr


def test_what_the_user_was_promised_is_done_at_the_end(qtbot: QtBot) -> None:
    """A password that is to be forgotten, say, although the program ends before its turn comes."""
    busy, done = threading.Event(), []
    for _ in range(6):  # more than there are threads
        tasks.run(busy.wait, 20)
    tasks.run(done.append, "promised", to_its_end=True)
    tasks.run(done.append, "not promised")
    QTimer.singleShot(0, busy.set)
    assert tasks.shutdown(timeout=20)
    assert done == ["promised"]


def test_work_that_begins_while_closing_waits_keeps_nothing(qtbot: QtBot) -> None:
    """It takes no other thread's sign to end."""
    busy = threading.Event()
    tasks.run(busy.wait, 20)

    def begin() -> None:
        tasks.run(int)
        QTimer.singleShot(100, busy.set)

    QTimer.singleShot(0, begin)
    assert tasks.shutdown(timeout=10)


def test_a_deleted_model_is_gone_after_the_end(
    make_host: Callable[..., EngineHost], settings: SettingsStore, private_data: Path, qtbot: QtBot
) -> None:
    model = private_data / "models/maker/model/model-Q4_0.gguf"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"x")
    page = ModelsPage(make_host(), settings, DownloadHost(settings))
    qtbot.addWidget(page)
    tasks.finish()
    page._trash = Trash(private_data / "models")
    page._trash.delete("model", model)
    page.shutdown()
    assert tasks.shutdown(timeout=20)
    assert not (private_data / "models/.trash").exists()


def test_what_a_program_that_was_killed_has_deleted_goes_at_the_next_end(
    make_host: Callable[..., EngineHost], settings: SettingsStore, private_data: Path, qtbot: QtBot
) -> None:
    trash = private_data / "models/.trash"
    trash.mkdir(parents=True)
    own_folders.make(trash / "999999999-1")
    (trash / "999999999-1/model-Q4_0.gguf").write_bytes(b"x")
    page = ModelsPage(make_host(), settings, DownloadHost(settings))
    qtbot.addWidget(page)
    tasks.finish()
    page.shutdown()
    assert tasks.shutdown(timeout=20)
    assert not trash.exists()


def closed_while_it_waits(
    window: MainWindow, meanwhile: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> list[bool]:
    """Closes it. meanwhile: called while its parts end. What was visible then, and what it could be asked."""
    seen: list[bool] = []
    ended = threading.Event()

    def look() -> None:
        meanwhile()
        QTimer.singleShot(50, end)

    def end() -> None:
        seen.extend(other.isVisible() for other in (window, *window.findChildren(QWidget)) if other.isWindow())
        seen.extend(action.isEnabled() for action in window.actions_by_key.values())
        ended.set()

    def slow(host: DownloadHost) -> bool:
        QTimer.singleShot(0, look)
        return tasks.wait_for(ended.wait, 20)

    monkeypatch.setattr(DownloadHost, "shutdown", slow)
    window.close()
    assert ended.is_set()
    return seen


def test_nothing_can_be_asked_of_a_window_that_closes(open_window: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    window = open_window()
    QDialog(window).show()
    made: list[object] = []
    monkeypatch.setattr(window, "_make_chat", made.append)
    assert not any(closed_while_it_waits(window, window._rebuild_soon.start, monkeypatch))
    assert made == []


def test_a_window_that_closes_before_it_has_begun_does_not_begin(
    make_host: Callable[..., EngineHost], settings: SettingsStore, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a signal ends the program right after its start."""
    made: list[object] = []
    window = MainWindow(make_host(), settings, lambda *_: made.append(1))  # type: ignore[func-returns-value,arg-type]
    qtbot.addWidget(window)
    window.show()
    closed_while_it_waits(window, lambda: None, monkeypatch)
    assert made == []
