"""One file from the hub to the disk: resumed from the exact byte, retried, throttled, checked."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from engine.control import Control
from engine.errors import GreenroomError
from engine.hub.client import HubClient
from engine.hub.network import network_error, page_of, status_error
from engine.hub.repository import RemoteFile
from engine.regular_files import open_own, open_to_read
from engine.words import say

if TYPE_CHECKING:
    import httpx2

_log = logging.getLogger(__name__)

_HASH_BLOCK = 4 << 20
#: Longest wait a server may ask for; beyond it the download fails with a sentence instead of standing still.
_MAX_RETRY_AFTER_S = 600.0
#: An attempt that brings fewer bytes than this counts as one that brings none.
_PROGRESS_BYTES = 1 << 16


@dataclass(frozen=True)
class RetryPolicy:
    """attempts: tries in a row that bring next to nothing. Waits double from first_s to longest_s, with jitter."""

    attempts: int = 8
    first_s: float = 1.0
    longest_s: float = 60.0

    def wait_s(self, failures: int) -> float:
        longest = min(self.longest_s, self.first_s * 2.0 ** (failures - 1))
        return random.uniform(longest / 2, longest)


class Throttle:
    """Bytes per second that all transfers share; 0 is no limit."""

    def __init__(self, bytes_per_s: int = 0) -> None:
        self._lock = threading.Lock()
        self.set_limit(bytes_per_s)

    def set_limit(self, bytes_per_s: int) -> None:
        with self._lock:
            self.limit = bytes_per_s
            self._free_at = time.monotonic()

    def take(self, nbytes: int, control: Control) -> None:
        """Waits until nbytes more may pass."""
        if not self.limit:
            return
        with self._lock:
            now = time.monotonic()
            # What was not used for a while is lost, but for a tenth of a second's worth.
            start = max(self._free_at, now - 0.1)
            self._free_at = start + nbytes / self.limit if self.limit else now
            wait = self._free_at - now
        if wait > 0:
            control.sleep(wait)


class _AgainError(Exception):
    """This attempt failed, another may succeed. `error` is what to say if none does; retry_after in seconds."""

    def __init__(self, error: GreenroomError, retry_after: float = 0.0, at_once: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry_after = retry_after
        self.at_once = at_once


class FileTransfer:
    """Brings `file` to `part`, continuing whatever is there.

    on_bytes: called with the number of bytes just written (negative when some were thrown away)
    notice:   called with a sentence the user should see although the download goes on
    etag:     the version of the file that `part` began with; "" when unknown
    """

    def __init__(
        self,
        client: HubClient,
        url: str,
        file: RemoteFile,
        part: Path,
        throttle: Throttle,
        policy: RetryPolicy,
        on_bytes: Callable[[int], None],
        notice: Callable[[str], None],
        etag: str = "",
        on_etag: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client, self._url = client, url
        self._file, self._part = file, part
        self._control, self._throttle, self._policy = client.control, throttle, policy
        self._on_bytes, self._notice = on_bytes, notice
        self._etag, self._on_etag = etag, on_etag
        self._host = urlsplit(url).netloc
        self._descriptor = -1
        self._have = 0

    def run(self) -> None:
        """Raises GreenroomError when it cannot be had, Cancelled when stopped. What came stays on disk either way."""
        with disk_errors(self._part):
            self._descriptor = open_own(self._part)
        try:
            self._have = os.fstat(self._descriptor).st_size
            if self._have > self._file.nbytes:
                self._restart()
            self._fetch()
        finally:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def sync(self) -> int:
        """Force what has been written to the disk, from another thread; bytes that are safe there, -1 when not open."""
        try:
            copy = os.dup(self._descriptor)
        except OSError:
            return -1
        try:
            have = self._have
            os.fsync(copy)
            return have
        except OSError:
            return -1
        finally:
            os.close(copy)

    def _fetch(self) -> None:
        failures = changes = 0
        while self._have < self._file.nbytes:
            before = self._have
            try:
                self._control.check()
                self._attempt()
                continue
            except _AgainError as again:
                # However much came between: a server could have us begin anew for ever.
                if self._have < before and (changes := changes + 1) >= self._policy.attempts:
                    raise again.error from again
                if again.at_once:
                    continue
                failures = 1 if self._have - before >= _PROGRESS_BYTES else failures + 1
                wait = max(again.retry_after, self._policy.wait_s(failures))
                if failures >= self._policy.attempts or wait > _MAX_RETRY_AFTER_S:
                    raise again.error from again
                _log.info("%s: %s; next try in %.1f s", self._file.path, again.error, wait)
            self._control.sleep(wait)

    def _attempt(self) -> None:
        import httpx2

        try:
            with closing(self._open()) as response:
                self._receive(response)
        except httpx2.HTTPError as error:
            known = network_error(error, self._host, resumes=True)
            raise _AgainError(known) from error

    def _open(self) -> httpx2.Response:
        """The answer that carries the bytes, behind the hub's redirects."""
        import httpx2

        first = self._have or None
        response, etag = self._client.ask(self._url, self._failed, first)
        try:
            self._accept(response, response.url.origin == httpx2.URL(self._url).origin)
            self._compare_etag(etag)
        except BaseException:
            response.close()
            raise
        return response

    def _accept(self, response: httpx2.Response, from_hub: bool) -> None:
        """Leaves only answers 200 and 206 that fit what we have."""
        status, what = response.status_code, f"{self._file.path} was not downloaded"
        if status in (200, 206):
            total = _total_bytes(response)
            if total is not None and total != self._file.nbytes:
                why = f"it has {total:,} bytes now where {self._file.nbytes:,} were listed"
                raise self._failed(why, "Remove this download and start it anew.")
            if status == 206 and _first_byte(response) != self._have:
                raise _AgainError(self._failed("the server sent another part than asked for", "Use another mirror."))
            return
        error = status_error(status, what, self._host, page_of(self._url), token_given=self._client.signed_in)
        if status == 416:
            # What lies here is longer than what the server has now.
            self._restart()
            raise _AgainError(error)
        if status in (401, 403) and not from_hub:
            # The signed address behind a redirect has run out; asking the hub gives a new one.
            raise _AgainError(error)
        if status in (408, 425, 429) or status >= 500:
            raise _AgainError(error, _retry_after(response))
        raise error

    def _compare_etag(self, etag: str) -> None:
        known, self._etag = self._etag, etag
        if etag and etag != known:
            self._on_etag(etag)
            if known and self._have:
                self._restart()
                self._notice(f"{self._file.path} was changed on {self._host} in the meantime and is loaded anew.")
                raise _AgainError(self._failed("it keeps changing", "Try again later."), at_once=True)

    def _receive(self, response: httpx2.Response) -> None:
        # A server that knows no ranges sends everything again; what we have stays and its bytes are passed over.
        skip = self._have if response.status_code == 200 else 0
        start = self._have
        for chunk in response.iter_raw():
            self._control.check()
            self._throttle.take(len(chunk), self._control)
            if skip:
                passed = min(skip, len(chunk))
                skip -= passed
                chunk = chunk[passed:]
            if self._have + len(chunk) > self._file.nbytes:
                self._restart()
                raise self._failed("the server sent more bytes than the file has", "Try again, or use another mirror.")
            if chunk:
                self._write(chunk)
        if self._have < self._file.nbytes:
            why = f"the server stopped after {self._have:,} of {self._file.nbytes:,} bytes"
            _log.info("%s: %s (this answer: %d)", self._file.path, why, self._have - start)
            raise _AgainError(self._failed(why, "Try again later, or use another mirror."))

    def _write(self, chunk: bytes) -> None:
        view = memoryview(chunk)
        with disk_errors(self._part):
            if self._have == 0 or os.lseek(self._descriptor, 0, os.SEEK_CUR) != self._have:
                os.lseek(self._descriptor, self._have, os.SEEK_SET)
            while view:
                count = os.write(self._descriptor, view)
                self._have += count
                self._on_bytes(count)
                view = view[count:]

    def _restart(self) -> None:
        with disk_errors(self._part):
            os.ftruncate(self._descriptor, 0)
        self._on_bytes(-self._have)
        self._have = 0

    def _failed(self, why: str, remedy: str) -> GreenroomError:
        return GreenroomError(say("{path} was not downloaded", path=self._file.path), why, remedy)


