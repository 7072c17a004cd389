"""The Settings page. Every change holds at once; what concerns a model holds when one is loaded next."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import (
    QComboBox,
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

import engine
from app.actions import ACTIONS, shortcut_text
from app.settings.store import THREADS_RANGE, SettingsStore
from app.widgets.buttons import button
from app.widgets.labels import ElideLabel, label
from app.widgets.page import PageHead, scrolled
from engine.log import log_folder

WIDTH = 760
CONTROL_WIDTH = 250

THEMES = (("Follow the system", "system"), ("Light", "light"), ("Dark", "dark"))
STARTS = (("The model used last", "last"), ("The demo model", "demo"), ("Nothing", "nothing"))
CONTEXTS = (
    ("Chosen by the plan", None),
    *((f"{n:,} tokens".replace(",", " "), n) for n in (2048, 4096, 8192, 16384, 32768, 65536, 131072)),
)


class SettingsPage(QWidget):
    def __init__(self, settings: SettingsStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._settings = settings
        self._filling = False

        self.theme = _combo("Theme", THEMES)
        self.theme.activated.connect(lambda: self._change(theme=self.theme.currentData()))
        self.start = _combo("Load at start", STARTS)
        self.start.activated.connect(lambda: self._change(start=self.start.currentData()))
        self.context = _combo("Context length", CONTEXTS)
        self.context.activated.connect(lambda: self._change(context=self.context.currentData()))
        self.threads = QSpinBox()
        self.threads.setRange(THREADS_RANGE[0] - 1, THREADS_RANGE[1])
        self.threads.setSpecialValueText("Chosen by the plan")
        self.threads.setAccessibleName("Threads")
        self.threads.setFixedWidth(CONTROL_WIDTH)
        self.threads.setKeyboardTracking(False)
        # The style sheet's padding does not reach the field inside.
        self.threads.lineEdit().setTextMargins(8, 0, 0, 0)
        self.threads.valueChanged.connect(lambda value: self._change(threads=value or None))

        self.folder = ElideLabel("", "small", Qt.TextElideMode.ElideMiddle)
        self.folder.setFixedWidth(CONTROL_WIDTH)
        self.folder.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        choose = button("Choose…", name="Choose the models folder")
        choose.clicked.connect(self._choose_folder)
        self.default_folder = button("Use the default", kind="link")
        self.default_folder.clicked.connect(lambda: self._change(models_folder=None))
        folder_buttons = QWidget()
        buttons = QHBoxLayout(folder_buttons)
        buttons.setContentsMargins(0, 0, 0, 0)
        buttons.addStretch(1)
        buttons.addWidget(self.default_folder)
        buttons.addWidget(choose)
        folder_cell = QWidget()
        cell = QVBoxLayout(folder_cell)
        cell.setContentsMargins(0, 0, 0, 0)
        cell.setSpacing(4)
        cell.addWidget(folder_buttons)
        cell.addWidget(self.folder)

        content = QVBoxLayout()
        content.setSpacing(8)
        content.addWidget(PageHead("Settings"))
        content.addWidget(_heading("Look"))
        content.addWidget(_card(("Theme", "Light, dark, or as the system has it.", self.theme)))
        content.addWidget(_heading("Models"))
        content.addWidget(
            _card(
                ("Load at start", "The window opens first, then this loads.", self.start),
                (
                    "Context length",
                    "How much text a chat can hold; longer needs more memory. Holds from the next loading on.",
                    self.context,
                ),
                (
                    "Threads",
                    "One for each physical core is usually best, more can be slower. Holds from the next loading on.",
                    self.threads,
                ),
                (
                    "Models folder",
                    "Where Greenroom looks for models. Files elsewhere can be opened as well.",
                    folder_cell,
                ),
            )
        )
        content.addWidget(_heading("Keyboard"))
        content.addWidget(_card(*((spec.text.rstrip("…"), "", _keys(spec.key)) for spec in ACTIONS)))
        content.addWidget(_heading("About"))
        about = label(
            f"Greenroom {engine.__version__}. Nothing leaves this PC: no telemetry, no network without being asked.\n"
            f"The log is in {log_folder()}.",
            "small",
            wrap=True,
        )
        about.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        about.setContentsMargins(14, 0, 14, 0)
        content.addWidget(about)
        content.addStretch(1)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(scrolled(content, WIDTH))

        settings.changed.connect(self._fill)
        self._fill()

    @Slot()
    def _fill(self) -> None:
        values = self._settings.values
        self._filling = True
        self.theme.setCurrentIndex(self.theme.findData(values.theme))
        self.start.setCurrentIndex(self.start.findData(values.start))
        if values.context is not None and self.context.findData(values.context) < 0:
            self.context.addItem(f"{values.context} tokens", values.context)
        self.context.setCurrentIndex(self.context.findData(values.context))
        self.threads.setValue(values.threads or 0)
        self.folder.setText(values.models_folder or "The program's own folder")
        self.default_folder.setVisible(values.models_folder is not None)
        self._filling = False

    def _change(self, **values: object) -> None:
        if not self._filling:
            self._settings.change(**values)

    @Slot()
    def _choose_folder(self) -> None:
        dialog = QFileDialog(self, "Choose the models folder", self._settings.values.models_folder or str(Path.home()))
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(lambda path: self._change(models_folder=path))
        dialog.open()


def _combo(name: str, entries: tuple[tuple[str, object], ...]) -> QComboBox:
    combo = QComboBox()
    combo.setAccessibleName(name)
    combo.setFixedWidth(CONTROL_WIDTH)
    for text, value in entries:
        combo.addItem(text, value)
    return combo


def _heading(text: str) -> QLabel:
    made = label(text, "faint")
    made.setContentsMargins(14, 10, 0, 0)
    return made


def _keys(key: str) -> QLabel:
    made = label(shortcut_text(key), "mono")
    made.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
    return made


def _card(*rows: tuple[str, str, QWidget]) -> QFrame:
    card = QFrame()
    card.setProperty("surface", "card")
    box = QVBoxLayout(card)
    box.setContentsMargins(0, 0, 0, 0)
    box.setSpacing(0)
    for number, (title, sentence, control) in enumerate(rows):
        row = QFrame()
        row.setProperty("surface", "row")
        row.setProperty("first", "true" if number == 0 else "false")
        line = QHBoxLayout(row)
        line.setContentsMargins(16, 10, 16, 10)
        line.setSpacing(24)
        text = QVBoxLayout()
        text.setSpacing(2)
        text.addWidget(label(title, "strong" if sentence else ""))
        if sentence:
            text.addWidget(label(sentence, "small", wrap=True))
        line.addLayout(text, 1)
        line.addWidget(control)
        box.addWidget(row)
    return card
