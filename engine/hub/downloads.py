"""The download manager: a queue of models, some of them on their way at once. No Qt; observers look at `status`."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from engine.checkpoints.stored import size_text
from engine.errors import Cancelled, GreenroomError
from engine.hub.credentials import token
from engine.hub.download_store import (
    FAILED,
    FINISHED,
    PAUSED,
    QUEUED,
    RUNNING,
    VERIFYING,
    DownloadStore,
    StoredDownload,
    StoredFile,
    boot_id,
)
from engine.hub.network import NetworkSettings, open_client
from engine.hub.repository import Hub, RemoteModel
from engine.hub.safe_paths import inside
from engine.hub.transfer import Control, FileTransfer, RetryPolicy, Throttle, disk_errors, verify
from engine.words import say

_log = logging.getLogger(__name__)

#: How often what has come is forced to the disk, so that a power cut costs little.
_SYNC_S = 10.0
_SPEED_WINDOW_S = 5.0
#: Kept free beside every download: other programs need room too.
_SPACE_KEPT = 256 << 20
_FAT32_LIMIT = (4 << 30) - 1
_FAT_NAMES = ("vfat", "msdos", "fat", "fat32")


@dataclass(frozen=True)
class DownloadStatus:
    """One row of the list.

    state:     "queued", "downloading", "verifying", "paused", "failed" or "finished"
    done:      bytes on disk, or bytes checked while verifying; total the same of all
    bytes_per_s: 0 when nothing moves; remaining_s None when that cannot be said
    path:      what `open_checkpoint` accepts once it is finished
    error:     why it failed; notice: something to know although it goes on
    """

    id: int
    repo: str
    label: str
    name: str
    form: str
    state: str
    done: int
    total: int
    bytes_per_s: float
    remaining_s: float | None
    path: Path
    error: GreenroomError | None
    notice: str


class DownloadManager:
    """Queue, pause, resume, cancel, reorder; resumes after a restart, and after a crash, from the exact byte.

    models:    the folder below which "owner/model" folders are made
    database:  where the queue is remembered
    at_once:   models on their way at the same time
    own_only:  leave alone what other programs put into the queue
    on_change: called, from any thread, when a download's state changes
    """

    def __init__(
        self,
        models: Path,
        database: Path,
        settings: NetworkSettings | None = None,
        at_once: int = 2,
        bytes_per_s: int = 0,
        policy: RetryPolicy | None = None,
        on_change: Callable[[int], None] = lambda _: None,
        own_only: bool = False,
    ) -> None:
        self._models = models
        self._settings = settings or NetworkSettings()
        self._policy = policy or RetryPolicy()
        self._at_once = at_once
        self._on_change = on_change
        self._throttle = Throttle(bytes_per_s)
        self._lock = threading.RLock()
        self._store = DownloadStore(database)
        self._jobs: dict[int, _Job] = {}
        self._own: set[int] | None = set() if own_only else None
        self._closing = threading.Event()
        self._keeper = threading.Thread(target=self._keep_safe, name="download keeper", daemon=True)

    def start(self) -> None:
        """Go on with everything that was under way when the program last ended."""
        for download in self._store.abandoned() if self._own is None else ():
            if self._store.claim(download):
                self._store.set_state(download, QUEUED)
                self._store.release(download)
        self._keeper.start()
        self._pump()

    def close(self) -> None:
        """Stops everything within a moment; the next `start` goes on from the same byte."""
        self._closing.set()
        with self._lock:
            jobs = list(self._jobs.values())
        for job in jobs:
            job.stop(RUNNING)
        for job in jobs:
            job.join()
        if self._keeper.is_alive():
            self._keeper.join()
        self._store.close()

    def add(self, model: RemoteModel) -> int:
        """Put a model into the queue; the same one twice is one download. Returns its id.

        Raises GreenroomError when it cannot fit on the disk or a name in it is not safe.
        """
        folder = self._models.joinpath(*model.repo.split("/"))
        for file in model.files:
            inside(self._models, f"{model.repo}/{file.path}")
        self._check_space(model.nbytes - _on_disk(folder, model), folder, max(f.nbytes for f in model.files), None)
        download = self._store.add(self._settings.hub, model, folder)
        if self._own is not None:
            self._own.add(download)
        if download in self._store.abandoned():
            self._store.set_state(download, PAUSED)
        if self._store.get(download).state in (PAUSED, FAILED):
            self.resume(download)
        self._changed(download)
        self._pump()
        return download

    def pause(self, download: int) -> None:
        self._stop(download, PAUSED)

    def resume(self, download: int) -> None:
        """Also after a failure."""
        if self._store.get(download).state in (PAUSED, FAILED):
            self._store.set_state(download, QUEUED)
            self._changed(download)
        self._pump()

    def cancel(self, download: int) -> None:
        """Forget it and delete what came of it. A finished one only leaves the list."""
        self._stop(download, PAUSED)
        stored = self._store.get(download)
        if stored.state != FINISHED:
            for file in stored.files:
                part = _part(stored.folder / file.file.path)
                part.unlink(missing_ok=True)
                _remove_empty(part.parent, stored.folder.parent.parent)
        self._store.remove(download)
        self._changed(download)
        self._pump()

    def reorder(self, downloads: list[int]) -> None:
        """These first, in this order."""
        self._store.reorder(downloads)
        self._pump()

    def set_limits(self, at_once: int | None = None, bytes_per_s: int | None = None) -> None:
        """Both take effect at once; bytes_per_s 0 is no limit."""
        if at_once is not None:
            self._at_once = at_once
        if bytes_per_s is not None:
            self._throttle.set_limit(bytes_per_s)
        self._pump()

    def set_network(self, settings: NetworkSettings) -> None:
        """For downloads that start from now on."""
        self._settings = settings

    def set_folder(self, models: Path) -> None:
        """For downloads that are added from now on."""
        self._models = models

    def status(self) -> list[DownloadStatus]:
        """All downloads in the order of the queue."""
        with self._lock:
            jobs = dict(self._jobs)
        return [_status(stored, jobs.get(stored.id)) for stored in self._store.all()]

    def wait(self, download: int, timeout: float | None = None) -> DownloadStatus:
        """Until it is finished, failed or paused, or the time is over; how it stands then."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._lock:
                job = self._jobs.get(download)
            found = next(s for s in self.status() if s.id == download)
            if found.state in (FINISHED, FAILED, PAUSED) or (end is not None and time.monotonic() >= end):
                return found
            if job is not None:
                job.join(0.1)
            else:
                time.sleep(0.02)

    def _stop(self, download: int, state: str) -> None:
        with self._lock:
            job = self._jobs.get(download)
        if job is not None:
            job.stop(state)
            job.join()
            return
        now = self._store.get(download).state
        if now in (RUNNING, VERIFYING) and download not in self._store.abandoned():
            raise GreenroomError(
                say("The download is not this window's"),
                say("another Greenroom has it in hand"),
                say("Stop it there, or close that one."),
            )
        if now not in (FINISHED, FAILED, PAUSED):
            self._store.set_state(download, state)
            self._changed(download)

    def _pump(self) -> None:
        """Start what may start."""
        with self._lock:
            if self._closing.is_set():
                return
            for stored in self._store.all():
                if len(self._jobs) >= self._at_once:
                    return
                if stored.state != QUEUED or stored.id in self._jobs:
                    continue
                if (self._own is None or stored.id in self._own) and self._store.claim(stored.id):
                    job = _Job(self, stored)
                    self._jobs[stored.id] = job
                    job.start()

    def _ended(self, job: _Job) -> None:
        self._store.release(job.stored.id)
        with self._lock:
            self._jobs.pop(job.stored.id, None)
        self._changed(job.stored.id)
        self._pump()

    def _changed(self, download: int) -> None:
        self._on_change(download)

    def _keep_safe(self) -> None:
        boot = boot_id()
        while not self._closing.wait(_SYNC_S):
            with self._lock:
                jobs = list(self._jobs.values())
            for job in jobs:
                job.sync(boot)

    def _check_space(self, needed: int, folder: Path, largest: int, download: int | None) -> None:
        """Raises GreenroomError when this and all other unfinished downloads to the same disk do not fit."""
        place = _existing(folder)
        if largest > _FAT32_LIMIT and _file_system(place) in _FAT_NAMES:
            raise GreenroomError(
                say("The model cannot be stored there"),
                say(
                    "a file of it has {largest}, and this disk's file system (FAT32) takes 4.3 GB at most",
                    largest=size_text(largest),
                ),
                say("Choose a models folder on another disk in Settings."),
            )
        with disk_errors(place, reading=True):
            device, free = place.stat().st_dev, shutil.disk_usage(place).free
        others = 0
        for stored in self._store.all():
            if stored.id == download or stored.state in (FINISHED, FAILED, PAUSED):
                continue
            with disk_errors(place, reading=True):
                if _existing(stored.folder).stat().st_dev == device:
                    others += stored.model.nbytes - _on_disk(stored.folder, stored.model)
        if needed + others + _SPACE_KEPT > free:
            beside = say(", {size} more for other downloads", size=size_text(others)) if others else ""
            raise GreenroomError(
                say("There is not enough room on the disk"),
                say(
                    "{needed} are still needed{beside}, and {free} are free",
                    needed=size_text(needed),
                    beside=beside,
                    free=size_text(free),
                ),
                say(
                    "Free {value} or choose another models folder in Settings.",
                    value=size_text(needed + others + _SPACE_KEPT - free),
                ),
            )


