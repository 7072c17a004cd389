"""What can be wrong with a window, found by looking at its widgets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import Qt as QtText
from PySide6.QtGui import QTextDocument
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractScrollArea,
    QAbstractSlider,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QFileDialog,
    QHeaderView,
    QKeySequenceEdit,
    QLabel,
    QLineEdit,
    QListView,
    QMenu,
    QPlainTextEdit,
    QScrollArea,
    QScrollBar,
    QStyle,
    QStyleOptionComboBox,
    QTextEdit,
    QWidget,
)

from app.palette.palette import CommandPalette
from app.widgets.labels import ElideLabel

#: What is pressed, written into or chosen from.
USED = (
    QAbstractButton,
    QAbstractSpinBox,
    QComboBox,
    QKeySequenceEdit,
    QLineEdit,
    QPlainTextEdit,
    QTextEdit,
    QAbstractSlider,
    QAbstractItemView,
)
#: Qt makes their parts; they answer for them.
WHOLE = (QAbstractSpinBox, QComboBox, QKeySequenceEdit, QLineEdit)
#: Words that are the same in every language: names, units, formats.
SAME = re.compile(
    r"/tmp/\S*|https?:\S*|\S+\.\w{2,4}\b|Greenroom|Hugging ?Face|LM Studio|Ollama|ChatGPT|JSON|Markdown|HTML|English"
    r"|Qt|PySide6|Python|tok/s|GB/s|Ctrl|Shift|Enter|Esc|int\d|avx\w*|bfloat16|float32|bf16|f16|f32|q8"
)


def own(kind: type) -> bool:
    return kind.__module__.split(".")[0] == "app"


def name_of(widget: QWidget) -> str:
    if widget.accessibleName():
        return widget.accessibleName()
    if isinstance(widget, (QAbstractButton, QLabel)):
        return widget.text()
    buddies = (label for label in widget.window().findChildren(QLabel) if label.buddy() is widget)
    return next((label.text() for label in buddies), "")


def part_of_another(widget: QWidget) -> bool:
    parent = widget.parentWidget()
    while parent is not None and not parent.isWindow():
        if isinstance(parent, WHOLE):
            return True
        parent = parent.parentWidget()
    of_qt = re.match("qt_(?!msgbox)", widget.objectName()) is not None
    return of_qt or isinstance(widget.window().parentWidget(), QComboBox)


def in_sight(root: QWidget) -> list[QWidget]:
    """The widgets of a window that can be seen at least in part, or be scrolled to; not those of windows over it."""
    return [
        widget
        for widget in (root, *root.findChildren(QWidget))
        if widget.isVisible() and widget.window() is root and not part_of_another(widget)
    ]


def used(widget: QWidget) -> bool:
    return isinstance(widget, USED) and not isinstance(widget, (QScrollBar, QHeaderView))


def takes_tab(widget: QWidget) -> bool:
    return bool(widget.focusPolicy() & Qt.FocusPolicy.TabFocus == Qt.FocusPolicy.TabFocus) and widget.isEnabled()


def reached_by_tab(widget: QWidget) -> bool:
    """What is used with the keyboard by itself. Text that is only read is not, unless a link is in it."""
    if isinstance(widget, (QTextEdit, QPlainTextEdit)) and widget.isReadOnly():
        return isinstance(widget, QTextEdit) and "href=" in widget.toHtml()
    if isinstance(widget, QListView) and in_palette(widget):
        return False  # the arrow keys of the field above it move in it
    return used(widget) and widget.isEnabled() and widget.focusProxy() is None and not one_of_several(widget)


def in_palette(widget: QWidget | None) -> bool:
    return widget is not None and (isinstance(widget, CommandPalette) or in_palette(widget.parentWidget()))


def one_of_several(widget: QWidget) -> bool:
    """Of choices that shut each other out, arrow keys lead to the others."""
    group = getattr(widget, "group", lambda: None)()
    return (group is not None and group.exclusive()) or getattr(widget, "autoExclusive", lambda: False)()


def rich(text: str) -> bool:
    return QtText.mightBeRichText(text)


def cut(widget: QWidget) -> str:
    """What of its text has no room; empty where all has."""
    metrics, inside = widget.fontMetrics(), widget.contentsRect()
    if isinstance(widget, ElideLabel):
        return ""  # says the rest in its tool tip
    if isinstance(widget, QLabel) and widget.text():
        if widget.wordWrap():
            if widget.heightForWidth(widget.width()) > widget.height() + 1:
                return f"{widget.heightForWidth(widget.width())} high in {widget.height()}"
            paper = QTextDocument()
            paper.setDefaultFont(widget.font())
            paper.setDocumentMargin(0)
            formatted = widget.textFormat() != Qt.TextFormat.PlainText and rich(widget.text())
            paper.setHtml(widget.text()) if formatted else paper.setPlainText(widget.text())
            paper.setTextWidth(1)
            longest = paper.idealWidth()
            return f"a word of {longest:.0f} in {inside.width()}" if longest > inside.width() + 1 else ""
        formatted = widget.textFormat() != Qt.TextFormat.PlainText and rich(widget.text())
        needed = widget.sizeHint() if formatted else metrics.size(0, widget.text())
        if needed.width() > inside.width() + 1 or needed.height() > widget.height() + 1:
            return f"{needed.width()} x {needed.height()} in {inside.width()} x {widget.height()}"
    elif isinstance(widget, QAbstractButton) and widget.text():
        if widget.width() < widget.minimumSizeHint().width() or widget.height() < metrics.height():
            return f"{widget.minimumSizeHint().width()} in {widget.width()} x {widget.height()}"
    elif isinstance(widget, QComboBox) and widget.currentText():
        option = QStyleOptionComboBox()
        widget.initStyleOption(option)
        parts = QStyle.ComplexControl.CC_ComboBox, QStyle.SubControl.SC_ComboBoxEditField
        room = widget.style().subControlRect(parts[0], option, parts[1], widget).width()
        if metrics.horizontalAdvance(widget.currentText()) > room:
            return f"{metrics.horizontalAdvance(widget.currentText())} in {room}"
    elif isinstance(widget, QLineEdit):
        said = widget.placeholderText() if not widget.text() else ""
        room = inside.width() - widget.textMargins().left() - widget.textMargins().right()
        if metrics.horizontalAdvance(said) > room:
            return f"“{said}” {metrics.horizontalAdvance(said)} in {room}"
    elif isinstance(widget, QAbstractSpinBox):
        room, needs = widget.lineEdit().contentsRect().width(), metrics.horizontalAdvance(widget.text())
        if needs > room:
            return f"“{widget.text()}” {needs} in {room}"
    return ""


def out_of_sight(widget: QWidget) -> str:
    """Sides that the window, or what scrolls, does not show; up and down is scrolled."""
    around, scrolls = widget.parentWidget(), False
    while around is not None and not around.isWindow():
        if isinstance(around.parentWidget(), QAbstractScrollArea) or isinstance(around, QScrollArea):
            scrolls = True
            break
        around = around.parentWidget()
    if around is None:
        return ""
    if isinstance(around, QScrollArea):
        around = around.viewport()
    place = QRect(widget.mapTo(around, QPoint()), widget.size())
    wide = place.left() < 0 or place.right() >= around.width()
    high = not scrolls and (place.top() < 0 or place.bottom() >= around.height())
    return f"{place.getRect()} in {around.width()} x {around.height()}" if wide or high else ""


def popup_faults(box: QComboBox) -> Iterator[str]:
    """What of the list that a box opens cannot be seen, read or clicked."""
    if not own(type(box)):
        yield "is not the box of this program"
    box.showPopup()
    QApplication.processEvents()
    view, rows = box.view(), range(box.count())
    popup, screen = view.window(), box.screen().availableGeometry()
    inside = view.viewport().rect()

    def place(row: int) -> QRect:
        return view.visualRect(box.model().index(row, box.modelColumn()))

    wanted = min(box.count(), box.maxVisibleItems())
    if wanted * place(0).height() > screen.height() / 2:
        wanted = 3  # the screen has no room for more
    whole = [row for row in rows if inside.contains(place(row))]
    if len(whole) < wanted or not (box.currentIndex() in whole or box.currentIndex() < 0):
        yield f"of {box.count()} rows only {whole} are whole, {box.currentIndex()} is chosen"
    if not screen.contains(popup.geometry()):
        yield f"its list is at {popup.geometry().getRect()} of {screen.getRect()}"
    for row in rows:
        wide = view.sizeHintForIndex(box.model().index(row, box.modelColumn())).width()
        if wide > place(row).width():
            yield f"“{box.itemText(row)}” of its list: {wide} in {place(row).width()}"
    view.scrollToBottom()
    if rows and not inside.contains(place(rows[-1])):
        yield f"the end of its list is out of sight: {place(rows[-1]).getRect()} in {inside.getRect()}"
    box.hidePopup()


def texts_of(widget: QWidget) -> Iterator[str]:
    """All that it says, to whomever."""
    yield from (widget.toolTip(), widget.accessibleName(), widget.accessibleDescription())
    if widget.isWindow():
        yield widget.windowTitle()
    if isinstance(widget, (QLabel, QAbstractButton)):
        yield widget.text()
    elif isinstance(widget, QComboBox):
        yield from (widget.itemText(row) for row in range(widget.count()))
    elif isinstance(widget, QAbstractSpinBox):
        yield widget.text()
    elif isinstance(widget, QMenu):
        yield from (action.text() for action in widget.actions())
    if isinstance(widget, (QLineEdit, QPlainTextEdit)):
        yield widget.placeholderText()


def foreign(text: str, known: Sequence[str]) -> bool:
    """English words in a text that has no Korean. known: what is not ours to say."""
    text = text.replace("\u2060", "")
    if re.search(r"[가-힣]", text) or "R&" in text:
        return False
    for given in known:
        text = text.replace(given, "")
    return bool(re.search(r"[a-z]{3,}", SAME.sub("", text)))


def taken_for_markup(widget: QWidget) -> Iterator[str]:
    """User's words that Qt would read as HTML, or whose & it would take for an underline."""
    if isinstance(widget, QLabel) and "R&D" in widget.text() and widget.textFormat() != Qt.TextFormat.PlainText:
        yield f"text {widget.text()!r}"
    tips = [widget.toolTip()]
    if isinstance(widget, QMenu):
        tips += [action.toolTip() for action in widget.actions()] if widget.toolTipsVisible() else []
        yield from (f"entry {a.text()!r}" for a in widget.actions() if re.search("R&D", a.text()))
    elif isinstance(widget, QAbstractButton) and "R&D" in widget.text():
        yield f"button {widget.text()!r}"
    yield from (f"tip {tip!r}" for tip in tips if "R&D" in tip and rich(tip))


