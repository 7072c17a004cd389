"""What a model thought before it answered, folded."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QFrame, QPushButton, QVBoxLayout, QWidget

from app.chat.rendering.body_view import BodyView
from app.chat.speed.figures import seconds
from app.language import tr


class ThoughtView(QFrame):
    """A thinking section, closed at first. Its text is laid out only while it is open."""

    linkChosen = Signal(str)
    #: It has become taller or shorter.
    resized = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("thought")
        self._toggle = QPushButton(self)
        self._toggle.setObjectName("thoughtToggle")
        self._toggle.setCheckable(True)
        self._toggle.toggled.connect(self._show_body)
        self._body = BodyView("muted", self)
        self._body.linkChosen.connect(self.linkChosen)
        self._body.resized.connect(self._refit)
        self._body.hide()
        self._text = ""
        self._thinking = False
        self._caption = ""
        column = QVBoxLayout(self)
        column.setContentsMargins(1, 1, 1, 1)
        column.setSpacing(0)
        column.addWidget(self._toggle)
        column.addWidget(self._body, 0, Qt.AlignmentFlag.AlignHCenter)
        column.addStretch()

    @property
    def toggle(self) -> QPushButton:
        return self._toggle

    def show_thought(self, text: str, thinking: bool, took: float | None) -> None:
        """took: seconds so far, None when nobody measured."""
        if thinking:
            self._caption = tr("Thinking… {time}", time=seconds(took or 0.0))
        elif took is None:
            self._caption = tr("Thinking")
        else:
            self._caption = tr("Thought for {time}", time=seconds(took))
        self._text = text
        self._thinking = thinking
        self._show_caption()
        if self._toggle.isChecked():
            self._body.grow(text)
            if not thinking:
                self._body.finish()
            self._fit()

    def set_width(self, width: int) -> None:
        self.setFixedWidth(width)
        self._body.set_width(width - 28)
        self._fit()

    def restyle(self) -> None:
        self._body.restyle()
        self._fit()

    def _fit(self) -> None:
        self.ensurePolished()
        closed = self._toggle.sizeHint().height() + 2
        self.setFixedHeight(closed + self._body.height() + 11 if self._toggle.isChecked() else closed)

    def _show_caption(self) -> None:
        self._toggle.setText(("▾ " if self._toggle.isChecked() else "▸ ") + self._caption)

    @Slot(bool)
    def _show_body(self, on: bool) -> None:
        self._show_caption()
        if on and self._thinking:
            self._body.grow(self._text)
        elif on:
            self._body.set_text(self._text)
        self._body.setVisible(on)
        self._refit()

    @Slot()
    def _refit(self) -> None:
        self._fit()
        self.resized.emit()
