"""Controls for runs: play the last one again, keep it, open one that was kept."""

from __future__ import annotations

import re
from pathlib import Path

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QHBoxLayout, QSlider, QVBoxLayout, QWidget

from app import tasks
from app.language import told, tr
from app.stage.recording import SUFFIX, Recording, open_recording, save_recording
from app.stage.sources import Replay
from app.theme import theme
from app.widgets.buttons import button
from app.widgets.choice import Choice
from app.widgets.file_dialog import FileDialog
from app.widgets.labels import ElideLabel, label
from app.words import sentence
from engine.errors import GreenroomError

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0)
#: Steps of the slider a second.
STEPS = 20


class ReplayBar(QWidget):
    #: Replay
    opened = Signal(object)
    #: The last run is to be played again.
    lastWanted = Signal()
    #: Back to the loaded model.
    closed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._replay: Replay | None = None
        self._last: Recording | None = None
        self.again = button(tr("Replay"), kind="link", name=tr("Replay the last run"))
        self.again.clicked.connect(self.lastWanted)
        self.save = button(tr("Save…"), kind="link", name=tr("Save this run"))
        self.save.clicked.connect(self._save)
        self.open = button(tr("Open a run…"), kind="link", name=tr("Open a saved run"))
        self.open.clicked.connect(self._open)
        first = QHBoxLayout()
        first.setContentsMargins(0, 0, 0, 0)
        first.setSpacing(4)
        for part in (self.again, self.save, self.open):
            first.addWidget(part)
        first.addStretch(1)

        self.title = ElideLabel("", "strong")
        self.leave = button("", icon="cross", kind="ghost", role="muted", name=tr("Close the replay"))
        self.leave.clicked.connect(self.closed)
        self.play = button("", icon="play", kind="ghost", name=tr("Play"))
        self.play.clicked.connect(self._toggle)
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setAccessibleName(tr("Position in the run"))
        self.slider.valueChanged.connect(self._seek)
        self.speed = Choice(tr("Replay speed"))
        for factor in SPEEDS:
            self.speed.addItem(f"{factor:g}×", factor)
        self.speed.setCurrentIndex(SPEEDS.index(1.0))
        self.speed.activated.connect(self._set_speed)
        self.time = label("", "small")
        upper = QHBoxLayout()
        upper.addWidget(self.title, 1)
        upper.addWidget(self.leave)
        lower = QHBoxLayout()
        lower.addWidget(self.play)
        lower.addWidget(self.slider, 1)
        lower.addWidget(self.speed)
        self._player = QWidget()
        player = QVBoxLayout(self._player)
        player.setContentsMargins(0, 0, 0, 0)
        player.setSpacing(4)
        player.addLayout(upper)
        player.addLayout(lower)
        player.addWidget(self.time)
        self._player.hide()
        self.trouble = label("", "warn-small", wrap=True)
        self.trouble.hide()
        self.cut = label("", "small", wrap=True)
        self.cut.hide()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 6, 0, 0)
        column.setSpacing(6)
        column.addWidget(self._player)
        column.addLayout(first)
        column.addWidget(self.cut)
        column.addWidget(self.trouble)
        self.show_last(None)

    def show_last(self, recording: Recording | None) -> None:
        """The run that can be played again and kept; None while there is none, or it is going on."""
        self._last = recording if recording is not None and recording.frames else None
        self._offer()

    def show_cut(self, recording: Recording | None) -> None:
        """Say where a recording has left off, if it has."""
        cut = recording is not None and recording.full
        if cut:
            kept = clock(recording.seconds)
            said = tr("Only the first {time} of this run was recorded. More would take too much memory.", time=kept)
            self.cut.setText(said)
        self.cut.setVisible(cut)

    def show_replay(self, replay: Replay | None) -> None:
        self._replay = replay
        self._complain(None)
        self._player.setVisible(replay is not None)
        self._offer()
        if replay is not None:
            replay.speed = float(self.speed.currentData())
            replay.changed.connect(self.show_time)
            self.title.setText(replay.recording.model or tr("Run"))
            self.slider.blockSignals(True)
            self.slider.setRange(0, max(1, round(replay.recording.seconds * STEPS)))
            self.slider.setPageStep(STEPS * 5)
            self.slider.blockSignals(False)
            self.show_time()

    def _offer(self) -> None:
        self.again.setVisible(self._last is not None and self._replay is None)
        self.save.setVisible(self._last is not None or self._replay is not None)

    @Slot()
    def show_time(self) -> None:
        """Where the replay is now."""
        replay = self._replay
        if replay is None:
            return
        if not self.slider.isSliderDown():
            self.slider.blockSignals(True)
            self.slider.setValue(round(replay.seconds * STEPS))
            self.slider.blockSignals(False)
        done, whole = clock(replay.seconds), clock(replay.recording.seconds)
        self.time.setText(tr("{done} of {whole} · %n tokens", n=replay.activity.tokens, done=done, whole=whole))
        theme().bind_icon(self.play, "pause" if replay.running else "play", "text")
        self.play.setAccessibleName(tr("Pause") if replay.running else tr("Play"))

    @Slot()
    def _toggle(self) -> None:
        if self._replay is not None:
            self._replay.pause() if self._replay.running else self._replay.play()

    @Slot(int)
    def _seek(self, step: int) -> None:
        if self._replay is not None:
            self._replay.seek(step / STEPS)

    @Slot()
    def _set_speed(self) -> None:
        if self._replay is not None:
            self._replay.speed = float(self.speed.currentData())

    # Files

    @Slot()
    def _save(self) -> None:
        recording = self._replay.recording if self._replay is not None else self._last
        if recording is None:
            return
        name = re.sub(r"[^\w.-]+", "-", recording.model).strip("-.") or "run"
        dialog = self._dialog(tr("Save this run"))
        dialog.setAcceptMode(FileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix(SUFFIX.removeprefix("."))
        dialog.selectFile(f"{name}{SUFFIX}")
        dialog.fileSelected.connect(lambda path: self.save_to(recording, Path(path)))
        dialog.open()

    @Slot()
    def _open(self) -> None:
        dialog = self._dialog(tr("Open a saved run"))
        dialog.setFileMode(FileDialog.FileMode.ExistingFile)
        dialog.fileSelected.connect(lambda path: self.open_from(Path(path)))
        dialog.open()

    def _dialog(self, title: str) -> FileDialog:
        runs = tr("Runs")
        dialog = FileDialog(self, title, str(Path.home()), f"{runs} (*{SUFFIX})")
        return dialog

    def save_to(self, recording: Recording, path: Path) -> None:
        """In the background; a failure is said below the buttons."""
        tasks.run(save_recording, recording, path, done=self._complain, failed=self._complain)

    def open_from(self, path: Path) -> None:
        tasks.run(open_recording, path, done=self._take, failed=self._complain)

    def _take(self, recording: Recording) -> None:
        self.opened.emit(Replay(recording))

    def _complain(self, error: GreenroomError | None) -> None:
        self.trouble.setVisible(error is not None)
        if error is not None:
            self.trouble.setText(f"{told(error.what)}: {sentence(told(error.why))}. {told(error.remedy)}")


def clock(seconds: float) -> str:
    """ "0:07", "12:40"."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
