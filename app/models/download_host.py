"""Downloads as the window sees them: statuses and a few verbs, everything on the UI thread, nothing waits."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app import tasks
from app.settings.store import Settings, SettingsStore
from engine.errors import Cancelled, GreenroomError
from engine.folders import data_folder
from engine.hub.network import NetworkSettings

if TYPE_CHECKING:
    from engine.hub.downloads import DownloadManager, DownloadStatus
    from engine.hub.repository import RemoteModel

log = logging.getLogger(__name__)

POLL_MS = 250
#: Longest wait for one thing when the program ends.
CLOSE_S = 5.0


def network_settings(values: Settings) -> NetworkSettings:
    return NetworkSettings(endpoint=values.hub, proxy=values.proxy, ca_file=values.ca_file, offline=values.offline)


class DownloadHost(QObject):
    """Owns the download manager, which is made when it is first needed."""

    #: The list of statuses is another one.
    changed = Signal()
    #: DownloadStatus, once, when a model is here.
    finished = Signal(object)
    #: GreenroomError of a verb that could not be done.
    failed = Signal(object)

    def __init__(self, settings: SettingsStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._settings = settings
        self._manager: DownloadManager | None = None
        self._opening = threading.Lock()
        self._statuses: list[DownloadStatus] = []
        self._polling = False
        self._closed = False
        self._timer = QTimer(self)
        self._timer.setInterval(POLL_MS)
        self._timer.timeout.connect(self._poll)
        settings.changed.connect(self._settings_changed)

    @property
    def statuses(self) -> list[DownloadStatus]:
        """In the order of the queue, finished ones included."""
        return list(self._statuses)

    @property
    def active(self) -> list[DownloadStatus]:
        return [status for status in self._statuses if status.state in ("downloading", "verifying")]

    def start(self) -> None:
        """Go on with what was under way when the program last ended, if anything was."""
        if os.path.exists(data_folder() / "downloads.db"):
            self._do(lambda manager: None)

    def add(self, model: RemoteModel) -> None:
        self._do(lambda manager: manager.add(model))

    def pause(self, download: int) -> None:
        self._do(lambda manager: manager.pause(download))

    def resume(self, download: int) -> None:
        self._do(lambda manager: manager.resume(download))

    def cancel(self, download: int) -> None:
        """A finished one only leaves the list."""
        self._do(lambda manager: manager.cancel(download))

    def move_up(self, download: int) -> None:
        """In front of everything else that waits."""
        self._do(lambda manager: manager.reorder([download]))

    def shutdown(self) -> bool:
        """Stops downloads; the next start goes on from the same byte. False when one would not end."""
        self._closed = True
        self._timer.stop()
        return tasks.wait_for(self._close)

    def _close(self) -> bool:
        # Not for longer: what still opens the manager then sees that it is too late.
        if not self._opening.acquire(timeout=CLOSE_S):
            return False
        manager, self._manager = self._manager, None
        self._opening.release()
        return manager is None or manager.close(CLOSE_S)

    def _do(self, verb: Callable[[DownloadManager], Any]) -> None:
        if self._closed:
            return

        def work() -> None:
            verb(self._opened())

        tasks.run(work, done=lambda _: self._done(), failed=self.failed.emit)

    def _done(self) -> None:
        problem = None if self._manager is None else self._manager.problem()
        if problem is not None:
            self.failed.emit(problem)
        self._poll()

    def _opened(self) -> DownloadManager:
        """On a background thread."""
        with self._opening:
            if self._manager is None:
                values = self._settings.values
                # Here, since they take long to import, and the window is to paint before.
                from engine.hub.downloads import DownloadManager
                from engine.hub.library import models_folder

                folder = Path(values.models_folder) if values.models_folder else models_folder()
                manager = DownloadManager(
                    folder,
                    data_folder() / "downloads.db",
                    network_settings(values),
                    values.downloads_at_once,
                    _bytes_per_s(values),
                )
                if self._closed:
                    manager.close()
                    raise Cancelled
                manager.start()
                self._manager = manager
            return self._manager

    @Slot()
    def _poll(self) -> None:
        manager = self._manager
        if manager is None or self._polling or self._closed:
            return
        self._polling = True
        tasks.run(manager.status, done=self._take, failed=self._poll_failed)

    def _take(self, statuses: list[DownloadStatus]) -> None:
        self._polling = False
        before = {status.id: status.state for status in self._statuses}
        if statuses != self._statuses:
            self._statuses = statuses
            self.changed.emit()
        for status in statuses:
            if status.state == "finished" and before.get(status.id, "finished") != "finished":
                self.finished.emit(status)
        busy = any(status.state in ("queued", "downloading", "verifying") for status in statuses)
        if busy and not self._timer.isActive():
            self._timer.start()
        elif not busy:
            self._timer.stop()

    def _poll_failed(self, error: GreenroomError) -> None:
        self._polling = False
        log.error("%s", error)

    @Slot(object)
    def _settings_changed(self, names: set[str]) -> None:
        values, manager = self._settings.values, self._manager
        if manager is None:
            return
        if names & {"hub", "proxy", "ca_file", "offline"}:
            manager.set_network(network_settings(values))
        if names & {"downloads_at_once", "download_rate"}:
            self._do(lambda manager: manager.set_limits(values.downloads_at_once, _bytes_per_s(values)))
        if "models_folder" in names:
            from engine.hub.library import models_folder

            manager.set_folder(Path(values.models_folder) if values.models_folder else models_folder())


def _bytes_per_s(values: Settings) -> int:
    return values.download_rate * 1_000_000 if values.download_rate else 0
