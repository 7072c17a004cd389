"""Which models are on disk, and what a model's name means."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.checkpoints.file_bytes import unreadable as not_opened
from engine.checkpoints.gguf import plain_stem, shard_number
from engine.checkpoints.opening import open_checkpoint
from engine.clean_text import clean_text
from engine.errors import GreenroomError
from engine.folders import MODELS, data_folder
from engine.hub.repository import is_address, named
from engine.words import say

log = logging.getLogger(__name__)

#: Deep enough for owner/repository/quantisation and for a download cache's snapshots; shallow enough for a home folder.
_MAX_DEPTH = 4


@dataclass(frozen=True)
class InstalledModel:
    """name:   what `resolve` accepts: the path inside the models folder, without ".gguf" and shard number
    path:   what `open_checkpoint` accepts
    form:   "gguf" or "safetensors"
    architecture: as the file names it; "" when it cannot be read
    nbytes: of its tensors as stored; 0 when it cannot be read
    error:  why it cannot be used, one sentence; None when its headers are sound
    reason: the same without the file's name
    """

    name: str
    path: Path
    form: str
    architecture: str
    nbytes: int
    error: str | None
    reason: str | None = None


def models_folder() -> Path:
    """Where models are kept unless the user chose another folder: "models" in the program's data folder."""
    return data_folder() / MODELS


def installed(folder: Path | None = None) -> list[InstalledModel]:
    """Every model below a folder, by name; headers are read, nothing else. Broken ones are listed with their error.

    folder: None takes `models_folder`. A folder that does not exist holds no models.
    """
    return [_inspect(found) for found in sorted(_search(folder), key=lambda found: found.name.casefold())]


def resolve(model: str, folder: Path | None = None) -> Path:
    """What the user means by `model`: "demo", a path, or an installed model's name (its last part, if that is unique).

    Raises GreenroomError when there is no such model, or the demo model was not prepared.
    """
    if model == "demo":
        return _demo()
    path = Path(os.path.expanduser(model))
    if model and _exists(path):
        return path
    if is_address(model):
        raise GreenroomError(
            say('"{model}" is not on this PC', model=_short(model)),
            say("it is the address of a page"),
            say("`greenroom download {repo}` brings it here.", repo=named(model)[0]),
        )
    found = list(_search(folder))
    wanted = model.casefold().removesuffix(".gguf")
    for names in (
        [f for f in found if f.name.casefold() == wanted],
        [f for f in found if f.name.casefold().rsplit("/", 1)[-1] == wanted],
    ):
        if len(names) == 1:
            return names[0].path
        if names:
            why = say(
                "{count} installed models are called so: {value}",
                count=len(names),
                value=", ".join(sorted(f.name for f in names)[:5]),
            )
            raise GreenroomError(say('"{model}" is not clear', model=model), why, say("Give the longer name."))
    if os.path.islink(path):
        raise GreenroomError(
            say("{path} cannot be opened", path=path),
            say("it is a link to {target}, and nothing is there", target=_short(os.readlink(path))),
            say("Choose the file itself."),
        )
    why = say("it is neither a file or folder nor the name of an installed model")
    remedy = say("Installed: {names}.", names=", ".join(["demo", *sorted(f.name for f in found)[:8]]))
    raise GreenroomError(say('The model "{model}" was not found', model=_short(model)), why, remedy)


def unreadable(folder: Path) -> GreenroomError | None:
    """Why nobody can say which models a folder holds; None where it can be searched, or is not there."""
    try:
        with os.scandir(folder) as entries:
            next(entries, None)
    except FileNotFoundError:
        return None
    except OSError as error:
        return not_opened(folder, error)
    return None


@dataclass(frozen=True)
class _Found:
    name: str
    path: Path
    form: str


def _search(folder: Path | None) -> Iterator[_Found]:
    root = models_folder() if folder is None else folder
    yield from _search_folder(root, root, 0)


def _search_folder(folder: Path, root: Path, depth: int) -> Iterator[_Found]:
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        if depth or not isinstance(error, FileNotFoundError):
            log.warning("%s cannot be searched: %s", folder, error.strerror)
        return
    files = [entry for entry in entries if not entry.name.startswith(".") and _is_file(entry)]
    names = {file.name for file in files}
    if depth and "config.json" in names and any(name.endswith(".safetensors") for name in names):
        yield _Found(_shown(folder, root), folder, "safetensors")
    parts: set[Path] = set()
    for file in files:
        if file.suffix.lower() != ".gguf":
            continue
        whole = file.with_name(plain_stem(file.name))
        # One entry for a split, by its lowest part; opening it says which parts are missing.
        if shard_number(file.name) is None or whole not in parts:
            parts.add(whole)
            yield _Found(_shown(whole, root), file, "gguf")
    if depth < _MAX_DEPTH:
        for entry in entries:
            if entry.name not in names and not entry.name.startswith(".") and _is_folder(entry):
                yield from _search_folder(entry, root, depth + 1)


def _shown(path: Path, root: Path) -> str:
    """The name of a model as it is told: its path is another matter."""
    return clean_text(path.relative_to(root).as_posix())


def _inspect(found: _Found) -> InstalledModel:
    try:
        checkpoint = open_checkpoint(found.path)
    except GreenroomError as error:
        return InstalledModel(found.name, found.path, found.form, "", 0, str(error), f"{error.why}. {error.remedy}")
    try:
        return InstalledModel(
            found.name, found.path, found.form, checkpoint.architecture, checkpoint.nbytes, error=None
        )
    finally:
        checkpoint.close()


def _demo() -> Path:
    from engine.hub.demo import demo_path

    path = demo_path()
    if not _exists(path):
        raise GreenroomError(
            say("The demo model is not ready"),
            say("it is put together once, from a download of 93 MB"),
            say("Open the window or run `greenroom generate demo --prompt Hello`; either prepares it."),
        )
    return path


def _exists(path: Path) -> bool:
    """Raises GreenroomError where nobody can know, because a folder above it may not be searched."""
    try:
        return path.exists()
    except PermissionError as error:
        raise not_opened(path, error) from error
    except (OSError, ValueError):
        return False


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False
