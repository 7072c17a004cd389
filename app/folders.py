"""The window's files in the user's folders."""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path

from engine.errors import GreenroomError
from engine.folders import data_folder, make_private, open_private
from engine.words import say

log = logging.getLogger(__name__)


def chats_file() -> Path:
    return data_folder() / "chats.sqlite"


def holds_chats(path: Path) -> bool:
    """Whether a file is that of the chats, or one that belongs to it.

    They must not be opened beside SQLite: closing a file gives up the locks that the program has in it.
    """
    own = chats_file()
    for ending in ("", "-wal", "-shm"):
        try:
            if path.samefile(own.with_name(own.name + ending)):
                return True
        except (OSError, ValueError):
            continue
    return False


def make_writable(folder: Path) -> Path:
    """The folder, made if it is missing. Raises GreenroomError when nothing can be written there."""
    try:
        make_private(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise GreenroomError(
            say("Greenroom cannot save to {folder}", folder=folder),
            (error.strerror or str(error)).lower(),
            say(
                "Free some disk space or fix the folder's permissions. Until then, this session is kept in memory only."
            ),
        ) from error
    return folder


def keep_aside(path: Path) -> None:
    """Copy a file that cannot be read as it should, before another one takes its place."""
    try:
        with (
            path.open("rb") as source,
            open(path.with_name(path.name + ".unreadable"), "wb", opener=open_private) as aside,
        ):
            shutil.copyfileobj(source, aside)
    except OSError as error:
        log.warning("%s could not be kept aside: %s", path, error)
