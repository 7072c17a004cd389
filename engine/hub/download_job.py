"""One download on its way: each file fetched, checked, and named once all are there."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from engine.control import Control
from engine.errors import Cancelled, GreenroomError
from engine.hub.client import open_client
from engine.hub.credentials import token
from engine.hub.download_rows import FAILED, FINISHED, PAUSED, RUNNING, VERIFYING, StoredDownload, StoredFile
from engine.hub.download_store import DownloadStore, boot_id
from engine.hub.incoming_files import bytes_on_disk, part_of, size_of
from engine.hub.network import NetworkSettings
from engine.hub.repository import Hub
from engine.hub.transfer import FileTransfer, RetryPolicy, Throttle, disk_errors, verify
from engine.regular_files import check_place, open_own
from engine.safe_paths import inside
from engine.words import say

_log = logging.getLogger(__name__)

_SPEED_WINDOW_S = 5.0


class DownloadJob(threading.Thread):
    """Brings one download, and says in the store how it went.

    stored:     what to bring, claimed from the store
    check_room: raises GreenroomError when it does not fit on the disk any more
    changed:    called when the state changes; ended: called last. Both on this thread
    """

    def __init__(
        self,
        stored: StoredDownload,
        store: DownloadStore,
        settings: NetworkSettings,
        throttle: Throttle,
        policy: RetryPolicy,
        check_room: Callable[[], None],
        changed: Callable[[int], None],
        ended: Callable[[DownloadJob], None],
    ) -> None:
        super().__init__(name=f"download {stored.id}", daemon=True)
        self.stored = stored
        self._store, self._settings, self._throttle, self._policy = store, settings, throttle, policy
        self._check_room, self._changed, self._ended = check_room, changed, ended
        self.done = bytes_on_disk(stored.folder, stored.model)
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
                self._store.set_safe(self.stored.id, number, safe, boot)

    def bytes_per_s(self) -> float:
        now = time.monotonic()
        samples = list(self._speed)
        recent = [count for at, count in samples if now - at <= _SPEED_WINDOW_S]
        span = min(_SPEED_WINDOW_S, now - samples[0][0]) if samples else 0.0
        return sum(recent) / span if span > 0.2 else 0.0

    def run(self) -> None:
        store, download = self._store, self.stored.id
        try:
            store.set_state(download, RUNNING)
            self._changed(download)
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
            self._ended(self)

    def _bring_everything(self) -> None:
        stored, store = self.stored, self._store
        self._check_room()
        hub = Hub(self._settings)
        with open_client(self._settings, token(), self._control) as client:
            for number, file in enumerate(stored.files):
                target = self._place_of(file)
                with disk_errors(target):
                    target.parent.mkdir(parents=True, exist_ok=True)
                part = part_of(target)
                if file.verified and (size_of(target) == file.file.nbytes or size_of(part) == file.file.nbytes):
                    self.checked += file.file.nbytes
                    continue
                if size_of(target) == file.file.nbytes and size_of(part) < 0 and self._verify(number, file, target):
                    continue
                self._trust(number, file, part)
                transfer = FileTransfer(
                    client,
                    hub.url(stored.model.repo, stored.model.commit, file.file.path),
                    file.file,
                    part,
                    self._throttle,
                    self._policy,
                    self._count,
                    lambda text: store.set_notice(stored.id, text),
                    file.etag,
                    lambda etag, number=number: store.set_etag(stored.id, number, etag),  # type: ignore[misc]
                )
                self._transfer = number, transfer
                try:
                    transfer.run()
                finally:
                    self._transfer = None
                if not self._verify(number, file, part):
                    with disk_errors(part):
                        part.unlink(missing_ok=True)
                    self.done -= file.file.nbytes
                    raise GreenroomError(
                        say("{path} came damaged", path=file.file.path),
                        say("its checksum is not the one the hub lists, so it was thrown away"),
                        say("Resume to fetch that file once more; if it happens again, use another mirror."),
                    )
        self._name_everything()

    def _place_of(self, file: StoredFile) -> Path:
        """Where it belongs. Looked at anew each time: others may write there too."""
        target = inside(self.stored.models, f"{self.stored.model.repo}/{file.file.path}")
        with disk_errors(target):
            check_place(target, to_write=False)
        return target

    def _trust(self, number: int, file: StoredFile, part: Path) -> None:
        """After the machine was started anew, only what had been forced to the disk is sure to be there."""
        if file.boot and file.boot != boot_id() and size_of(part) > file.safe_bytes:
            with disk_errors(part):
                descriptor = open_own(part)
                try:
                    os.ftruncate(descriptor, file.safe_bytes)
                finally:
                    os.close(descriptor)
            self.done = bytes_on_disk(self.stored.folder, self.stored.model)
        elif not file.boot:
            self._store.set_safe(self.stored.id, number, 0, boot_id())

    def _verify(self, number: int, file: StoredFile, path: Path) -> bool:
        store, before = self._store, self.checked
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
        self._store.set_state(self.stored.id, state)
        self._changed(self.stored.id)

    def _name_everything(self) -> None:
        """Only now do the files get their names, so that no half model is ever found; the small ones come last."""
        for file in sorted(self.stored.files, key=lambda f: -f.file.nbytes):
            target = self._place_of(file)
            part = part_of(target)
            with disk_errors(target):
                check_place(part)
                if os.path.lexists(part):
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
