"""What went wrong, why, and what to do: inside the window, never in front of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from app.language import told, tr
from app.theme import theme
from app.theme.icons import make_pixmap
from app.widgets.buttons import button
from app.widgets.labels import label
from app.words import sentence
from engine.errors import GreenroomError

_ICONS = {"bad": "error", "warn": "warning", "info": "info"}
_INK = {"bad": "bad", "warn": "warn", "info": "accent"}

#: (text on the button, what it does)
Action = tuple[str, Callable[[], object]]


class Banner(QFrame):
    """One message with its actions and a button that closes it. key tells two causes apart.

    closed: called before an action, and when the user closes it; None where it stays as long as what it says is so
    """

    def __init__(
        self,
        error: GreenroomError,
        tone: str,
        key: str,
        actions: Sequence[Action],
        closed: Callable[[], object] | None,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.error = error
        self.key = key
        self._tone = tone
        self.setProperty("surface", f"banner-{tone}")
        self.setAccessibleName(told(error.what))
        self.setAccessibleDescription(f"{told(error.why)}. {told(error.remedy)}")
        self._mark = QLabel()
        self._mark.setFixedSize(QSize(theme().px(16), theme().px(20)))
        self._mark.setAlignment(Qt.AlignmentFlag.AlignBottom)
        theme().changed.connect(self._draw_mark)
        self._draw_mark()

        text = QVBoxLayout()
        text.setSpacing(2)
        text.addWidget(label(told(error.what), "strong", wrap=True))
        why = label(f"{sentence(told(error.why))}. {told(error.remedy)}", wrap=True)
        why.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        text.addWidget(why)

        row = QHBoxLayout(self)
        row.setContentsMargins(14, 10, 10, 10)
        row.setSpacing(10)
        row.addWidget(self._mark, 0, Qt.AlignmentFlag.AlignTop)
        row.addLayout(text, 1)
        for number, (caption, run) in enumerate(actions):
            # An invitation has one answer that it hopes for; a problem has none.
            action = button(caption, kind="primary" if tone == "info" and number == 0 else "")
            action.clicked.connect(_closing(run, closed))
            row.addWidget(action, 0, Qt.AlignmentFlag.AlignVCenter)
        if closed is not None:
            close = button("", icon="cross", kind="ghost", role="muted", name=tr("Dismiss"))
            close.clicked.connect(lambda: closed())
            row.addWidget(close, 0, Qt.AlignmentFlag.AlignVCenter)

    def _draw_mark(self) -> None:
        tokens = theme().tokens
        colour = getattr(tokens, _INK[self._tone])
        self._mark.setPixmap(make_pixmap(_ICONS[self._tone], colour, theme().px(16), self.devicePixelRatioF()))


def _closing(run: Callable[[], object], closed: Callable[[], object] | None) -> Callable[[], None]:
    def act() -> None:
        if closed is not None:
            closed()
        run()

    return act


class BannerArea(QWidget):
    """A stack of banners above the page; the newest of each cause is kept."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._box = QVBoxLayout(self)
        self._box.setContentsMargins(24, 12, 24, 0)
        self._box.setSpacing(8)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Maximum)
        self.hide()

    @property
    def banners(self) -> list[Banner]:
        items = (self._box.itemAt(i).widget() for i in range(self._box.count()))
        return [w for w in items if isinstance(w, Banner)]

    def show_error(
        self,
        error: GreenroomError,
        tone: str = "bad",
        key: str = "",
        actions: Sequence[Action] = (),
        closed: Callable[[], object] | None = None,
        sticky: bool = False,
    ) -> Banner:
        """key: errors of one cause replace each other. closed: called when the user closes it or takes an action.

        sticky: it stays until `dismiss`
        """
        self.dismiss(key)

        def close() -> None:
            self._remove(banner)
            if closed is not None:
                closed()

        banner = Banner(error, tone, key, actions, None if sticky else close, self)
        self._box.addWidget(banner)
        self.show()
        return banner

    def dismiss(self, key: str) -> None:
        for banner in self.banners:
            if banner.key == key:
                self._remove(banner)

    def _remove(self, banner: Banner) -> None:
        self._box.removeWidget(banner)
        banner.hide()
        banner.deleteLater()
        self.setVisible(bool(self.banners))
