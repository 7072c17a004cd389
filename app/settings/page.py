"""The Settings page. Every change holds at once; what concerns a model holds when one is loaded next."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import (
    QAbstractButton,
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QMessageBox,
    QVBoxLayout,
    QWidget,
)

import engine
from app import tasks
from app.actions import ACTIONS
from app.settings.fields import CONTROL_WIDTH, Combo, Fraction, LongText, WholeNumber
from app.settings.network import network_rows
from app.settings.store import PENALTY_RANGE, TEMPERATURE_RANGE, THREADS_RANGE, TOP_P_RANGE, SettingsStore
from app.widgets.buttons import button
from app.widgets.labels import ElideLabel, label
from app.widgets.page import PageHead, scrolled
from app.words import home_path, sentence
from engine.errors import GreenroomError
from engine.hub.trash import move_models
from engine.log import log_folder

WIDTH = 760

THEMES = (("Follow the system", "system"), ("Light", "light"), ("Dark", "dark"))
STARTS = (("The model used last", "last"), ("The demo model", "demo"), ("Nothing", "nothing"))
CONTEXTS = (
    ("Chosen by the plan", None),
    *((f"{n:,} tokens".replace(",", " "), n) for n in (2048, 4096, 8192, 16384, 32768, 65536, 131072)),
)


ANSWERS = (
    ("Until the model ends it", None),
    *((f"{n:,} tokens".replace(",", " "), n) for n in (256, 512, 1024, 2048, 4096, 8192)),
)
#: What the sampling fields are set to when nothing is chosen.
UNCHOSEN = {"temperature": None, "top_p": None, "repetition_penalty": None, "max_tokens": None}


class SettingsPage(QWidget):
    def __init__(self, settings: SettingsStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._settings = settings
        self._filling = False

        self.theme = Combo("Theme", THEMES)
        self.theme.activated.connect(lambda: self._change(theme=self.theme.currentData()))
        self.start = Combo("Load at start", STARTS)
        self.start.activated.connect(lambda: self._change(start=self.start.currentData()))
        self.context = Combo("Context length", CONTEXTS)
        self.context.activated.connect(lambda: self._change(context=self.context.currentData()))
        self.threads = WholeNumber("Threads", THREADS_RANGE, "Chosen by the plan")
        self.threads.chosen.connect(lambda value: self._change(threads=value))

        self.prompt = LongText("System prompt", "For example: Answer briefly, in Korean.")
        self.prompt.written.connect(lambda text: self._change(system_prompt=text))
        self.temperature = Fraction("Temperature", TEMPERATURE_RANGE, 0.7)
        self.temperature.chosen.connect(lambda value: self._change(temperature=value))
        self.top_p = Fraction("Top-p", TOP_P_RANGE, 0.95)
        self.top_p.chosen.connect(lambda value: self._change(top_p=value))
        self.penalty = Fraction("Repetition penalty", PENALTY_RANGE, 1.1)
        self.penalty.chosen.connect(lambda value: self._change(repetition_penalty=value))
        self.longest = Combo("Longest answer", ANSWERS)
        self.longest.activated.connect(lambda: self._change(max_tokens=self.longest.currentData()))
        self.reset = button("Use the defaults", kind="link", name="Use the defaults for all of Answers but the prompt")
        self.reset.clicked.connect(lambda: self._change(**UNCHOSEN))

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
        answers = QHBoxLayout()
        answers.addWidget(_heading("Answers"), 1)
        answers.addWidget(self.reset, 0, Qt.AlignmentFlag.AlignBottom)
        content.addLayout(answers)
        content.addWidget(
            _card(
                ("System prompt", "What the model is told before every chat. Leave it empty for none.", self.prompt),
                ("Temperature", "0 always takes the likeliest word; higher is more varied.", self.temperature),
                ("Top-p", "Only the likeliest words that together reach this share are considered.", self.top_p),
                ("Repetition penalty", "1 is off; a little more keeps small models from looping.", self.penalty),
                ("Longest answer", "Where an answer is cut off at the latest.", self.longest),
            )
        )
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
        content.addWidget(_heading("Network and downloads"))
        self.network = network_rows(settings, self)
        content.addWidget(_card(*self.network))
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
        self.threads.show_value(values.threads)
        self.prompt.show_text(values.system_prompt)
        self.temperature.show_value(values.temperature)
        self.top_p.show_value(values.top_p)
        self.penalty.show_value(values.repetition_penalty)
        if values.max_tokens is not None and self.longest.findData(values.max_tokens) < 0:
            self.longest.addItem(f"{values.max_tokens} tokens", values.max_tokens)
        self.longest.setCurrentIndex(self.longest.findData(values.max_tokens))
        self.reset.setVisible(any(getattr(values, name) is not None for name in UNCHOSEN))
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
        dialog.fileSelected.connect(self._take_folder)
        dialog.open()

    def _take_folder(self, path: str) -> None:
        """A new folder, with the question what becomes of the models in the old one."""
        from engine.hub.library import models_folder

        values = self._settings.values
        old = Path(values.models_folder) if values.models_folder else models_folder()
        if Path(path) == old or not (old.is_dir() and any(old.iterdir())):
            self._change(models_folder=path)
            return
        box = QMessageBox(self)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.setWindowTitle("Models folder")
        box.setText(f"Move the models that lie in {home_path(old)} to the new folder?")
        box.setInformativeText("On the same disk that takes a moment. Otherwise they stay where they are.")
        move = box.addButton("Move them", QMessageBox.ButtonRole.AcceptRole)
        box.addButton("Leave them there", QMessageBox.ButtonRole.DestructiveRole)
        cancel = box.addButton(QMessageBox.StandardButton.Cancel)

        def answer(chosen: QAbstractButton) -> None:
            if chosen is move:
                tasks.run(move_models, old, Path(path), done=lambda _: self._moved(path), failed=self._not_moved)
            elif chosen is not cancel:
                self._change(models_folder=path)

        box.buttonClicked.connect(answer)
        box.open()

    def _moved(self, path: str) -> None:
        self._change(models_folder=path)

    def _not_moved(self, error: GreenroomError) -> None:
        box = QMessageBox(QMessageBox.Icon.Warning, error.what, f"{sentence(error.why)}.", parent=self)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.setInformativeText(error.remedy)
        box.open()


def _heading(text: str) -> QLabel:
    made = label(text, "faint")
    made.setContentsMargins(14, 10, 0, 0)
    return made


def _keys(key: str) -> QLabel:
    made = label(key, "mono")
    made.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
    return made


def _card(*rows: tuple[str, str, QWidget]) -> QFrame:
    card = QFrame()
    card.setProperty("surface", "card")
    box = QVBoxLayout(card)
    box.setContentsMargins(0, 0, 0, 0)
    box.setSpacing(0)
    for number, (title, said, control) in enumerate(rows):
        row = QFrame()
        row.setProperty("surface", "row")
        row.setProperty("first", "true" if number == 0 else "false")
        # A control wider than its column stands under its words.
        below = isinstance(control, LongText)
        line = QVBoxLayout(row) if below else QHBoxLayout(row)
        line.setContentsMargins(16, 10, 16, 14 if below else 10)
        line.setSpacing(8 if below else 24)
        text = QVBoxLayout()
        text.setSpacing(2)
        text.addWidget(label(title, "strong" if said else ""))
        if said:
            text.addWidget(label(said, "small", wrap=True))
        line.addLayout(text, 1)
        line.addWidget(control)
        box.addWidget(row)
    return card