def faults(root: QWidget, known: Sequence[str] | None) -> Iterator[str]:
    """known: texts that are not ours to translate, when the window is Korean; None in English."""
    theirs = isinstance(root, QFileDialog)  # the system's, or Qt's own
    for widget in in_sight(root):
        if widget.visibleRegion().isEmpty() or theirs:
            continue
        who = f"{type(widget).__name__} “{name_of(widget)[:60]}”"
        tab = bool(widget.focusPolicy() & Qt.FocusPolicy.TabFocus)
        if (used(widget) or (tab and own(type(widget)))) and widget is not root and not name_of(widget):
            yield f"{who}: has no name"
        if reached_by_tab(widget) and not tab:
            yield f"{who}: Tab does not reach it"
        if said := cut(widget):
            yield f"{who}: {said}"
        if isinstance(widget, QComboBox) and widget.isEnabled():
            yield from (f"{who}: {said}" for said in popup_faults(widget))
        if isinstance(widget, (*USED, QLabel)) and (said := out_of_sight(widget)):
            yield f"{who}: out of sight, {said}"
        yield from (f"{who}: markup, {said}" for said in taken_for_markup(widget))
        if known is not None:
            yield from (f"{who}: English, “{text[:80]}”" for text in texts_of(widget) if foreign(text, known))
