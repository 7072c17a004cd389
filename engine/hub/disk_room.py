"""Whether a download fits on its disk, beside all others that go there."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import psutil

from engine.errors import GreenroomError
from engine.hub.incoming_files import bytes_on_disk
from engine.hub.repository import RemoteModel
from engine.hub.transfer import disk_errors
from engine.units import size_down, size_up
from engine.words import say

#: Kept free beside every download: other programs need room too.
SPACE_KEPT = 256 << 20
_FAT32_LIMIT = (4 << 30) - 1
_FAT_NAMES = ("vfat", "msdos", "fat", "fat32")


def check_room(folder: Path, model: RemoteModel, others: Iterable[tuple[Path, RemoteModel]]) -> None:
    """Raises GreenroomError when what is missing of the model does not fit into its folder.

    others: the folders and models of all other downloads under way; those on the same disk need their room too
    """
    with disk_errors(folder, reading=True):
        place = _existing(folder)
    needed, largest = model.nbytes - bytes_on_disk(folder, model), max(file.nbytes for file in model.files)
    if largest > _FAT32_LIMIT and _file_system(place) in _FAT_NAMES:
        raise GreenroomError(
            say("The model cannot be stored there"),
            say(
                "a file of it has {largest}, and this disk's file system (FAT32) takes 4.3 GB at most",
                largest=size_up(largest),
            ),
            say("Choose a models folder on another disk in Settings."),
        )
    with disk_errors(place, reading=True):
        device, free = place.stat().st_dev, shutil.disk_usage(place).free
        beside = sum(
            other.nbytes - bytes_on_disk(there, other)
            for there, other in others
            if _existing(there).stat().st_dev == device
        )
    if needed + beside + SPACE_KEPT > free:
        raise GreenroomError(
            say("There is not enough room on the disk"),
            say(
                "{needed} are still needed{beside}, and {free} are free",
                needed=size_up(needed),
                beside=say(", {size} more for other downloads", size=size_up(beside)) if beside else "",
                free=size_down(free),
            ),
            say(
                "Free {value} or choose another models folder in Settings.",
                value=size_up(needed + beside + SPACE_KEPT - free),
            ),
        )


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _file_system(folder: Path) -> str:
    """The file system's type in lower case; "" when that cannot be said."""
    best, kind = -1, ""
    try:
        for partition in psutil.disk_partitions(all=True):
            if folder.resolve().is_relative_to(partition.mountpoint) and len(partition.mountpoint) > best:
                best, kind = len(partition.mountpoint), partition.fstype.lower()
    except OSError:
        return ""
    return kind
