"""A model's files while they come: what they are called until all are there, and how much of them is on disk."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

from engine.errors import GreenroomError
from engine.hub.repository import RemoteModel
from engine.regular_files import check_place
from engine.safe_paths import below, inside

_log = logging.getLogger(__name__)


def part_of(target: Path) -> Path:
    """Where a file lies until the whole model has come."""
    return target.with_name(target.name + ".part")


def size_of(path: Path) -> int:
    """Bytes; -1 when no regular file lies there."""
    try:
        status = os.lstat(path)
    except OSError:
        return -1
    return status.st_size if stat.S_ISREG(status.st_mode) else -1


def bytes_on_disk(folder: Path, model: RemoteModel) -> int:
    """Bytes of it that are there already, finished or not."""
    total = 0
    for file in model.files:
        target = below(folder, file.path)
        size = size_of(part_of(target))
        if size < 0 and size_of(target) == file.nbytes:
            size = file.nbytes
        total += min(max(size, 0), file.nbytes)
    return total


def path_to_open(folder: Path, model: RemoteModel) -> Path:
    """What `open_checkpoint` takes: the first file of a GGUF model, the folder of the weights of another."""
    if model.form == "gguf":
        return below(folder, model.files[0].path)
    weights = next(file.path for file in model.files if file.path.endswith(".safetensors"))
    return below(folder, weights).parent


def remove_parts(models: Path, model: RemoteModel) -> None:
    """Deletes what came of a model that is not wanted any more, and the folders below `models` that are empty then.

    What is no file of ours stays.
    """
    for file in model.files:
        try:
            part = part_of(inside(models, f"{model.repo}/{file.path}"))
            check_place(part)
            part.unlink(missing_ok=True)
        except (GreenroomError, OSError) as error:
            _log.warning("what came of %s stays: %s", file.path, error)
            continue
        _remove_empty(part.parent, models)


def _remove_empty(folder: Path, root: Path) -> None:
    """The folder and those above it, as long as they are empty and below root."""
    while folder != root and folder.is_relative_to(root):
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
