"""What is loaded when the window opens: the model used last, or the demo, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot

from app import tasks
from app.host import DEMO, EngineHost, HostState
from app.language import tr
from app.notices import Notices
from app.paths import is_gone
from app.settings.store import SettingsStore
from app.words import file_name, home_path
from engine.errors import GreenroomError


def demo_is_here() -> bool:
    """In the background: what it looks through takes long to import."""
    from app.models.survey import demo_is_here as look

    return look()


class FirstModel(QObject):
    """The demo is loaded at start if it is here. Its download waits to be asked for.

    demo_is_here: looks at the disk, in the background
    """

    #: A path, or "demo"
    wanted = Signal(str)

    def __init__(
        self,
        host: EngineHost,
        settings: SettingsStore,
        notices: Notices,
        demo_is_here: Callable[[], bool],
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._host, self._settings, self._notices, self._demo_is_here = host, settings, notices, demo_is_here
        #: Until the user has chosen a model.
        self._open = True
        self._demo_offered = False
        host.stateChanged.connect(self._follow)

    @property
    def open(self) -> bool:
        """Nobody has chosen a model yet."""
        return self._open

    def choose(self) -> None:
        """At start: whatever the settings say."""
        values = self._settings.values
        if not self._open or values.start == "nothing" or self._host.state.kind != "empty":
            return
        last = values.last_model
        if values.start == "last" and last is not None and last != DEMO:
            if not is_gone(last):
                self.wanted.emit(last)
                return
            self._tell_gone(Path(last))
            tasks.run(self._demo_is_here, done=self._take_demo, failed=self._notices.show_fault)
        else:
            tasks.run(self._demo_is_here, done=self._take_demo, failed=self._notices.show_fault)

    def _tell_gone(self, model: Path) -> None:
        note = GreenroomError(
            tr("{name} was not found", name=file_name(model)),
            tr("{path} does not exist", path=home_path(model)),
            tr("Connect its disk, or choose another model."),
        )
        actions = [(tr("Choose a model"), lambda: self._notices.pageWanted.emit("models"))]
        self._notices.show(note, "warn", "gone", actions)

    def chosen(self) -> None:
        """The user chose, or had chosen for them: nothing is loaded unasked from now on."""
        self._open = False
        self._notices.dismiss("demo")

    @Slot()
    def get_demo(self) -> None:
        """Who stops the download is offered it again."""
        self._demo_offered = True
        self.wanted.emit(DEMO)

    def _take_demo(self, here: bool) -> None:
        if not self._open:
            return
        if here:
            self.wanted.emit(DEMO)
        else:
            self._offer_download()

    def _offer_download(self, here: bool = False) -> None:
        if here or self._host.state.kind != "empty":
            return
        self._demo_offered = True
        note = GreenroomError(
            tr("The demo model is not installed yet"),
            tr("setting it up takes a one-time download of 93 MB"),
            tr("Download it now, or open a model you have."),
        )
        actions = [(tr("Download the demo model"), self.get_demo)]
        self._notices.show(note, "info", "demo", actions, closed=self._decline)

    def _decline(self) -> None:
        self._demo_offered = False

    @Slot(object)
    def _follow(self, state: HostState) -> None:
        if state.kind == "empty" and self._demo_offered:
            tasks.run(self._demo_is_here, done=self._offer_download, failed=self._notices.show_fault)
        if state.kind == "ready" and state.path is not None:
            self._demo_offered = False
