"""What the window has to say above its page: failures, and what has come to an end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.host import DEMO, EngineHost, HostState
from app.language import told, tr
from app.paths import is_gone
from app.settings.store import SettingsStore
from app.widgets.banner import Action, BannerArea
from engine.errors import GreenroomError
from engine.placement.plan import OffloadPlan

if TYPE_CHECKING:
    from engine.hub.downloads import DownloadStatus


class Notices(QObject):
    """Its banners outlive the window's contents."""

    #: A path or "demo", and whether to load although the plan says that memory will not do
    loadWanted = Signal(str, bool)
    #: The key of a page
    pageWanted = Signal(str)
    #: The model's name, its refused plan, and what loads it nevertheless
    sumWanted = Signal(str, object, object)

    def __init__(self, host: EngineHost, settings: SettingsStore, parent: QObject) -> None:
        super().__init__(parent)
        self._host, self._settings = host, settings
        self.banners = BannerArea()
        #: The one that is shown.
        self._store_problem: GreenroomError | None = None
        host.stateChanged.connect(self._follow)
        settings.problemFound.connect(self.show_saving_problem)

    def show(
        self,
        note: GreenroomError,
        tone: str,
        key: str,
        actions: Sequence[Action] = (),
        closed: Callable[[], object] | None = None,
    ) -> None:
        self.banners.show_error(note, tone, key, actions, closed)

    def dismiss(self, key: str) -> None:
        self.banners.dismiss(key)

    @Slot(object)
    def show_fault(self, error: GreenroomError) -> None:
        """A fault of the program itself: said once, the program goes on."""
        self.show(error, "bad", "fault")

    @Slot(object)
    def show_saving_problem(self, error: GreenroomError) -> None:
        self.show(error, "warn", "saving")

    def show_store_problem(self, problem: GreenroomError | None, actions: Sequence[Action]) -> None:
        """Chats are not being saved: said until they are. None: they are."""
        if problem is None:
            self.dismiss("chats-saving")
        elif problem is not self._store_problem:
            self.banners.show_error(problem, "warn", "chats-saving", actions, sticky=True)
        self._store_problem = problem

    @Slot(object)
    def show_download(self, status: DownloadStatus) -> None:
        note = GreenroomError(
            tr("{name} is ready", name=status.name),
            tr("the download is complete and verified"),
            tr("You can load it now."),
        )
        path = str(status.path)
        actions = [
            (tr("Load"), lambda: self.loadWanted.emit(path, False)),
            (tr("Show"), lambda: self.pageWanted.emit("models")),
        ]
        self.show(note, "info", "download-finished", actions)

    @Slot(object, object)
    def show_note(self, note: GreenroomError, actions: list[Action]) -> None:
        """Of the pages about models: an invitation with its actions, or a problem."""
        tone = "info" if actions else "bad"
        if not actions and any(name in note.remedy for name in ("Settings", tr("Settings"))):
            # It can be set right here.
            tone, actions = "warn", [(tr("Settings"), lambda: self.pageWanted.emit("settings"))]
        self.show(note, tone, "models", actions)

    @Slot(object)
    def _follow(self, state: HostState) -> None:
        if state.kind == "failed" and state.error is not None:
            self._show_load_failure(state, state.error)
            if self._host.loaded is not None:
                # The model in memory is still good; only the message stays. Not at once: others hear of this state too.
                QTimer.singleShot(0, self._host, self._host.dismiss_failure)
        elif state.busy:
            self.dismiss("load")

    def _show_load_failure(self, state: HostState, error: GreenroomError) -> None:
        plan, loaded, path = state.plan, self._host.loaded, state.path or DEMO
        refused = plan is not None and not plan.runnable
        if path != DEMO and is_gone(path):
            self._settings.forget_recent(path)
        actions: list[Action] = []
        if plan is not None and refused:
            actions += self._ways_around(state.model_name, plan, path)
        if loaded is not None:
            stays = tr("{name} is still loaded.", name=loaded.model_name)
            error = GreenroomError(error.what, error.why, f"{told(error.remedy)} {stays}")
        elif path != DEMO:
            actions.append((tr("Use the demo model"), lambda: self.loadWanted.emit(DEMO, False)))
        elif not refused:
            actions.append((tr("Try again"), lambda: self.loadWanted.emit(DEMO, False)))
        self.show(error, "warn" if refused else "bad", "load", actions, closed=self._host.dismiss_failure)

    def _ways_around(self, model: str, plan: OffloadPlan, path: str) -> list[Action]:
        def anyway() -> None:
            self.loadWanted.emit(path, True)

        return [
            (tr("Show the calculation"), lambda: self.sumWanted.emit(model, plan, anyway)),
            (tr("Load anyway"), anyway),
        ]
