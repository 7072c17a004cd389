"""What the list of downloads holds, and whether a row of it can be what Greenroom wrote: the file may be damaged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.hub.repository import MAX_FILES, RemoteFile, RemoteModel, is_commit, is_hash, is_repo
from engine.safe_paths import Places, is_safe

QUEUED, RUNNING, VERIFYING, PAUSED, FAILED, FINISHED = (
    "queued",
    "downloading",
    "verifying",
    "paused",
    "failed",
    "finished",
)
_STATES = (QUEUED, RUNNING, VERIFYING, PAUSED, FAILED, FINISHED)
#: Bytes of one file, and the highest place in the queue; far more than there ever is.
_MOST = 1 << 50
_MOST_TEXT = 10_000


@dataclass(frozen=True)
class StoredFile:
    """safe_bytes: forced to the disk during the boot named; after another boot only they can be trusted."""

    file: RemoteFile
    etag: str
    verified: bool
    safe_bytes: int
    boot: str


@dataclass(frozen=True)
class StoredDownload:
    """folder: where the repository's files go: "owner/model" in a models folder

    error: what, why and remedy of the last failure. owner: the program that has it in hand, "" for none
    """

    id: int
    endpoint: str
    model: RemoteModel
    folder: Path
    state: str
    position: int
    error: tuple[str, str, str] | None
    notice: str
    owner: str
    files: tuple[StoredFile, ...]

    @property
    def models(self) -> Path:
        """The models folder."""
        return self.folder.parent.parent


def stored_download(row: Sequence[Any], files: Sequence[Sequence[Any]]) -> StoredDownload:
    """row: id, endpoint, repo, revision, label, name, form, folder, state, position, error, notice, owner

    files: number, path, nbytes, sha256, blob_id, etag, verified, safe_bytes, boot, in the order of the numbers
    Raises ValueError for what Greenroom cannot have written.
    """
    number, endpoint, repo, commit, label, name, form, folder, state, position, error, notice, owner = row
    texts = [endpoint, repo, commit, label, name, form, folder, state, notice, error or "", owner or ""]
    _check(all(isinstance(text, str) and len(text) <= _MOST_TEXT for text in texts), "a text is none")
    _check(is_repo(repo) and is_commit(commit), "its repository or commit is none")
    _check(label.isprintable() and name.isprintable(), "its name is none")
    _check(form in ("gguf", "safetensors") and state in _STATES, "its form or state is unknown")
    _check(isinstance(number, int) and _count(position), "its place in the queue is none")
    place = Path(folder)
    _check("\0" not in folder and place.is_absolute() and ".." not in place.parts, "its folder is none")
    _check(place.parts[-2:] == tuple(repo.split("/")), "its folder is another repository's")
    _check(0 < len(files) <= MAX_FILES, "it has no files")
    _check([file[0] for file in files] == list(range(len(files))), "its files are not numbered")
    places = Places()
    stored = tuple(_file(file[1:], repo, places) for file in files)
    weights = any(file.file.path.endswith(".safetensors") for file in stored)
    _check(form == "gguf" or weights, "it has no weights")
    model = RemoteModel(repo, commit, label, name, form, tuple(file.file for file in stored))
    return StoredDownload(number, endpoint, model, place, state, position, _error(error), notice, owner or "", stored)


def _file(row: Sequence[Any], repo: str, places: Places) -> StoredFile:
    path, nbytes, sha256, blob_id, etag, verified, safe_bytes, boot = row
    _check(isinstance(path, str) and is_safe(f"{repo}/{path}") and places.take(path), "a file's name is none")
    _check(_count(nbytes) and _count(safe_bytes), "a size is none")
    _check(all(isinstance(text, str) and len(text) <= _MOST_TEXT for text in (etag, boot)), "a text is none")
    for value, digits in ((sha256, 64), (blob_id, 40)):
        _check(value is None or (isinstance(value, str) and is_hash(value, digits)), "a hash is none")
    _check(verified in (0, 1), "it is neither checked nor unchecked")
    return StoredFile(RemoteFile(path, nbytes, sha256, blob_id), etag, bool(verified), safe_bytes, boot)


def _error(text: str | None) -> tuple[str, str, str] | None:
    """A sentence that is damaged is not missed."""
    try:
        parts = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(parts, list) or len(parts) != 3 or not all(isinstance(part, str) for part in parts):
        return None
    return parts[0], parts[1], parts[2]


def _count(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < _MOST


def _check(good: bool, why: str) -> None:
    if not good:
        raise ValueError(why)
