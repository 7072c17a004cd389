"""The Models page: what is on this PC, on its way, in the catalogue and on the hub, each with its plan."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt, QTimer, Signal, Slot
from PySide6.QtGui import QAction, QActionGroup, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QLineEdit, QMenu, QPushButton, QVBoxLayout, QWidget

from app import tasks
from app.host import EngineHost, HostState
from app.language import mark, tr
from app.models.details import DetailsDialog
from app.models.download_host import DownloadHost, network_settings
from app.models.row import RowWidget, row_height
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
#: A pause in typing after which the list is filtered.
FILTER_MS = 120
#: Gigabytes.
SIZES = (8, 16, 32, 64, 128, 256)
SORTS = (
    (mark("Recommended"), "recommended"),
    (mark("By name"), "name"),
    (mark("Smallest first"), "size"),
    (mark("Fastest first"), "speed"),
)


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
        again = button("", icon="refresh", kind="ghost", role="muted", name=tr("Look again"), tip=tr("Look again"))
        again.clicked.connect(self.refresh)
        head.add(again, open_file, open_folder)

        self.list: VirtualList[ShelfItem] = VirtualList(
            self._make_widget,
            self._show_item,
            _key,
            lambda i: "head" if isinstance(i, Heading) else "row",
            self._height,
        )
        self.list.setAccessibleName(tr("Models"))
        self._note = label("", "small", wrap=True)
        self._note.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)

        inner = QWidget()
        inner.setMaximumWidth(MAX_WIDTH)
        column = QVBoxLayout(inner)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addWidget(head)
        column.addLayout(self._build_tools())
        # Where the first rows will stand.
        self._looking = label(tr("Looking at what is here…"), "small")
        column.addWidget(self._looking)
        column.addWidget(self.list, 1)
        column.addWidget(self._note)
        outer = QHBoxLayout(self)
        outer.setContentsMargins(MARGIN, 20, MARGIN, 16)
        outer.addWidget(inner, 1)
        # On a wide screen it keeps to the left, as the other pages do.
        outer.addStretch(0)

        self._filter_timer = QTimer(self)
        self._filter_timer.setSingleShot(True)
        self._filter_timer.setInterval(FILTER_MS)
        self._filter_timer.timeout.connect(self._filter_now)
        host.stateChanged.connect(self._show_state)
        settings.changed.connect(self._settings_changed)
        downloads.changed.connect(self._show_shelf)
        downloads.finished.connect(lambda _: self.refresh())

    def _build_tools(self) -> QBoxLayout:
        self.search = QLineEdit()
        self.search.setPlaceholderText(tr("Filter, or press Enter to search Hugging Face"))
        self.search.setAccessibleName(tr("Filter the models, or press Enter to search Hugging Face"))
        self.search.setClearButtonEnabled(True)
        self.search.setMinimumWidth(theme().px(140))
        self.search.setMaximumWidth(theme().px(360))
        self.search.textChanged.connect(lambda _: self._filter_timer.start())
        self.search.returnPressed.connect(self.search_hub)
        self.fits = _toggle(tr("Fits this PC"))
        self.fits.toggled.connect(lambda on: self._refilter(fits=on))
        self.free = _toggle(tr("Free licence"))
        self.free.setToolTip(tr("Only models that anybody may use for anything"))
        self.free.toggled.connect(lambda on: self._refilter(free=on))
        sizes = [(tr("Any size"), 0), *((tr("Up to {size} GB", size=n), n * 10**9) for n in SIZES)]
        self.sizes = _choice(tr("Size"), sizes, lambda value: self._refilter(largest=value))
        self.sorts = _choice(
            tr("Order"), [(tr(text), key) for text, key in SORTS], lambda value: self._refilter(sort=value)
        )
        self._choices, self._pairs = QBoxLayout(QBoxLayout.Direction.LeftToRight), []
        self._choices.setSpacing(8)
        for parts in ((self.fits, self.free), (self.sizes, self.sorts)):
            pair = QHBoxLayout()
            pair.setSpacing(8)
            for part in parts:
                pair.addWidget(part)
            self._pairs.append(pair)
            self._choices.addLayout(pair)
        self._pairs[1].addStretch(1)
        self._tools = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._tools.setSpacing(8)
        self._tools.addWidget(self.search, 3)
        self._tools.addLayout(self._choices, 1)
        return self._tools

    def resizeEvent(self, event: QResizeEvent) -> None:
        """In a narrow window the choices stand below the field, and below each other where even that is too long."""
        super().resizeEvent(event)
        room, gap = self.width() - 2 * MARGIN, self._tools.spacing()
        line = sum(pair.sizeHint().width() + gap for pair in self._pairs)
        for layout, needed in ((self._choices, line), (self._tools, line + self.search.minimumWidth() + gap)):
            fits = room >= needed
            layout.setDirection(QBoxLayout.Direction.LeftToRight if fits else QBoxLayout.Direction.TopToBottom)

    @property
    def rows(self) -> list[RowWidget]:
        """The widgets in view."""
        return [widget for _, widget in self.list.widgets if isinstance(widget, RowWidget)]

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
        folder = Path(self._settings.values.models_folder or _own_folder())
        self._note.setText(
            tr(
                "Downloads and models in {folder} are listed. Files and folders opened from elsewhere, "
                "and models of other programs, are used where they are, never copied.",
                folder=home_path(folder),
            )
        )
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
        elif not self._filter_timer.isActive():
            self._filter_timer.start()

    def _not_planned(self, row: ModelRow, error: GreenroomError) -> None:
        self._show_planned(replace(row, problem=in_words(error)))

    @Slot()
    def search_hub(self) -> None:
        """Only ever because the user pressed Enter."""
        text = self.search.text().strip()
        if not text:
            return
        self._note.setText(tr('Searching Hugging Face for "{text}"…', text=text))
        settings = network_settings(self._settings.values)
        if self._searching is not None:
            self._searching.cancel()
        self._searching = tasks.run(search_hub, settings, text, done=self._show_hits, failed=self._complain)

    def _show_hits(self, hits: list[ModelRow]) -> None:
        self._hits = hits
        self._note.setText("" if hits else tr("Hugging Face has nothing like that."))
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
        self.list.set_items(shelf(here, offers, self._hits, self._downloads.statuses, self._filter, others))

    def _refilter(self, **changes: object) -> None:
        self._filter = replace(self._filter, **changes)
        self._show_shelf()

    @Slot()
    def _filter_now(self) -> None:
        text = self.search.text().strip()
        if not text:
            self._hits = []
        self._refilter(text=text)

    # Widgets of the list

    def _make_widget(self, kind: str) -> QWidget:
        if kind == "head":
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

    def _show_item(self, widget: QWidget, item: ShelfItem) -> None:
        if isinstance(item, Heading):
            widget.setText(item.text)
        elif isinstance(widget, RowWidget):
            widget.set_width(self.list.viewport().width())
            widget.show_row(item)
            widget.show_state(self._host.state)

    def _height(self, item: ShelfItem) -> int:
        if isinstance(item, Heading):
            return theme().px(HEADING_HEIGHT)
        return row_height(item, self.list.viewport().width(), self._note.fontMetrics())

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
        folder = Path(self._settings.values.models_folder or _own_folder())
        if self._trash is None or self._trash.folder != folder:
            if self._trash is not None:
                self._trash.close()
            self._trash = Trash(folder)
        loaded = self._host.loaded
        if loaded is not None and loaded.path == row.path:
            self._host.unload()
        tasks.run(self._trash.delete, row.name, Path(row.path), done=self._deleted, failed=self._complain)

    def _deleted(self, deleted: Deleted) -> None:
        note = GreenroomError(
            tr("{name} was deleted", name=deleted.name),
            tr("it can be brought back until Greenroom closes"),
            tr("Its room is freed then."),
        )
        self.noteWanted.emit(note, [(tr("Undo"), lambda: self._restore(deleted))])
        self.refresh()

    def _restore(self, deleted: Deleted) -> None:
        if self._trash is not None:
            tasks.run(self._trash.restore, deleted, done=lambda _: self.refresh(), failed=self._complain)

    def _complain(self, error: GreenroomError) -> None:
        self._note.setText("")
        self.noteWanted.emit(error, [])

    def _fail(self, error: GreenroomError) -> None:
        self._looking.hide()
        self._note.setText(in_words(error))

    def shutdown(self) -> None:
        """What was deleted is gone now."""
        if self._trash is not None:
            self._trash.close()

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


def _key(item: ShelfItem) -> str:
    return f"heading:{item.text.partition(' · ')[0]}" if isinstance(item, Heading) else item.path


def _toggle(text: str) -> QPushButton:
    made = QPushButton(text)
    made.setCheckable(True)
    made.setProperty("chip", "plain")
    made.setAccessibleName(text)
    made.setFocusPolicy(Qt.FocusPolicy.TabFocus)
    return made


def _choice(name: str, entries: Sequence[tuple[str, object]], chosen: Callable[[object], object]) -> QPushButton:
    """A chip that opens a menu with one choice; it shows what is chosen."""
    made = _toggle(entries[0][0])
    made.setCheckable(False)
    made.setAccessibleName(f"{name}: {entries[0][0]}")
    menu, group = QMenu(made), QActionGroup(made)

    def take(action: QAction) -> None:
        made.setText(action.text())
        made.setAccessibleName(f"{name}: {action.text()}")
        chosen(action.data())

    for number, (text, value) in enumerate(entries):
        action = group.addAction(text)
        action.setCheckable(True)
        action.setChecked(number == 0)
        action.setData(value)
        menu.addAction(action)
    group.triggered.connect(take)
    made.setMenu(menu)
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
