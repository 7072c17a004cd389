"""The stage beside the chat: the picture, what it means, its figures, and runs that were kept."""

from __future__ import annotations

import time

from PySide6.QtCore import QRectF, QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QHideEvent, QPainter, QPaintEvent, QShowEvent
from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from app.host import EngineHost
from app.language import tr
from app.stage.activity import Activity
from app.stage.replay_bar import ReplayBar
from app.stage.sources import LiveRun, Replay
from app.stage.summary import percent, summarise
from app.stage.view import StageView
from app.theme import theme
from app.widgets.buttons import button
from app.widgets.labels import ElideLabel, label
from app.widgets.page import scrolled_panel
from engine.units import size_text

#: As wide as it likes to be, and as narrow as it can be read.
WIDTH, NARROWEST = 336, 219
#: Milliseconds between two pictures while something moves, and between two looks at figures.
FRAME_MS, FIGURES_MS = 33, 500
#: Where nothing is to move, pictures come as seldom as figures.
STILL_MS = 500
#: A layer needs no more room than this.
TALLEST_LAYER = 10


class StagePanel(QWidget):
    #: The user wants the card that says how fast this was, and on what.
    cardWanted = Signal()
    #: It stands in the chat's place, and the chat is wanted back.
    chatWanted = Signal()

    def __init__(self, host: EngineHost, live: LiveRun | None = None, parent: QWidget | None = None) -> None:
        """live: one that outlives this panel, so that a run is not lost when it is closed or made anew."""
        super().__init__(parent)
        self._host = host
        self.live = live or LiveRun(host, parent=self)
        self._replay: Replay | None = None
        self._ticked = time.monotonic()
        #: By the whole run, or the last moment; None until the user says: the moment while it runs, the run after it.
        self._overall: bool | None = None
        self._over = False
        self._room, self._alone = 1 << 16, False
        self.setProperty("surface", "stage")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAccessibleName(tr("Stage"))
        self._build()
        self._frames = QTimer(self, timerType=Qt.TimerType.PreciseTimer)
        self._frames.timeout.connect(self._tick)
        self._figures = QTimer(self, interval=FIGURES_MS)
        self._figures.timeout.connect(self._show_figures)
        self.live.changed.connect(self._show_live)
        host.stateChanged.connect(self._wake)
        theme().changed.connect(self._restyle)
        self._restyle()
        self._show_live()

    def _build(self) -> None:
        self.shape = ElideLabel("", "small")
        self.shape.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        head = QHBoxLayout()
        head.addWidget(label(tr("Stage"), "heading"))
        head.addWidget(self.shape, 1)
        self.back = button(tr("Back to the chat"), kind="link")
        self.back.clicked.connect(self.chatWanted)
        self.back.hide()
        head.addWidget(self.back)
        self.view = StageView()
        self.nothing = label("", "small", wrap=True)
        self.meaning = button("", kind="link")
        self.meaning.setToolTip(tr("Switch between recent activity and the whole run"))
        self.meaning.clicked.connect(self._switch_meaning)
        self._places = QHBoxLayout()
        self._places.setSpacing(12)
        self._in_vram, self._in_ram = _Key("vram", tr("in VRAM")), _Key("ram", tr("in RAM"))
        self._places.addWidget(self._in_vram)
        self._places.addWidget(self._in_ram)
        self._places.addStretch(1)
        self._legend = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._legend.setSpacing(8)
        self._legend.addLayout(self._places)
        self._legend.addWidget(self.meaning, 0, Qt.AlignmentFlag.AlignLeft)
        self._legend.addStretch(1)
        self.served, self.bar = _Row(tr("Served from VRAM")), _ShareBar()
        self.from_ram = _Row(tr("Read from RAM per token"), tr("RAM per token"))
        self.bandwidth = _Row(tr("RAM bandwidth used"), tr("RAM bandwidth"))
        self.hand_off = _Row(tr("CPU ↔ GPU hand-off"))
        self.replay_bar = ReplayBar()
        self.replay_bar.opened.connect(self.open_replay)
        self.replay_bar.lastWanted.connect(self._replay_last)
        self.replay_bar.closed.connect(self.close_replay)
        self.card = button(tr("Copy benchmark card"))
        self.card.clicked.connect(self.cardWanted)
        self._column = column = QVBoxLayout()
        column.setSpacing(10)
        column.addLayout(head)
        column.addWidget(self.nothing)
        column.addWidget(self.view, 1)
        column.addLayout(self._legend)
        for part in (self.served, self.bar, self.from_ram, self.bandwidth, self.hand_off, self.replay_bar):
            column.addWidget(part)
        column.addWidget(self.card, 0, Qt.AlignmentFlag.AlignLeft)
        column.addStretch(0)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(1, 0, 0, 0)
        outer.addWidget(scrolled_panel(column))
        self._parts = [self.view, self.from_ram]

    # What is shown

    @property
    def activity(self) -> Activity | None:
        return self._replay.activity if self._replay is not None else self.live.activity

    @property
    def replay(self) -> Replay | None:
        """The kept run that is shown; None while the loaded model is."""
        return self._replay

    def resume(self, before: StagePanel) -> None:
        """Show what another panel showed: the run that it replayed, at its place."""
        self._overall = before._overall
        replay, before._replay = before._replay, None
        if replay is not None:
            self._take(replay)
        self._restyle()

    @Slot(object)
    def open_replay(self, replay: Replay) -> None:
        self._take(replay)
        replay.play()

    def _take(self, replay: Replay) -> None:
        self.close_replay()
        self._replay = replay
        replay.setParent(self)
        replay.changed.connect(self._show)
        replay.changed.connect(self._wake)
        self.replay_bar.show_replay(replay)
        self._show()
        self._wake()

    @Slot()
    def close_replay(self) -> None:
        """Back to the model that is loaded."""
        if self._replay is not None:
            self._replay.deleteLater()
            self._replay = None
            self.replay_bar.show_replay(None)
            self._show()

    @Slot()
    def _replay_last(self) -> None:
        if self.live.recording is not None:
            self.open_replay(Replay(self.live.recording))

    @Slot()
    def _show_live(self) -> None:
        if self.live.running:
            self.close_replay()  # an answer begins: that is what the stage is for
        self.replay_bar.show_last(None if self.live.running else self.live.recording)
        self._show()
        self._wake()

    @Slot()
    def _show(self) -> None:
        activity = self.activity
        for part in self._parts:
            part.setVisible(activity is not None)
        has_vram = activity is not None and self._has_vram(activity)
        for part in (self.served, self.bar, self._in_vram):
            part.setVisible(has_vram)
        self.meaning.setVisible(activity is not None)
        self.nothing.setVisible(activity is None)
        for row in (self.bandwidth, self.hand_off):
            row.show_value("", optional=True)
        if activity is None:
            loaded = self._host.loaded is not None
            self.nothing.setText(
                tr("This model has no experts: all of it is used for every token.")
                if loaded
                else tr("Load a mixture-of-experts model to see which experts are used and where they are.")
            )
            self.shape.setText("")
        else:
            layers, experts = tr("%n layers", n=len(activity.layers)), tr("%n experts", n=activity.experts)
            self.shape.setText(f"{layers} × {experts}")
            self.view.setMaximumHeight(max(theme().px(TALLEST_LAYER) * len(activity.layers), 140))
        self.view.show_activity(activity)
        self._fit()
        self._show_figures()

    def _has_vram(self, activity: Activity) -> bool:
        """Whether experts of this run are in VRAM, or may come there."""
        if self._replay is not None:
            return self._replay.has_vram
        plan = self._host.state.plan
        return bool(activity.in_vram.any()) or (plan is not None and plan.device != "cpu")

    @Slot()
    def _show_figures(self) -> None:
        activity, status = self.activity, self._host.status()
        self.replay_bar.show_cut(self._replay.recording if self._replay is not None else self.live.recording)
        if activity is None:
            return
        served = activity.served_from_vram
        self.served.show_value("" if served is None else percent(served))
        self.bar.show_share(served)
        self.view.setAccessibleDescription(summarise(activity))
        source = self._replay or self.live
        per_token = activity.ram_uses_per_token
        read = None if per_token is None or not source.expert_bytes else per_token * source.expert_bytes
        self.from_ram.show_value("" if read is None else size_text(round(read)))
        live = self._replay is None
        self.bandwidth.show_value(
            self._share_of_ram(read * activity.decoded_per_second) if live and read else "", optional=True
        )
        hand_off = status.handoff_s if live and status is not None else 0.0
        said = tr("{time} µs per layer", time=f"{hand_off * 1e6:.0f}") if hand_off else ""
        self.hand_off.show_value(said, optional=True)
        self.replay_bar.show_time()

    def _share_of_ram(self, bytes_per_second: float) -> str:
        hardware = self._host.state.hardware
        measured = hardware.memory.bandwidth_gbs if hardware is not None else {}
        used = f"{bytes_per_second / 1e9:.0f}" if bytes_per_second >= 9.95e9 else f"{bytes_per_second / 1e9:.1f}"
        if not measured:
            return f"{used} GB/s"
        return tr("{used} of {all} GB/s", used=used, all=f"{max(measured.values()):.0f}")

    def offer_card(self, on: bool) -> None:
        """Off while the panel beside this one offers it."""
        self.card.setVisible(on)

    # What moves

    @property
    def _settled(self) -> bool:
        """Brightness by the whole run."""
        return theme().reduced_motion or (self._over if self._overall is None else self._overall)

    @Slot()
    def _switch_meaning(self) -> None:
        self._overall = not self._settled
        self._restyle()

    @Slot()
    def _restyle(self) -> None:
        self._fit()
        self._frames.setInterval(STILL_MS if theme().reduced_motion else FRAME_MS)
        self._wake()

    def _show_meaning(self) -> None:
        self.meaning.setText(_meaning(self._settled))
        self.meaning.setAccessibleName(self.meaning.text())

    def set_room(self, pixels: int, alone: bool = False) -> None:
        """How wide it may be; it takes less where it needs less, and never less than can be read.

        alone: it stands in the chat's place, takes all of it and offers the way back
        """
        self._room, self._alone = pixels, alone
        self.back.setVisible(alone)
        self._fit()

    def _fit(self) -> None:
        look = theme()
        width = max(look.px(NARROWEST), self._room)
        width = width if self._alone else min(look.px(WIDTH), width)
        self.setFixedWidth(width)
        # In one line or two, whichever of its texts the legend shows.
        margins = self._column.contentsMargins()
        needed = margins.left() + margins.right() + 1 + self._places.sizeHint().width() + 2 * self._legend.spacing()
        self.meaning.ensurePolished()
        widths = []
        for overall in (True, False):
            self.meaning.setText(_meaning(overall))
            widths.append(self.meaning.sizeHint().width())
        self._show_meaning()
        beside = width >= needed + max(widths)
        self._legend.setDirection(QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom)
        # Below each other they leave no room between them and what follows: that is the picture's.
        across = QSizePolicy.Policy.Expanding if beside else QSizePolicy.Policy.Minimum
        self._legend.itemAt(2).spacerItem().changeSize(0, 0, across, QSizePolicy.Policy.Minimum)
        self._legend.setStretch(2, 1 if beside else 0)
        self._legend.invalidate()

    @Slot()
    def _wake(self) -> None:
        """Begin to move if there is something that does."""
        if not self._frames.isActive():
            self._ticked = time.monotonic()
            self._frames.start()

    @Slot()
    def _tick(self) -> None:
        now = time.monotonic()
        passed, self._ticked = now - self._ticked, now
        source = self._replay or self.live
        source.tick(passed)
        if self._replay is not None and self.live.running:
            self.live.tick(passed)
        # A run that is over would fade into an empty picture: it shows what worked in it instead. One that is replayed
        # and stands still shows the moment at which it does.
        if self._replay is not None:
            over = self._replay.ended
        else:
            over = not source.running and (self._over or self.activity is None or not self.activity.alight)
        if over != self._over:
            self._over = over
            self._show_meaning()
        if self.activity is not None:
            self.activity.overall = self._settled
            self.view.show_activity(self.activity)
        fading = self._replay is None and self.activity is not None and self.activity.alight and not self._settled
        moving = source.running or fading
        if not moving and not self.live.running:
            self._frames.stop()
            self._show_figures()
        if source.running != self._figures.isActive():
            if source.running and self.isVisible():
                self._figures.start()
            else:
                self._figures.stop()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._wake()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._figures.stop()


