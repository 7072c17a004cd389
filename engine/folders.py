"""Where Greenroom keeps what belongs to the user, closed to other users of the PC.

Folders are made with mode 0700 and files with 0600 from the start, whatever the umask is. The umask itself stays as it
is: exports into a folder of the user's choice follow it, and so do programs that Greenroom starts, such as the browser.

The default models folder lies in the data folder, which closes it; the files in it keep their modes. Models that other
users should read belong in another models folder, which Greenroom leaves alone.

On Windows the user's profile folder, where all this lies, is closed to other users by the system. Where GREENROOM_DATA
leads out of the profile, Windows' permissions of that folder decide.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
from itertools import islice
from pathlib import Path

import platformdirs

_log = logging.getLogger(__name__)

_NAME = "greenroom"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
#: Entries of a folder whose modes are looked at when the program starts.
_MOST_ENTRIES = 10_000
MODELS = "models"


def _chosen() -> Path | None:
    """GREENROOM_DATA, which puts everything into one folder."""
    data = os.environ.get("GREENROOM_DATA")
    return Path(data) if data else None


def config_folder() -> Path:
    """Settings and presets."""
    return _chosen() or Path(platformdirs.user_config_dir(_NAME, appauthor=False))


def data_folder() -> Path:
    """Chats, the list of downloads and, unless the user chose another folder for them, models."""
    return _chosen() or Path(platformdirs.user_data_dir(_NAME, appauthor=False))


def cache_folder() -> Path:
    """Measurements and fetched headers; the system may empty it at any time."""
    chosen = _chosen()
    return chosen / "cache" if chosen else Path(platformdirs.user_cache_dir(_NAME, appauthor=False))


def log_folder() -> Path:
    chosen = _chosen()
    return chosen / "logs" if chosen else Path(platformdirs.user_log_dir(_NAME, appauthor=False))


def make_private(folder: Path) -> Path:
    """Make a folder, and missing ones above it, for this user only. Raises OSError."""
    try:
        folder.mkdir(stat.S_IRWXU)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        make_private(folder.parent)
        make_private(folder)
    except OSError:
        if not folder.is_dir():
            raise
    return folder


def open_private(path: str | Path, flags: int) -> int:
    """An opener for `open`: a file for this user only, never through a link. Raises OSError."""
    descriptor = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), stat.S_IRUSR | stat.S_IWUSR)
    _close_descriptor(descriptor)
    return descriptor


def make_private_database(path: Path) -> None:
    """Make a file before SQLite does, which would let all read it. SQLite's files beside it get the same mode.

    Raises OSError. An open database is not touched: closing its file would give up SQLite's locks in it.
    """
    if str(path) == ":memory:":  # SQLite's name for no file
        return
    try:
        os.close(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        for ending in ("", "-wal", "-shm", "-journal"):
            _close_entry(path.with_name(path.name + ending))


def close_to_others() -> None:
    """Close what earlier starts left open to other users: our folders, and the files and folders directly in them.

    What belongs to another user stays as it is, and so does what a link leads to. Never fails.
    """
    for folder in dict.fromkeys((config_folder(), data_folder(), cache_folder(), log_folder())):
        try:
            _close_folder(folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            _log.warning("%s may be open to other users: %s", folder, error.strerror)


def _close_folder(folder: Path) -> None:
    # The user may keep the folder itself on another disk, behind a link of their own.
    if sys.platform == "win32" or _holds_home(folder) or folder.lstat().st_uid != os.getuid():
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _close_descriptor(descriptor)
    finally:
        os.close(descriptor)
    with os.scandir(folder) as entries:
        for entry in islice(entries, _MOST_ENTRIES):
            if entry.name != MODELS:
                _close_entry(Path(entry.path))


def _holds_home(folder: Path) -> bool:
    """GREENROOM_DATA may name the home folder, which is more than Greenroom's."""
    try:
        return Path.home().resolve().is_relative_to(folder.resolve())
    except RuntimeError:  # there is no home
        return False


def _close_entry(path: Path) -> None:
    """Take the rights of others from a file or folder of ours. It is opened only if they have any."""
    if sys.platform == "win32":
        return
    try:
        found = path.lstat()
        if found.st_mode & _OTHERS and (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                _close_descriptor(descriptor)
            finally:
                os.close(descriptor)
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("%s may be open to other users: %s", path, error.strerror)


def _close_descriptor(descriptor: int) -> None:
    if sys.platform == "win32":
        return
    found = os.fstat(descriptor)
    ours = found.st_uid == os.getuid() and (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode))
    if ours and found.st_mode & _OTHERS:
        os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & ~_OTHERS)
