"""Files that are there whole, or as they were before; and files of others, of which only so much is read."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path
from typing import BinaryIO


def write_whole(path: Path, data: bytes) -> None:
    """Bytes into a file of an existing folder: killed in the midst of it, or beside another writer, none is half.

    Raises OSError, and leaves nothing behind then.
    """
    # Other threads and programs that write the same file each have a name of their own.
    unfinished = path.with_name(f"{path.name}.{threading.get_native_id():x}.part")
    try:
        unfinished.write_bytes(data)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def open_regular(path: Path) -> BinaryIO:
    """A file to read, where it is one: a pipe or a device would have whoever opens it wait. Raises OSError."""
    # What became a pipe since somebody looked, or a file of the system that waits for news, must not wait either.
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))
    return file


def read_bounded(path: Path, most: int) -> bytes:
    """The bytes of a file, at most one more than `most`, however long it says it is. Raises OSError."""
    with open_regular(path) as file:
        # A file of the system that has nothing new gives None.
        return file.read(most + 1) or b""
