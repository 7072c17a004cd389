"""Deleting a model so that it can be taken back until the program closes."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine import own_folders
from engine.checkpoints.gguf import named_shards
from engine.errors import GreenroomError
from engine.hub.repository import COMPANIONS
from engine.safe_paths import is_link
from engine.words import say

_FOLDER = ".trash"
#: Folders in it: the program's number, and when it began.
_NAME = re.compile(r"([0-9]{1,9})-[0-9]{1,20}")


@dataclass(frozen=True)
class Deleted:
    """moved: each file or folder, where it was and where it is now."""

    name: str
    moved: tuple[tuple[Path, Path], ...]
    nbytes: int


class Trash:
    """A hidden folder inside the models folder, so that moving is instant; `close` empties it.

    Only what lies in the models folder can be deleted: other programs' files are theirs. Of a folder only the model's
    own files go, and the folder with them where nothing else is in it.
    """

    def __init__(self, models: Path) -> None:
        self._models = models
        self._place = models / _FOLDER / f"{os.getpid()}-{time.time_ns()}"
        self._count = 0

    @property
    def folder(self) -> Path:
        """The models folder it belongs to."""
        return self._models

    def delete(self, name: str, path: Path) -> Deleted:
        """path: what `open_checkpoint` accepts; all parts of a split go. Raises GreenroomError when it cannot be."""
        root = self._models.resolve()
        if not path.parent.resolve().is_relative_to(root) or path.resolve() == root:
            raise GreenroomError(
                say("{name} is not deleted", name=name),
                say("it lies outside Greenroom's models folder"),
                say("Delete it where it was made."),
            )
        moved: list[tuple[Path, Path]] = []
        nbytes = 0
        try:
            self._open()
            for source in _files(path):
                self._count += 1
                target = self._place / str(self._count) / source.name
                target.parent.mkdir()
                nbytes += os.lstat(source).st_size
                source.rename(target)
                moved.append((source, target))
        except OSError as error:
            for source, target in moved:
                with suppress(OSError):
                    target.rename(source)
            raise GreenroomError(
                say("{name} is not deleted", name=name),
                (error.strerror or str(error)).lower(),
                say("Close whatever uses it and try again."),
            ) from error
        if not is_link(path):
            with suppress(OSError):  # a file, or something else is in it
                path.rmdir()
        return Deleted(name, tuple(moved), nbytes)

    def _open(self) -> None:
        """Raises OSError where it would lie somewhere else than in the models folder."""
        trash = self._place.parent
        if is_link(trash):
            raise OSError(f"{trash} is a link")
        trash.mkdir(exist_ok=True)
        if not own_folders.is_own(self._place):
            own_folders.make(self._place)

    def restore(self, deleted: Deleted) -> None:
        """Raises GreenroomError when something else has taken its place."""
        for source, target in deleted.moved:
            try:
                if os.path.lexists(source):
                    raise FileExistsError(17, "something of that name is there again")
                source.parent.mkdir(parents=True, exist_ok=True)
                target.rename(source)
            except OSError as error:
                why = (error.strerror or str(error)).lower()
                raise GreenroomError(
                    say("{name} is not back", name=deleted.name),
                    why,
                    say("It is still in {parent}.", parent=target.parent),
                ) from error

    def close(self) -> None:
        """What was deleted is gone for good, also what a program that crashed left in the trash."""
        trash = self._models / _FOLDER
        try:
            folders = [] if is_link(trash) else list(trash.iterdir())
        except OSError:  # there is none, or it is closed to us
            return
        for folder in folders:
            # Other programs may have a trash of that name too.
            made_by = _NAME.fullmatch(folder.name)
            if made_by and own_folders.is_own(folder) and (folder == self._place or not _is_running(made_by[1])):
                own_folders.remove(folder, trash)
        with suppress(OSError):
            trash.rmdir()


def move_models(source: Path, target: Path) -> None:
    """Move everything of the models folder, on the same disk: instantly, or not at all.

    Raises GreenroomError when the target is on another disk (copying hundreds of gigabytes is the user's decision),
    lies inside the source, or is not empty.
    """
    what = say("The models were not moved")
    if target.resolve().is_relative_to(source.resolve()):
        raise GreenroomError(what, say("the new folder lies inside the old one"), say("Choose another folder."))
    try:
        if target.exists() and any(target.iterdir()):
            raise GreenroomError(
                what, say("{target} is not empty", target=target), say("Choose an empty or a new folder.")
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.parent.stat().st_dev != source.stat().st_dev:
            raise GreenroomError(
                what,
                say("the new folder is on another disk"),
                say("Copy them there yourself, then choose it as models folder."),
            )
        if target.exists():
            target.rmdir()
        source.rename(target)
    except OSError as error:
        raise GreenroomError(
            what, (error.strerror or str(error)).lower(), say("Check permissions and free space.")
        ) from error


def _files(path: Path) -> list[Path]:
    """What belongs to the model and is there."""
    if is_link(path):
        return [path]
    if path.is_dir():
        return sorted(file for file in path.iterdir() if not file.is_dir() and _belongs(file.name))
    return [part for part in named_shards(path) if os.path.lexists(part)]


def _belongs(name: str) -> bool:
    return name in COMPANIONS or name.lower().endswith(".safetensors")


def _is_running(pid: str) -> bool:
    import psutil

    return bool(psutil.pid_exists(int(pid)))
