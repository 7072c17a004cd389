"""The window: what lives as long as it does, and its contents, which are made anew in another language."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QByteArray, QSize, QTimer, Slot
from PySide6.QtGui import QCloseEvent, QIcon, QShowEvent
from PySide6.QtWidgets import QApplication, QMainWindow, QWidget
from shiboken6 import isValid

from app import tasks
from app.actions import Actions
from app.chat_part import ChatPart
from app.contents import Contents
from app.first_model import FirstModel, demo_is_here
from app.hardware.gauge import Measure, MemoryGauge, measure_memory
from app.host import EngineHost, HostState
from app.language import set_language
from app.models.choose import choose_file, choose_folder
from app.models.download_host import DownloadHost
from app.models.local import LocalModels
from app.notices import Notices
from app.settings.proxy import move_old_password
from app.settings.store import SettingsStore
from app.theme import theme
from app.theme.zoom import next_zoom
from app.widgets.plan_popover import PlanPopover
from app.wizard.launcher import WizardLauncher
from engine.errors import GreenroomError
from engine.hardware.report import HardwareReport
from engine.placement.plan import OffloadPlan
from engine.resources import asset

if TYPE_CHECKING:
    from app.chat.storage.store import ChatStore
    from app.stage.sources import LiveRun

#: Makes the chat page and the list of chats for the sidebar; called again when the contents are made anew.
ChatMaker = Callable[[EngineHost, QWidget], tuple[QWidget, QWidget]]

#: Small enough for a 1440 x 900 screen at 200 %.
MINIMUM = QSize(700, 380)
DEFAULT = QSize(1280, 820)
#: Until it is asked again whether the contents can be made anew.
WAIT_MS = 300
LOOK = frozenset({"theme", "zoom", "density", "reduced_motion"})


class MainWindow(QMainWindow):
    """make_chat, demo_is_here, measure: stand in for the chat, a look at the disk and the memory's timing; for tests.

    welcome: whether a first start opens the wizard

    The window paints before it makes its pages: they are made when they are first shown, the chat right after
    the first paint.
    """

    def __init__(
        self,
        host: EngineHost,
        settings: SettingsStore,
        make_chat: ChatMaker | None = None,
        demo_is_here: Callable[[], bool] = demo_is_here,
        measure: Measure = measure_memory,
        welcome: bool = False,
    ) -> None:
        super().__init__()
        self._host, self._settings, self._measure, self._welcome = host, settings, measure, welcome
        self.palette_box: QWidget | None = None
        self._live_run: LiveRun | None = None
        self._started = False
        #: It closes, whatever is unsaved.
        self._ends = self._closing = False
        #: Something would not end when the window closed.
        self.hangs = False
        self._rebuild_soon = QTimer(self, singleShot=True)
        self._rebuild_soon.timeout.connect(self._rebuild)
        self._first_model_waits = False
        #: 0 for a chat that has no message yet.
        self._open_chat_id = 0
        self._chat_page: QWidget | None = None
        self._chat_list: QWidget | None = None
        #: By its key, what a page that is to be made anew resumes.
        self._kept: dict[str, object] = {}
        set_language(settings.values.language)
        self._apply_look()
        self.setWindowTitle("Greenroom")
        self.setWindowIcon(QIcon(str(asset("icons/logo.svg"))))
        self.setMinimumSize(MINIMUM)
        self.resize(self._first_size())
        if settings.values.window is not None:
            self.restoreGeometry(QByteArray.fromBase64(settings.values.window.encode("ascii", "ignore")))

        self._gauge = MemoryGauge(host, measure, self)
        self._downloads = DownloadHost(settings, self)
        self.models_here = LocalModels(settings, self)
        self.notices = Notices(host, settings, self)
        self.chats = ChatPart(host, settings, self.notices, self)
        self._make_chat = make_chat or self.chats.make
        self.first_model = FirstModel(host, settings, self.notices, demo_is_here, self)
        self.launcher = WizardLauncher(host, settings, self._downloads, measure, demo_is_here, self)
        self.actions_by_key = Actions(self, self._handlers())
        self.actions_by_key.set_shortcuts(settings.values.shortcuts)
        self.actions_by_key["stage"].setChecked(settings.values.stage)
        self._connect()
        self._build()

    # Construction

    def _handlers(self) -> dict[str, Callable[[], object]]:
        return {
            "new_chat": self.new_chat,
            "open_file": self.choose_file,
            "open_folder": self.choose_folder,
            "eject": self._host.unload,
            "search": lambda: self.sidebar.focus_search(),
            "find": lambda: self._in_chat("find"),
            "chat_options": lambda: self._in_chat("open_options"),
            "regenerate": lambda: self._in_chat("regenerate_last"),
            "copy_answer": lambda: self._in_chat("copy_last"),
            "rename_chat": self.chats.rename,
            "pin_chat": self.chats.pin,
            "delete_chat": self.chats.delete,
            "import_chats": self.chats.import_chats,
            "export_chat": self.chats.export,
            "stop": self._stop,
            "focus_message": self._to_chat,
            "palette": self.open_palette,
            "stage": self._toggle_stage,
            "performance": self._toggle_performance,
            "copy_card": self._copy_card,
            "zoom_in": lambda: self._zoom(1),
            "zoom_out": lambda: self._zoom(-1),
            "zoom_reset": lambda: self._zoom(0),
            "show_chat": lambda: self.show_page("chat"),
            "show_models": lambda: self.show_page("models"),
            "show_hardware": lambda: self.show_page("hardware"),
            "show_settings": lambda: self.show_page("settings"),
            "measure": lambda: self._on_this_pc("start_measuring"),
            "compare": self._compare,
            "wizard": self.open_wizard,
            "toggle_theme": self._toggle_theme,
            "quit": self.close,
        }

    def _connect(self) -> None:
        """What lives as long as the window."""
        host, notices = self._host, self.notices
        host.stateChanged.connect(self._show_state)
        notices.loadWanted.connect(self.load_model)
        notices.pageWanted.connect(self.show_page)
        notices.sumWanted.connect(self._show_sum)
        self.first_model.wanted.connect(self.load_model)
        self.chats.modelWanted.connect(self.load_model)
        self.chats.modelsWanted.connect(lambda: self.show_page("models"))
        self.chats.fileWanted.connect(self.choose_file)
        self.chats.closeWanted.connect(self.close)
        self.chats.quitWanted.connect(self.end_now)
        self._downloads.finished.connect(notices.show_download)
        self._downloads.finished.connect(self.models_here.look)
        self.models_here.changed.connect(lambda: self.topbar.show_models(self.models_here.others))
        self._downloads.finished.connect(self._call_for_attention)
        self._downloads.failed.connect(lambda error: notices.show_note(error, []))
        self._gauge.measured.connect(self._memory_measured)
        self.launcher.demoWanted.connect(self.first_model.get_demo)
        self.launcher.demoWanted.connect(lambda: self.show_page("chat"))
        self.launcher.downloadBegun.connect(lambda: self.show_page("models"))
        self.launcher.closed.connect(self._wizard_closed)
        self._settings.changed.connect(self._apply_settings)

    def _build(self) -> None:
        """The contents, and what connects them; called again for another language."""
        made = Contents(
            self._host, self._settings, self.actions_by_key, self.notices.banners, self._make_page, self._live
        )
        self.contents, self.banners = made, made.banners
        self.sidebar, self.topbar, self.stack, self.statusbar = made.sidebar, made.topbar, made.stack, made.statusbar
        bar, side = made.topbar, made.sidebar
        bar.show_models(self.models_here.others)
        bar.pickerOpened.connect(self.models_here.look)
        bar.modelChosen.connect(self.load_model)
        bar.loadAnyway.connect(self._load_anyway)
        bar.loadCancelled.connect(self._host.cancel_load)
        bar.ejected.connect(self._host.unload)
        bar.modelsWanted.connect(lambda: self.show_page("models"))
        side.newChat.connect(self.new_chat)
        side.searched.connect(self._filter_chats)
        side.listWanted.connect(lambda: self._in_list("take_keyboard"))
        side.firstWanted.connect(lambda: self._in_list("choose_first"))
        side.pageChosen.connect(self.show_page)
        made.cardWanted.connect(self._copy_card)
        made.stageUnwanted.connect(lambda: self._settings.change(stage=False))
        made.pageShown.connect(lambda page: self._mark_chat(self._open_chat_id))
        self.setCentralWidget(made)
        if sys.platform == "darwin":
            # There it stands at the top of the screen; elsewhere the same menus open from the sidebar.
            self.actions_by_key.fill(self.menuBar())
        self._show_state(self._host.state)

    def _rebuild(self) -> None:
        """The contents anew, at the same place. Answers go on: nothing that matters lives in widgets."""
        if self._closing:
            return
        if self.chats.busy:
            self._rebuild_soon.start(WAIT_MS)
            return
        self.chats.leave()
        page, chat = self.page, self._open_chat_id
        settings = self._pages.get("settings")
        at = None if settings is None else (settings.section, settings.focused)
        self._kept |= {key: self._pages[key].kept for key in ("models", "hardware") if key in self._pages}
        self._end_pages()
        self.notices.banners.setParent(None)
        old = self.takeCentralWidget()
        self._chat_page = self._chat_list = None
        self.actions_by_key.retranslate()
        self._build()
        # At once, not with the next event: pages ask for their width.
        self.contents.show()
        self.layout().activate()
        # Only now: Qt asks the widget that loses the focus for a neighbour.
        old.hide()
        old.deleteLater()
        if self._started:
            self._take_chat()
            if chat:
                self._chat_page.open_chat(chat)
            self.chats.resume()
            self.statusbar.start()
            self.contents.show_stage(self._settings.values.stage)
            self.contents.resume(old)
        self.show_page(page)
        if at is not None and page == "settings":
            self._pages["settings"].show_section(*at)

    def _first_size(self) -> QSize:
        """A comfortable size, or what the screen has room for beside the window's frame."""
        room = self.screen().availableGeometry().size() - QSize(16, 48)
        return DEFAULT.boundedTo(room).expandedTo(MINIMUM)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not self._started:
            # After the events that paint the window for the first time.
            QTimer.singleShot(0, self, lambda: QTimer.singleShot(0, self, self._start))

    @Slot()
    def _start(self) -> None:
        if self._started or self._closing:
            return
        self._started = True
        self._take_chat()
        self.contents.show_stage(self._settings.values.stage)
        self.statusbar.start()
        self._downloads.start()
        self.models_here.look()
        if self._settings.problem is not None:
            self.notices.show_saving_problem(self._settings.problem)
        move_old_password(self._settings, lambda note: self.notices.show(note, "warn", "proxy"))
        if self._welcome and self.first_model.open and self.launcher.first_start:
            # The memory is measured meanwhile.
            self._first_model_waits = True
            self.open_wizard()
        else:
            self.first_model.choose()

    def _take_chat(self) -> None:
        self._chat_page, self._chat_list = self._make_chat(self._host, self)
        self.contents.set_chat(self._chat_page, self._chat_list)
        self._chat_list.chatChosen.connect(self.open_chat)
        self._chat_page.chatChanged.connect(self._mark_chat)
        self._chat_page.performanceShown.connect(self.actions_by_key["performance"].setChecked)
        self.actions_by_key["performance"].setChecked(False)

    @property
    def host(self) -> EngineHost:
        return self._host

    @property
    def settings(self) -> SettingsStore:
        return self._settings

    @property
    def store(self) -> ChatStore | None:
        """The chats; None before the first paint."""
        return self.chats.store

    @property
    def chat_page(self) -> QWidget | None:
        """None before the first paint."""
        return self._chat_page

    # Pages

    @property
    def page(self) -> str:
        """The key of the page that is shown."""
        return self.contents.page

    @property
    def _pages(self) -> dict[str, QWidget]:
        return self.contents.pages

    @Slot(str)
    def show_page(self, key: str) -> None:
        """key: chat | models | hardware | settings."""
        self.contents.show_page(key)

    def show_setting(self, section: str, option: str = "") -> None:
        """A page of the settings, and one option of it by the name of its field."""
        self.show_page("settings")
        self._pages["settings"].show_section(section, option)

    def _make_page(self, key: str) -> QWidget:
        if key == "models":
            from app.models.page import ModelsPage

            models = ModelsPage(self._host, self._settings, self._downloads)
            models.noteWanted.connect(self.notices.show_note)
            models.loadWanted.connect(self.load_model)
            models.fileWanted.connect(self.choose_file)
            models.folderWanted.connect(self.choose_folder)
            return self._resumed(key, models)
        if key == "hardware":
            from app.hardware.page import HardwarePage

            hardware = HardwarePage(self._host.api, self._measure)
            hardware.measured.connect(self._memory_measured)
            hardware.measuringStarted.connect(self._gauge.give_way)
            hardware.wizardWanted.connect(self.open_wizard)
            return self._resumed(key, hardware)
        from app.settings.page import SettingsPage

        return SettingsPage(self._settings)

    def _resumed(self, key: str, page: QWidget) -> QWidget:
        """As the one was that it replaces, if it does."""
        if key in self._kept:
            page.resume(self._kept.pop(key))
        return page

    def _live(self) -> LiveRun:
        """What the stage follows, from the first model on: it also shows a run that it was closed in."""
        if self._live_run is None:
            from app.stage.sources import LiveRun

            self._live_run = LiveRun(self._host, parent=self)
        return self._live_run

    def _end_pages(self) -> None:
        if "models" in self._pages:
            self._pages["models"].shutdown()

    @Slot()
    def open_palette(self) -> None:
        """Or close it, if it is open."""
        from app.palette.palette import CommandPalette

        if self.palette_box is not None and isValid(self.palette_box):
            self.palette_box.close()
            self.palette_box = None
        else:
            self.models_here.look()
            self.palette_box = CommandPalette(self)

    @Slot()
    def open_wizard(self) -> None:
        if self._host.state.kind != "empty":
            self._gauge.give_way()
        self.launcher.open()

    @Slot(object)
    def _wizard_closed(self, report: HardwareReport | None) -> None:
        if report is not None:
            self._memory_measured(report)
        if self._first_model_waits:
            self._first_model_waits = False
            if self.isVisible():
                self.first_model.choose()

    # Chats

    def _to_chat(self) -> None:
        """Also where the stage stands in its place."""
        self.show_page("chat")
        self.contents.give_way()

    @Slot()
    def new_chat(self) -> None:
        self._to_chat()
        if self._chat_page is not None:
            self._chat_page.new_chat()

    @Slot(int)
    def open_chat(self, chat: int) -> None:
        self._to_chat()
        if self._chat_page is not None:
            self._chat_page.open_chat(chat)

    @Slot(int)
    def _mark_chat(self, chat: int) -> None:
        """In the list, only what the page shows is marked: the open chat, or nothing beside another page."""
        self._open_chat_id = chat
        if self._chat_list is not None:
            self._chat_list.set_current(chat if self.page == "chat" else 0)

    @Slot(str)
    def _filter_chats(self, text: str) -> None:
        if self._chat_list is not None:
            self._chat_list.filter(text)

    def _in_list(self, name: str) -> None:
        """Call a method of the list of chats."""
        if self._chat_list is not None:
            getattr(self._chat_list, name)()

    def _in_chat(self, name: str) -> None:
        """Call a method of the chat page, in sight."""
        if self._chat_page is not None:
            self._to_chat()
            getattr(self._chat_page, name)()

    def _on_this_pc(self, name: str) -> None:
        """Call a method of the This PC page, in sight."""
        self.show_page("hardware")
        getattr(self._pages["hardware"], name)()

    def _compare(self) -> None:
        """Over the This PC page, which has what is compared; then back to where one was."""
        before = self.page
        self.show_page("hardware")
        self._pages["hardware"].open_comparison(lambda: self.show_page(before))

    def _stop(self) -> None:
        if self._host.state.kind == "generating":
            self._host.stop()
        else:
            self._host.cancel_load()

    # Models

    @Slot(str)
    @Slot(str, bool)
    def load_model(self, path: str, force: bool = False) -> None:
        """A path or "demo", as the settings want it."""
        self.first_model.chosen()
        values = self._settings.values
        self._host.load(path, force=force, context=values.context, **values.wishes)

    @Slot()
    def _load_anyway(self) -> None:
        if self._host.state.path is not None:
            self.load_model(self._host.state.path, force=True)

    @Slot(str, object, object)
    def _show_sum(self, model: str, plan: OffloadPlan, anyway: Callable[[], object]) -> None:
        PlanPopover(model, plan, anyway, self).open_below(self.topbar.model)

    @Slot()
    def choose_file(self) -> None:
        choose_file(self, self._settings.values.models_folder or str(Path.home()), self.load_model)

    @Slot()
    def choose_folder(self) -> None:
        choose_folder(self, self._settings.values.models_folder or str(Path.home()), self.load_model)

    @Slot()
    def _call_for_attention(self) -> None:
        if not self.isActiveWindow():
            QApplication.alert(self)

    # What changes from outside

    @Slot(object)
    def _show_state(self, state: HostState) -> None:
        self.topbar.show_state(state)
        self.statusbar.show_state(state)
        self.actions_by_key["stop"].setEnabled(state.busy or state.kind == "generating")
        self.actions_by_key["eject"].setEnabled(self._host.loaded is not None)
        if state.kind == "ready" and state.path is not None:
            self._settings.remember_model(state.path)
            self._live()

    @Slot(object)
    def _memory_measured(self, report: HardwareReport) -> None:
        if report.memory.bandwidth_gbs:
            self._host.predict(report.memory.bandwidth_gbs)
        if "hardware" in self._pages:
            self._pages["hardware"].show_report(report)

    def show_fault(self, error: GreenroomError) -> None:
        """A fault of the program itself: said once, the program goes on."""
        self.notices.show_fault(error)

    # Look and language

    @Slot(object)
    def _apply_settings(self, names: set[str]) -> None:
        values = self._settings.values
        if names & LOOK:
            self._apply_look()
        if "shortcuts" in names:
            self.actions_by_key.set_shortcuts(values.shortcuts)
        if "stage" in names:
            self.actions_by_key["stage"].setChecked(values.stage)
            if self._started:
                self.contents.show_stage(self._settings.values.stage)
        if ("language" in names and set_language(values.language)) or "zoom" in names:
            # Widths that belong to text are those of the new size, too. Not at once: the change may come from a widget
            # of these contents.
            self._rebuild_soon.start(0)

    def _apply_look(self) -> None:
        values = self._settings.values
        theme().set_look(values.theme, values.zoom, values.density, values.reduced_motion)

    def _toggle_theme(self) -> None:
        self._settings.change(theme="light" if theme().dark else "dark")

    def _toggle_performance(self) -> None:
        if self._chat_page is not None:
            self.show_page("chat")
            self._chat_page.show_performance(self.actions_by_key["performance"].isChecked())

    @Slot()
    def _copy_card(self) -> None:
        """Where nothing was measured yet, the panel says so."""
        if self._chat_page is not None and not self._chat_page.copy_card():
            self.show_page("chat")
            self._chat_page.show_performance(True)

    def _toggle_stage(self) -> None:
        self._settings.change(stage=self.actions_by_key["stage"].isChecked())

    def _zoom(self, step: int) -> None:
        self._settings.change(zoom=next_zoom(self._settings.values.zoom, step))

    # The end

    def end_now(self) -> None:
        """Close without a question: nobody may be there to answer it."""
        self._ends = True
        self.close()

    def closeEvent(self, event: QCloseEvent) -> None:
        if self._closing or not (self._ends or self.chats.may_close()):
            event.ignore()
            return
        self._closing = True
        self._settings.change(window=self.saveGeometry().toBase64().toStdString())
        self._disappear()
        ended = self._host.shutdown()
        if self._chat_page is not None:
            self._chat_page.shutdown()
        ended &= self._downloads.shutdown()
        self._end_pages()
        self.hangs = not (tasks.shutdown() and ended)
        super().closeEvent(event)

    def _disappear(self) -> None:
        """Nothing can be asked of the program any more, although its event loop runs while its parts end."""
        self.hide()
        self.launcher.close()
        for other in self.findChildren(QWidget):
            if other.isWindow():
                other.hide()
        # On a Mac the menus stand at the top of the screen, without a window.
        for action in self.actions_by_key.values():
            action.setEnabled(False)
