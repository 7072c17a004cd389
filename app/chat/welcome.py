"""What an empty chat shows: a greeting, examples to start from, and the truth about the demonstration model."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QHBoxLayout, QPushButton, QScrollArea, QVBoxLayout, QWidget

from app.language import mark, tr
from app.theme import theme
from app.widgets.buttons import ElideButton, button
from app.widgets.labels import label

WIDTH = 480
EXAMPLES = (
    mark("What is the capital of France?"),
    mark("Explain in three sentences why the sky is blue."),
    mark("Write a short poem about the sea."),
)


class Welcome(QScrollArea):
    """Says what to do next and offers examples. Where the window is too short for all of it, it scrolls."""

    exampleChosen = Signal(str)
    modelsWanted = Signal()
    #: A model file is to be chosen.
    fileWanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._hint = label(tr("What would you like to know?"), wrap=True)
        self._hint.setObjectName("hint")
        self._detail = label("", "muted", wrap=True)
        self._demo = label(
            tr("This is a small demo model. It makes mistakes."),
            "small",
            wrap=True,
        )
        for part in (self._hint, self._detail, self._demo):
            part.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.examples = [self._example(text) for text in EXAMPLES]
        page = QWidget()
        page.setProperty("surface", "page")
        inner = QWidget(page)
        inner.setMaximumWidth(theme().px(WIDTH))
        column = QVBoxLayout(inner)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(10)
        column.addWidget(self._hint)
        column.addWidget(self._detail)
        self.models = button(tr("Choose a model"), kind="primary")
        self.models.clicked.connect(self.modelsWanted)
        self.file = button(tr("Open a model file…"))
        self.file.clicked.connect(self.fileWanted)
        self._ways = ways = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        ways.setSpacing(8)
        ways.addStretch(1)
        ways.addWidget(self.models)
        ways.addWidget(self.file)
        ways.addStretch(1)
        column.addLayout(ways)
        column.addSpacing(12)
        for example in self.examples:
            column.addWidget(example)
        column.addSpacing(8)
        column.addWidget(self._demo)
        self.bigger = ElideButton(tr("Browse models for this PC"))
        self.bigger.setProperty("kind", "link")
        self.bigger.clicked.connect(self.modelsWanted)
        column.addWidget(self.bigger)
        outer = QVBoxLayout(page)
        outer.setContentsMargins(24, 16, 24, 16)
        # An alignment instead of these stretches would take the height of unwrapped text for the whole height.
        centred = QHBoxLayout()
        centred.addStretch(1)
        centred.addWidget(inner, 1000)
        centred.addStretch(1)
        outer.addStretch(2)
        outer.addLayout(centred)
        outer.addStretch(3)
        self.setWidget(page)
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        line = self.models.sizeHint().width() + self.file.sizeHint().width() + 8 + 48
        directions = QBoxLayout.Direction
        self._ways.setDirection(directions.LeftToRight if line <= self.width() else directions.TopToBottom)

    @property
    def detail(self) -> str:
        return self._detail.text()

    @property
    def demo_note_shown(self) -> bool:
        return not self._demo.isHidden()

    def show_state(self, kind: str, model: str, demo: bool, offline: bool = False) -> None:
        """kind: as in HostState. offline: the settings keep Greenroom off the network."""
        ready, busy = kind in ("ready", "generating"), kind in ("planning", "loading")
        if ready:
            text = tr("{model} is ready. What you write stays on this PC.", model=model)
        elif busy:
            text = tr("Loading {model}. You can start writing.", model=model)
        elif offline:
            text = tr("Greenroom is set to work offline. Choose a model on this PC to begin.")
        else:
            text = tr("Choose a model to begin.")
        self._detail.setText(text)
        for part in (self.models, self.file):
            part.setVisible(not ready and not busy)
        self._demo.setVisible(demo and (ready or busy))
        self.bigger.setVisible(demo and (ready or busy))

    def _example(self, text: str) -> QPushButton:
        shown = tr(text)
        made = ElideButton(shown, self)
        made.setObjectName("example")
        made.clicked.connect(lambda: self.exampleChosen.emit(shown))
        return made
