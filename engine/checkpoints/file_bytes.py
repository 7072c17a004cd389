"""Bytes of a model's files, and what is said when they cannot be read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np

from engine.checkpoints.blocks import Bytes
from engine.errors import GreenroomError
from engine.regular_files import open_to_read
from engine.units import size_text
from engine.words import say

DOWNLOAD_AGAIN = say("Download the file again.")


def cut_short(size: int, needed: int) -> str:
    """Why a file of `size` bytes cannot be read; in bytes when rounding would make both the same."""
    have, want = size_text(size), size_text(needed)
    if have == want:
        have, want = f"{size:,}", f"{needed:,} bytes"
    return say("the file ends after {have} of {want}", have=have, want=want)


def file_size(path: Path) -> int:
    """Bytes of a regular file. Raises GreenroomError when there is none or it may not be read."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    if not stat.S_ISREG(status.st_mode):
        raise GreenroomError(
            say("{path} cannot be opened", path=path),
            say("it is not a regular file"),
            say("Choose a model file or folder."),
        )
    return status.st_size


def unreadable(path: Path, error: OSError | ValueError) -> GreenroomError:
    what = say("{path} cannot be opened", path=path)
    if isinstance(error, FileNotFoundError):
        return GreenroomError(what, say("there is no such file"), say("Check the path."))
    if isinstance(error, PermissionError):
        return GreenroomError(what, say("you may not read it"), say("Change its permissions or choose another file."))
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return GreenroomError(what, reason, say("Check the path and the disk."))


def read_bytes(path: Path, offset: int, nbytes: int) -> Bytes:
    """Copy uint8 [nbytes] from a file.

    Each call opens the file for itself: no shared position, so any number of threads may read at once,
    and no handle stays open that would keep Windows from moving or deleting the file.
    """
    buffer = np.empty(nbytes, np.uint8)
    view, done = buffer.data, 0
    try:
        with open_to_read(path) as file:
            file.seek(offset)
            while done < nbytes:
                count = file.readinto(view[done:])
                if not count:
                    break
                done += count
    except OSError as error:
        raise unreadable(path, error) from error
    if done < nbytes:
        raise ends_early(path, size_text(nbytes - done))
    return buffer


def ends_early(path: Path, missing: str) -> GreenroomError:
    why = say("it ends {missing} too early, although it was long enough when opened", missing=missing)
    return GreenroomError(say("{name} cannot be read", name=path.name), why, DOWNLOAD_AGAIN)


def shown(name: str, limit: int = 80) -> str:
    """A name out of a file, safe and short enough for a sentence."""
    text = name if len(name) <= limit else name[: limit - 1] + "…"
    return ascii(text) if not text.isprintable() else f'"{text}"'


def absolute(path: Path) -> Path:
    """Absolute without resolving links: a download cache's links carry the file names that matter."""
    return Path(os.path.abspath(path))
