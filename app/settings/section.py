"""One page of the settings on the screen: its options on cards, and the way back to the defaults."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.language import tr
from app.settings.fields import Sided
from app.settings.options import Option, Page
from app.settings.store import Settings, SettingsStore
from app.theme import theme
from app.widgets.buttons import button
from app.widgets.labels import label

#: Words narrower than this stand above their control.
LEAST_WORDS = 150
_LEFT = Qt.AlignmentFlag.AlignLeft


class Row(QFrame):
    """An option's words and its control."""

    def __init__(self, option: Option, settings: SettingsStore, first: bool) -> None:
        super().__init__()
        self.option = option
        self.control = option.make(settings)
        self.setProperty("surface", "row")
        self.setProperty("first", "true" if first else "false")
        self._line = line = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        text = QVBoxLayout()
        text.setSpacing(2)
        # Beside a tall control title and explanation stay together.
        text.addStretch(1)
        title = tr(option.title).rstrip("…")
        text.addWidget(label(title, "strong" if option.said or option.below else ""))
        if option.said:
            text.addWidget(label(tr(option.said), "small", wrap=True))
        text.addStretch(1)
        line.addLayout(text, 1)
        line.addWidget(self.control)
        self._stack(option.below)
        said = (title, tr(option.said) if option.said else "", option.title, option.said, option.words)
        self._found_by = " ".join(said).casefold()

    def _stack(self, below: bool) -> None:
        """The control below the words, or beside them."""
        self._line.setDirection(QBoxLayout.Direction.TopToBottom if below else QBoxLayout.Direction.LeftToRight)
        self._line.setStretch(0, 0 if below else 1)
        self._line.setAlignment(self.control, _LEFT if below and not self.option.below else Qt.AlignmentFlag(0))
        if isinstance(self.control, Sided):
            self.control.keep_left(below)
        self._line.setContentsMargins(16, 10, 16, 14 if below else 10)
        self._line.setSpacing(8 if below else 24)

    def minimumSizeHint(self) -> QSize:
        """It may be as narrow as its control: the words then go above."""
        hint = super().minimumSizeHint()
        return hint if self.option.below else QSize(self.control.minimumSizeHint().width() + 32, hint.height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if not self.option.below:
            control = max(self.control.minimumWidth(), self.control.sizeHint().width())
            self._stack(self.width() < theme().px(LEAST_WORDS) + control + 56)

    def load(self, values: Settings) -> None:
        """What is shown is not taken for a choice of the user."""
        if self.option.load is not None:
            self.control.blockSignals(True)
            self.option.load(self.control, values)
            self.control.blockSignals(False)

    def matches(self, words: list[str]) -> bool:
        return all(word in self._found_by for word in words)

    def focus(self) -> None:
        """The keyboard into its control, or into the first part of it that takes it."""
        parts = [self.control, *self.control.findChildren(QWidget)]
        target = next((p for p in parts if p.focusPolicy() & Qt.FocusPolicy.TabFocus and p.isVisibleTo(self)), None)
        if target is not None:
            target.setFocus(Qt.FocusReason.OtherFocusReason)


class Section(QWidget):
    def __init__(self, page: Page, settings: SettingsStore) -> None:
        super().__init__()
        self.page = page
        self._settings = settings
        self.reset = button(
            tr("Reset to defaults"), kind="link", name=tr("{page}: reset to defaults", page=tr(page.title))
        )
        self.reset.clicked.connect(lambda: settings.reset(page.fields))
        head = QHBoxLayout()
        head.addWidget(label(tr(page.title), "heading"), 1)
        head.addWidget(self.reset, 0, Qt.AlignmentFlag.AlignBottom)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 12)
        column.setSpacing(8)
        column.addLayout(head)
        if page.intro:
            column.addWidget(label(tr(page.intro), "small", wrap=True))
        self.rows: list[Row] = []
        self._cards: list[tuple[QLabel | None, QFrame, list[Row]]] = []
        for group in page.groups:
            heading = None
            if group.title:
                heading = label(tr(group.title), "faint")
                heading.setContentsMargins(4, 8, 0, 0)
                column.addWidget(heading)
            card, rows = self._card(group.options)
            column.addWidget(card)
            self._cards.append((heading, card, rows))
            self.rows += rows
        self._title_words = f"{tr(page.title)} {page.title}".casefold()
        settings.changed.connect(self._follow)
        self._show_all()

    def _card(self, options: tuple[Option, ...]) -> tuple[QFrame, list[Row]]:
        card = QFrame()
        card.setProperty("surface", "card")
        box = QVBoxLayout(card)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(0)
        rows = [Row(option, self._settings, number == 0) for number, option in enumerate(options)]
        for row in rows:
            box.addWidget(row)
        return card, rows

    def row(self, name: str) -> Row | None:
        """The line of the option of that name."""
        return next((row for row in self.rows if row.option.name == name), None)

    def filter(self, words: list[str]) -> int:
        """Only lines with all these words; all of them when there are none. How many are left."""
        left = 0
        whole = bool(words) and all(word in self._title_words for word in words)
        for heading, card, rows in self._cards:
            shown = [row for row in rows if not words or whole or row.matches(words)]
            for row in rows:
                row.setVisible(row in shown)
            card.setVisible(bool(shown))
            if heading is not None:
                heading.setVisible(bool(shown))
            left += len(shown)
        return left

    def _show_all(self) -> None:
        values = self._settings.values
        for row in self.rows:
            row.load(values)
        self._offer_reset(values)

    @Slot(object)
    def _follow(self, names: set[str]) -> None:
        values = self._settings.values
        for row in self.rows:
            if not row.option.fields or names & set(row.option.fields):
                row.load(values)
        self._offer_reset(values)

    def _offer_reset(self, values: Settings) -> None:
        usual = Settings()
        self.reset.setVisible(any(getattr(values, name) != getattr(usual, name) for name in self.page.fields))
