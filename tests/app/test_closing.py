"""The program ends, whatever the network or a disk does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app import tasks
from app.models.download_host import DownloadHost
from app.models.survey import search_hub
from app.settings.store import SettingsStore
from engine.hub.download_store import RUNNING, DownloadStore
from engine.hub.downloads import DownloadManager
from engine.hub.network import NetworkSettings
from engine.hub.repository import RemoteFile, RemoteModel
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
