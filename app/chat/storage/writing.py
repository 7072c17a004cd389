"""Which answers are being written, so that a second window does not take one for cut off: a lock file for each.

A lock of a program that was killed counts as none.
"""

from __future__ import annotations

import os
from pathlib import Path

from PySide6.QtCore import QLockFile


class Writing:
    """The answers that one open chat file's window writes, and those that others do. By the id of the message."""

    def __init__(self, chats: Path) -> None:
        self._chats = chats
        self._held: dict[int, QLockFile] = {}

    def begin(self, message_id: int) -> bool:
        """Whether it is ours to write: False while another window does. Where no file can be made, nobody knows."""
        if message_id in self._held:
            return True
        lock = self._lock(message_id)
        if lock.tryLock(0):
            self._held[message_id] = lock
        return lock.error() != QLockFile.LockError.LockFailedError

    def end(self, message_id: int) -> None:
        lock = self._held.pop(message_id, None)
        if lock is not None:
            lock.unlock()

    def end_all(self) -> None:
        for message_id in list(self._held):
            self.end(message_id)

    def elsewhere(self, message_id: int) -> bool:
        """Whether another window is writing it."""
        if message_id in self._held or not os.path.exists(self._path(message_id)):
            return False
        lock = self._lock(message_id)
        if lock.tryLock(0):
            lock.unlock()  # left behind by a crash; this removes it
            return False
        return lock.error() == QLockFile.LockError.LockFailedError

    def _path(self, message_id: int) -> Path:
        return self._chats.with_name(f"{self._chats.name}.writing-{message_id}")

    def _lock(self, message_id: int) -> QLockFile:
        lock = QLockFile(str(self._path(message_id)))
        # An answer may take hours: only the end of its program makes a lock stale.
        lock.setStaleLockTime(0)
        return lock
