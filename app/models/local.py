"""The models on this PC that were not opened lately, for pickers: looked for in the background, remembered between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot

from app import tasks
from app.engine_worker import DEMO
from app.settings.store import SettingsStore


@dataclass(frozen=True)
class LocalModel:
    """title: as the Models page names it; name: of its file or folder, or as the program calls it that keeps it

    path: what `EngineHost.load` takes
    """

    title: str
    name: str
    path: str


def find_local(folder: Path | None, recent: Sequence[str]) -> list[LocalModel]:
    """What the Models page lists as here and can be loaded, without the demo and the recent ones; by name."""
    from app.models.survey import find_here, identity

    known = {identity(Path(path)) for path in recent}
    found = [
        LocalModel(row.name, Path(row.path).name if row.own else row.name, row.path)
        for row in find_here(folder, ())
        if row.path != DEMO and row.problem is None and identity(Path(row.path)) not in known
    ]
    return sorted(found, key=lambda model: model.name.casefold())


class LocalModels(QObject):
    """Knows nothing until it was told to look."""

    changed = Signal()

    def __init__(self, settings: SettingsStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._settings = settings
        self._found: list[LocalModel] = []
        self._task: tasks.Task | None = None
        settings.changed.connect(self._settings_changed)

    @property
    def others(self) -> list[LocalModel]:
        """As last found, without what has been opened since."""
        recent = set(self._settings.values.recent)
        return [model for model in self._found if model.path not in recent]

    @Slot()
    def look(self) -> None:
        """Anew; `changed` follows when there is something else than before."""
        if self._task is not None:
            self._task.cancel()
        values = self._settings.values
        folder = Path(values.models_folder) if values.models_folder else None
        self._task = tasks.run(find_local, folder, values.recent, done=self._take)

    def _take(self, found: list[LocalModel]) -> None:
        if found != self._found:
            self._found = found
            self.changed.emit()

    @Slot(object)
    def _settings_changed(self, names: set[str]) -> None:
        if names & {"models_folder", "recent"}:
            self.look()
