"""One window for one data folder: a second start of the program brings up the window that is there.

Who holds the lock file is the first; it listens on a local socket that only this user can reach. A later start says
on it what it was to open, and ends. When the first does not answer, for it hangs, the later one opens a window of its
own: windows share the chats (`app.chat.storage.writing`, `ChatStore.look_for_changes`).
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QEvent, QLockFile, QObject, Qt, Slot
from PySide6.QtNetwork import QLocalServer, QLocalSocket
from PySide6.QtWidgets import QApplication, QWidget

from engine.folders import make_private

log = logging.getLogger(__name__)

#: Seconds that the first window has to answer, and that one on its way out, or just starting, is waited for.
ANSWER_S, LEAVING_S = 4.0, 15.0
#: Of what a later start says, in bytes: a path.
MOST = 1 << 16
HERE = b"here\n"
#: What a desktop gives a program that it starts, to let its window come to the front.
TOKEN = "XDG_ACTIVATION_TOKEN"


class FirstWindow(QObject):
    def __init__(self, folder: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._folder = folder
        self._name = _socket_name(folder)
        self._lock = QLockFile(str(folder / "greenroom.lock"))
        # Only the end of its program makes it stale.
        self._lock.setStaleLockTime(0)
        self._window: QWidget | None = None
        self._load: Callable[[str], object] | None = None
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._answer)

    def begin(self, model: str | None = None) -> bool:
        """True when this start is to open a window; False when another has taken over, with the model."""
        try:
            make_private(self._folder)
        except OSError:
            return True  # the window says what follows from it
        until = time.monotonic() + LEAVING_S
        while not self._lock.tryLock(0):
            if self._lock.error() != QLockFile.LockError.LockFailedError:
                return True
            answered = self._call(model or "")
            if answered is not None or time.monotonic() > until:
                return not answered
            time.sleep(0.05)
        # One that was killed leaves its socket behind.
        QLocalServer.removeServer(self._name)
        if not self._server.listen(self._name):
            log.warning("A second start will open a second window: %s", self._server.errorString())
        return True

    def serve(self, window: QWidget, load: Callable[[str], object]) -> None:
        """Later starts bring up this window, until it closes. load: takes the path of the model they were to open."""
        self._window, self._load = window, load
        window.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        # Not when it is to close: it may ask first, and stay. Nor when the desktop hides it.
        if event.type() == QEvent.Type.Hide and not event.spontaneous():
            # On its way out it answers nobody; a later start waits for the lock.
            self._server.close()
            self._window = None
        return False

    def _call(self, model: str) -> bool | None:
        """Whether the first has answered; None when nobody listens (yet, or any more)."""
        line = QLocalSocket()
        line.connectToServer(self._name)
        if not line.waitForConnected(int(ANSWER_S * 1000)):
            return None
        if sys.platform == "win32":
            # Only who is in front may say who comes to the front.
            ctypes.windll.user32.AllowSetForegroundWindow(-1)
        line.write(json.dumps({"model": model, "token": os.environ.get(TOKEN, "")}).encode() + b"\n")
        until = time.monotonic() + ANSWER_S
        while not line.canReadLine() and (left := until - time.monotonic()) > 0:
            if not line.waitForReadyRead(int(left * 1000) + 1):
                break
        # A line that broke off is a window that was closed just then.
        gone = not line.canReadLine() and line.state() != QLocalSocket.LocalSocketState.ConnectedState
        return None if gone else bytes(line.readLine().data()) == HERE

    @Slot()
    def _answer(self) -> None:
        while (line := self._server.nextPendingConnection()) is not None:
            line.setParent(self)
            line.disconnected.connect(line.deleteLater)
            line.readyRead.connect(lambda line=line: self._read(line))
            self._read(line)

    def _read(self, line: QLocalSocket) -> None:
        if not line.canReadLine():
            if line.bytesAvailable() > MOST:
                line.abort()
            return
        try:
            said = json.loads(bytes(line.readLine(MOST).data()))
            model, token = str(said["model"]), str(said["token"])
        except (ValueError, KeyError, TypeError, RecursionError):
            line.abort()
            return
        line.write(HERE)
        line.flush()
        line.disconnectFromServer()
        if token:
            os.environ[TOKEN] = token  # Qt takes it from here when a window is activated
        if self._window is not None:
            bring_up(self._window)
            if model and self._load is not None:
                self._load(model)


def _socket_name(folder: Path) -> str:
    """Another user must not be able to listen in our place.

    On Linux Qt's own folder for sockets is open to all users, so this is a path in one that is not. On macOS that
    folder belongs to the user. On Windows it is a pipe, which Qt opens for this user only.
    """
    name = "greenroom-" + hashlib.sha256(str(folder.resolve()).encode("utf-8", "replace")).hexdigest()[:20]
    if not sys.platform.startswith("linux"):
        return name
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    # A path of a socket has 107 bytes at most.
    return f"{runtime}/{name}" if _is_private(runtime) else str(folder.absolute() / "greenroom.socket")


def _is_private(folder: str) -> bool:
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def bring_up(window: QWidget) -> None:
    """To the front, from wherever it is; where the system allows that to nobody, it asks for attention."""
    window.setWindowState(window.windowState() & ~Qt.WindowState.WindowMinimized | Qt.WindowState.WindowActive)
    window.show()
    window.raise_()
    window.activateWindow()
    QApplication.alert(window)
