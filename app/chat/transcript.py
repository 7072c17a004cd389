"""The messages of the open chat, one below the other, built as far as they are looked at.

A message far from sight gives its widgets back and leaves only its room: a window with the widgets of hundreds of
messages takes seconds to change its colours.
"""

from __future__ import annotations

import time

from PySide6.QtCore import QEvent, QObject, QPoint, QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QFrame,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QSpacerItem,
    QVBoxLayout,
    QWidget,
)

from app.chat.controller import Stream
from app.chat.message_view import AnswerView, FiguresLabel, QuestionView
from app.chat.storage.store import StoredMessage
from app.language import tr
from app.theme import theme

#: Width of the column, what is left around it, and from one message to the next.
COLUMN, MARGIN, GAP = 652, 24, 24
#: Messages built at once when a chat opens and when older ones come into sight, and the seconds that may take once
#: they are two windows high.
BATCH, FEWEST, BUDGET = 30, 2, 0.1
#: Pixels from an end that count as being there.
NEAR_END, NEAR_TOP = 32, 400
#: Messages are built from this many viewport heights away on, and given back beyond that many.
BUILD_AT, KEEP_TO = 1, 3
RELEASE_MS = 300
#: Pixels kept for a message that was never built.
GUESSED_HEIGHT = 160


class Room(QSpacerItem):
    """Stands where the message was, as tall as it was. A widget would cost its styles' ten kilobytes in each place."""

    def __init__(self, message: StoredMessage, height: int) -> None:
        # The column keeps no distance from what is not a widget.
        super().__init__(0, height + GAP, QSizePolicy.Policy.Minimum, QSizePolicy.Policy.Fixed)
        self.message = message

    def y(self) -> int:
        return self.geometry().y()

    def height(self) -> int:
        return self.sizeHint().height() - GAP


MessageView = QuestionView | AnswerView


