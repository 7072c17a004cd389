"""The Models page: everything on this PC that can be loaded, each with its plan."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QVBoxLayout, QWidget

from app import tasks
from app.host import EngineHost, HostState
from app.models.row import RowWidget
from app.models.survey import Found, ModelRow, find_models, plan_model
from app.settings.store import SettingsStore
from app.widgets.buttons import button
from app.widgets.labels import label
from app.widgets.page import PageHead, scrolled
from app.words import gigabytes, home_path
from engine.errors import GreenroomError

#: A narrower page folds its rows.
ROOMY = 900


class ModelsPage(QWidget):
    #: (path or "demo", whether to load although the plan advises against it)
    loadWanted = Signal(str, bool)
    fileWanted = Signal()
    folderWanted = Signal()

    def __init__(self, host: EngineHost, settings: SettingsStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._host, self._settings = host, settings
        self._rows: list[RowWidget] = []
        self._tasks: list[tasks.Task] = []
        self._settled = ("", "")

        head = PageHead("Models")
        open_file = button("Open a file…", icon="file")
        open_file.clicked.connect(self.fileWanted)
        open_folder = button("Open a folder…", icon="folder")
        open_folder.clicked.connect(self.folderWanted)
        again = button("", icon="refresh", kind="ghost", role="muted", name="Look again", tip="Look again")
        again.clicked.connect(self.refresh)
        head.add(again, open_file, open_folder)

        self._heading = label("", "faint")
        self._heading.setContentsMargins(14, 8, 0, 2)
        self._card = QFrame()
        self._card.setProperty("surface", "card")
        self._list = QVBoxLayout(self._card)
        self._list.setContentsMargins(0, 0, 0, 0)
        self._list.setSpacing(0)
        self._note = label("", "small", wrap=True)
        self._note.setContentsMargins(14, 6, 14, 0)
        self._note.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)

        content = QVBoxLayout()
        content.addWidget(head)
        content.addWidget(self._heading)
        content.addWidget(self._card)
        content.addWidget(self._note)
        content.addStretch(1)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(scrolled(content))

        host.stateChanged.connect(self._show_state)
        settings.changed.connect(self._settings_changed)

    @property
    def rows(self) -> list[RowWidget]:
        return list(self._rows)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()

    def resizeEvent(self, event: QResizeEvent) -> None:
        for widget in self._rows:
            widget.set_compact(self.width() < ROOMY)

    @Slot()
    def refresh(self) -> None:
        """Looks again at the disk and at what is free; what is shown stays until the new list is there."""
        for task in self._tasks:
            task.cancel()
        values = self._settings.values
        folder = Path(values.models_folder) if values.models_folder else None
        self._tasks = [
            tasks.run(find_models, self._host.api, folder, values.recent, done=self._show_found, failed=self._fail)
        ]
        if not self._rows:
            self._heading.setText("Looking at what is here…")
            self._card.hide()

    @Slot()
    def _show_found(self, found: Found) -> None:
        old = {widget.row.path: widget.row for widget in self._rows}
        for widget in self._rows:
            self._list.removeWidget(widget)
            widget.hide()
            widget.deleteLater()
        self._rows = []
        for row in found.rows:
            widget = RowWidget(_with_old_plan(row, old), first=not self._rows, parent=self._card)
            widget.loadWanted.connect(self.loadWanted)
            widget.ejectWanted.connect(self._host.unload)
            widget.cancelWanted.connect(self._host.cancel_load)
            widget.show_state(self._host.state)
            widget.set_compact(self.width() < ROOMY)
            self._list.addWidget(widget)
            self._rows.append(widget)
        self._card.show()
        self._show_heading()
        folder = self._settings.values.models_folder or _own_folder()
        self._note.setText(
            f"Greenroom lists what lies in {home_path(Path(folder))}. Files and folders opened from elsewhere are used "
            "where they are, never copied."
        )
        self._plan_all(found)

    def _plan_all(self, found: Found) -> None:
        values = self._settings.values
        wishes = {} if values.threads is None else {"threads": values.threads}
        loaded = self._host.loaded
        if loaded is not None and loaded.plan is not None:
            wishes["unload_bytes"] = loaded.plan.bytes.ram_total
        for number, row in enumerate(found.rows):
            widget = self._rows[number]
            if loaded is not None and loaded.path == row.path:
                self._show_planned(widget, _of_loaded(row, loaded))
            self._tasks.append(
                tasks.run(
                    plan_model,
                    self._host.api,
                    row,
                    found.report,
                    values.context,
                    wishes,
                    done=partial(self._show_planned, widget),
                )
            )

    def _show_planned(self, widget: RowWidget, row: ModelRow) -> None:
        if widget not in self._rows:
            return
        loaded = self._host.loaded
        if loaded is not None and loaded.path == row.path:
            row = _of_loaded(row, loaded)
        widget.show_row(row)
        widget.show_state(self._host.state)
        self._show_heading()

    def _show_heading(self) -> None:
        count = len(self._rows)
        size = sum(widget.row.nbytes for widget in self._rows)
        text = f"On this PC · {count} {'model' if count == 1 else 'models'}"
        self._heading.setText(f"{text}, {gigabytes(size)}" if size else text)

    def _fail(self, error: GreenroomError) -> None:
        self._heading.setText("")
        self._note.setText(str(error))

    @Slot(object)
    def _show_state(self, state: HostState) -> None:
        for widget in self._rows:
            widget.show_state(state)
        if state.kind in ("ready", "empty", "failed") and (state.kind, state.path or "") != self._settled:
            # Other memory is free now, so every plan may be another.
            self._settled = (state.kind, state.path or "")
            if self.isVisible():
                self.refresh()

    @Slot(object)
    def _settings_changed(self, names: set[str]) -> None:
        if self.isVisible() and names & {"models_folder", "context", "threads"}:
            self.refresh()


def _with_old_plan(row: ModelRow, old: dict[str, ModelRow]) -> ModelRow:
    """Keeps showing what was known while it is worked out anew."""
    before = old.get(row.path)
    if before is None or before.plan is None or row.problem is not None:
        return row
    return replace(row, name=before.name, detail=before.detail, nbytes=before.nbytes, plan=before.plan)


def _of_loaded(row: ModelRow, loaded: HostState) -> ModelRow:
    """The loaded model's plan is the one it was loaded with."""
    return replace(row, plan=loaded.plan)


def _own_folder() -> Path:
    from engine.hub.library import models_folder

    return models_folder()
