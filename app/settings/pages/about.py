"""About: the version, and the licences of everything that is shipped."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt, Slot
from PySide6.QtWidgets import QHBoxLayout, QListWidget, QListWidgetItem, QPlainTextEdit, QVBoxLayout, QWidget

import engine
from app import tasks
from app.language import mark, tr
from app.settings.licences import Component, components
from app.settings.options import Group, Option, Page
from app.theme import theme
from app.widgets.labels import label, plain_tip
from app.widgets.logo import Logo
from app.words import in_words
from engine.errors import GreenroomError

LIST_HEIGHT, TEXT_HEIGHT = 240, 260


class _Version(QWidget):
    def __init__(self) -> None:
        super().__init__()
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(12)
        row.addWidget(Logo(36))
        text = QVBoxLayout()
        text.setSpacing(0)
        text.addWidget(label(tr("Greenroom {version}", version=engine.__version__), "heading"))
        text.addWidget(label(tr("Free software under the Apache License 2.0."), "small"))
        row.addLayout(text, 1)


class Licences(QWidget):
    """The components, and below them the terms of the chosen one. Looked up when it is first seen."""

    def __init__(self) -> None:
        super().__init__()
        self.list = QListWidget()
        self.list.setAccessibleName(tr("Components"))
        self.list.setFixedHeight(theme().px(LIST_HEIGHT))
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.currentItemChanged.connect(self._show_terms)
        self.terms = QPlainTextEdit()
        self.terms.setReadOnly(True)
        self.terms.setAccessibleName(tr("Licence text"))
        self.terms.setFixedHeight(theme().px(TEXT_HEIGHT))
        self.terms.setFont(theme().mono(11))
        self.terms.setTabChangesFocus(True)
        self.terms.hide()
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(8)
        box.addWidget(self.list)
        box.addWidget(self.terms)
        self._looked = False

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Show and not self._looked:
            self._looked = True
            self.list.addItem(tr("Loading…"))
            tasks.run(components, done=self._show, failed=self._complain)
        return super().event(event)

    def _show(self, found: list[Component]) -> None:
        self.list.clear()
        for component in found:
            licence = component.licence or tr("see licence text")
            item = QListWidgetItem(" · ".join(filter(None, (component.name, component.version, licence))))
            item.setData(Qt.ItemDataRole.UserRole, component)
            item.setToolTip(plain_tip(item.text()))
            self.list.addItem(item)

    def _complain(self, error: GreenroomError) -> None:
        self.list.addItem(in_words(error))

    @Slot()
    def _show_terms(self) -> None:
        item = self.list.currentItem()
        component = None if item is None else item.data(Qt.ItemDataRole.UserRole)
        if isinstance(component, Component):
            self.terms.setPlainText(component.terms() or tr("No licence text is included. The licence is named above."))
            self.terms.show()


PAGE = Page(
    "about",
    mark("About"),
    "info",
    (
        Group((Option("version", mark("Version"), "", lambda settings: _Version(), below=True),)),
        Group(
            (
                Option(
                    "licences",
                    mark("Licences"),
                    mark("Everything that Greenroom ships or runs on. Choose an item to read its licence."),
                    lambda settings: Licences(),
                    words="license open source credits qt torch",
                    below=True,
                ),
            )
        ),
    ),
)
