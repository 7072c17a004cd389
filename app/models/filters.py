"""The line over the models list: a field to filter and to search with, and what is listed in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt, QTimer, Signal, Slot
from PySide6.QtGui import QAction, QActionGroup, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QMenu, QPushButton, QWidget

from app.language import mark, tr
from app.theme import theme
from app.widgets.hint_field import HintField

#: A pause in typing after which the list is filtered.
FILTER_MS = 120
#: Gigabytes.
SIZES = (8, 16, 32, 64, 128, 256)
SORTS = (
    (mark("Recommended"), "recommended"),
    (mark("By name"), "name"),
    (mark("Smallest first"), "size"),
    (mark("Fastest first"), "speed"),
)
_GAP = 8


class FilterLine(QWidget):
    #: The text, after a pause in typing.
    textChanged = Signal(str)
    #: The text, when the user pressed Enter.
    searchWanted = Signal(str)
    #: Fields of `Filter` by name, with their new values.
    chosen = Signal(dict)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        whole = tr("Filter, or press Enter to search Hugging Face")
        self.search = HintField((whole, tr("Filter, or Enter to search"), tr("Filter")))
        self.search.setAccessibleName(tr("Filter models, or press Enter to search Hugging Face"))
        self.search.setClearButtonEnabled(True)
        self.search.setMinimumWidth(theme().px(140))
        self.search.setMaximumWidth(theme().px(360))
        self.search.returnPressed.connect(lambda: self.searchWanted.emit(self.text))
        self.fits = _toggle(tr("Fits this PC"))
        self.fits.toggled.connect(lambda on: self.chosen.emit({"fits": on}))
        self.free = _toggle(tr("Free licence"))
        self.free.setToolTip(tr("Only models that anyone may use for any purpose"))
        self.free.toggled.connect(lambda on: self.chosen.emit({"free": on}))
        sizes = [(tr("Any size"), 0), *((tr("Up to {size} GB", size=n), n * 10**9) for n in SIZES)]
        self.sizes = _choice(tr("Size"), sizes, lambda value: self.chosen.emit({"largest": value}))
        sorts = [(tr(text), key) for text, key in SORTS]
        self.sorts = _choice(tr("Sort order"), sorts, lambda value: self.chosen.emit({"sort": value}))
        self._choices, self._pairs = QBoxLayout(QBoxLayout.Direction.LeftToRight), []
        self._choices.setSpacing(_GAP)
        for parts in ((self.fits, self.free), (self.sizes, self.sorts)):
            pair = QHBoxLayout()
            pair.setSpacing(_GAP)
            for part in parts:
                pair.addWidget(part)
            self._pairs.append(pair)
            self._choices.addLayout(pair)
        self._pairs[1].addStretch(1)
        self._row = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        self._row.setContentsMargins(0, 0, 0, 0)
        self._row.setSpacing(_GAP)
        self._row.addWidget(self.search, 3)
        self._row.addLayout(self._choices, 1)

        self._pause = QTimer(self, singleShot=True, interval=FILTER_MS)
        self._pause.timeout.connect(lambda: self.textChanged.emit(self.text))
        self.search.textChanged.connect(lambda _: self._pause.start())

    @property
    def text(self) -> str:
        return self.search.text().strip()

    @property
    def choices(self) -> tuple[object, ...]:
        """What is written and chosen, for `choose`."""
        toggles = (self.fits.isChecked(), self.free.isChecked())
        places = (_places(made).index(True) for made in (self.sizes, self.sorts))
        return (self.search.text(), *toggles, *places)

    def choose(self, choices: tuple[object, ...]) -> None:
        text, fits, free, *places = choices
        self.search.setText(text)
        self.fits.setChecked(fits)
        self.free.setChecked(free)
        for made, place in zip((self.sizes, self.sorts), places, strict=True):
            made.menu().actions()[place].trigger()

    @Slot()
    def filter_soon(self) -> None:
        """After the pause, as if the user had typed; once for many calls."""
        if not self._pause.isActive():
            self._pause.start()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """In a narrow window the choices stand below the field, and below each other where even that is too long."""
        super().resizeEvent(event)
        line = sum(pair.sizeHint().width() + _GAP for pair in self._pairs)
        for layout, needed in ((self._choices, line), (self._row, line + self.search.minimumWidth() + _GAP)):
            fits = self.width() >= needed
            layout.setDirection(QBoxLayout.Direction.LeftToRight if fits else QBoxLayout.Direction.TopToBottom)


def _places(made: QPushButton) -> list[bool]:
    return [action.isChecked() for action in made.menu().actions()]


def _toggle(text: str) -> QPushButton:
    made = QPushButton(text)
    made.setCheckable(True)
    made.setProperty("chip", "plain")
    made.setAccessibleName(text)
    made.setFocusPolicy(Qt.FocusPolicy.TabFocus)
    return made


def _choice(name: str, entries: Sequence[tuple[str, object]], chosen: Callable[[object], object]) -> QPushButton:
    """A chip that opens a menu with one choice; it shows what is chosen."""
    made = _toggle(entries[0][0])
    made.setCheckable(False)
    made.setAccessibleName(f"{name}: {entries[0][0]}")
    menu, group = QMenu(made), QActionGroup(made)

    def take(action: QAction) -> None:
        made.setText(action.text())
        made.setAccessibleName(f"{name}: {action.text()}")
        chosen(action.data())

    for number, (text, value) in enumerate(entries):
        action = group.addAction(text)
        action.setCheckable(True)
        action.setChecked(number == 0)
        action.setData(value)
        menu.addAction(action)
    group.triggered.connect(take)
    made.setMenu(menu)
    return made
