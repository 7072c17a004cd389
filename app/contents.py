"""Everything inside the window: sidebar, bars, the pages and the stage. Made anew when the language changes.

It knows no state of its own: what is shown comes from the host, the settings and the store of chats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget

from app.actions import Actions
from app.host import EngineHost
from app.language import tr
from app.settings.store import SettingsStore
from app.sidebar import RAIL_WIDTH, Sidebar
from app.statusbar import StatusBar
from app.theme import theme
from app.topbar import TopBar
from app.widgets.banner import BannerArea

if TYPE_CHECKING:
    from app.stage.sources import LiveRun

#: A window with less room for its page folds the sidebar.
NARROW = 612
#: What the stage leaves to the chat, and with how little it stands beside it: with less it takes its place.
LEAST_CHAT, LEAST_BESIDE = 400, 220

#: Makes a page by its key: models | hardware | settings.
PageMaker = Callable[[str], QWidget]


class Contents(QWidget):
    #: The key of the page that is shown now: chat | models | hardware | settings
    pageShown = Signal(str)
    #: The stage's button for the benchmark card was pressed.
    cardWanted = Signal()
    #: The stage has no room beside the performance panel that was opened.
    stageUnwanted = Signal()

    def __init__(
        self,
        host: EngineHost,
        settings: SettingsStore,
        actions: Actions,
        banners: BannerArea,
        make_page: PageMaker,
        live: Callable[[], LiveRun],
    ) -> None:
        """banners: what is still to be read; it is taken over. live: what the stage follows; made when first wanted."""
        super().__init__()
        self._host, self._make_page, self._live = host, make_page, live
        self._chat: QWidget | None = None
        self._stage: QWidget | None = None
        #: The stage stands in the chat's place.
        self._alone = False
        self.setProperty("surface", "page")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.sidebar = Sidebar(actions)
        self.topbar = TopBar(settings, actions)
        self.banners = banners
        self.stack = QStackedWidget()
        self.stack.setAccessibleName(tr("Page"))
        # Holds the focus after a page was opened, so that Tab goes to the page's first control. Neither Tab nor a click
        # gives it the focus: it shows none, and a click beside a message must not end the writing of the next.
        self.stack.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.statusbar = StatusBar(host)
        # Stands for the chat until there is one.
        self.pages: dict[str, QWidget] = {"chat": QWidget()}
        self.stack.addWidget(self.pages["chat"])

        right = self._right = QVBoxLayout()
        right.setContentsMargins(0, 0, 0, 0)
        right.setSpacing(0)
        right.addWidget(self.topbar)
        right.addWidget(self.banners)
        right.addWidget(self.stack, 1)
        self._upper = QHBoxLayout()
        self._upper.setContentsMargins(0, 0, 0, 0)
        self._upper.setSpacing(0)
        self._upper.addWidget(self.sidebar)
        self._upper.addLayout(right, 1)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(0)
        box.addLayout(self._upper, 1)
        box.addWidget(self.statusbar)
        host.answerEvent.connect(self.statusbar.show_delta)
        host.answerFinished.connect(self.statusbar.show_result)
        host.answerFinished.connect(self.topbar.show_result)

    def resume(self, before: Contents) -> None:
        """Go on where others were: what was measured, looked for and replayed is shown here, too."""
        self.statusbar.resume(before.statusbar)
        self.topbar.resume(before.topbar)
        self.sidebar.search.setText(before.sidebar.search.text())
        if self._stage is not None and before.stage is not None:
            self._stage.resume(before.stage)

    def set_chat(self, page: QWidget, chats: QWidget) -> None:
        """The chat page and the list of chats, once they are there."""
        blank = self.pages["chat"]
        was_current = self.stack.currentWidget() is blank
        self.stack.insertWidget(0, page)
        self.pages["chat"] = self._chat = page
        self.stack.removeWidget(blank)
        blank.deleteLater()
        if was_current:
            self.show_page("chat")
        self.sidebar.set_chat_list(chats)
        page.performanceShown.connect(self._share_with_performance)

    @property
    def page(self) -> str:
        """The key of the page that is shown."""
        current = self.stack.currentWidget()
        return next(key for key, page in self.pages.items() if page is current)

    def show_page(self, key: str) -> None:
        """Pages are made when they are first shown. A list of chats that was unfolded gives its room back."""
        self.sidebar.fold()
        page = self.pages.get(key)
        if page is None:
            page = self.pages[key] = self._make_page(key)
            self.stack.addWidget(page)
        self.stack.setCurrentWidget(page)
        self.topbar.setVisible(key == "chat")
        self.sidebar.mark(key)
        self._place_stage()
        self.pageShown.emit(key)
        target = self._chat if key == "chat" and self._chat is not None else self.stack
        target.setFocus(Qt.FocusReason.OtherFocusReason)

    def show_stage(self, on: bool) -> None:
        """The stage beside the chat; it is made when it is first wanted."""
        if on and self._stage is None:
            from app.stage.panel import StagePanel

            self._stage = StagePanel(self._host, self._live())
            self._stage.cardWanted.connect(self.cardWanted)
            self._stage.chatWanted.connect(self.stageUnwanted)
            self._upper.addWidget(self._stage)
            if self._crowded:
                self._chat.show_performance(False)
        elif not on and self._stage is not None:
            self._put_alone(False)
            self._upper.removeWidget(self._stage)
            self._stage.hide()
            self._stage.deleteLater()
            self._stage = None
        self._place_stage()

    @property
    def stage(self) -> QWidget | None:
        return self._stage

    def _place_stage(self) -> None:
        if self._stage is not None:
            self._stage.setVisible(self.page == "chat")
        self._share_room()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._crowded:
            self._chat.show_performance(False)
        self._share_room()

    @property
    def _performance_width(self) -> int:
        """What the performance panel takes of the chat page."""
        panel = getattr(self._chat, "performance", None)
        return panel.beside if panel is not None and self.page == "chat" else 0

    @property
    def _crowded(self) -> bool:
        """Whether the stage and the performance panel leave the chat too little even with the sidebar folded."""
        if self._stage is None or not self._performance_width:
            return False
        from app.stage.panel import NARROWEST

        look = theme()
        least = look.px(RAIL_WIDTH) + look.px(NARROWEST) + look.px(LEAST_CHAT) + self._performance_width
        return self.width() < least

    @Slot(bool)
    def _share_with_performance(self, on: bool) -> None:
        if on and self._crowded:
            self.stageUnwanted.emit()
        self._share_room()

    def _share_room(self) -> None:
        look, beside = theme(), self._performance_width
        if self._stage is not None and self.page == "chat":
            from app.stage.panel import NARROWEST

            self._stage.offer_card(not beside)
            room = self.width() - look.px(RAIL_WIDTH)
            # Whether the narrowest stage leaves the chat less than can be read.
            self._put_alone(room - look.px(NARROWEST) < look.px(LEAST_BESIDE))
            self._stage.set_room(room if self._alone else room - look.px(LEAST_CHAT) - beside, self._alone)
            beside += self._stage.width()
        else:
            self._put_alone(False)
        self.sidebar.set_narrow(self.width() - beside - self.sidebar.full_width < look.px(NARROW))

    def _put_alone(self, alone: bool) -> None:
        """The stage in the chat's place, or back beside it."""
        if alone == self._alone or self._stage is None:
            return
        self._alone = alone
        before, now = (self._upper, self._right) if alone else (self._right, self._upper)
        before.removeWidget(self._stage)
        now.addWidget(self._stage)
        self.stack.setVisible(not alone)

    def give_way(self) -> None:
        """The chat is to be seen."""
        if self._alone:
            self.stageUnwanted.emit()
