"""Privacy: exactly what may leave this PC, and where everything lies."""

from __future__ import annotations

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.language import mark, tr
from app.settings.options import Group, Option, Page, toggle
from app.settings.store import Settings, SettingsStore
from app.widgets.buttons import button
from app.widgets.labels import label
from app.words import home_path
from engine.folders import config_folder, data_folder, log_folder

LEAVES = (
    mark("When you search or open a model's details, the search text or model name is sent to Hugging Face."),
    mark("When you download a model, Hugging Face sees which one and, like any site, your IP address."),
    mark("If you saved an access token, it is sent with these requests and nowhere else."),
    mark("If you set a mirror under Network, all of this goes to the mirror instead of Hugging Face."),
    mark("A link in an answer opens in your browser only after you see its address and press the button."),
)
STAYS = (
    mark("Chats, drafts, attachments and everything the model writes stay in a file on this PC."),
    mark("Pictures linked in an answer are never downloaded."),
    mark("There is no telemetry, no crash reports, no update checks and no account."),
)


class _Sentences(QWidget):
    """A list of whole sentences, one a paragraph."""

    def __init__(self, sentences: tuple[str, ...]) -> None:
        super().__init__()
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(6)
        for text in sentences:
            said = label(tr(text), wrap=True)
            said.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            line = QHBoxLayout()
            line.setSpacing(8)
            line.addWidget(label("•"), 0, Qt.AlignmentFlag.AlignTop)
            line.addWidget(said, 1)
            box.addLayout(line)


class _Folders(QWidget):
    def __init__(self, settings: SettingsStore) -> None:
        super().__init__()
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(6)
        for text in (
            tr("Chats: {folder}", folder=home_path(data_folder())),
            tr("Settings: {folder}", folder=home_path(config_folder())),
            tr("Log: {folder}", folder=home_path(log_folder())),
        ):
            line = label(text, wrap=True)
            line.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            box.addWidget(line)
        show = button(tr("Open folder"), name=tr("Open the chats folder"))
        show.clicked.connect(lambda: QDesktopServices.openUrl(QUrl.fromLocalFile(str(data_folder()))))
        box.addWidget(show, 0, Qt.AlignmentFlag.AlignLeft)


def _forget(settings: SettingsStore) -> QWidget:
    forget = button(tr("Clear list"), name=tr("Clear the list of recent models"))
    forget.clicked.connect(lambda: settings.change(recent=(), last_model=None))
    return forget


def _show_forget(forget: QWidget, values: Settings) -> None:
    forget.setEnabled(bool(values.recent or values.last_model))


PAGE = Page(
    "privacy",
    mark("Privacy"),
    "shield",
    (
        Group(
            (
                Option(
                    "leaves",
                    mark("What may leave this PC"),
                    mark("Only this, and only when you ask for it:"),
                    lambda settings: _Sentences(LEAVES),
                    words="internet network telemetry hugging face",
                    below=True,
                ),
                Option(
                    "stays",
                    mark("What never leaves this PC"),
                    "",
                    lambda settings: _Sentences(STAYS),
                    words="telemetry crash account chats",
                    below=True,
                ),
                toggle(
                    "offline",
                    mark("Offline"),
                    mark("Greenroom does not use the network, even when you press a button that would."),
                    mark("Work offline"),
                ),
            )
        ),
        Group(
            (
                Option(
                    "folders",
                    mark("Where data is kept"),
                    "",
                    _Folders,
                    words="folder file path log data",
                    below=True,
                ),
                Option(
                    "recent",
                    mark("Recent models"),
                    mark("Their paths are kept for the menu and the next start."),
                    _forget,
                    _show_forget,
                    words="history recent",
                ),
            ),
            mark("On this PC"),
        ),
    ),
    mark("Nothing leaves this PC unless you ask."),
)
