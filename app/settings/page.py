"""The Settings: pages at the left, their options at the right, and a search over all of them."""

from __future__ import annotations

from PySide6.QtCore import QTimer, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QButtonGroup, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app.language import tr
from app.settings.fields import Combo
from app.settings.pages import PAGES
from app.settings.section import Row, Section
from app.settings.store import SettingsStore
from app.theme import theme
from app.widgets.buttons import button
from app.widgets.labels import label
from app.widgets.page import MARGIN, PageHead, scrolled

NAVIGATION_WIDTH, SEARCH_WIDTH = 190, 220
CONTENT_WIDTH = 760
#: A narrower page has its list of pages in a box above the options.
NARROW = 720


class SettingsPage(QWidget):
    """Every change holds at once. Pages are made when they are first shown, or searched."""

    def __init__(self, settings: SettingsStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._settings = settings
        self._sections: dict[str, Section] = {}
        #: The key of the page that is shown when nothing is searched.
        self.section = PAGES[0].key

        self.search = QLineEdit()
        self.search.setPlaceholderText(tr("Search settings"))
        self.search.setAccessibleName(tr("Search settings"))
        self.search.setClearButtonEnabled(True)
        self.search.setFixedWidth(theme().px(SEARCH_WIDTH))
        self.search.textChanged.connect(self._show)
        head = PageHead(tr("Settings"))
        head.add(self.search)

        self._navigation = QWidget()
        self._navigation.setFixedWidth(theme().px(NAVIGATION_WIDTH))
        pages = QVBoxLayout(self._navigation)
        pages.setContentsMargins(0, 16, 0, 0)
        pages.setSpacing(2)
        self._group = QButtonGroup(self)
        self.entries = {}
        for page in PAGES:
            entry = button(tr(page.title), icon=page.icon, kind="nav", role="muted")
            entry.setCheckable(True)
            entry.clicked.connect(lambda checked=False, key=page.key: self.show_section(key))
            self._group.addButton(entry)
            self.entries[page.key] = entry
            pages.addWidget(entry)
        pages.addStretch(1)
        self.box = Combo(tr("Settings page"), tuple((tr(page.title), page.key) for page in PAGES))
        self.box.activated.connect(lambda: self.show_section(self.box.currentData()))

        self._content = QVBoxLayout()
        self._content.setSpacing(8)
        self._nothing = label(tr("No settings found."), "muted", wrap=True)
        self._content.addWidget(self._nothing)
        self._content.addStretch(1)
        self._area = scrolled(self._content, CONTENT_WIDTH)
        self._row = QHBoxLayout()
        self._row.setSpacing(0)
        self._row.addWidget(self._navigation)
        self._row.addWidget(self._area, 1)
        top = QVBoxLayout()
        top.setContentsMargins(MARGIN, 20, MARGIN, 0)
        top.addWidget(head)
        top.addWidget(self.box)
        # On a wide screen all of it stands in the middle.
        inner = QWidget()
        inner.setMaximumWidth(theme().px(NAVIGATION_WIDTH + CONTENT_WIDTH) + 3 * MARGIN)
        outer = QHBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(inner)
        column = QVBoxLayout(inner)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(top)
        column.addLayout(self._row, 1)
        self.show_section(self.section)

    def show_section(self, key: str, option: str = "") -> None:
        """A page by its key, and one of its options in sight and ready for the keyboard."""
        self.section = key
        self.search.blockSignals(True)
        self.search.clear()
        self.search.blockSignals(False)
        self._show()
        self._area.verticalScrollBar().setValue(0)
        row = self.row(option) if option else None
        if row is not None:
            # Where it is, is known after the layout.
            QTimer.singleShot(0, row, lambda: self._reveal(row))

    @property
    def focused(self) -> str:
        """The option that has the keyboard; empty when none has."""
        focus = self.focusWidget()
        rows = (row for section in self._sections.values() for row in section.rows)
        return next((row.option.name for row in rows if focus is not None and row.isAncestorOf(focus)), "")

    def row(self, name: str) -> Row | None:
        """The line of an option on the page that is shown."""
        return self.section_view(self.section).row(name)

    def section_view(self, key: str) -> Section:
        """A page's widget; made if there is none yet."""
        found = self._sections.get(key)
        if found is None:
            page = next(page for page in PAGES if page.key == key)
            found = self._sections[key] = Section(page, self._settings)
            place = sum(1 for other in PAGES[: PAGES.index(page)] if other.key in self._sections)
            self._content.insertWidget(place, found)
        return found

    def _reveal(self, row: Row) -> None:
        self._area.ensureWidgetVisible(row, 0, 40)
        row.focus()

    @Slot()
    def _show(self) -> None:
        words = self.search.text().casefold().split()
        left = 0
        for page in PAGES:
            if words or page.key == self.section:
                section = self.section_view(page.key)
                found = section.filter(words)
                section.setVisible(found > 0)
                left += found
            elif page.key in self._sections:
                self._sections[page.key].hide()
        self._nothing.setVisible(left == 0)
        self._group.setExclusive(False)
        for key, entry in self.entries.items():
            entry.setChecked(key == self.section and not words)
        self._group.setExclusive(True)
        self.box.setCurrentIndex(self.box.findData(self.section))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        narrow = self.width() < theme().px(NARROW)
        self._navigation.setVisible(not narrow)
        self.box.setVisible(narrow)
        # The options have their own margin.
        self._row.setContentsMargins(0 if narrow else MARGIN, 0, 0, 0)
