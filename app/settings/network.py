"""Settings of the network: the hub or a mirror, proxy, certificates, the access token, limits of downloads."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, Qt, Slot
from PySide6.QtWidgets import QCheckBox, QLineEdit, QVBoxLayout, QWidget

from app import tasks
from app.settings.fields import CONTROL_WIDTH, WholeNumber
from app.settings.store import DOWNLOADS_RANGE, RATE_RANGE, SettingsStore
from app.theme.theme import restyle
from app.widgets.buttons import button
from app.widgets.labels import label
from app.words import sentence
from engine.errors import GreenroomError
from engine.hub.network import DEFAULT_ENDPOINT, check_address, read_certificates

Row = tuple[str, str, QWidget]


def network_rows(settings: SettingsStore, parent: QWidget) -> list[Row]:
    """Title, sentence and control of each setting."""
    values = settings.values
    offline = QCheckBox("Work offline")
    offline.setChecked(values.offline)
    offline.toggled.connect(lambda on: settings.change(offline=on))
    at_once = WholeNumber("Downloads at once", DOWNLOADS_RANGE, "Two")
    at_once.show_value(values.downloads_at_once)
    at_once.chosen.connect(lambda value: settings.change(downloads_at_once=value or 2))
    rate = WholeNumber("Megabytes per second", RATE_RANGE, "No limit")
    rate.show_value(values.download_rate)
    rate.chosen.connect(lambda value: settings.change(download_rate=value))
    hub = _Line(
        "Hub",
        values.hub,
        DEFAULT_ENDPOINT,
        lambda text: check_address(text, "The hub's address"),
        lambda text: settings.change(hub=text),
    )
    proxy = _Line(
        "Proxy",
        values.proxy,
        "The system's",
        lambda text: check_address(text, "The proxy's address", proxy=True),
        lambda text: settings.change(proxy=text),
    )
    certificates = _Line(
        "Certificate file",
        values.ca_file,
        "The system's",
        read_certificates,
        lambda text: settings.change(ca_file=text),
    )
    return [
        ("Offline", "Nothing is asked of the network, not even when you press a button that would.", offline),
        ("Downloads at once", "Models on their way at the same time; the others wait.", at_once),
        ("Speed limit", "In megabytes per second, for all downloads together.", rate),
        (
            "Access token",
            "For models whose terms you accepted on Hugging Face. It is kept in the system's keyring.",
            _Token(parent),
        ),
        ("Hub", "Another address that speaks the same language, such as a mirror of your company.", hub),
        ("Proxy", "http, https, socks5 or socks5h, for example socks5h://localhost:1080.", proxy),
        ("Certificates", "A PEM file to trust, for networks that look into encrypted traffic.", certificates),
    ]


class _Line(QWidget):
    """Saved when the user leaves it; what makes no sense is said below the field, and nothing of it is saved."""

    def __init__(
        self, name: str, text: str, empty: str, check: Callable[[str], object], save: Callable[[str], object]
    ) -> None:
        super().__init__()
        self._check, self._save, self._saved = check, save, text
        self.field = QLineEdit(text)
        self.field.setAccessibleName(name)
        self.field.setPlaceholderText(empty)
        self.field.setFixedWidth(CONTROL_WIDTH)
        self.field.editingFinished.connect(self._finish)
        self.trouble = label("", "warn-small", wrap=True)
        self.trouble.setFixedWidth(CONTROL_WIDTH)
        self.trouble.hide()
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(4)
        box.addWidget(self.field)
        box.addWidget(self.trouble)

    def _finish(self) -> None:
        text = self.field.text().strip()
        try:
            self._check(text)
        except GreenroomError as error:
            self._complain(f"{sentence(error.why)}. {error.remedy}")
            return
        self._complain("")
        if text != self._saved:
            self._saved = text
            self._save(text)

    def _complain(self, text: str) -> None:
        self.trouble.setText(text)
        self.trouble.setVisible(bool(text))
        self.field.setAccessibleDescription(text)
        if self.field.property("wrong") != ("true" if text else "false"):
            self.field.setProperty("wrong", "true" if text else "false")
            restyle(self.field)


class _Token(QWidget):
    """The token itself is never shown again; only where it lies is."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.field = QLineEdit()
        self.field.setEchoMode(QLineEdit.EchoMode.Password)
        self.field.setPlaceholderText("hf_…")
        self.field.setAccessibleName("Access token")
        self.field.setFixedWidth(CONTROL_WIDTH)
        self.save = button("Save", name="Save the access token")
        self.save.clicked.connect(self._save)
        self.save.setEnabled(False)
        self.field.textChanged.connect(lambda text: self.save.setEnabled(bool(text.strip())))
        self.field.returnPressed.connect(self._save)
        self.remove = button("Remove", kind="link", name="Remove the access token")
        self.remove.clicked.connect(lambda: self._store(""))
        self.remove.hide()
        self.state = label("", "small", wrap=True)
        self.state.setFixedWidth(CONTROL_WIDTH)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(4)
        for part in (self.field, self.state):
            box.addWidget(part)
        box.addWidget(self.save, 0, Qt.AlignmentFlag.AlignRight)
        box.addWidget(self.remove, 0, Qt.AlignmentFlag.AlignRight)
        self._looked = False

    def event(self, event: QEvent) -> bool:
        # A keyring may ask for its password, so it is only looked into once the page is seen.
        if event.type() == QEvent.Type.Show and not self._looked:
            self._looked = True
            self._look()
        return super().event(event)

    def _look(self) -> None:
        from engine.hub.credentials import token_source

        tasks.run(token_source, done=self._show_source, failed=self._complain)

    def _show_source(self, source: str) -> None:
        said = {
            "environment": "HF_TOKEN is set and is used.",
            "keyring": "One is in the keyring.",
            "none": "None is stored.",
        }
        self.state.setText(said[source])
        self.remove.setVisible(source == "keyring")

    @Slot()
    def _save(self) -> None:
        if self.field.text().strip():
            self._store(self.field.text())

    def _store(self, value: str) -> None:
        from engine.hub.credentials import save_token

        tasks.run(save_token, value, done=lambda _: self._stored(), failed=self._complain)

    def _stored(self) -> None:
        self.field.clear()
        self._look()

    def _complain(self, error: GreenroomError) -> None:
        self.state.setText(sentence(f"{error.why}. {error.remedy}"))
