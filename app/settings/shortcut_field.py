"""One action's shortcut: press the keys to change it. A conflict is named before anything is taken away."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Slot
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QHBoxLayout, QKeySequenceEdit, QVBoxLayout, QWidget

from app.actions import SPECS, ActionSpec, conflict, refusal
from app.language import tr
from app.settings.store import Settings, SettingsStore
from app.theme import theme
from app.widgets.buttons import button
from app.widgets.labels import label

WIDTH = 150


class ShortcutField(QWidget):
    def __init__(self, settings: SettingsStore, spec: ActionSpec) -> None:
        super().__init__()
        self._settings, self._spec = settings, spec
        self._other: ActionSpec | None = None
        title = tr(spec.text).rstrip("…")
        self.keys = QKeySequenceEdit()
        self.keys.setMaximumSequenceLength(1)
        self.keys.setAccessibleName(tr("Shortcut for {action}", action=title))
        self.keys.setFixedWidth(theme().px(WIDTH))
        self.keys.editingFinished.connect(self._take)
        self.clear = button(
            "", icon="cross", kind="ghost", role="muted", name=tr("Remove the shortcut for {action}", action=title)
        )
        self.clear.clicked.connect(lambda: self._save(""))
        self.reset = button(
            "", icon="refresh", kind="ghost", role="muted", name=tr("Reset the shortcut for {action}", action=title)
        )
        self.reset.clicked.connect(self._back)
        for part in (self.clear, self.reset):
            part.setToolTip(part.accessibleName())
            policy = part.sizePolicy()
            policy.setRetainSizeWhenHidden(True)
            part.setSizePolicy(policy)
        self.trouble = label("", "warn-small", wrap=True)
        self.take = button(tr("Reassign"), kind="link")
        self.take.clicked.connect(self._take_over)
        row = QHBoxLayout()
        row.setSpacing(2)
        for part in (self.keys, self.clear, self.reset):
            row.addWidget(part)
        self._conflict = QWidget()
        below = QHBoxLayout(self._conflict)
        below.setContentsMargins(0, 0, 0, 0)
        below.addWidget(self.trouble, 1)
        below.addWidget(self.take)
        self._conflict.hide()
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(4)
        box.addLayout(row)
        box.addWidget(self._conflict)

    def show_values(self, values: Settings) -> None:
        self._shown = values.shortcuts.get(self._spec.key, self._spec.shortcut)
        self.keys.setKeySequence(QKeySequence(self._shown))
        self.clear.setVisible(bool(self._shown))
        self.reset.setVisible(self._shown != self._spec.shortcut)
        self._conflict.hide()

    @Slot()
    def _back(self) -> None:
        """Somebody else may have the usual keys by now."""
        self.keys.setKeySequence(QKeySequence(self._spec.shortcut))
        self._take()

    @Slot()
    def _take(self) -> None:
        wanted = self.keys.keySequence().toString(QKeySequence.SequenceFormat.PortableText)
        if wanted == QKeySequence(self._shown).toString():
            return
        refused = refusal(self._spec.key, wanted)
        if refused:
            self.show_values(self._settings.values)
            self._complain(refused)
            return
        self._other = conflict(self._settings.values.shortcuts, self._spec.key, wanted)
        if self._other is None:
            self._save(wanted)
            return
        native = self.keys.keySequence().toString(QKeySequence.SequenceFormat.NativeText)
        other = tr(self._other.text).rstrip("…")
        self._complain(tr("{keys} is already used by: {action}", keys=native, action=other), can_take=True)

    def _complain(self, text: str, can_take: bool = False) -> None:
        self.trouble.setText(text)
        self.trouble.setAccessibleName(text)
        self.take.setVisible(can_take)
        self._conflict.show()

    @Slot()
    def _take_over(self) -> None:
        if self._other is not None:
            wanted = self.keys.keySequence().toString(QKeySequence.SequenceFormat.PortableText)
            # One of several keys of the other leaves it the rest.
            theirs = self._settings.values.shortcuts.get(self._other.key, self._other.shortcut)
            self._save(wanted, {self._other.key: ""} if QKeySequence(theirs) == self.keys.keySequence() else {})

    def _save(self, keys: str, others: dict[str, str] | None = None) -> None:
        chosen = {**self._settings.values.shortcuts, **(others or {}), self._spec.key: keys}
        kept = {key: text for key, text in chosen.items() if key in SPECS and text != SPECS[key].shortcut}
        if kept == self._settings.values.shortcuts:
            self.show_values(self._settings.values)
        else:
            self._settings.change(shortcuts=kept)


def shortcut_control(spec: ActionSpec) -> Callable[[SettingsStore], ShortcutField]:
    """Makes the field for an action."""
    return lambda settings: ShortcutField(settings, spec)
