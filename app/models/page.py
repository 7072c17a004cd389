"""The Models page: what is on this PC, on its way, in the catalogue and on the hub, each with its plan."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app import tasks
from app.host import EngineHost, HostState
from app.language import tr
from app.models.details import DetailsDialog
from app.models.download_host import DownloadHost, network_settings
from app.models.filters import FilterLine
from app.models.row import RowWidget
from app.models.row_size import CHIP_WIDTH, Measures, chip_column, row_height, wrapped
from app.models.shelf import Filter, Heading, ShelfItem, downloads_of, shelf
from app.models.survey import Found, ModelRow, find_models, plan_choice, plan_model, plan_offer, search_hub
from app.settings.store import PLANNING, SettingsStore
from app.theme import theme
from app.widgets.buttons import button
from app.widgets.labels import label
from app.widgets.page import MARGIN, MAX_WIDTH, PageHead
from app.widgets.virtual_list import VirtualList
from app.words import home_path, in_words
from engine.errors import GreenroomError
from engine.hub.repository import RemoteModel
from engine.hub.trash import Deleted, Trash

log = logging.getLogger(__name__)

HEADING_HEIGHT = 38
_FOOT_MARGIN = 12


@dataclass(frozen=True)
class Foot:
    """The list's last item."""

    text: str


