"""Fields of the settings page that stay put while the page is scrolled over them, and one for a longer text."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, Signal, Slot
from PySide6.QtGui import QFocusEvent, QHideEvent, QWheelEvent
from PySide6.QtWidgets import QDoubleSpinBox, QSpinBox, QWidget

from app.theme import theme
from app.widgets.choice import Choice
from app.widgets.plain_field import PlainField

CONTROL_WIDTH = 250
SAVE_MS = 600


class Sided(QWidget):
    """A control of several parts, which stand at the right beside its words and at the left below them."""

    def keep_left(self, left: bool) -> None:
        raise NotImplementedError


class Combo(Choice):
    """entries: (text, value)"""

    def __init__(self, name: str, entries: tuple[tuple[str, object], ...]) -> None:
        super().__init__(name)
        self.setFixedWidth(theme().px(CONTROL_WIDTH))
        for text, value in entries:
            self.addItem(text, value)


class _Spin:
    """What both kinds of number fields have in common. Their lowest value stands for "not chosen"."""

    def _prepare(self, name: str, unset: str) -> None:
        self.setSpecialValueText(unset)
        self.setAccessibleName(name)
        self.setFixedWidth(theme().px(CONTROL_WIDTH))
        self.setKeyboardTracking(False)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        # The style sheet's padding does not reach the field inside.
        self.lineEdit().setTextMargins(8, 0, 0, 0)

    def wheelEvent(self, event: QWheelEvent) -> None:
        if self.hasFocus():
            super().wheelEvent(event)
        else:
            event.ignore()


class WholeNumber(_Spin, QSpinBox):
    """chosen: int within `limits`, or None."""

    chosen = Signal(object)

    def __init__(self, name: str, limits: tuple[int, int], unset: str) -> None:
        super().__init__()
        self.setRange(limits[0] - 1, limits[1])
        self._prepare(name, unset)
        self.valueChanged.connect(lambda value: self.chosen.emit(None if value == self.minimum() else value))

    def show_value(self, value: int | None) -> None:
        self.setValue(self.minimum() if value is None else value)


class Fraction(_Spin, QDoubleSpinBox):
    """chosen: float within `limits` in steps of `step`, or None. usual: where the arrows start from."""

    chosen = Signal(object)

    def __init__(self, name: str, limits: tuple[float, float], usual: float, unset: str, step: float = 0.05) -> None:
        super().__init__()
        self._usual, self._step = usual, step
        self.setDecimals(2 if step < 0.1 else 1)
        self.setSingleStep(step)
        self.setRange(limits[0] - step, limits[1])
        self._prepare(name, unset)
        self.valueChanged.connect(self._tell)

    def show_value(self, value: float | None) -> None:
        self.setValue(self.minimum() if value is None else value)

    def stepBy(self, steps: int) -> None:
        if self.value() == self.minimum() and steps > 0:
            self.setValue(self._usual)
        else:
            super().stepBy(steps)

    @Slot(float)
    def _tell(self, value: float) -> None:
        self.chosen.emit(None if value <= self.minimum() + self._step / 4 else round(value, 2))


class LongText(PlainField):
    """written: str, a moment after the last key and when the field is left."""

    written = Signal(str)

    def __init__(self, name: str, placeholder: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(name)
        self.setPlaceholderText(placeholder)
        self.setFixedHeight(theme().px(96))
        self._soon = QTimer(self, singleShot=True, interval=SAVE_MS)
        self._soon.timeout.connect(self._tell)
        self.textChanged.connect(self._soon.start)

    def show_text(self, text: str) -> None:
        """Leaves alone what is being written."""
        if text != self.toPlainText() and not self._soon.isActive():
            self.setPlainText(text)
            self._soon.stop()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self._flush()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._flush()

    def wheelEvent(self, event: QWheelEvent) -> None:
        if self.hasFocus() and self.verticalScrollBar().maximum() > 0:
            super().wheelEvent(event)
        else:
            event.ignore()

    def _flush(self) -> None:
        if self._soon.isActive():
            self._soon.stop()
            self._tell()

    @Slot()
    def _tell(self) -> None:
        self.written.emit(self.toPlainText())
