"""A tree of the user's files that has to stay as it is, whatever happens beside it."""

from __future__ import annotations

import os
import stat
from pathlib import Path


class Canary:
    """check: raises AssertionError when anything below the folder was added, removed or changed since it was made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = self._look()

    def check(self) -> None:
        assert self._look() == self._before

    def _look(self) -> dict[str, tuple[int, bytes]]:
        found = {}
        for path in [self._folder, *self._folder.rglob("*")]:
            status = os.lstat(path)
            content = b""
            if stat.S_ISREG(status.st_mode):
                content = path.read_bytes()
            elif stat.S_ISLNK(status.st_mode):
                content = os.fsencode(os.readlink(path))
            found[str(path)] = (status.st_mode, content)
        return found