def verify(path: Path, file: RemoteFile, control: Control, on_bytes: Callable[[int], None]) -> bool:
    """Whether the bytes on disk are the hub's, by SHA-256 or git's blob id. A file without either needs its size only.

    Raises Cancelled when stopped, GreenroomError when it cannot be read.
    """
    with disk_errors(path, reading=True), open_to_read(path) as stream:
        nbytes = os.fstat(stream.fileno()).st_size
        if nbytes != file.nbytes:
            return False
        if file.sha256:
            digest, expected = hashlib.sha256(), file.sha256
        elif file.blob_id:
            digest, expected = hashlib.sha1(b"blob %d\0" % nbytes, usedforsecurity=False), file.blob_id
        else:
            on_bytes(nbytes)
            return True
        buffer = bytearray(_HASH_BLOCK)
        view = memoryview(buffer)
        while count := stream.readinto(buffer):
            control.check()
            digest.update(view[:count])
            on_bytes(count)
    return digest.hexdigest() == expected


class disk_errors:  # noqa: N801  (reads as a statement)
    """Turns the system's errors about one path into sentences."""

    def __init__(self, path: Path, reading: bool = False) -> None:
        self._path, self._reading = path, reading

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, OSError):
            return
        name = self._path.name
        what = say("{name} cannot be read", name=name) if self._reading else say("{name} cannot be written", name=name)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            why, remedy = say("the disk is full"), say("Free some space, then resume; what has come is kept.")
        elif error.errno == errno.EFBIG:
            why, remedy = (
                say("the file is larger than this disk's file system takes"),
                say("Choose another models folder."),
            )
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            why, remedy = (
                say("{parent} does not allow it", parent=self._path.parent),
                say("Change its permissions, or choose another folder."),
            )
        else:
            why = (error.strerror or str(error)).lower()
            remedy = say("Check the disk, then resume; what has come is kept.")
        raise GreenroomError(what, why, remedy) from error


def _total_bytes(response: httpx2.Response) -> int | None:
    """Size of the whole file as this answer tells it."""
    if response.status_code == 206:
        total = response.headers.get("Content-Range", "").rpartition("/")[2]
    else:
        total = response.headers.get("Content-Length", "")
    return int(total) if total.isascii() and total.isdigit() and len(total) < 19 else None


def _first_byte(response: httpx2.Response) -> int:
    first = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    return int(first) if first.isascii() and first.isdigit() and len(first) < 19 else -1


def _retry_after(response: httpx2.Response) -> float:
    """Seconds; 0 when the server does not say."""
    value = response.headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError, OverflowError):
        return 0.0
