"""The proxy's address, and its password, which is never shown and never in the settings file."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, Qt, Slot

from app import tasks
from app.language import tr
from app.settings.fields import CONTROL_WIDTH
from app.settings.network import Line
from app.settings.store import Settings, SettingsStore
from app.theme import theme
from app.widgets.buttons import button
from app.widgets.labels import label
from engine.errors import GreenroomError
from engine.hub.network import check_address
from engine.hub.proxy_password import forget_password, keep_password, password_place, split_password
from engine.words import say


class Proxy(Line):
    """An address may be entered with a password; it is taken out of the field at once, and only its place is said."""

    def __init__(self, name: str, empty: str, settings: SettingsStore) -> None:
        super().__init__(name, empty, self._check_address, self._keep)
        self._settings = settings
        self.state = label("", "small", wrap=True)
        self.state.setFixedWidth(theme().px(CONTROL_WIDTH))
        self.remove = button(tr("Remove"), kind="link", name=tr("Remove the proxy password"))
        self.remove.clicked.connect(self._forget)
        self._box.addWidget(self.state)
        self._box.addWidget(self.remove, 0, Qt.AlignmentFlag.AlignRight)
        self._say("none")
        self._looking: tasks.Task | None = None

    def load(self, values: Settings) -> None:
        self.show_text(values.proxy)
        if self.isVisible():
            self._look()

    def event(self, event: QEvent) -> bool:
        # A keyring may ask for its password, so it is only looked into once the page is seen.
        if event.type() == QEvent.Type.Show:
            self._look()
        return super().event(event)

    @staticmethod
    def _check_address(text: str) -> None:
        check_address(split_password(text)[0], say("The proxy address"), proxy=True)

    def _keep(self, text: str) -> None:
        address, password = split_password(text)
        self.field.setText(address)
        self._saved = address
        self._settings.change(proxy=address)
        if password:
            tasks.run(keep_password, address, password, done=self._look, to_its_end=True)

    @Slot()
    def _forget(self) -> None:
        tasks.run(forget_password, done=self._look, to_its_end=True)

    def _look(self, _: object = None) -> None:
        if self._looking is not None:
            self._looking.cancel()
        self._looking = tasks.run(password_place, self._settings.values.proxy, done=self._say)

    def _say(self, place: str) -> None:
        said = {
            "keyring": tr("The password is saved in the system keyring."),
            "run": tr("No secure keyring was found. The password is kept until Greenroom closes."),
            "none": "",
        }[place]
        self.state.setText(said)
        self.state.setVisible(bool(said))
        self.remove.setVisible(bool(said))


def move_old_password(settings: SettingsStore, show: Callable[[GreenroomError], object]) -> None:
    """Move the proxy's password out of a settings file that an older Greenroom wrote.

    show: called when there is no keyring for it
    """
    if settings.old_password is None:
        return

    def moved(kept: bool) -> None:
        settings.drop_old_password()
        if not kept:
            show(
                GreenroomError(
                    tr("The proxy password is no longer in the settings file"),
                    tr("no secure keyring was found, so the password is kept until Greenroom closes"),
                    tr("Enter it again under Settings > Network after the next start."),
                )
            )

    tasks.run(keep_password, *settings.old_password, done=moved)
