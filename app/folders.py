"""Where the program keeps what belongs to the user. GREENROOM_DATA puts all of it into one folder."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from pathlib import Path

import platformdirs

from engine.errors import GreenroomError
from engine.words import say

log = logging.getLogger(__name__)

_NAME = "greenroom"


def config_folder() -> Path:
    """Settings."""
    data = os.environ.get("GREENROOM_DATA")
    return Path(data) if data else Path(platformdirs.user_config_dir(_NAME, appauthor=False))


def data_folder() -> Path:
    """Chats and presets."""
    data = os.environ.get("GREENROOM_DATA")
    return Path(data) if data else Path(platformdirs.user_data_dir(_NAME, appauthor=False))


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
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise GreenroomError(
            say("Nothing can be saved in {folder}", folder=folder),
            (error.strerror or str(error)).lower(),
            say("Free some space or correct the folder's permissions; until then this session is kept in memory only."),
        ) from error
    return folder


def keep_aside(path: Path) -> None:
    """Copy a file that cannot be read as it should, before another one takes its place."""
    try:
        shutil.copyfile(path, path.with_name(path.name + ".unreadable"))
    except OSError as error:
        log.warning("%s could not be kept aside: %s", path, error)
