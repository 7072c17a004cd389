"""The bar over the chat: which model, where it lives, how fast it should be, and how far loading is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QSize, Qt, Signal, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QMenu, QProgressBar, QPushButton, QWidget

from app.actions import Actions
from app.host import DEMO, AnswerResult, HostState
from app.language import told, tr
from app.models.local import LocalModel
from app.settings.store import SettingsStore
from app.theme import theme
from app.theme.icons import make_pixmap
from app.widgets.buttons import button
from app.widgets.chip import Chip, ChipButton
from app.widgets.labels import ElideLabel, elided, label, plain_tip
from app.widgets.plan_popover import PlanPopover
from app.words import about, brief, rate, rate_range

HEIGHT = 46
#: What a long model name leaves to the messages of loading.
MESSAGE_ROOM = 200
NARROWEST_MODEL = 184
_BESIDE_NAME = 6


class ModelButton(QPushButton):
    """The model's name with a small arrow. Where it does not fit, what stands in brackets behind it goes first."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "model")
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self._name = ElideLabel("", "strong")
        self._arrow = QLabel()
        for part in (self._name, self._arrow):
            part.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        row = QHBoxLayout(self)
        row.setContentsMargins(8, 0, 6, 0)
        row.setSpacing(_BESIDE_NAME)
        row.addWidget(self._name)
        row.addWidget(self._arrow)
        theme().changed.connect(self._draw_arrow)
        self._draw_arrow()
        self.set_model("")

    def set_model(self, name: str) -> None:
        self._name.setText(name or tr("Choose a model"))
        self._name.shorter = (brief(name),) if brief(name) != name else ()
        # The label is no target of the mouse.
        self.setToolTip(plain_tip(name))
        self.setAccessibleName(tr("Model: {name}. Choose another", name=name) if name else tr("Choose a model"))
        self.updateGeometry()

    @property
    def shown_name(self) -> str:
        return self._name.text()

    @property
    def widths(self) -> tuple[int, ...]:
        """What the whole name needs, then its shorter form, if there is one."""
        advance, whole = self._name.fontMetrics().horizontalAdvance, self.sizeHint().width()
        return (whole, *(whole - advance(self._name.text()) + advance(text) for text in self._name.shorter))

    def sizeHint(self) -> QSize:
        return QSize(self.layout().sizeHint().width() + 2, theme().px(32))

    def minimumSizeHint(self) -> QSize:
        return QSize(self.layout().minimumSize().width() + 2, theme().px(32))

    def _draw_arrow(self) -> None:
        self._arrow.setPixmap(
            make_pixmap("chevron-down", theme().tokens.muted, theme().px(12), self.devicePixelRatioF())
        )


