"""How one chat answers: preset, system prompt, thinking, and, folded away, the sampling itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QEvent, QObject, QPoint, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QGuiApplication, QPainterPath, QRegion, QTextDocument
from PySide6.QtWidgets import (
    QApplication,
    QButtonGroup,
    QDoubleSpinBox,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLineEdit,
    QMenu,
    QPlainTextEdit,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from app.chat.stop_strings import from_lines, to_lines
from app.chat.storage.preset_store import PresetStore
from app.chat.storage.presets import BUILT_IN, RANGES, RECOMMENDED, ChatSettings, Preset, Sampling, resolve
from app.host import HostState
from app.language import mark, tr
from app.settings.store import PROMPT_LIMIT, Settings
from app.theme import theme
from app.widgets.buttons import button
from app.widgets.choice import Choice
from app.widgets.labels import label
from app.widgets.page import scrolled_panel
from app.widgets.plain_field import PlainField
from app.widgets.plan_popover import RADIUS
from engine.errors import GreenroomError

WIDTH, PROMPT_HEIGHT, STOP_HEIGHT = 440, 84, 78
#: Typing pauses this long before it counts.
PAUSE_MS = 400
#: (field, what it is called, what it does, step, decimals)
FIELDS = (
    ("temperature", mark("Temperature"), mark("Higher = more varied. 0 always picks the most likely word."), 0.05, 2),
    ("top_p", mark("Top-p"), mark("Sample from the most likely words that add up to this probability"), 0.01, 2),
    ("top_k", mark("Top-k"), mark("Sample from this many of the most likely words. 0 = all."), 1, 0),
    ("min_p", mark("Min-p"), mark("Ignore words much less likely than the top one"), 0.01, 2),
    ("repetition_penalty", mark("Repetition penalty"), mark("Above 1: repeats fewer words"), 0.01, 2),
    ("presence_penalty", mark("Presence penalty"), mark("Above 0: avoids words already used in this answer"), 0.1, 2),
    (
        "frequency_penalty",
        mark("Frequency penalty"),
        mark("Above 0: penalises words by how often they were used"),
        0.1,
        2,
    ),
    ("max_tokens", mark("Maximum answer length"), mark("In tokens"), 64, 0),
    ("seed", mark("Seed"), mark("The same seed gives the same answer"), 1, 0),
)
#: Names for the thinking that templates know.
THINKING = {
    "off": mark("Off"),
    "on": mark("On"),
    "none": mark("None"),
    "no_think": mark("None"),
    "minimal": mark("Minimal"),
    "low": mark("Low"),
    "medium": mark("Medium"),
    "high": mark("High"),
    "max": mark("Max"),
}


def preset_caption(chat: ChatSettings, store: PresetStore) -> str:
    """What the composer's button says: "Balanced", "Balanced, changed"."""
    known = store.presets.get(chat.preset, RECOMMENDED)
    name = tr(known.name) if known in BUILT_IN else known.name
    changed = bool(chat.own.chosen) or chat.system is not None or chat.thinking is not None
    return tr("{preset} (edited)", preset=name) if changed else name