class Transcript(QScrollArea):
    """Follows the end while an answer grows, unless the user has scrolled up."""

    editWanted = Signal(object)
    regenerateWanted = Signal(object)
    figuresWanted = Signal(object)
    menuWanted = Signal(object, QPoint)
    versionWanted = Signal(object, int)
    #: MessageView: the widgets of a message were made, or made anew
    viewMade = Signal(object)
    linkChosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setAccessibleName(tr("Messages"))
        self._content = QWidget()
        self._content.setProperty("surface", "page")
        self._column = QVBoxLayout(self._content)
        self._column.setContentsMargins(MARGIN, MARGIN, MARGIN, MARGIN)
        self._column.setSpacing(GAP)
        self._column.addStretch()
        self.setWidget(self._content)
        self._messages: list[StoredMessage] = []
        self._stream: Stream | None = None
        #: Views of the messages from `_first` on.
        self._views: list[MessageView | Room] = []
        self._first = 0
        #: Views that still have the colours of another theme.
        self._stale: set[MessageView] = set()
        self._following = True
        #: The scroll bar moves because of us; views change because of us.
        self._settling = self._building = False
        self._release_soon = QTimer(self, singleShot=True, interval=RELEASE_MS)
        self._release_soon.timeout.connect(self.release_far)
        self._jump = QPushButton(self.viewport())
        self._jump.setObjectName("jump")
        self._jump.setFixedSize(theme().px(32), theme().px(32))
        self._jump.setIconSize(QSize(theme().px(16), theme().px(16)))
        self._jump.setAccessibleName(tr("Scroll to bottom"))
        self._jump.setToolTip(tr("Scroll to bottom"))
        theme().bind_icon(self._jump, "chevron-down", "text")
        self._jump.clicked.connect(self.go_to_end)
        self._jump.hide()
        self.verticalScrollBar().valueChanged.connect(self._scrolled)
        theme().changed.connect(self._restyle)
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        app.focusChanged.connect(self._show_focus)

    @property
    def views(self) -> list[MessageView]:
        """The messages whose widgets exist now."""
        return [view for view in self._views if not isinstance(view, Room)]

    def show_messages(self, messages: list[StoredMessage], stream: Stream | None, stay: bool = False) -> None:
        """Show a path. stream: the answer among them that is being written. stay: keep the place that is looked at."""
        self._building = True
        place = self.verticalScrollBar().value()
        same = 0
        for old, new in zip(self._messages, messages, strict=False):
            if old != new or (stream is not None and new.id == stream.message_id):
                break
            same += 1
        while self._views and self._first + len(self._views) > same:
            self._drop(self._views.pop())
        self._messages, self._stream = messages, stream
        for view, message in zip(self._views, messages[self._first :], strict=False):
            # It says the same, and the text of a long chat should be there once.
            view.message = message
        if not self._views:
            self._first = len(messages)
            self._build_older()
        for message in messages[self._first + len(self._views) :]:
            self._insert(len(self._views), self._make(message))
        self._building = False
        self._following = not stay
        self._settle(place if stay else None)
        if stay:
            self._follow_at_end()

    def grow(self, stream: Stream) -> None:
        """Show the text that has come for a streaming answer, if it is one of these."""
        view = self._answer(stream.message_id)
        if view is not None:
            view.grow(stream.text, stream.thought_s)

    def finish(self, message: StoredMessage) -> None:
        """A streaming answer is whole."""
        if self._stream is not None and self._stream.message_id == message.id:
            self._stream = None
        self._messages = [message if old.id == message.id else old for old in self._messages]
        view = self._answer(message.id)
        if view is not None:
            view.finish(message)

    def go_to(self, message_id: int) -> None:
        """Bring a message of the path to the upper edge. One that is not there changes nothing."""
        place = next((n for n, message in enumerate(self._messages) if message.id == message_id), None)
        if place is None:
            return
        self._building = True
        while self._first > place:
            # Only what comes into sight is built; what lies between keeps a guessed room until then.
            self._first -= 1
            message = self._messages[self._first]
            self._insert(0, Room(message, GUESSED_HEIGHT))
        self._building = False
        self._following = False
        self._lay_out()
        self._settle(max(0, self._views[place - self._first].y() - MARGIN))
        # What was built above it may be taller than its room was.
        self._settle(max(0, self._views[place - self._first].y() - MARGIN))
        self._follow_at_end()

    @property
    def place(self) -> tuple[int, float] | None:
        """The message at the upper edge and what share of it lies above; None while the end is followed."""
        top = self.verticalScrollBar().value()
        below = (view for view in self._views if view.y() + view.height() > top)
        view = None if self._following else next(below, None)
        return None if view is None else (view.message.id, (top - view.y()) / max(1, view.height()))

    def return_to(self, message_id: int, share: float) -> None:
        """Go to a `place`."""
        self.go_to(message_id)
        for _ in range(2):
            # What was built above it may be taller than its room was.
            view = next((view for view in self._views if view.message.id == message_id), None)
            if view is None:
                return
            self._following = False
            self._settle(max(0, view.y() + round(share * view.height())))
        self._follow_at_end()

    def unfold(self, message_id: int) -> None:
        """Show what the model thought before an answer."""
        self.go_to(message_id)
        view = self._answer(message_id)
        if view is not None and view.thought is not None:
            view.thought.toggle.setChecked(True)

    def _follow_at_end(self) -> None:
        bar = self.verticalScrollBar()
        self._following = bar.value() >= bar.maximum() - NEAR_END
        self._show_jump()

    @Slot()
    def go_to_end(self) -> None:
        self._following = True
        self._settle()

    def _answer(self, message_id: int) -> AnswerView | None:
        for view in reversed(self._views):
            if view.message.id == message_id and isinstance(view, AnswerView):
                return view
        return None

    def _build_older(self) -> None:
        """Build messages before the first one built, newest of them first."""
        until, height = time.perf_counter() + BUDGET, 0
        for built in range(BATCH):
            enough = built >= FEWEST and height >= 2 * self.viewport().height()
            if self._first == 0 or (enough and time.perf_counter() > until):
                break
            self._first -= 1
            self._insert(0, self._make(self._messages[self._first]))
            height += self._views[0].height()

    def _make(self, message: StoredMessage) -> MessageView:
        view: MessageView
        if message.role == "user":
            view = QuestionView(message, self._content)
            view.editWanted.connect(self.editWanted)
        else:
            stream = self._stream if self._stream is not None and self._stream.message_id == message.id else None
            view = AnswerView(message, stream is not None, self._content)
            view.regenerateWanted.connect(self.regenerateWanted)
            view.figuresWanted.connect(self.figuresWanted)
            view.resized.connect(self._view_resized)
            if stream is not None and stream.text:
                view.grow(stream.text, stream.thought_s)
        view.menuWanted.connect(self.menuWanted)
        view.versionWanted.connect(self.versionWanted)
        view.linkChosen.connect(self.linkChosen)
        return view

    @Slot()
    def release_far(self) -> None:
        """Give back the widgets of messages that are far from sight."""
        top, bottom = self._sight(KEEP_TO)
        focus = self.window().focusWidget()
        for place, view in enumerate(self._views):
            near = view.y() <= bottom and view.y() + view.height() >= top
            if near or isinstance(view, Room) or not view.releasable or (focus and view.isAncestorOf(focus)):
                continue
            self._drop(view)
            del self._views[place]
            self._insert(place, Room(view.message, view.height()))
        before, self._settling = self._settling, True
        self._lay_out()
        self._settling = before

    def _build_near(self) -> None:
        """Build what comes into sight, without moving what is looked at."""
        top, bottom = self._sight(BUILD_AT)
        bar = self.verticalScrollBar()
        value = bar.value()
        shift, before = 0, (self._settling, self._building)
        self._settling = self._building = True
        for place, room in enumerate(self._views):
            if isinstance(room, Room) and room.y() <= bottom and room.y() + room.height() >= top:
                view = self._make(self._messages[self._first + place])
                self._drop(room)
                del self._views[place]
                self._insert(place, view)
                # Its height may be another when the window has become wider or narrower meanwhile.
                shift += view.height() - room.height() if room.y() + room.height() <= value else 0
        self._lay_out()
        if shift:
            bar.setValue(value + shift)
        self._settling, self._building = before

    def _sight(self, margin: int) -> tuple[int, int]:
        """The part of the content in sight, and `margin` viewport heights around it: top and bottom in pixels."""
        top, height = self.verticalScrollBar().value(), self.viewport().height()
        return top - margin * height, top + height + margin * height

    def _insert(self, place: int, view: MessageView | Room) -> None:
        self._views.insert(place, view)
        if isinstance(view, Room):
            self._column.insertSpacerItem(place, view)
            return
        view.set_width(self._width())
        self._column.insertWidget(place, view, 0, Qt.AlignmentFlag.AlignHCenter)
        view.show()
        self.viewMade.emit(view)

    def _drop(self, view: MessageView | Room) -> None:
        if isinstance(view, Room):
            self._column.removeItem(view)
            return
        self._stale.discard(view)
        self._column.removeWidget(view)
        view.hide()
        view.deleteLater()

    def _width(self) -> int:
        return max(240, min(theme().px(COLUMN), self.viewport().width() - 2 * MARGIN))

    @Slot(int)
    def _view_resized(self, growth: int) -> None:
        if self._building:
            return
        view = self.sender()
        self.viewMade.emit(view)
        value = self.verticalScrollBar().value()
        # What grows above the part that is looked at must not push it away.
        above = isinstance(view, AnswerView) and view.y() + view.height() - growth <= value
        self._settle(value + growth if above else None)

    def _settle(self, place: int | None = None) -> None:
        """Lay out now and keep to the end, or go to a place. Waiting for the event loop would show a jump."""
        self._settling = True
        self._lay_out()
        bar = self.verticalScrollBar()
        if self._following:
            bar.setValue(bar.maximum())
        elif place is not None:
            bar.setValue(place)
        self._settling = False
        self._show_sight()
        self._show_jump()

    @Slot(int)
    def _scrolled(self, value: int) -> None:
        if self._stale:
            self._restyle_visible()
        if self._settling:
            return
        self._show_sight()
        bar = self.verticalScrollBar()
        self._following = value >= bar.maximum() - NEAR_END
        self._show_jump()
        if value < NEAR_TOP and self._first > 0:
            below = bar.maximum() - value
            self._settling = self._building = True
            self._build_older()
            self._building = False
            self._lay_out()
            bar.setValue(bar.maximum() - below)
            self._settling = False

    def _show_sight(self) -> None:
        if any(isinstance(view, Room) for view in self._views):
            self._build_near()
        if len(self._views) > BATCH and not self._release_soon.isActive():
            self._release_soon.start()

    @Slot(QWidget, QWidget)
    def _show_focus(self, old: QWidget | None, now: QWidget | None) -> None:
        """Who goes through the messages with Tab sees where that leads."""
        if isinstance(now, (QAbstractButton, FiguresLabel)) and self._content.isAncestorOf(now):
            self.ensureWidgetVisible(now, 0, MARGIN)

    def _lay_out(self) -> None:
        self._column.activate()
        self._content.resize(self.viewport().width(), max(self.viewport().height(), self._column.sizeHint().height()))

    def _show_jump(self) -> None:
        self._jump.setVisible(not self._following)
        size = self._jump.size()
        self._jump.move((self.viewport().width() - size.width()) // 2, self.viewport().height() - size.height() - 10)
        self._jump.raise_()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._take_width()

    def _take_width(self) -> None:
        """What is looked at stays where it is, however much taller what lies above it becomes."""
        width, place = self._width(), self.place
        self._building = True
        for view in self.views:
            view.set_width(width)
        self._building = False
        self._settle()
        if place is not None:
            self.return_to(*place)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        done = super().eventFilter(watched, event)
        # Qt has given the content its new size: a range that shrank or grew must not lose the end.
        if watched is self._content and event.type() == QEvent.Type.Resize and self._following and not self._settling:
            self._settling = True
            self.verticalScrollBar().setValue(self.verticalScrollBar().maximum())
            self._settling = False
        return done

    @Slot()
    def _restyle(self) -> None:
        self._stale = set(self.views)
        self._restyle_visible()
        self._take_width()

    def _restyle_visible(self) -> None:
        """Draw what is in sight in the present theme; the rest when it comes into sight."""
        top = self.verticalScrollBar().value()
        bottom = top + self.viewport().height()
        for view in list(self._stale):
            if view.y() <= bottom and view.y() + view.height() >= top:
                self._stale.discard(view)
                view.restyle()