def _meaning(overall: bool) -> str:
    return tr("stronger = used more often") if overall else tr("stronger = used recently")


class _Key(QWidget):
    """A colour and what it stands for."""

    def __init__(self, token: str, text: str) -> None:
        super().__init__()
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(5)
        row.addWidget(_Swatch(token))
        row.addWidget(label(text, "small"))


class _Swatch(QWidget):
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token
        self.setFixedSize(theme().px(10), theme().px(10))
        theme().changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme().colour(self._token))
        painter.drawRoundedRect(QRectF(self.rect()), 2, 2)


class _Row(QWidget):
    """A word and its figure, "–" while there is none. shorter: the word where the room is small."""

    def __init__(self, text: str, *shorter: str) -> None:
        super().__init__()
        self._text = text
        self.value = label("", "figure")
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        word = ElideLabel(text, "small")
        word.shorter = shorter
        row.addWidget(word, 1)
        row.addWidget(self.value)

    def show_value(self, text: str, optional: bool = False) -> None:
        """optional: without a figure there is no line either."""
        if optional:
            self.setVisible(bool(text))
        self.value.setText(text or "–")
        self.setAccessibleName(f"{self._text}: {text or '–'}")


class _ShareBar(QWidget):
    """From VRAM at the left, from RAM at the right."""

    def __init__(self) -> None:
        super().__init__()
        self._share: float | None = None
        self.setFixedHeight(6)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme().changed.connect(self.update)

    def show_share(self, share: float | None) -> None:
        self._share = share
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(100, 6)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        whole = QRectF(self.rect())
        painter.setBrush(theme().colour("line" if self._share is None else "ram"))
        painter.drawRoundedRect(whole, 3, 3)
        if self._share:
            painter.setBrush(theme().colour("vram"))
            painter.setClipRect(whole.adjusted(0, 0, whole.width() * (self._share - 1), 0))
            painter.drawRoundedRect(whole, 3, 3)