class _Job(threading.Thread):
    """One download on its way."""

    def __init__(self, manager: DownloadManager, stored: StoredDownload) -> None:
        super().__init__(name=f"download {stored.id}", daemon=True)
        self.stored = stored
        self.manager = manager
        self.done = _on_disk(stored.folder, stored.model)
        self.checked = 0
        self.state = RUNNING
        self._control = Control()
        self._stop_state = PAUSED
        self._transfer: tuple[int, FileTransfer] | None = None
        self._speed: deque[tuple[float, int]] = deque()

    def stop(self, state: str) -> None:
        """The state to leave it in: paused, or downloading when only the program ends."""
        self._stop_state = state
        self._control.stop()

    def sync(self, boot: str) -> None:
        current = self._transfer
        if current is not None:
            number, transfer = current
            safe = transfer.sync()
            if safe >= 0:
                self.manager._store.set_safe(self.stored.id, number, safe, boot)

    def bytes_per_s(self) -> float:
        now = time.monotonic()
        samples = list(self._speed)
        recent = [count for at, count in samples if now - at <= _SPEED_WINDOW_S]
        span = min(_SPEED_WINDOW_S, now - samples[0][0]) if samples else 0.0
        return sum(recent) / span if span > 0.2 else 0.0

    def run(self) -> None:
        store, download = self.manager._store, self.stored.id
        try:
            store.set_state(download, RUNNING)
            self.manager._changed(download)
            self._bring_everything()
            store.set_state(download, FINISHED)
        except Cancelled:
            store.set_state(download, self._stop_state)
        except GreenroomError as error:
            _log.info("download %s failed: %s", self.stored.model.name, error)
            store.set_state(download, FAILED, error)
        except Exception as error:
            _log.exception("download %s", self.stored.model.name)
            known = GreenroomError(
                say("{name} was not downloaded", name=self.stored.model.name),
                say("an unexpected fault ({error})", error=error),
                say("Resume it."),
            )
            store.set_state(download, FAILED, known)
        finally:
            self.manager._ended(self)

    def _bring_everything(self) -> None:
        stored, manager = self.stored, self.manager
        settings = manager._settings
        manager._check_space(
            stored.model.nbytes - self.done, stored.folder, max(f.file.nbytes for f in stored.files), stored.id
        )
        hub, secret = Hub(settings), token()
        with open_client(settings) as client:
            for number, file in enumerate(stored.files):
                target = inside(stored.folder, file.file.path)
                with disk_errors(target):
                    target.parent.mkdir(parents=True, exist_ok=True)
                part = _part(target)
                if file.verified and (_size(target) == file.file.nbytes or _size(part) == file.file.nbytes):
                    self.checked += file.file.nbytes
                    continue
                if _size(target) == file.file.nbytes and _size(part) < 0 and self._verify(number, file, target):
                    continue
                self._trust(number, file, part)
                transfer = FileTransfer(
                    client,
                    hub.url(stored.model.repo, stored.model.commit, file.file.path),
                    secret,
                    file.file,
                    part,
                    self._control,
                    manager._throttle,
                    manager._policy,
                    self._count,
                    lambda text: manager._store.set_notice(stored.id, text),
                    file.etag,
                    lambda etag, number=number: manager._store.set_etag(stored.id, number, etag),  # type: ignore[misc]
                )
                self._transfer = number, transfer
                try:
                    transfer.run()
                finally:
                    self._transfer = None
                if not self._verify(number, file, part):
                    part.unlink(missing_ok=True)
                    self.done -= file.file.nbytes
                    raise GreenroomError(
                        say("{path} came damaged", path=file.file.path),
                        say("its checksum is not the one the hub lists, so it was thrown away"),
                        say("Resume to fetch that file once more; if it happens again, use another mirror."),
                    )
        self._name_everything()

    def _trust(self, number: int, file: StoredFile, part: Path) -> None:
        """After the machine was started anew, only what had been forced to the disk is sure to be there."""
        if file.boot and file.boot != boot_id() and _size(part) > file.safe_bytes:
            with disk_errors(part):
                os.truncate(part, file.safe_bytes)
            self.done = _on_disk(self.stored.folder, self.stored.model)
        elif not file.boot:
            self.manager._store.set_safe(self.stored.id, number, 0, boot_id())

    def _verify(self, number: int, file: StoredFile, path: Path) -> bool:
        store, before = self.manager._store, self.checked
        self._enter(VERIFYING)
        good = verify(path, file.file, self._control, self._count_checked)
        if good:
            store.set_verified(self.stored.id, number, True)
        else:
            self.checked = before
        self._enter(RUNNING)
        return good

    def _enter(self, state: str) -> None:
        self.state = state
        self._speed.clear()
        self.manager._store.set_state(self.stored.id, state)
        self.manager._changed(self.stored.id)

    def _name_everything(self) -> None:
        """Only now do the files get their names, so that no half model is ever found; the small ones come last."""
        for file in sorted(self.stored.files, key=lambda f: -f.file.nbytes):
            target = self.stored.folder / file.file.path
            part = _part(target)
            if part.exists():
                with disk_errors(target):
                    part.replace(target)

    def _count(self, nbytes: int) -> None:
        self.done += nbytes
        self._sample(nbytes)

    def _count_checked(self, nbytes: int) -> None:
        self.checked += nbytes
        self._sample(nbytes)

    def _sample(self, nbytes: int) -> None:
        now, speed = time.monotonic(), self._speed
        # A few samples a second are enough, and the list stays short.
        if speed and now - speed[-1][0] < 0.1:
            speed[-1] = (speed[-1][0], speed[-1][1] + nbytes)
            return
        speed.append((now, nbytes))
        while now - speed[0][0] > _SPEED_WINDOW_S:
            speed.popleft()