class ChatOptions(QWidget):
    """A popover; every change counts at once. Closes at a click elsewhere or with Esc."""

    #: ChatSettings
    changed = Signal(object)
    #: GreenroomError
    failed = Signal(object)
    #: Preset, int: what was deleted, and its place among the user's own
    deleted = Signal(object, int)
    #: "export" or "import": asks for a file, which the popover would not survive
    filesWanted = Signal(str)

    def __init__(
        self,
        chat: ChatSettings,
        store: PresetStore,
        state: HostState,
        settings: Settings,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent, Qt.WindowType.Popup | Qt.WindowType.FramelessWindowHint)
        self._chat, self._store, self._state, self._settings = chat, store, state, settings
        self._filling = False
        # Without a compositor see-through corners would be black; there the window is cut to shape instead.
        self._cut = QGuiApplication.platformName() == "xcb"
        self.setAttribute(Qt.WidgetAttribute.WA_TranslucentBackground, not self._cut)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setObjectName("chatOptions")
        self.setAccessibleName(tr("Chat settings"))
        self.setFixedWidth(theme().px(WIDTH))
        self._anchor: QWidget | None = None
        self._pause = QTimer(self, singleShot=True, interval=PAUSE_MS)
        self._pause.timeout.connect(self._take_texts)
        self._build()
        self._fill()
        QApplication.instance().focusChanged.connect(self._show_focus)

    def _build(self) -> None:
        card = self._card = QFrame(self)
        card.setProperty("surface", "card")
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(card)
        box = QVBoxLayout()
        # On a low screen, or with large letters, it scrolls.
        self._area = scrolled_panel(box)
        framed = QVBoxLayout(card)
        framed.setContentsMargins(0, 0, 0, 0)
        framed.addWidget(self._area)
        box.setContentsMargins(18, 14, 18, 16)
        box.setSpacing(8)
        box.addWidget(label(tr("Chat settings"), "heading"))
        box.addLayout(self._preset_row())
        box.addWidget(self._name_row())
        box.addSpacing(4)
        box.addWidget(label(tr("System prompt"), "strong"))
        self.system = PlainField()
        self.system.setAccessibleName(tr("System prompt"))
        self.system.setPlaceholderText(tr("none"))
        self.system.textChanged.connect(self._text_changed)
        box.addWidget(self.system)
        self._thinking = QButtonGroup(self)
        if self._state.thinking:
            box.addLayout(self._thinking_row())
        self.more = button("", kind="link")
        self.more.setCheckable(True)
        self.more.toggled.connect(self._show_more)
        box.addWidget(self.more, 0, Qt.AlignmentFlag.AlignLeft)
        self._sampling = self._sampling_grid()
        box.addWidget(self._sampling)
        self._show_more(False)

    def _preset_row(self) -> QHBoxLayout:
        self.presets = Choice(tr("Preset"))
        self.presets.activated.connect(self._choose_preset)
        dots = button("", icon="dots", kind="ghost", role="muted", name=tr("Preset actions"))
        dots.clicked.connect(lambda: self.preset_menu().popup(dots.mapToGlobal(QPoint(0, dots.height()))))
        row = QHBoxLayout()
        row.addWidget(label(tr("Preset")))
        row.addWidget(self.presets, 1)
        row.addWidget(dots)
        return row

    def _name_row(self) -> QWidget:
        """Asks for the name of a new preset, in here: a dialog would take the popover with it."""
        self.name = QLineEdit()
        self.name.setAccessibleName(tr("New preset name"))
        self.name.setPlaceholderText(tr("New preset name"))
        self.name.returnPressed.connect(self._save_named)
        save = button(tr("Save"))
        save.clicked.connect(self._save_named)
        self._naming = QWidget()
        row = QHBoxLayout(self._naming)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.name, 1)
        row.addWidget(save)
        self._naming.hide()
        return self._naming

    def preset_menu(self) -> QMenu:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(tr("Save as preset…"), self._ask_name)
        own = {preset.name for preset in self._store.own}
        delete = menu.addAction(tr("Delete preset"), self._delete_preset)
        delete.setEnabled(self._chat.preset in own)
        reset = menu.addAction(tr("Reset to preset"), self._reset)
        reset.setEnabled(self._chat != replace(self._chat, own=Sampling(), system=None, thinking=None))
        menu.addSeparator()
        menu.addAction(tr("Import presets…"), lambda: self._want_files("import"))
        menu.addAction(tr("Export my presets…"), lambda: self._want_files("export")).setEnabled(bool(own))
        return menu

    def _thinking_row(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(6)
        row.addWidget(label(tr("Thinking"), "strong"))
        row.addStretch(1)
        self._levels: list[str | None] = [None, *self._state.thinking]
        for place, level in enumerate(self._levels):
            text = tr("Default") if level is None else tr(THINKING.get(level, level))
            choice = button(text)
            choice.setProperty("chip", "plain")
            choice.setCheckable(True)
            self._thinking.addButton(choice, place)
            row.addWidget(choice)
        self._thinking.idClicked.connect(self._choose_thinking)
        return row

    @property
    def thinking_choices(self) -> list[str]:
        return [choice.text() for choice in self._thinking.buttons()]

    def choose_thinking(self, place: int) -> None:
        self._thinking.button(place).click()

    def _sampling_grid(self) -> QWidget:
        made = QWidget()
        grid = QGridLayout(made)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(10)
        grid.setVerticalSpacing(6)
        for side in (0, 1):
            grid.setColumnStretch(side, 1)
        self.fields: dict[str, QSpinBox | QDoubleSpinBox] = {}
        for row, (name, title, tip, step, decimals) in enumerate(FIELDS):
            spin = self._spin(name, step, decimals)
            spin.setAccessibleName(tr(title))
            spin.setToolTip(tr(tip))
            words = label(tr(title))
            words.setToolTip(tr(tip))
            words.setBuddy(spin)
            place, side = divmod(row, 2)
            grid.addWidget(words, 2 * place, side)
            grid.addWidget(spin, 2 * place + 1, side, Qt.AlignmentFlag.AlignTop)
            self.fields[name] = spin
        self.stop = PlainField()
        self.stop.setAccessibleName(tr("Stop strings"))
        self.stop.setPlaceholderText(tr("none"))
        tip = tr("The answer stops before any of these. One per line; \\n is a line break, \\\\ a backslash")
        self.stop.setToolTip(tip)
        self.stop.setAccessibleDescription(tip)
        self.stop.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.stop.textChanged.connect(self._text_changed)
        place, side = divmod(len(FIELDS), 2)
        grid.addWidget(label(tr("Stop strings, one per line")), 2 * place, side)
        grid.addWidget(self.stop, 2 * place + 1, side)
        return made

    def _spin(self, name: str, step: float, decimals: int) -> QSpinBox | QDoubleSpinBox:
        low, high, whole = RANGES[name]
        spin: QSpinBox | QDoubleSpinBox
        if whole:
            spin = QSpinBox()
            # One below the lowest stands for "not chosen"; a spin box holds 31 bits.
            spin.setRange(int(low) - 1, min(int(high), 2**31 - 1))
            spin.setSpecialValueText(
                tr("random") if name == "seed" else tr("no limit") if name == "max_tokens" else "–"
            )
        else:
            spin = QDoubleSpinBox()
            spin.setDecimals(decimals)
            spin.setRange(low, high)
        spin.setSingleStep(int(step) if whole else step)
        spin.setKeyboardTracking(False)
        # Style sheets do not reach the margins of a spin box's text.
        spin.lineEdit().setTextMargins(8, 0, 0, 0)
        spin.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        spin.installEventFilter(self)
        spin.valueChanged.connect(lambda value, name=name: self._choose_value(name, value))
        return spin

    # What is shown

    def _fill(self) -> None:
        self._filling = True
        presets = self._store.presets
        self.presets.clear()
        for preset in presets.values():
            self.presets.addItem(tr(preset.name) if preset in BUILT_IN else preset.name, preset.name)
        self.presets.setCurrentIndex(max(0, self.presets.findData(self._chat.preset)))
        sampling, _, _ = resolve(self._chat, presets, self._state, self._settings)
        system = self._inherited() if self._chat.system is None else self._chat.system
        # Not under the hands of someone who is writing it.
        if not self._in_field(system):
            self.system.setPlainText(system)
        preset = presets.get(self._chat.preset, RECOMMENDED)
        wish = self._chat.thinking or preset.thinking
        if self._thinking.buttons():
            place = self._levels.index(wish) if wish in self._levels else 0
            self._thinking.button(place).setChecked(True)
        neutral = {
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
        }
        for name, spin in self.fields.items():
            value = sampling.chosen.get(name, neutral.get(name))
            spin.setValue(spin.minimum() if value is None else min(value, spin.maximum()))
        # Not under the hands of someone who writes the same in another way.
        if from_lines(self.stop.toPlainText()) != (sampling.stop or ()):
            self.stop.setPlainText(to_lines(sampling.stop or ()))
        self._show_more_text()
        self._filling = False

    def _inherited(self) -> str:
        """The system prompt of a chat that has none of its own: the preset's, else the settings page's."""
        return resolve(replace(self._chat, system=None), self._store.presets, self._state, self._settings)[1]

    def _in_field(self, system: str) -> bool:
        """Whether the field shows that system prompt, which it spells its own way: other line breaks and spaces."""
        return self.system.toPlainText().strip() == QTextDocument(system).toPlainText().strip()

    def _show_more(self, on: bool) -> None:
        self._sampling.setVisible(on)
        self._show_more_text()
        self._fit()

    def _show_more_text(self) -> None:
        sampling, _, _ = resolve(self._chat, self._store.presets, self._state, self._settings)
        values = tr("temperature {t}, top-p {p}", t=f"{sampling.temperature:g}", p=f"{sampling.top_p:g}")
        self.more.setText(("▾ " if self.more.isChecked() else "▸ ") + tr("Sampling: {values}", values=values))
        self.more.setAccessibleName(tr("Sampling"))

    # What is chosen

    def _take(self, chat: ChatSettings) -> None:
        if chat != self._chat:
            self._chat = chat
            self._fill()
            self.changed.emit(chat)

    def _choose_preset(self, place: int) -> None:
        chosen = self.presets.itemData(place)
        self._take(replace(self._chat, preset=chosen, own=Sampling(), system=None, thinking=None))

    def _reset(self) -> None:
        self._take(replace(self._chat, own=Sampling(), system=None, thinking=None))

    def _choose_thinking(self, place: int) -> None:
        self._take(replace(self._chat, thinking=self._levels[place]))

    def _choose_value(self, name: str, value: float) -> None:
        if self._filling:
            return
        whole = RANGES[name][2]
        unset = whole and value < RANGES[name][0]
        own = replace(self._chat.own, **{name: None if unset else int(value) if whole else round(value, 4)})
        self._take(replace(self._chat, own=own))

    def _text_changed(self) -> None:
        if not self._filling:
            self._pause.start()

    def _take_texts(self) -> None:
        self._pause.stop()
        stops = from_lines(self.stop.toPlainText())
        now, _, _ = resolve(self._chat, self._store.presets, self._state, self._settings)
        own = self._chat.own if stops == (now.stop or ()) else replace(self._chat.own, stop=stops)
        self._take(replace(self._chat, own=own, system=self._own_system()))

    def _own_system(self) -> str | None:
        """What the chat has of its own by what stands in the field. Emptied, it sends no system prompt."""
        if self._in_field(self._inherited()):
            # As the preset, also when that is changed later.
            return None
        if self._chat.system is not None and self._in_field(self._chat.system):
            return self._chat.system
        text = self.system.toPlainText()[:PROMPT_LIMIT]
        return text if text.strip() else ""

    # Presets

    def _ask_name(self) -> None:
        self._naming.show()
        self._fit()
        self.name.setFocus(Qt.FocusReason.OtherFocusReason)
        self._bring(self.name)

    def _save_named(self) -> None:
        if self.name.text().strip():
            self.save_preset(self.name.text())
            self.name.clear()
            self._naming.hide()
            self._fit()

    def save_preset(self, name: str) -> None:
        """Keep what this chat has as a preset of that name, and use it."""
        self._take_texts()
        base = self._store.presets.get(self._chat.preset, RECOMMENDED)
        chat = self._chat
        system = chat.system if chat.system is not None else base.system
        preset = Preset(" ".join(name.split()), chat.own.over(base.sampling), system, chat.thinking or base.thinking)
        if self._kept(lambda: self._store.save(preset)):
            self._take(replace(chat, preset=preset.name, own=Sampling(), system=None, thinking=None))
            self._fill()

    def _delete_preset(self) -> None:
        preset = self._store.presets[self._chat.preset]
        place = self._store.own.index(preset)
        if self._kept(lambda: self._store.delete(preset.name)):
            # This chat keeps the name too, as all that used it: they have the preset again if it comes back.
            self._fill()
            self.changed.emit(self._chat)
            self.deleted.emit(preset, place)

    def _kept(self, change: Callable[[], None]) -> bool:
        try:
            change()
        except GreenroomError as error:
            self.failed.emit(error)
            self.close()
            return False
        return True

    def _want_files(self, kind: str) -> None:
        self.filesWanted.emit(kind)
        self.close()

    # Where it is

    def open_above(self, anchor: QWidget) -> None:
        """Over the widget, kept on its screen."""
        self._anchor = anchor
        # A style sheet with a minimum height overrides what was set before it was read.
        self.system.ensurePolished()
        self.system.setFixedHeight(theme().px(PROMPT_HEIGHT))
        self.stop.ensurePolished()
        self.stop.setFixedHeight(theme().px(STOP_HEIGHT))
        self._fit()
        self.show()
        self.presets.setFocus(Qt.FocusReason.PopupFocusReason)

    def _fit(self) -> None:
        # What changed inside would reach the size only with the next event.
        screen = (self._anchor or self).screen().availableGeometry()
        frame = self._card.contentsMargins()
        room = screen.height() - 16 - frame.top() - frame.bottom()
        self._area.setFixedHeight(min(self._area.widget().sizeHint().height(), room))
        self._card.updateGeometry()
        self.adjustSize()
        if self._anchor is None:
            return
        at = self._anchor.mapToGlobal(QPoint(0, -self.height() - 6))
        at.setX(max(screen.left() + 8, min(at.x(), screen.right() - self.width() - 8)))
        at.setY(max(screen.top() + 8, min(at.y(), screen.bottom() - self.height() - 8)))
        self.move(at)
        if self._cut:
            shape = QPainterPath()
            shape.addRoundedRect(self.rect(), RADIUS, RADIUS)
            self.setMask(QRegion(shape.toFillPolygon().toPolygon()))

    @Slot(QWidget, QWidget)
    def _show_focus(self, old: QWidget | None, now: QWidget | None) -> None:
        if now is not None and self._area.isAncestorOf(now):
            self._bring(now)

    def _bring(self, part: QWidget) -> None:
        """Into sight, whole: left to itself, Qt shows no more of a field than its cursor."""
        at = part.mapTo(self._area.widget(), part.rect().center())
        self._area.ensureVisible(at.x(), at.y(), 0, part.height() // 2 + 8)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """The wheel scrolls past numbers; it turns the one that has the keyboard."""
        if event.type() == QEvent.Type.Wheel and not watched.hasFocus():
            event.ignore()
            return True
        return super().eventFilter(watched, event)

    def closeEvent(self, event) -> None:
        if self._pause.isActive():
            self._take_texts()
        super().closeEvent(event)
