"""Opening regular files and nothing else: a named pipe would be waited for, a device or a link would be written to."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

from engine.errors import GreenroomError
from engine.safe_paths import is_link
from engine.words import say

#: So that not even opening waits, where what lies there was exchanged since it was looked at.
_NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


def open_to_read(path: Path) -> io.FileIO:
    """A regular file, also through links, without a buffer. Raises OSError for anything else."""
    # Opening alone sets some devices off.
    _check_regular(os.stat(path))
    descriptor = os.open(path, os.O_RDONLY | _NO_WAIT)
    try:
        _check_regular(os.fstat(descriptor))
        return io.FileIO(descriptor)
    except BaseException:
        os.close(descriptor)
        raise


def read_bounded(path: Path, most: int) -> bytes:
    """The bytes of a regular file, at most one more than `most`, whatever size it claims. Raises OSError."""
    with io.BufferedReader(open_to_read(path)) as file:
        # A file of the system that has nothing new gives None.
        return file.read(most + 1) or b""


def _check_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, say("it is not a regular file"))


def open_own(path: Path) -> int:
    """A file of ours where others may write too: a descriptor to write to it, made if it is missing.

    Raises GreenroomError where a link, a pipe, a device, a folder or a second name of another file lies there, and
    OSError.
    """
    check_place(path)
    flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | _NO_WAIT
    descriptor = os.open(path, flags, 0o644)
    try:
        _check_own(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_place(path: Path, to_write: bool = True) -> None:
    """Raises GreenroomError where something lies that no file may take the place of.

    to_write: what lies there is itself written to, so that it must not be another file of the user's too
    """
    if is_link(path):
        raise _in_the_way(path, say("a link lies at its place"))
    try:
        _check_own(path, os.lstat(path), to_write)
    except FileNotFoundError:
        return


def _check_own(path: Path, status: os.stat_result, to_write: bool = True) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _in_the_way(path, say("something that is not a regular file lies at its place"))
    if to_write and status.st_nlink > 1:
        raise _in_the_way(path, say("the file at its place is known by another name too (a hard link)"))


def _in_the_way(path: Path, why: str) -> GreenroomError:
    return GreenroomError(say("{name} cannot be written", name=path.name), why, say("Move it away, then try again."))
