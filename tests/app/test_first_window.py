"""A second start of the program brings up the window that is there; what does not answer is passed over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QObject
from PySide6.QtNetwork import QLocalSocket
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app import first_window
from app.first_window import FirstWindow

ROOT = Path(__file__).resolve().parents[2]
#: Another start of the program as far as this part of it goes.
LATER = """
import sys
from pathlib import Path
from PySide6.QtWidgets import QApplication
from app.first_window import FirstWindow
application = QApplication([])
first = FirstWindow(Path(sys.argv[1]))
print(first.begin(sys.argv[2] or None), flush=True)
if len(sys.argv) > 3:
    sys.stdin.read()
"""


def start(folder: Path, model: str = "", *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", LATER, str(folder), model, *more]
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    )


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.fixture
def window(qtbot: QtBot) -> QWidget:
    made = QWidget()
    qtbot.addWidget(made)
    return made


@pytest.fixture
def loaded() -> list[str]:
    return []


@pytest.fixture
def first(tmp_path: Path, window: QWidget, loaded: list[str], qapp: object) -> Iterator[FirstWindow]:
    made = FirstWindow(tmp_path)
    assert made.begin()
    made.serve(window, loaded.append)
    yield made
    made.deleteLater()


def test_a_later_start_brings_up_the_window_and_hands_its_model_over(
    tmp_path: Path, first: FirstWindow, window: QWidget, loaded: list[str], qtbot: QtBot
) -> None:
    later = start(tmp_path, "/models/한국어 \n model.gguf")
    qtbot.waitUntil(lambda: later.poll() is not None, timeout=60_000)
    assert later.communicate()[0].strip() == "False"
    assert window.isVisible()
    assert loaded == ["/models/한국어 \n model.gguf"]
    window.showMinimized()
    later = start(tmp_path)
    qtbot.waitUntil(lambda: later.poll() is not None, timeout=60_000)
    assert later.communicate()[0].strip() == "False"
    assert not window.isMinimized()
    assert len(loaded) == 1


def test_other_data_have_a_window_of_their_own(tmp_path: Path, first: FirstWindow) -> None:
    other = FirstWindow(tmp_path / "other")
    assert other.begin()


def test_after_a_kill_the_next_start_is_the_first(tmp_path: Path, qapp: object, qtbot: QtBot) -> None:
    killed = start(tmp_path, "", "stay")
    assert killed.stdout is not None
    assert killed.stdout.readline().strip() == "True"
    end(killed)
    heir = FirstWindow(tmp_path)
    window = QWidget()
    qtbot.addWidget(window)
    assert heir.begin()
    heir.serve(window, lambda path: None)
    later = start(tmp_path)
    qtbot.waitUntil(lambda: later.poll() is not None, timeout=60_000)
    assert later.communicate()[0].strip() == "False", "it listens where the killed one did"


def test_one_that_hangs_does_not_keep_others_from_opening(
    tmp_path: Path, qapp: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_window, "ANSWER_S", 0.3)
    # Its loop never runs.
    hanging = start(tmp_path, "", "stay")
    assert hanging.stdout is not None
    assert hanging.stdout.readline().strip() == "True"
    assert FirstWindow(tmp_path).begin()
    end(hanging)


def test_a_window_on_its_way_out_is_waited_for(
    tmp_path: Path, first: FirstWindow, window: QWidget, monkeypatch: pytest.MonkeyPatch
) -> None:
    window.show()
    window.close()
    later = FirstWindow(tmp_path)
    waits = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            first._lock.unlock()

    monkeypatch.setattr(first_window.time, "sleep", wait)
    assert later.begin()
    assert len(waits) == 3
    assert later._server.isListening(), "it is the first now"


def test_a_window_that_asks_before_it_closes_still_answers(
    tmp_path: Path, first: FirstWindow, loaded: list[str], window: QWidget, qtbot: QtBot
) -> None:
    class Asks(QObject):
        def eventFilter(self, watched: QObject, event: QEvent) -> bool:
            if event.type() == QEvent.Type.Close:
                event.ignore()
                return True
            return False

    asks = Asks()
    window.installEventFilter(asks)
    # What was installed last is asked first; the window's own answer comes after the filter of its server.
    window.removeEventFilter(first)
    window.installEventFilter(first)
    window.show()
    assert not window.close()
    later = start(tmp_path, "/models/a.gguf")
    qtbot.waitUntil(lambda: later.poll() is not None, timeout=60_000)
    assert later.communicate()[0].strip() == "False"
    assert loaded == ["/models/a.gguf"]
    window.removeEventFilter(asks)


@pytest.mark.parametrize("said", [b"nonsense\n", b"[1]\n", b'{"model": "x"}\n', b"x" * 70_000, b"[" * 9000 + b"\n"])
def test_nonsense_from_a_caller_changes_nothing(
    said: bytes, first: FirstWindow, window: QWidget, loaded: list[str], qtbot: QtBot
) -> None:
    line = QLocalSocket()
    line.connectToServer(first._name)
    assert line.waitForConnected(5000)
    line.write(said)
    qtbot.waitUntil(lambda: line.state() == QLocalSocket.LocalSocketState.UnconnectedState)
    assert not window.isVisible()
    assert loaded == []
    line = QLocalSocket()
    line.connectToServer(first._name)
    assert line.waitForConnected(5000)
    line.write(json.dumps({"model": "", "token": ""}).encode() + b"\n")
    qtbot.waitUntil(line.canReadLine)
    assert window.isVisible()


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may write anywhere")
def test_where_nothing_can_be_written_the_window_opens(tmp_path: Path, qapp: object) -> None:
    tmp_path.chmod(0o500)
    assert FirstWindow(tmp_path).begin()
    tmp_path.chmod(0o700)


def test_a_folder_that_cannot_be_made_keeps_no_window_from_opening(tmp_path: Path, qapp: object) -> None:
    (tmp_path / "file").write_text("")
    assert FirstWindow(tmp_path / "file" / "data").begin()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the socket is a path only there")
def test_the_socket_lies_where_no_other_user_can_listen_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qapp: object
) -> None:
    runtime, folder = tmp_path / "run", tmp_path / "data"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert Path(first_window._socket_name(folder)).parent == runtime
    runtime.chmod(0o777)
    assert Path(first_window._socket_name(folder)).parent == folder, "others may write there"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    assert Path(first_window._socket_name(folder)).parent == folder
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    before = os.umask(0)
    try:
        made = FirstWindow(folder)
        assert made.begin()
    finally:
        os.umask(before)
    socket = folder / "greenroom.socket"
    assert socket.is_socket()
    assert socket.stat().st_mode & 0o077 == 0
    assert folder.stat().st_mode & 0o777 == 0o700
    made.deleteLater()
