"""Room for models."""

from __future__ import annotations

from pathlib import Path

from engine.hardware.report import DiskReport
from engine.hardware.sources import Sources


def read_disk(sources: Sources, folder: Path) -> tuple[DiskReport, list[str]]:
    """Free space where `folder` is, or will be: its nearest existing parent is asked."""
    for place in (folder, *folder.parents):
        try:
            total, _, free = sources.disk_usage(place)
        except FileNotFoundError:
            continue
        except OSError as error:
            return DiskReport(str(folder), 0, 0), [f"Free space of {folder} could not be read: {error.strerror}."]
        return DiskReport(str(folder), int(free), int(total)), []
    return DiskReport(str(folder), 0, 0), [f"Free space of {folder} could not be read: no such drive."]
