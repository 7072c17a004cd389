"""The window: sidebar, bars and pages put together, and the host's state carried to each of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QByteArray, QSize, Qt, QTimer, Slot
from PySide6.QtGui import QCloseEvent, QIcon, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QApplication, QFileDialog, QHBoxLayout, QMainWindow, QStackedWidget, QVBoxLayout, QWidget

from app import tasks
from app.actions import make_actions
from app.hardware.gauge import Measure, MemoryGauge, measure_memory
from app.host import DEMO, EngineHost, HostState
from app.models.download_host import DownloadHost
from app.settings.store import SettingsStore
from app.sidebar import Sidebar
from app.statusbar import StatusBar
from app.theme import theme
from app.topbar import TopBar
from app.widgets.banner import Action, BannerArea
from app.widgets.plan_popover import PlanPopover
from app.wizard.launcher import WizardLauncher
from engine.errors import GreenroomError
from engine.hardware.report import HardwareReport
from engine.resources import asset

if TYPE_CHECKING:
    from engine.hub.downloads import DownloadStatus

log = logging.getLogger(__name__)

#: Makes the chat page and the list of chats for the sidebar.
ChatMaker = Callable[[EngineHost, QWidget], tuple[QWidget, QWidget]]

#: Small enough for a 1440 x 900 screen at 200 %.
MINIMUM = QSize(700, 380)
DEFAULT = QSize(1280, 820)
DIALOG = QSize(820, 520)
#: A narrower window folds its sidebar.
NARROW = 860
MODEL_FILES = "Models (*.gguf *.safetensors *.json);;All files (*)"


def demo_is_here() -> bool:
    """In the background: what it looks through takes long to import."""
    from app.models.survey import demo_is_here as look

    return look()


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
        self._welcome = welcome
        self._first_model_waits = False
        self._measure = measure
        self._gauge = MemoryGauge(host, measure, self)
        self._demo_is_here = demo_is_here
        self._host, self._settings = host, settings
        self._downloads = DownloadHost(settings, self)
        self.launcher = WizardLauncher(host, settings, self._downloads, measure, demo_is_here, self)
        self._make_chat = make_chat or self._make_real_chat
        self._started = False
        #: 0 for a chat that has no message yet.
        self._open_chat_id = 0
        self._demo_offered = False
        #: A problem that was closed does not come back with every message.
        self._store_problem_said: GreenroomError | None = None
        self._autoload = True
        self._chat_page: QWidget | None = None
        self._chat_list: QWidget | None = None
        self._pages: dict[str, QWidget] = {}
        self.setWindowTitle("Greenroom")
        self.setWindowIcon(QIcon(str(asset("icons/logo.svg"))))
        self.setMinimumSize(MINIMUM)
        self.resize(self._first_size())
        if settings.values.window is not None:
            self.restoreGeometry(QByteArray.fromBase64(settings.values.window.encode("ascii", "ignore")))
        theme().set_mode(settings.values.theme)

        self.actions_by_key = make_actions(
            self,
            {
                "new_chat": self.new_chat,
                "open_file": self.choose_file,
                "open_folder": self.choose_folder,
                "search": self._search,
                "show_chat": lambda: self.show_page("chat"),
                "show_models": lambda: self.show_page("models"),
                "show_hardware": lambda: self.show_page("hardware"),
                "show_settings": lambda: self.show_page("settings"),
                "toggle_theme": self._toggle_theme,
                "stop": self._stop,
                "quit": self.close,
            },
        )
        self._build()
        self._connect()
        self._show_state(host.state)

    # Construction

    def _build(self) -> None:
        self.sidebar = Sidebar()
        self.topbar = TopBar(self._settings, self.actions_by_key)
        self.banners = BannerArea()
        self.stack = QStackedWidget()
        self.stack.setAccessibleName("Page")
        # Holds the focus after a page was opened, so that Tab goes to the page's first control. Neither Tab nor a click
        # gives it the focus: it shows none, and a click beside a message must not end the writing of the next.
        self.stack.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.statusbar = StatusBar()
        blank = QWidget()
        self.stack.addWidget(blank)
        self._pages["chat"] = blank

        right = QVBoxLayout()
        right.setContentsMargins(0, 0, 0, 0)
        right.setSpacing(0)
        right.addWidget(self.topbar)
        right.addWidget(self.banners)
        right.addWidget(self.stack, 1)
        upper = QHBoxLayout()
        upper.setContentsMargins(0, 0, 0, 0)
        upper.setSpacing(0)
        upper.addWidget(self.sidebar)
        upper.addLayout(right, 1)
        centre = QWidget()
        centre.setProperty("surface", "page")
        centre.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        box = QVBoxLayout(centre)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(0)
        box.addLayout(upper, 1)
        box.addWidget(self.statusbar)
        self.setCentralWidget(centre)

    def _connect(self) -> None:
        host, bar, side = self._host, self.topbar, self.sidebar
        host.stateChanged.connect(self._show_state)
        host.answerEvent.connect(self.statusbar.show_delta)
        host.answerFinished.connect(self.statusbar.show_result)
        host.answerFinished.connect(bar.show_result)
        self._downloads.finished.connect(self._download_finished)
        self._downloads.failed.connect(lambda error: self._show_note(error, []))
        self._gauge.measured.connect(self._memory_measured)
        self.launcher.demoWanted.connect(self._get_demo)
        self.launcher.demoWanted.connect(lambda: self.show_page("chat"))
        self.launcher.downloadBegun.connect(lambda: self.show_page("models"))
        self.launcher.closed.connect(self._wizard_closed)
        bar.modelChosen.connect(self.load_model)
        bar.loadAnyway.connect(self._load_anyway)
        bar.loadCancelled.connect(host.cancel_load)
        bar.ejected.connect(host.unload)
        bar.modelsWanted.connect(lambda: self.show_page("models"))
        side.newChat.connect(self.new_chat)
        side.searched.connect(self._filter_chats)
        side.pageChosen.connect(self.show_page)
        self._settings.changed.connect(self._apply_settings)
        self._settings.problemFound.connect(self._show_settings_problem)

    def _first_size(self) -> QSize:
        """A comfortable size, or what the screen has room for beside the window's frame."""
        room = self.screen().availableGeometry().size() - QSize(16, 48)
        return DEFAULT.boundedTo(room).expandedTo(MINIMUM)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not self._started:
            self._started = True
            # After the events that paint the window for the first time.
            QTimer.singleShot(0, self, lambda: QTimer.singleShot(0, self, self._start))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.sidebar.set_narrow(self.width() < NARROW)

    @Slot()
    def _start(self) -> None:
        self._chat_page, self._chat_list = self._make_chat(self._host, self)
        blank = self._pages["chat"]
        self.stack.insertWidget(0, self._chat_page)
        self._pages["chat"] = self._chat_page
        was_current = self.stack.currentWidget() is blank
        self.stack.removeWidget(blank)
        blank.deleteLater()
        if was_current:
            self.show_page("chat")
        self.sidebar.set_chat_list(self._chat_list)
        self._chat_list.chatChosen.connect(self._open_chat)
        self._chat_page.chatChanged.connect(self._mark_chat)
        self.statusbar.start()
        self._downloads.start()
        if self._settings.problem is not None:
            self._show_settings_problem(self._settings.problem)
        if self._welcome and self._autoload and self.launcher.first_start:
            # The memory is measured meanwhile.
            self._first_model_waits = True
            self.open_wizard()
        elif self._autoload:
            self._load_first_model()

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
            if self._autoload and self.isVisible():
                self._load_first_model()

    def _make_real_chat(self, host: EngineHost, window: QWidget) -> tuple[QWidget, QWidget]:
        from app.chat.page import ChatPage
        from app.chat.sidebar import ChatList
        from app.chat.store import ChatStore
        from app.folders import data_folder

        self._store = ChatStore(data_folder() / "chats.sqlite")
        self._store.subscribe(lambda _: self._show_store_problem())
        self._show_store_problem()
        page, chats = ChatPage(host, self._store, lambda: self._settings.values), ChatList(self._store)
        page.answeringChanged.connect(chats.set_answering)
        return page, chats

    def _load_first_model(self) -> None:
        values = self._settings.values
        if values.start == "nothing" or self._host.state.kind != "empty":
            return
        last = values.last_model
        if values.start == "last" and last is not None and last != DEMO and Path(last).exists():
            self.load_model(last)
        else:
            tasks.run(self._demo_is_here, done=self._offer_demo, failed=self.show_fault)

    def _offer_demo(self, here: bool) -> None:
        """Loads the demo at start if it is here. Its download waits to be asked for."""
        if not self._autoload:
            return
        if here:
            self.load_model(DEMO)
        else:
            self._offer_download()

    def _offer_download(self, here: bool = False) -> None:
        if here or self._host.state.kind != "empty":
            return
        self._demo_offered = True
        note = GreenroomError(
            "The demo model is not here yet",
            "it is put together once from a download of 93 MB",
            "Get it now, or open a model you have.",
        )
        actions = [("Get the demo model", self._get_demo)]
        self.banners.show_error(note, "info", "demo", actions, closed=self._decline_demo)

    def _decline_demo(self) -> None:
        self._demo_offered = False

    def _get_demo(self) -> None:
        """Who stops the download is offered it again."""
        self._demo_offered = True
        self.load_model(DEMO)

    # Pages

    @Slot(str)
    def show_page(self, key: str) -> None:
        """key: chat | models | hardware | settings."""
        page = self._pages.get(key)
        if page is None:
            page = self._pages[key] = self._make_page(key)
            self.stack.addWidget(page)
        self.stack.setCurrentWidget(page)
        self.topbar.setVisible(key == "chat")
        self.sidebar.mark(key)
        self._mark_chat(self._open_chat_id)
        target = self._chat_page if key == "chat" and self._chat_page is not None else self.stack
        target.setFocus(Qt.FocusReason.OtherFocusReason)

    @property
    def page(self) -> str:
        """The key of the page that is shown."""
        current = self.stack.currentWidget()
        return next(key for key, page in self._pages.items() if page is current)

    def _make_page(self, key: str) -> QWidget:
        if key == "models":
            from app.models.page import ModelsPage

            models = ModelsPage(self._host, self._settings, self._downloads)
            models.noteWanted.connect(self._show_note)
            models.loadWanted.connect(self.load_model)
            models.fileWanted.connect(self.choose_file)
            models.folderWanted.connect(self.choose_folder)
            return models
        if key == "hardware":
            from app.hardware.page import HardwarePage

            hardware = HardwarePage(self._host.api, self._measure)
            hardware.measured.connect(self._memory_measured)
            hardware.measuringStarted.connect(self._gauge.give_way)
            hardware.wizardWanted.connect(self.open_wizard)
            return hardware
        from app.settings.page import SettingsPage

        return SettingsPage(self._settings)

    # Chats

    @Slot()
    def new_chat(self) -> None:
        self.sidebar.fold()
        self.show_page("chat")
        if self._chat_page is not None:
            self._chat_page.new_chat()

    @Slot(int)
    def _open_chat(self, chat: int) -> None:
        self.sidebar.fold()
        self.show_page("chat")
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

    def _search(self) -> None:
        self.sidebar.focus_search()

    def _stop(self) -> None:
        if self._host.state.kind == "generating":
            self._host.stop()
        else:
            self._host.cancel_load()

    # Models

    @Slot(str)
    def load_model(self, path: str, force: bool = False) -> None:
        """A path or "demo", with the context and threads of the settings."""
        self._autoload = False
        self.banners.dismiss("demo")
        values = self._settings.values
        wishes = {} if values.threads is None else {"threads": values.threads}
        self._host.load(path, force=force, context=values.context, **wishes)

    @Slot()
    def _load_anyway(self) -> None:
        if self._host.state.path is not None:
            self.load_model(self._host.state.path, force=True)

    @Slot()
    def choose_file(self) -> None:
        self._choose(QFileDialog.FileMode.ExistingFile, "Open a model file")

    @Slot()
    def choose_folder(self) -> None:
        self._choose(QFileDialog.FileMode.Directory, "Open a folder of safetensors")

    def _choose(self, mode: QFileDialog.FileMode, title: str) -> None:
        dialog = QFileDialog(self, title, self._settings.values.models_folder or str(Path.home()))
        dialog.setFileMode(mode)
        dialog.resize(DIALOG)
        if mode == QFileDialog.FileMode.ExistingFile:
            dialog.setNameFilter(MODEL_FILES)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(self.load_model)
        dialog.open()

    @Slot(object)
    def _download_finished(self, status: DownloadStatus) -> None:
        note = GreenroomError(f"{status.name} is here", "it is downloaded and verified", "Load it whenever you like.")
        actions = [
            ("Load it", lambda: self.load_model(str(status.path))),
            ("Show it", lambda: self.show_page("models")),
        ]
        self.banners.show_error(note, "info", "download-finished", actions)
        if not self.isActiveWindow():
            QApplication.alert(self)

    @Slot(object, object)
    def _show_note(self, note: GreenroomError, actions: list[Action]) -> None:
        tone = "info" if actions else "bad"
        if not actions and "Settings" in note.remedy:
            actions = [("Settings", lambda: self.show_page("settings"))]
        self.banners.show_error(note, tone, "models", actions)

    # What changes from outside

    @Slot(object)
    def _show_state(self, state: HostState) -> None:
        self.topbar.show_state(state)
        self.statusbar.show_state(state)
        self.actions_by_key["stop"].setEnabled(state.busy or state.kind == "generating")
        if state.kind == "failed" and state.error is not None:
            self._show_load_failure(state, state.error)
            if self._host.loaded is not None:
                # The model in memory is still good; only the message stays. Not at once: others hear of this state too.
                QTimer.singleShot(0, self._host, self._host.dismiss_failure)
        elif state.busy:
            self.banners.dismiss("load")
        if state.kind == "empty" and self._demo_offered:
            tasks.run(self._demo_is_here, done=self._offer_download, failed=self.show_fault)
        if state.kind == "ready" and state.path is not None:
            self._demo_offered = False
            self._settings.remember_model(state.path)

    def _show_load_failure(self, state: HostState, error: GreenroomError) -> None:
        plan, loaded, path = state.plan, self._host.loaded, state.path or DEMO
        refused = plan is not None and not plan.runnable
        if path != DEMO and not Path(path).exists():
            self._settings.forget_recent(path)
        actions = []
        if plan is not None and refused:

            def anyway() -> None:
                self.load_model(path, force=True)

            def show_sum() -> None:
                PlanPopover(state.model_name, plan, anyway, self).open_below(self.topbar.model)

            actions += [("Show the sum", show_sum), ("Load anyway", anyway)]
        if loaded is not None:
            error = GreenroomError(error.what, error.why, f"{error.remedy} {loaded.model_name} stays loaded.")
        elif path != DEMO:
            actions.append(("Use the demo model", lambda: self.load_model(DEMO)))
        elif not refused:
            actions.append(("Try again", lambda: self.load_model(DEMO)))
        tone = "warn" if refused else "bad"
        self.banners.show_error(error, tone, "load", actions, closed=self._host.dismiss_failure)

    @Slot(object)
    def _memory_measured(self, report: HardwareReport) -> None:
        if report.memory.bandwidth_gbs:
            self._host.predict(report.memory.bandwidth_gbs)
        if "hardware" in self._pages:
            self._pages["hardware"].show_report(report)

    @Slot(object)
    def _apply_settings(self, names: set[str]) -> None:
        if "theme" in names:
            theme().set_mode(self._settings.values.theme)

    @Slot(object)
    def _show_settings_problem(self, error: GreenroomError) -> None:
        self.banners.show_error(error, "warn", "saving")

    def _show_store_problem(self) -> None:
        problem = self._store.problem
        if problem is not None and problem is not self._store_problem_said:
            self._store_problem_said = problem
            self.banners.show_error(problem, "warn", "saving")

    def show_fault(self, error: GreenroomError) -> None:
        """A fault of the program itself: said once, the program goes on."""
        self.banners.show_error(error, "bad", "fault")

    def _toggle_theme(self) -> None:
        self._settings.change(theme="light" if theme().dark else "dark")

    # The end

    def closeEvent(self, event: QCloseEvent) -> None:
        self._settings.change(window=self.saveGeometry().toBase64().toStdString())
        self.hide()
        self.launcher.close()
        self._host.shutdown()
        if self._chat_page is not None:
            self._chat_page.shutdown()
        self._downloads.shutdown()
        if "models" in self._pages:
            self._pages["models"].shutdown()
        tasks.shutdown()
        super().closeEvent(event)