class ModelsPage(QWidget):
    #: (path or "demo", whether to load although the plan advises against it)
    loadWanted = Signal(str, bool)
    fileWanted = Signal()
    folderWanted = Signal()
    #: (GreenroomError, [(caption, verb)])
    noteWanted = Signal(object, object)

    def __init__(
        self, host: EngineHost, settings: SettingsStore, downloads: DownloadHost, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._host, self._settings, self._downloads = host, settings, downloads
        self._tasks: list[tasks.Task] = []
        self._settled = ("", "")
        self._found: Found | None = None
        self._hits: list[ModelRow] = []
        self._filter = Filter()
        self._trash: Trash | None = None
        #: Paths of rows whose files the hub is being asked for.
        self._asked: set[str] = set()
        self._searching: tasks.Task | None = None
        #: By repository and label: offers of downloads that are under way.
        self._others: dict[tuple[str, str], ModelRow] = {}
        self._others_planned: set[tuple[str, str]] = set()

        head = PageHead(tr("Models"))
        open_file = button(tr("Open a file…"), icon="file")
        open_file.clicked.connect(self.fileWanted)
        open_folder = button(tr("Open a folder…"), icon="folder")
        open_folder.clicked.connect(self.folderWanted)
        again = button("", icon="refresh", kind="ghost", role="muted", name=tr("Refresh"), tip=tr("Refresh"))
        again.clicked.connect(self.refresh)
        head.add(again, open_file, open_folder)

        self.filters = FilterLine()
        self.search = self.filters.search
        self.filters.textChanged.connect(self._filter_text)
        self.filters.searchWanted.connect(self.search_hub)
        self.filters.chosen.connect(lambda changes: self._refilter(**changes))
        self.list: VirtualList[ShelfItem | Foot] = VirtualList(
            self._make_widget, self._show_item, _key, lambda item: type(item).__name__, self._height
        )
        self.list.setAccessibleName(tr("Models"))
        #: What came of a search, below the list; what is always true is the list's last item.
        self._note = _note()
        self._note.hide()
        self._measured: tuple[Measures, int] | None = None

        inner = QWidget()
        inner.setMaximumWidth(theme().px(MAX_WIDTH))
        column = QVBoxLayout(inner)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addWidget(head)
        column.addWidget(self.filters)
        # Where the first rows will stand.
        self._looking = label(tr("Looking for models…"), "small")
        column.addWidget(self._looking)
        column.addWidget(self.list, 1)
        column.addWidget(self._note)
        outer = QHBoxLayout(self)
        outer.setContentsMargins(MARGIN, 20, MARGIN, 16)
        outer.addWidget(inner, 1)

        theme().changed.connect(self._measure_again)
        host.stateChanged.connect(self._show_state)
        settings.changed.connect(self._settings_changed)
        downloads.changed.connect(self._show_shelf)
        downloads.finished.connect(lambda _: self.refresh())

    @property
    def rows(self) -> list[RowWidget]:
        """The widgets in view."""
        return [widget for _, widget in self.list.widgets if isinstance(widget, RowWidget)]

    @property
    def kept(self) -> object:
        """What a page that takes the place of this one needs for `resume`."""
        return self.filters.choices, self._hits

    def resume(self, kept: object) -> None:
        """List what another page has listed."""
        choices, self._hits = kept
        self.filters.choose(choices)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()

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

    @Slot()
    def _show_found(self, found: Found) -> None:
        old = {row.path: row for row in self._all_rows()}
        self._found = replace(
            found,
            rows=[_with_old_plan(row, old) for row in found.rows],
            offers=[_with_old_plan(row, old) for row in found.offers],
        )
        self._looking.hide()
        self._say("")
        self._show_shelf()
        self._plan_all(self._found)

    def _plan_all(self, found: Found) -> None:
        values, wishes = self._settings.values, self._wishes()
        self._others_planned = set()
        for plan, rows in ((plan_model, found.rows), (plan_offer, found.offers)):
            for row in rows:
                self._tasks.append(
                    tasks.run(
                        plan,
                        self._host.api,
                        row,
                        found.report,
                        values.context,
                        wishes,
                        done=self._show_planned,
                        failed=partial(self._not_planned, row),
                    )
                )

    def _wishes(self) -> dict[str, Any]:
        wishes, loaded = self._settings.values.wishes, self._host.loaded
        if loaded is not None and loaded.plan is not None:
            wishes["unload_bytes"] = loaded.plan.bytes.ram_total
        return wishes

    def _plan_others(self, found: Found) -> None:
        """Downloads of the catalogue's models in another quantisation than the one that is offered."""
        known = {(row.choice.repo, row.choice.label) for row in found.offers if row.choice is not None}
        for status in self._downloads.statuses:
            key = status.repo, status.label
            if status.state == "finished" or key in known or key in self._others_planned:
                continue
            entry = next((row.entry for row in found.offers if row.entry and key in downloads_of(row.entry)), None)
            if entry is None:
                continue
            choice = next(download for download in entry.downloads if (download.repo, download.label) == key)
            self._others_planned.add(key)
            args = (self._host.api, entry, choice, found.report, self._settings.values.context, self._wishes())
            self._tasks.append(tasks.run(plan_choice, *args, done=partial(self._show_other, key), failed=_ignore))

    def _show_other(self, key: tuple[str, str], row: ModelRow) -> None:
        self._others[key] = row
        self._show_shelf()

    def _show_planned(self, row: ModelRow) -> None:
        if self._found is None:
            return
        replaced = {row.path: row}
        self._found = replace(
            self._found,
            rows=[replaced.get(old.path, old) for old in self._found.rows],
            offers=[replaced.get(old.path, old) for old in self._found.offers],
        )
        # Many plans arrive together; the list is put in order a few times a second, and with the last of them.
        if not any(task.running for task in self._tasks):
            self._show_shelf()
        else:
            self.filters.filter_soon()

    def _not_planned(self, row: ModelRow, error: GreenroomError) -> None:
        self._show_planned(replace(row, problem=in_words(error)))

    @Slot(str)
    def search_hub(self, text: str) -> None:
        """Only ever because the user pressed Enter."""
        if not text:
            return
        self._say(tr('Searching Hugging Face for "{text}"…', text=text))
        settings = network_settings(self._settings.values)
        if self._searching is not None:
            self._searching.cancel()
        self._searching = tasks.run(search_hub, settings, text, done=self._show_hits, failed=self._complain)

    def _show_hits(self, hits: list[ModelRow]) -> None:
        self._hits = hits
        self._say("" if hits else tr("No results on Hugging Face."))
        self._show_shelf()
        self.list.verticalScrollBar().setValue(0)

    @Slot()
    def _show_shelf(self) -> None:
        found = self._found
        if found is None:
            return
        loaded = self._host.loaded
        here = [
            _of_loaded(row, loaded) if loaded is not None and loaded.path == row.path else row for row in found.rows
        ]
        offers = [replace(row, asked=True) if row.path in self._asked else row for row in found.offers]
        self._plan_others(found)
        others = list(self._others.values())
        items = shelf(here, offers, self._hits, self._downloads.statuses, self._filter, others)
        measures = self._measures[0]
        self._measured = measures, chip_column((item for item in items if isinstance(item, ModelRow)), measures)
        self.list.set_items([*items, Foot(self._where)])

    @property
    def _folder(self) -> Path:
        """Where models are kept."""
        return Path(self._settings.values.models_folder or _own_folder())

    @property
    def _where(self) -> str:
        return tr(
            "Shows the downloads and models in {folder}. Models opened from elsewhere or found in other "
            "programs are used in place, never copied.",
            folder=home_path(self._folder),
        )

    @property
    def _measures(self) -> tuple[Measures, int]:
        """Of a row's parts, and how wide the column of chips is."""
        if self._measured is None:
            row = RowWidget(self)
            row.hide()
            self._measured = row.measures, theme().px(CHIP_WIDTH)
            row.deleteLater()
        return self._measured

    @Slot()
    def _measure_again(self) -> None:
        self._measured = None
        self._show_shelf()

    def _refilter(self, **changes: object) -> None:
        self._filter = replace(self._filter, **changes)
        self._show_shelf()

    @Slot(str)
    def _filter_text(self, text: str) -> None:
        if not text:
            self._hits = []
        self._refilter(text=text)

    # Widgets of the list

    def _make_widget(self, kind: str) -> QWidget:
        if kind == Foot.__name__:
            return _note()
        if kind == Heading.__name__:
            heading = label("", "faint")
            heading.setContentsMargins(14, 14, 0, 2)
            return heading
        row = RowWidget()
        row.loadWanted.connect(self.loadWanted)
        row.ejectWanted.connect(self._host.unload)
        row.cancelWanted.connect(self._host.cancel_load)
        row.detailsWanted.connect(self.open_details)
        row.deleteWanted.connect(self._delete)
        row.downloadWanted.connect(self._download)
        row.pauseWanted.connect(self._downloads.pause)
        row.resumeWanted.connect(self._downloads.resume)
        row.dropWanted.connect(self._downloads.cancel)
        row.hurryWanted.connect(self._downloads.move_up)
        return row

    def _show_item(self, widget: QWidget, item: ShelfItem | Foot) -> None:
        if isinstance(item, (Heading, Foot)):
            widget.setText(item.text)
        elif isinstance(widget, RowWidget):
            widget.set_width(self.list.viewport().width(), self._measures[1])
            widget.show_row(item)
            widget.show_state(self._host.state)

    def _height(self, item: ShelfItem | Foot) -> int:
        if isinstance(item, Heading):
            return theme().px(HEADING_HEIGHT)
        width, (measures, chip) = self.list.viewport().width(), self._measures
        if isinstance(item, Foot):
            return _FOOT_MARGIN + wrapped(item.text, width, measures.small)
        return row_height(item, width, chip, measures)

    def _all_rows(self) -> list[ModelRow]:
        return [] if self._found is None else [*self._found.rows, *self._found.offers]

    # Verbs

    @Slot(object)
    def open_details(self, row: ModelRow) -> None:
        report = None if self._found is None else self._found.report
        dialog = DetailsDialog(self._host.api, self._settings, row, report, self)
        dialog.downloadWanted.connect(self._downloads.add)
        dialog.open()

    @Slot(object)
    def _download(self, row: ModelRow) -> None:
        if row.choice is None:
            return
        from app.models.survey import find_remote

        self._asked.add(row.path)
        self._show_shelf()
        # Not among the tasks that looking again gives up: the user has asked for it.
        tasks.run(
            find_remote,
            network_settings(self._settings.values),
            row.choice,
            done=partial(self._start_download, row.path),
            failed=partial(self._not_found, row.path),
        )

    def _start_download(self, path: str, model: RemoteModel) -> None:
        self._downloads.add(model)
        self._forget_asked(path)

    def _not_found(self, path: str, error: GreenroomError) -> None:
        self._forget_asked(path)
        self._complain(error)

    def _forget_asked(self, path: str) -> None:
        self._asked.discard(path)
        self._show_shelf()

    @Slot(object)
    def _delete(self, row: ModelRow) -> None:
        """With a way back, until the program closes."""
        if self._trash is None or self._trash.folder != self._folder:
            if self._trash is not None:
                tasks.run(self._trash.close, to_its_end=True)
            self._trash = Trash(self._folder)
        loaded = self._host.loaded
        if loaded is not None and loaded.path == row.path:
            self._host.unload()
        tasks.run(self._trash.delete, row.name, Path(row.path), done=self._deleted, failed=self._complain)

    def _deleted(self, deleted: Deleted) -> None:
        note = GreenroomError(
            tr("{name} was deleted", name=deleted.name),
            tr("this can still be undone"),
            tr("The disk space is freed when Greenroom closes."),
        )
        self.noteWanted.emit(note, [(tr("Undo"), lambda: self._restore(deleted))])
        self.refresh()

    def _restore(self, deleted: Deleted) -> None:
        if self._trash is not None:
            tasks.run(self._trash.restore, deleted, done=lambda _: self.refresh(), failed=self._complain)

    def _complain(self, error: GreenroomError) -> None:
        self._say("")
        self.noteWanted.emit(error, [])

    def _fail(self, error: GreenroomError) -> None:
        self._looking.hide()
        self._say(in_words(error))

    def _say(self, text: str) -> None:
        self._note.setText(text)
        self._note.setVisible(bool(text))

    def shutdown(self) -> None:
        """What was deleted goes now; the rest, if the program ends before, goes when it ends the next time."""
        tasks.run((self._trash or Trash(self._folder)).close, to_its_end=True)

    @Slot(object)
    def _show_state(self, state: HostState) -> None:
        for widget in self.rows:
            widget.show_state(state)
        if state.kind in ("ready", "empty", "failed") and (state.kind, state.path or "") != self._settled:
            # Other memory is free now, so every plan may be another.
            self._settled = (state.kind, state.path or "")
            if self.isVisible():
                self.refresh()

    @Slot(object)
    def _settings_changed(self, names: set[str]) -> None:
        if self.isVisible() and names & {"models_folder", *PLANNING}:
            self.refresh()


def _ignore(error: GreenroomError) -> None:
    log.info("a download is not planned: %s", error)


def _key(item: ShelfItem | Foot) -> str:
    if isinstance(item, Heading):
        return f"heading:{item.text.partition(' · ')[0]}"
    return "foot:" if isinstance(item, Foot) else item.path


def _note() -> QLabel:
    made = label("", "small", wrap=True)
    made.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    made.setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignBottom)
    return made


def _with_old_plan(row: ModelRow, old: dict[str, ModelRow]) -> ModelRow:
    """Keeps showing what was known while it is worked out anew."""
    before = old.get(row.path)
    if before is None or before.plan is None or row.problem is not None:
        return row
    return replace(
        row, name=before.name, detail=before.detail, nbytes=before.nbytes, plan=before.plan, choice=before.choice
    )


def _of_loaded(row: ModelRow, loaded: HostState) -> ModelRow:
    """The loaded model's plan is the one it was loaded with."""
    return replace(row, plan=loaded.plan)


def _own_folder() -> Path:
    from engine.hub.library import models_folder

    return models_folder()
