"""Controls for the network: a line that is checked before it is kept, and the access token."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, Qt, Slot
from PySide6.QtWidgets import QLineEdit, QVBoxLayout, QWidget

from app import tasks
from app.language import told, tr
from app.settings.fields import CONTROL_WIDTH
from app.theme import theme
from app.theme.theme import restyle
from app.widgets.buttons import button
from app.widgets.labels import label
from app.words import sentence
from engine.errors import GreenroomError


class Line(QWidget):
    """Saved when the user leaves it; what makes no sense is said below the field, and nothing of it is saved."""

    def __init__(self, name: str, empty: str, check: Callable[[str], object], save: Callable[[str], object]) -> None:
        """empty: what the field says while nothing is chosen; check: raises GreenroomError."""
        super().__init__()
        self._check, self._save, self._saved = check, save, ""
        self.field = QLineEdit()
        self.field.setAccessibleName(name)
        self.field.setPlaceholderText(empty)
        self.field.setFixedWidth(theme().px(CONTROL_WIDTH))
        self.field.editingFinished.connect(self._finish)
        self.trouble = label("", "warn-small", wrap=True)
        self.trouble.setFixedWidth(theme().px(CONTROL_WIDTH))
        self.trouble.hide()
        self._box = box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(4)
        box.addWidget(self.field)
        box.addWidget(self.trouble)

    def show_text(self, text: str) -> None:
        """Leaves alone what makes no sense yet."""
        self._saved = text
        if not self.field.hasFocus() and self.trouble.isHidden():
            self.field.setText(text)

    def _finish(self) -> None:
        text = self.field.text().strip()
        try:
            self._check(text)
        except GreenroomError as error:
            self._complain(f"{sentence(told(error.why))}. {told(error.remedy)}")
            return
        self._complain("")
        if text != self._saved:
            self._saved = text
            self._save(text)

    def _complain(self, text: str) -> None:
        self.trouble.setText(text)
        self.trouble.setVisible(bool(text))
        self.field.setAccessibleDescription(text)
        if self.field.property("wrong") != ("true" if text else "false"):
            self.field.setProperty("wrong", "true" if text else "false")
            restyle(self.field)


class Token(QWidget):
    """The token itself is never shown again; only where it lies is."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.field = QLineEdit()
        self.field.setEchoMode(QLineEdit.EchoMode.Password)
        self.field.setPlaceholderText("hf_…")
        self.field.setAccessibleName(tr("Access token"))
        self.field.setFixedWidth(theme().px(CONTROL_WIDTH))
        self.save = button(tr("Save"), name=tr("Save the access token"))
        self.save.clicked.connect(self._save)
        self.save.setEnabled(False)
        self.field.textChanged.connect(lambda text: self.save.setEnabled(bool(text.strip())))
        self.field.returnPressed.connect(self._save)
        self.remove = button(tr("Remove"), kind="link", name=tr("Remove the access token"))
        self.remove.clicked.connect(lambda: self._store(""))
        self.remove.hide()
        self.state = label("", "small", wrap=True)
        self.state.setFixedWidth(theme().px(CONTROL_WIDTH))
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(4)
        for part in (self.field, self.state):
            box.addWidget(part)
        box.addWidget(self.save, 0, Qt.AlignmentFlag.AlignRight)
        box.addWidget(self.remove, 0, Qt.AlignmentFlag.AlignRight)
        self._looked = False

    def event(self, event: QEvent) -> bool:
        # A keyring may ask for its password, so it is only looked into once the page is seen.
        if event.type() == QEvent.Type.Show and not self._looked:
            self._looked = True
            self._look()
        return super().event(event)

    def _look(self) -> None:
        from engine.hub.credentials import token_source

        tasks.run(token_source, done=self._show_source, failed=self._complain)

    def _show_source(self, source: str) -> None:
        said = {
            "environment": tr("Using the token from HF_TOKEN."),
            "keyring": tr("A token is saved in the keyring."),
            "none": tr("No token is saved."),
        }
        self.state.setText(said[source])
        self.remove.setVisible(source == "keyring")

    @Slot()
    def _save(self) -> None:
        if self.field.text().strip():
            self._store(self.field.text())

    def _store(self, value: str) -> None:
        from engine.hub.credentials import save_token

        tasks.run(save_token, value, done=lambda _: self._stored(), failed=self._complain, to_its_end=True)

    def _stored(self) -> None:
        self.field.clear()
        self._look()

    def _complain(self, error: GreenroomError) -> None:
        self.state.setText(sentence(f"{told(error.why)}. {told(error.remedy)}"))
