"""Folders that we make and remove again: they carry our mark, and no other folder is ever removed with its contents."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from engine.errors import GreenroomError
from engine.safe_paths import is_link
from engine.words import say

_log = logging.getLogger(__name__)

MARK = ".greenroom-own"
_MARK_TEXT = b"Greenroom made this folder, and removes it with everything in it.\n"
_SCRATCH = ".greenroom-scratch-"
#: Longer than anything is worked on in a scratch folder.
_ABANDONED_S = 24 * 3600.0


def make(folder: Path) -> None:
    """A new folder with our mark, closed to other users. Raises OSError, also when something lies there."""
    folder.mkdir(mode=0o700)
    with (folder / MARK).open("xb") as file:
        file.write(_MARK_TEXT)


def is_own(folder: Path) -> bool:
    """Whether `make` made it: a folder, no link to one, with the mark in it."""
    mark = folder / MARK
    try:
        if is_link(folder) or not folder.is_dir() or not stat.S_ISREG(os.lstat(mark).st_mode):
            return False
        with mark.open("rb") as file:
            return file.read(len(_MARK_TEXT) + 1) == _MARK_TEXT
    except OSError:
        return False


def remove(folder: Path, root: Path) -> None:
    """Remove a folder of ours below root and all that is in it; links in it go, what they lead to stays.

    Raises GreenroomError for any other folder. What the system does not let go stays, and the log says so.
    """
    if not _may_go(folder, root):
        raise GreenroomError(
            say("{folder} is not removed", folder=folder),
            say("Greenroom did not make it"),
            say("Move it away if it is in the way."),
        )
    # Junctions are links to this function too.
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        _log.warning("%s cannot be removed whole", folder)


def _may_go(folder: Path, root: Path) -> bool:
    try:
        real = folder.parent.resolve(strict=True) / folder.name
        real_root, home = root.resolve(strict=True), Path(os.path.expanduser("~")).resolve()
    except (OSError, RuntimeError):
        return False
    return (
        folder.name not in ("", ".", "..")
        and real != real_root
        and real.is_relative_to(real_root)
        and not home.is_relative_to(real)
        and not os.path.ismount(real)
        and is_own(real)
    )


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """A folder of ours for what is not finished yet; gone at the end unless it was given another name."""
    folder = parent / f"{_SCRATCH}{secrets.token_hex(8)}"
    make(folder)
    try:
        yield folder
    finally:
        if is_own(folder):
            remove(folder, parent)


def remove_abandoned(parent: Path) -> None:
    """Scratch folders of programs that were killed."""
    with suppress(OSError):
        for folder in list(parent.glob(f"{_SCRATCH}*")):
            if is_own(folder) and os.lstat(folder).st_mtime < time.time() - _ABANDONED_S:
                _log.info("removing %s", folder)
                remove(folder, parent)