def _status(stored: StoredDownload, job: _Job | None) -> DownloadStatus:
    total = stored.model.nbytes
    state = job.state if job is not None else stored.state
    done = total if state == FINISHED else job.done if job is not None else _on_disk(stored.folder, stored.model)
    speed = 0.0
    if job is not None:
        speed = job.bytes_per_s()
        if state == VERIFYING:
            done = job.checked
    error = None if stored.error is None or state != FAILED else GreenroomError(*stored.error)
    return DownloadStatus(
        id=stored.id,
        repo=stored.model.repo,
        label=stored.model.label,
        name=stored.model.name,
        form=stored.model.form,
        state=state,
        done=max(0, min(done, total)),
        total=total,
        bytes_per_s=speed,
        remaining_s=(total - done) / speed if speed > 0 and state == RUNNING else None,
        path=_model_path(stored),
        error=error,
        notice=stored.notice,
    )


def _model_path(stored: StoredDownload) -> Path:
    """The file to open, or the folder."""
    if stored.model.form == "gguf":
        return stored.folder / stored.model.files[0].path
    weights = next(file.path for file in stored.model.files if file.path.endswith(".safetensors"))
    return (stored.folder / weights).parent


def _part(target: Path) -> Path:
    return target.with_name(target.name + ".part")


def _size(path: Path) -> int:
    """-1 when there is none."""
    try:
        return path.lstat().st_size
    except OSError:
        return -1


def _on_disk(folder: Path, model: RemoteModel) -> int:
    """Bytes of it that are there already, finished or not."""
    total = 0
    for file in model.files:
        target = folder / file.path
        size = _size(_part(target))
        if size < 0 and _size(target) == file.nbytes:
            size = file.nbytes
        total += min(max(size, 0), file.nbytes)
    return total


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


def _remove_empty(folder: Path, root: Path) -> None:
    """The folder and those above it, as long as they are empty and below root."""
    while folder != root and folder.is_relative_to(root):
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
