"""The download manager: a queue of models, some of them on their way at once. No Qt; observers look at `status`."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from engine.errors import GreenroomError
from engine.hub.disk_room import check_room
from engine.hub.download_job import DownloadJob
from engine.hub.download_rows import FAILED, FINISHED, PAUSED, QUEUED, RUNNING, VERIFYING, StoredDownload
from engine.hub.download_store import DownloadStore, boot_id
from engine.hub.incoming_files import bytes_on_disk, path_to_open, remove_parts
from engine.hub.network import NetworkSettings
from engine.hub.repository import RemoteModel
from engine.hub.transfer import RetryPolicy, Throttle
from engine.safe_paths import below, inside
from engine.words import say

_log = logging.getLogger(__name__)

#: How long a download may take to end once it was told to. Only a disk or a keyring that hangs needs so long.
_STOP_S = 5.0
#: How often what has come is forced to the disk, so that a power cut costs little.
_SYNC_S = 10.0


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
        self._models = Path(os.path.abspath(models))
        self._settings = settings or NetworkSettings()
        self._policy = policy or RetryPolicy()
        self._at_once = at_once
        self._on_change = on_change
        self._throttle = Throttle(bytes_per_s)
        self._lock = threading.RLock()
        self._store = DownloadStore(database)
        self._jobs: dict[int, DownloadJob] = {}
        self._own: set[int] | None = set() if own_only else None
        self._told_damaged = 0
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

    def close(self, timeout: float = _STOP_S) -> bool:
        """Stops everything within a moment; the next `start` goes on from the same byte.

        False when something was still busy after `timeout` seconds. Its threads do not keep the program from ending.
        """
        self._closing.set()
        with self._lock:
            jobs = list(self._jobs.values())
        for job in jobs:
            job.stop(RUNNING)
        threads = [thread for thread in (*jobs, self._keeper) if thread.is_alive()]
        end = time.monotonic() + timeout
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            _log.error("a download did not end within %.0f s", timeout)
            return False
        self._store.close()
        return True

    def add(self, model: RemoteModel) -> int:
        """Put a model into the queue; the same one twice is one download. Returns its id.

        Raises GreenroomError when it cannot fit on the disk or a name in it is not safe.
        """
        folder = below(self._models, model.repo)
        for file in model.files:
            inside(self._models, f"{model.repo}/{file.path}")
        self._check_room(folder, model)
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
            remove_parts(stored.models, stored.model)
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
        self._models = Path(os.path.abspath(models))

    def status(self) -> list[DownloadStatus]:
        """All downloads in the order of the queue."""
        with self._lock:
            jobs = dict(self._jobs)
        return [_status(stored, jobs.get(stored.id)) for stored in self._store.all()]

    def problem(self) -> GreenroomError | None:
        """What is wrong with the list of downloads; None when nothing is, or all of it was told before."""
        damaged = self._store.damaged
        if damaged <= self._told_damaged:
            return None
        self._told_damaged = damaged
        return GreenroomError(
            say("The list of downloads is damaged"),
            say("%n of its downloads cannot be read", n=damaged, one="%n of its downloads cannot be read"),
            say("Download what is missing again; what has come is used."),
        )

    def wait(self, download: int, timeout: float | None = None) -> DownloadStatus:
        """Until it is finished, failed or paused, or the time is over; how it stands then."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._lock:
                job = self._jobs.get(download)
            found = next((status for status in self.status() if status.id == download), None)
            if found is None:
                raise GreenroomError(
                    say("The download is not waited for"),
                    say("it is not in the list any more"),
                    say("Start it again."),
                )
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
            job.join(_STOP_S)
            if job.is_alive():
                raise GreenroomError(
                    say("The download does not stop"),
                    say("it waits for the disk or for the keyring"),
                    say("Try again in a moment."),
                )
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
                    job = DownloadJob(
                        stored,
                        self._store,
                        self._settings,
                        self._throttle,
                        self._policy,
                        partial(self._check_room, stored.folder, stored.model, stored.id),
                        self._changed,
                        self._ended,
                    )
                    self._jobs[stored.id] = job
                    job.start()

    def _ended(self, job: DownloadJob) -> None:
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

    def _check_room(self, folder: Path, model: RemoteModel, download: int | None = None) -> None:
        """Raises GreenroomError when the model does not fit beside all other downloads that are not done."""
        waiting = (s for s in self._store.all() if s.id != download and s.state not in (FINISHED, FAILED, PAUSED))
        check_room(folder, model, ((other.folder, other.model) for other in waiting))


def _status(stored: StoredDownload, job: DownloadJob | None) -> DownloadStatus:
    total = stored.model.nbytes
    state = job.state if job is not None else stored.state
    done = total if state == FINISHED else job.done if job is not None else bytes_on_disk(stored.folder, stored.model)
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
        path=path_to_open(stored.folder, stored.model),
        error=error,
        notice=stored.notice,
    )
