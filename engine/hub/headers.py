"""A remote model's headers without its weights, so that plan and prediction are exact before the download.

The headers are laid into files of the right length that are otherwise empty (sparse: they take next to no room), which
`open_checkpoint` opens like any model. A GGUF file's header is a few MB, most of it vocabulary.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import json
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, cast

from engine import own_folders
from engine.checkpoints.gguf_header import read_header
from engine.errors import GreenroomError
from engine.folders import cache_folder, make_private, open_private
from engine.hub.client import HubClient, open_client
from engine.hub.incoming_files import path_to_open, size_of
from engine.hub.network import NetworkSettings, page_of, status_error
from engine.hub.repository import Hub, RemoteFile, RemoteModel
from engine.hub.transfer import disk_errors
from engine.progress import Progress, ProgressCallback, ignore_progress
from engine.safe_paths import below, inside
from engine.words import say

#: The first request's bytes; each one after it asks for twice as many, up to the last.
_FIRST_BLOCK, _LARGEST_BLOCK = 1 << 19, 4 << 20
#: Of a safetensors file: enough for nearly every header in one request.
_TENSORS_BLOCK = 1 << 18
_MAX_SAFETENSORS_HEADER = 100_000_000
#: Files that are wanted whole, if they are no larger than this.
_WHOLE_BYTES = 64 << 20
#: Of one model, all its files together; the largest need a tenth of it.
_MOST_BYTES = 1 << 30
_AT_ONCE = 8


def headers_folder() -> Path:
    """Where fetched headers are kept; the system may empty it at any time."""
    return cache_folder() / "headers"


def fetch_headers(
    model: RemoteModel,
    settings: NetworkSettings,
    token: str | None = None,
    folder: Path | None = None,
    progress: ProgressCallback = ignore_progress,
) -> Path:
    """What `open_checkpoint` takes; tensors read from it are zeros.

    Fetched once for a commit of the repository. Raises GreenroomError when that cannot be done.
    """
    root = folder or headers_folder()
    place = root / _cache_name(model, settings)
    if not _is_whole(place, model):
        with disk_errors(root):
            make_private(root)
            own_folders.remove_abandoned(root)
            # Elsewhere first: other programs find these headers whole or not at all.
            with own_folders.scratch(root) as fetched:
                _fetch_all(model, settings, token, fetched, progress)
                _settle(fetched, place, model)
    return path_to_open(place, model)


def _cache_name(model: RemoteModel, settings: NetworkSettings) -> str:
    """Nothing that a hub says is in it, and no two models or hubs share one."""
    files = [[file.path, file.nbytes, file.sha256, file.blob_id] for file in model.files]
    return hashlib.sha256(json.dumps([settings.hub, model.repo, model.commit, files]).encode()).hexdigest()[:40]


def _is_whole(place: Path, model: RemoteModel) -> bool:
    """The system may have removed some of it."""
    return own_folders.is_own(place) and all(size_of(below(place, f.path)) == f.nbytes for f in model.files)


def _settle(fetched: Path, place: Path, model: RemoteModel) -> None:
    if os.path.lexists(place) and not _is_whole(place, model):
        own_folders.remove(place, place.parent)
    try:
        fetched.rename(place)
    except OSError:
        # Another program was here first.
        if not _is_whole(place, model):
            raise


def _fetch_all(
    model: RemoteModel, settings: NetworkSettings, token: str | None, place: Path, progress: ProgressCallback
) -> None:
    hub, done, room = Hub(settings), 0, _Room(_MOST_BYTES)
    total = len(model.files)
    with open_client(settings, token) as client, ThreadPoolExecutor(_AT_ONCE) as pool:

        def one(file: RemoteFile) -> None:
            target = inside(place, file.path)
            with disk_errors(target):
                make_private(target.parent)
            source = _Source(client, hub.url(model.repo, model.commit, file.path), file, settings.host, room)
            _fetch_file(source, file, target)

        for _ in pool.map(one, model.files):
            done += 1
            progress(Progress(done, total, say("Reading what {name} is", name=model.name)))


def _fetch_file(source: _Source, file: RemoteFile, target: Path) -> None:
    lower = file.path.lower()
    if lower.endswith((".gguf", ".safetensors")):
        with disk_errors(target), open(target, "x+b", buffering=0, opener=open_private) as sparse:
            _make_sparse(sparse)
            sparse.truncate(file.nbytes)
            reader = _Reader(source, sparse)
            if lower.endswith(".gguf"):
                read_header(target, cast(BinaryIO, reader))
                return
            length = int.from_bytes(reader.take(0, 8, _TENSORS_BLOCK), "little")
            if 0 < length <= min(_MAX_SAFETENSORS_HEADER, file.nbytes - 8):
                reader.take(8, length, _TENSORS_BLOCK)
        return
    if file.nbytes > _WHOLE_BYTES:
        raise GreenroomError(
            say("{path} is not fetched", path=file.path),
            say("it is far too large for what its name says"),
            say("Choose another repository."),
        )
    content = source.bytes(0, file.nbytes)
    with disk_errors(target), open(target, "xb", opener=open_private) as whole:
        whole.write(content)


class _Room:
    """Bytes that may still be fetched, from any thread."""

    def __init__(self, nbytes: int) -> None:
        self._lock = threading.Lock()
        self._left = nbytes

    def take(self, nbytes: int) -> bool:
        """False when there are not so many."""
        with self._lock:
            self._left -= nbytes
            return self._left >= 0


class _Source:
    """Ranges of one remote file."""

    def __init__(self, client: HubClient, url: str, file: RemoteFile, host: str, room: _Room) -> None:
        self._client, self._url, self._host = client, url, host
        self._file, self._room = file, room

    @property
    def nbytes(self) -> int:
        return self._file.nbytes

    def bytes(self, first: int, nbytes: int) -> bytes:
        """Raises GreenroomError, also when the server answers with something else than these bytes."""
        if not nbytes:
            return b""
        if not self._room.take(nbytes):
            raise self._failed(
                say("the headers of its repository are far too large"), say("Choose another repository.")
            )
        if first == 0 and nbytes == self._file.nbytes:
            response, content = self._client.whole(self._url, self._failed, nbytes)
        else:
            response, content = self._client.whole(self._url, self._failed, nbytes, first, first + nbytes - 1)
            if response.status_code == 200:
                raise self._failed("the server cannot send parts of a file", "Use another mirror.")
        if not response.is_success:
            what = f"{self._file.path} cannot be read"
            signed_in = self._client.signed_in
            raise status_error(response.status_code, what, self._host, page_of(self._url), token_given=signed_in)
        if len(content) != nbytes:
            raise self._failed("the server sent another part than asked for", "Try again, or use another mirror.")
        return content

    def _failed(self, why: str, remedy: str) -> GreenroomError:
        return GreenroomError(say("{path} cannot be read", path=self._file.path), why, remedy)


class _Reader(io.RawIOBase):
    """Reads through to the network where the local file is still empty, and fills it."""

    def __init__(self, source: _Source, local: io.FileIO) -> None:
        self._source, self._local = source, local
        self._filled = 0
        self._block = _FIRST_BLOCK
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._source.nbytes}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Callable[..., object] | object) -> int:
        view = memoryview(cast("bytearray", buffer)).cast("B")
        content = self.take(self._at, len(view), self._block)
        view[: len(content)] = content
        self._at += len(content)
        return len(content)

    def take(self, first: int, nbytes: int, block: int) -> bytes:
        """Bytes first to first + nbytes, fewer at the end; everything up to there is then in the local file."""
        end = min(first + nbytes, self._source.nbytes)
        while self._filled < end:
            wanted = min(max(block, end - self._filled), self._source.nbytes - self._filled)
            wanted = min(wanted, max(_LARGEST_BLOCK, block))
            content = self._source.bytes(self._filled, wanted)
            self._local.seek(self._filled)
            self._local.write(content)
            self._filled += wanted
            self._block = min(2 * self._block, _LARGEST_BLOCK)
        self._local.seek(first)
        return self._local.read(nbytes) or b""


def _make_sparse(file: io.FileIO) -> None:
    """Windows must be told that the empty part takes no room; elsewhere it takes none anyway."""
    if sys.platform != "win32":
        return
    import msvcrt

    set_sparse, returned = 0x000900C4, ctypes.c_ulong()
    ctypes.windll.kernel32.DeviceIoControl(
        msvcrt.get_osfhandle(file.fileno()), set_sparse, None, 0, None, 0, ctypes.byref(returned), None
    )