class TopBar(QWidget):
    """Shows a HostState; asks for a model through its signals."""

    #: A path, or "demo".
    modelChosen = Signal(str)
    loadAnyway = Signal()
    loadCancelled = Signal()
    ejected = Signal()
    modelsWanted = Signal()
    #: The picker opens: what it lists may have changed since.
    pickerOpened = Signal()

    def __init__(self, settings: SettingsStore, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._settings, self._actions = settings, actions
        self._state = HostState()
        #: tok/s of the loaded model's last answer; 0 before the first.
        self._measured = 0.0
        self._here: Sequence[LocalModel] = ()
        self.setProperty("surface", "topbar")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)

        self.model = ModelButton()
        self.model.clicked.connect(self._open_menu)
        self.chip = ChipButton()
        self.chip.clicked.connect(self._open_plan)
        self.cached = Chip("", "vram")
        self.speed = label("", "small")
        self.message = ElideLabel("", "small")
        self.message.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.cancel = button(tr("Cancel"), kind="link", tip=actions.tip("stop", tr("Stop loading")))
        self.cancel.clicked.connect(self.loadCancelled)

        row = QHBoxLayout(self)
        row.setContentsMargins(16, 0, 12, 1)
        row.setSpacing(10)
        row.addWidget(self.model, 0)
        row.addWidget(self.chip, 0)
        row.addWidget(self.cached, 0)
        row.addWidget(self.message, 1)
        row.addWidget(self.cancel, 0)
        row.addWidget(self.speed, 0)
        self.stage = button("", icon="stage", kind="ghost", role="muted", name=tr("Stage"))
        self.stage.setCheckable(True)
        self.stage.clicked.connect(actions["stage"].trigger)
        row.addWidget(self.stage, 0)
        actions["stage"].toggled.connect(self.stage.setChecked)
        actions.changed.connect(self._show_shortcuts)
        self._show_shortcuts()

        # Over the lower edge, so that nothing moves when it comes and goes.
        self.progress = QProgressBar(self)
        self.progress.setTextVisible(False)
        self.progress.setProperty("thin", True)
        self.progress.setAccessibleName(tr("Loading the model"))
        theme().changed.connect(self._fit_height)
        self._fit_height()
        self.show_state(self._state)

    @Slot()
    def _fit_height(self) -> None:
        self.setFixedHeight(theme().px(HEIGHT))

    @Slot()
    def _show_shortcuts(self) -> None:
        self.stage.setChecked(self._actions["stage"].isChecked())
        self.stage.setToolTip(self._actions.tip("stage", tr("Show experts at work")))

    def show_models(self, here: Sequence[LocalModel]) -> None:
        """What the picker is to offer besides the recent ones."""
        self._here = here

    def show_result(self, result: AnswerResult) -> None:
        """Remembers how fast the model was, to show it beside what was predicted."""
        if result.stats.decode_tps > 0:
            self._measured = result.stats.decode_tps
            self._show_speed()

    def resume(self, before: TopBar) -> None:
        """What another bar knows of the last answer is known here, too."""
        self._measured = before._measured
        self._show_speed()

    def show_state(self, state: HostState) -> None:
        if state.path != self._state.path or state.kind == "loading":
            self._measured = 0.0
        self._state = state
        self.model.set_model(state.model_name)
        if state.plan is not None:
            share, _, _ = state.plan.cached.partition(" ")
            self.cached.setText(tr("{share} of experts cached in VRAM", share=share) if share else "")
            self.chip.setToolTip(tr("Show the calculation"))
        self.cancel.setVisible(state.busy)
        self.progress.setVisible(state.busy)
        self.message.setText(told(state.progress.message) if state.busy and state.progress else "")
        if state.busy:
            known = state.progress is not None and state.progress.total > 0
            self.progress.setRange(0, 1000 if known else 0)
            if known:
                self.progress.setValue(round(1000 * state.progress.fraction))
        self._show_speed()

    def _show_speed(self) -> None:
        if self._state.plan is not None:
            speed = self._state.plan.prediction.decode_tps
            tip = tr("Predicted: {speed} tok/s, from {range}.", speed=about(speed), range=rate_range(speed))
            if self._measured > 0:
                tip += " " + tr("Last answer: {speed} tok/s.", speed=rate(self._measured))
            self.speed.setToolTip(tip)
        self._share_room()

    def _share_room(self) -> None:
        """Where not all of it fits, the least important goes first; the model's name gets what is left."""
        margins, gap = self.layout().contentsMargins(), self.layout().spacing()
        room = self.width() - margins.left() - margins.right() - gap
        room -= min(MESSAGE_ROOM, self.message.sizeHint().width())
        plan = self._state.plan
        if plan is not None:
            self.chip.show_plan(plan)
            room -= self.chip.sizeHint().width() + gap
        room -= sum(part.sizeHint().width() + gap for part in (self.cancel, self.stage) if not part.isHidden())
        cached, speed, name = self._what_fits(room)
        least = min(name, theme().px(NARROWEST_MODEL))
        chip = "" if plan is None else self._shorter_chip(least - room)
        room += self._chip_advance(self.chip.text()) - self._chip_advance(chip)
        self.chip.setText(chip)
        self.speed.setText(speed)
        # Not before all is worked out: what comes and goes lays the bar out anew, and leads here again.
        for part, shown in ((self.chip, bool(chip)), (self.cached, cached), (self.speed, bool(speed))):
            part.setVisible(shown)
        room -= sum(part.sizeHint().width() + gap for part in (self.cached, self.speed) if not part.isHidden())
        self.model.setMaximumWidth(max(least, min(room, name)))
        self.layout().activate()

    def _what_fits(self, room: int) -> tuple[bool, str, int]:
        """Whether the share of cached experts is shown, the text of the speed, and the width of the name."""
        whole, *shorter = self.model.widths
        short, plan = (shorter or [whole])[0], self._state.plan
        if plan is None or self._state.busy:
            return False, "", whole if whole <= room else short
        gap = self.layout().spacing()
        said = tr("{speed} tok/s predicted", speed=about(plan.prediction.decode_tps))
        figure = tr("{speed} tok/s", speed=about(plan.prediction.decode_tps))
        has_cached = bool(self.cached.text())
        ways = [
            (has_cached, said, whole),
            (False, said, whole),
            (False, figure, whole),
            (False, said, short),
            (False, figure, short),
        ]
        for cached, speed, name in ways:
            needed = name + gap + self.speed.fontMetrics().horizontalAdvance(speed)
            needed += self.cached.sizeHint().width() + gap if cached else 0
            if needed <= room:
                return cached, speed, name
        return False, "", short

    def _shorter_chip(self, pixels: int) -> str:
        """The chip's text without so many pixels of it; "" where little would be left.

        A screen reader still has the whole text, and the model's menu the sum.
        """
        text, metrics = self.chip.text(), self.chip.fontMetrics()
        room = metrics.horizontalAdvance(text) - max(0, pixels)
        return elided(text, metrics, Qt.TextElideMode.ElideRight, room) if 2 * room >= room + pixels else ""

    def _chip_advance(self, text: str) -> int:
        """What the chip takes of the bar with that text."""
        if not text:
            return 0
        advance = self.chip.fontMetrics().horizontalAdvance
        return self.chip.sizeHint().width() - advance(self.chip.text()) + advance(text) + self.layout().spacing()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._share_room()
        self.progress.setGeometry(0, self.height() - 3, self.width(), 3)

    def _open_menu(self) -> None:
        self.pickerOpened.emit()
        menu = self.build_menu()
        menu.aboutToHide.connect(menu.deleteLater)
        menu.popup(self.model.mapToGlobal(self.model.rect().bottomLeft()))

    def build_menu(self) -> QMenu:
        """The picker: the demo, the models on this PC, recent ones first, and the ways to another one."""
        menu = QMenu(self)
        menu.setToolTipsVisible(True)
        current = self._state.path
        self._add_model(menu, tr("Demo model (small, for trying things out)"), DEMO, current)
        recent = self._settings.values.recent
        models = [(Path(path).name, path) for path in recent]
        models += [(model.name, model.path) for model in self._here if model.path not in recent]
        if models:
            menu.addSeparator()
        for name, path in models:
            shown = self.fontMetrics().elidedText(name, Qt.TextElideMode.ElideMiddle, 380)
            self._add_model(menu, shown, path, current)
        menu.addSeparator()
        menu.addAction(self._actions["open_file"])
        menu.addAction(self._actions["open_folder"])
        menu.addAction(tr("All models on this PC")).triggered.connect(lambda: self.modelsWanted.emit())
        if self._state.plan is not None:
            menu.addSeparator()
            menu.addAction(tr("Show the calculation")).triggered.connect(self._open_plan)
        if self._state.kind in ("ready", "generating"):
            menu.addSeparator()
            menu.addAction(tr("Unload (free its memory)")).triggered.connect(lambda: self.ejected.emit())
        return menu

    def _add_model(self, menu: QMenu, text: str, path: str, current: str | None) -> None:
        action = menu.addAction(text.replace("&", "&&"))
        action.setToolTip(plain_tip(path if path != DEMO else text))
        action.setCheckable(True)
        action.setChecked(path == current)
        action.triggered.connect(lambda checked=False: self.modelChosen.emit(path))

    def _open_plan(self) -> None:
        if self._state.plan is None:
            return
        refused = self._state.kind == "failed" and not self._state.plan.runnable
        anyway = self.loadAnyway.emit if refused else None
        PlanPopover(self._state.model_name, self._state.plan, anyway, self, self._measured).open_below(
            self.chip if self.chip.isVisible() else self.model
        )
