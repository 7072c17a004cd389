"""What an empty chat shows: a greeting, examples to start from, and the truth about the demonstration model."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication, Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QScrollArea, QVBoxLayout, QWidget

from app.widgets.labels import label

WIDTH = 480
EXAMPLES = (
    "What is the capital of France?",
    "Explain in three sentences why the sky is blue.",
    "Write a short poem about the sea.",
)


class Welcome(QScrollArea):
    """Says what to do next and offers examples. Where the window is too short for all of it, it scrolls."""

    exampleChosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._hint = label(self.tr("What would you like to know?"))
        self._hint.setObjectName("hint")
        self._detail = label("", "muted", wrap=True)
        self._demo = label(
            self.tr("This is a small demonstration model, and it makes mistakes."),
            "small",
            wrap=True,
        )
        for part in (self._hint, self._detail, self._demo):
            part.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.examples = [self._example(text) for text in EXAMPLES]
        page = QWidget()
        page.setProperty("surface", "page")
        inner = QWidget(page)
        inner.setMaximumWidth(WIDTH)
        column = QVBoxLayout(inner)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(10)
        column.addWidget(self._hint)
        column.addWidget(self._detail)
        column.addSpacing(12)
        for example in self.examples:
            column.addWidget(example)
        column.addSpacing(8)
        column.addWidget(self._demo)
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

    @property
    def detail(self) -> str:
        return self._detail.text()

    @property
    def demo_note_shown(self) -> bool:
        return not self._demo.isHidden()

    def show_state(self, kind: str, model: str, demo: bool) -> None:
        """kind: as in HostState."""
        if kind in ("ready", "generating"):
            text = self.tr("{0} is ready. What you write stays on this PC.").format(model)
        elif kind in ("planning", "loading"):
            text = self.tr("{0} is being loaded. You can already write.").format(model)
        else:
            text = self.tr("Choose a model at the top of the window to begin.")
        self._detail.setText(text)
        self._demo.setVisible(demo and kind in ("planning", "loading", "ready", "generating"))

    def _example(self, text: str) -> QPushButton:
        shown = QCoreApplication.translate("Welcome", text)
        made = QPushButton(shown, self)
        made.setObjectName("example")
        made.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        made.clicked.connect(lambda: self.exampleChosen.emit(shown))
        return made
