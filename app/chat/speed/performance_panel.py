"""How fast an answer was, beside what was predicted: the time of every token, where it went, the benchmark card."""

from __future__ import annotations

from PySide6.QtCore import QMimeData, QRectF, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QGuiApplication, QKeyEvent, QPainter, QPainterPath, QPaintEvent, QShowEvent
from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QLabel, QScrollArea, QVBoxLayout, QWidget

from app.chat.saving import save_bytes
from app.chat.speed.card import make_card
from app.chat.speed.card_picture import paint_card
from app.chat.speed.figures import seconds
from app.chat.speed.performance import Measured, PerformanceLog
from app.chat.speed.performance_chart import StepChart
from app.language import tr
from app.theme import theme
from app.widgets.buttons import button
from app.widgets.labels import ElideLabel, label
from app.widgets.picture import png
from app.words import rate, rate_range

WIDTH = 300
#: Milliseconds between two drawings while an answer is written.
DRAW_MS = 250


class PerformancePanel(QWidget):
    """Shows one answer of a log: the newest, until another is chosen."""

    closed = Signal()

    def __init__(self, log: PerformanceLog, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._log = log
        self._chosen: int | None = None
        self.setProperty("surface", "side-right")
        self.setAccessibleName(tr("Performance"))
        self._title = label(tr("Performance"), "heading")
        close = button("", icon="cross", kind="ghost", name=tr("Close the performance panel"))
        close.clicked.connect(self.closed)
        head = QHBoxLayout()
        head.addWidget(self._title, 1)
        head.addWidget(close)
        self._model = ElideLabel("", "small")
        self.chart = StepChart()
        self._chart_note = label(tr("Milliseconds per token. Shaded: predicted."), "small", wrap=True)
        self._split = ShareBar(tr("Reading and writing"))
        self._split_note = label("", "small")
        self._split_note.setTextFormat(Qt.TextFormat.RichText)
        self._bandwidth = ShareBar(tr("Bandwidth used"))
        self._rows: dict[str, tuple[QLabel, QLabel]] = {}
        self.copy_card = button(tr("Copy benchmark card"))
        self.copy_text = button(tr("Copy as text"), kind="link")
        self.save_card = button(tr("Save as picture…"), kind="link")
        self.copy_card.clicked.connect(self._copy_card)
        self.copy_text.clicked.connect(self._copy_text)
        self.save_card.clicked.connect(self._save_card)
        self._back = QTimer(self, singleShot=True, interval=1500)
        self._back.timeout.connect(self._offer_card)
        self._column = QVBoxLayout()
        self._column.setContentsMargins(18, 12, 18, 18)
        self._column.setSpacing(8)
        self._column.addLayout(head)
        self._column.addWidget(self._model)
        self._column.addWidget(self.chart)
        self._column.addWidget(self._chart_note)
        self._column.addSpacing(6)
        self._add_row("decode", tr("Writing"))
        self._add_row("decode_predicted", tr("predicted"))
        self._add_row("prefill", tr("Reading the prompt"))
        self._add_row("prefill_predicted", tr("predicted"))
        self._add_row("first", tr("First token"))
        self._column.addSpacing(6)
        self._column.addWidget(self._split)
        self._column.addWidget(self._split_note)
        self._column.addSpacing(6)
        self._add_row("bandwidth", tr("Weights read"))
        self._column.addWidget(self._bandwidth)
        self._add_row("drafts", tr("Drafts accepted"))
        self._add_row("cache", tr("Served from VRAM"))
        self._column.addSpacing(6)
        self._column.addWidget(self.copy_card)
        self._links = links = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        links.addWidget(self.copy_text, 0, Qt.AlignmentFlag.AlignLeft)
        links.addWidget(self.save_card, 0, Qt.AlignmentFlag.AlignLeft)
        links.addStretch()
        self._column.addLayout(links)
        self._column.addStretch()
        inner = QWidget()
        inner.setLayout(self._column)
        self._area = area = QScrollArea()
        area.setWidgetResizable(True)
        area.setFrameShape(QScrollArea.Shape.NoFrame)
        area.setWidget(inner)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(1, 0, 0, 0)
        outer.addWidget(area)
        self._room = self._beside = theme().px(WIDTH)
        self._alone = 0
        self._draw_soon = QTimer(self, singleShot=True, interval=DRAW_MS)
        self._draw_soon.timeout.connect(self._show)
        log.changed.connect(self._note)
        theme().changed.connect(self._restyle)
        self._restyle()

    @Slot()
    def _restyle(self) -> None:
        self.set_room(self._room, self._alone)
        self._show()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.closed.emit()
        else:
            super().keyPressEvent(event)

    @property
    def beside(self) -> int:
        """Pixels it takes beside the messages; alone it takes the whole page."""
        return self._beside

    def set_room(self, room: int, alone: int = 0) -> None:
        """Take the usual width, or what there is if that is less, but never so little that something is cut.

        room:  pixels
        alone: pixels of the page where it has no room for the messages beside the panel, which takes all of it then
        """
        self._room, self._alone = room, alone
        width = min(theme().px(WIDTH), room)
        side_by_side = self.copy_text.sizeHint().width() + self.save_card.sizeHint().width() + 48 <= width
        directions = QBoxLayout.Direction
        self._links.setDirection(directions.LeftToRight if side_by_side else directions.TopToBottom)
        beside = self._area.verticalScrollBar().sizeHint().width() + 4
        self._beside = max(width, self._column.minimumSize().width() + beside)
        self.setFixedWidth(alone or self._beside)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        # Only now its parts have the fonts of the style sheet.
        self.set_room(self._room, self._alone)

    @property
    def shown(self) -> Measured | None:
        """The answer whose figures are shown."""
        found = self._log.of(self._chosen) if self._chosen is not None else None
        return found or self._log.newest

    @property
    def chosen(self) -> int | None:
        """The answer that was chosen; None for whatever is newest."""
        return self._chosen

    def choose(self, message_id: int | None) -> None:
        """Show that answer, if it is one of this session; None: whatever is newest."""
        self._chosen = message_id
        self._show()

    def value(self, key: str) -> str:
        """What a row says; "" while it is hidden."""
        what, value = self._rows[key]
        return "" if what.isHidden() else value.text()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), theme().colour("side"))
        painter.fillRect(QRectF(0, 0, 1, self.height()), theme().colour("line"))

    def _add_row(self, key: str, what: str) -> None:
        name, value = label(what, "small"), label("", "small" if key.endswith("predicted") else "figure")
        row = QHBoxLayout()
        row.addWidget(name, 1)
        row.addWidget(value)
        self._column.addLayout(row)
        self._rows[key] = (name, value)

    def _set(self, key: str, value: str) -> None:
        name, shown = self._rows[key]
        shown.setText(value)
        shown.setAccessibleName(f"{name.text()}: {value}")
        name.setVisible(bool(value))
        shown.setVisible(bool(value))

    @Slot(object)
    def _note(self, measured: Measured) -> None:
        if measured.finished:
            self._draw_soon.stop()
            self._show()
        elif self.isVisible() and not self._draw_soon.isActive():
            self._draw_soon.start()

    @Slot()
    def _show(self) -> None:
        measured = self.shown
        stats = measured.stats if measured is not None else None
        predicted = measured.prediction if measured is not None else None
        self._model.setText(
            measured.state.model_name if measured is not None else tr("No answers in this session yet.")
        )
        self.chart.show_steps(
            measured.step_times if measured is not None else [], predicted.decode_tps if predicted is not None else None
        )
        for part in (self.chart, self._chart_note):
            part.setVisible(measured is not None)
        tps = tr("{speed} tok/s")
        self._set("decode", tps.format(speed=rate(stats.decode_tps)) if stats and stats.decode_tps else "")
        self._set("prefill", tps.format(speed=rate(stats.prefill_tps)) if stats and stats.prefill_tps else "")
        self._set("decode_predicted", rate_range(predicted.decode_tps) if predicted else "")
        self._set("prefill_predicted", rate_range(predicted.prefill_tps) if predicted else "")
        self._set("first", seconds(stats.first_token_s) if stats and stats.completion_tokens else "")
        self._show_split(measured)
        self._show_bandwidth(measured)
        drafts = ""
        if stats and stats.drafted_tokens:
            drafts = tr("{accepted} of {drafted}", accepted=stats.accepted_tokens, drafted=stats.drafted_tokens)
        self._set("drafts", drafts)
        hits = measured.status.hit_rate if measured is not None and measured.status is not None else None
        self._set("cache", f"{hits * 100:.0f} %" if hits is not None else "")
        there = measured is not None and make_card(measured) is not None
        for part in (self.copy_card, self.copy_text, self.save_card):
            part.setEnabled(there)

    def _show_split(self, measured: Measured | None) -> None:
        reading = measured.stats.prefill_s if measured is not None else 0.0
        writing = measured.decode_s if measured is not None else 0.0
        known = reading + writing > 0
        self._split.setVisible(known)
        self._split_note.setVisible(known)
        if known:
            share = reading / (reading + writing)
            self._split.show_shares([(share, "vram"), (1 - share, "accent")])
            parts = (
                (theme().tokens.vram, tr("reading {time}", time=seconds(reading))),
                (theme().tokens.accent, tr("writing {time}", time=seconds(writing))),
            )
            self._split_note.setText(
                " &nbsp; ".join(f'<font color="{colour}">■</font> {text}' for colour, text in parts)
            )
            self._split.setAccessibleDescription(", ".join(text for _, text in parts))

    def _show_bandwidth(self, measured: Measured | None) -> None:
        used = measured.decode_gbs if measured is not None else None
        share = measured.bandwidth_share if measured is not None else None
        text = ""
        if used is not None:
            text = tr("{used} GB/s", used=f"{used:.1f}")
            if measured is not None and share is not None and measured.read_gbs is not None:
                text = tr("{used} of {there} GB/s", used=f"{used:.1f}", there=f"{measured.read_gbs:.1f}")
        self._set("bandwidth", text)
        self._bandwidth.setVisible(share is not None)
        if share is not None:
            self._bandwidth.show_shares([(min(1.0, share), "ram")])
            self._bandwidth.setAccessibleDescription(f"{share * 100:.0f} %")

    @Slot()
    def _copy_card(self) -> None:
        if copy_card(self.shown):
            self.copy_card.setText(tr("Copied"))
            self._back.start()

    @Slot()
    def _offer_card(self) -> None:
        self.copy_card.setText(tr("Copy benchmark card"))

    @Slot()
    def _copy_text(self) -> None:
        card = make_card(self.shown) if self.shown is not None else None
        if card is not None:
            QGuiApplication.clipboard().setText(card.text)

    @Slot()
    def _save_card(self) -> None:
        card = make_card(self.shown) if self.shown is not None else None
        if card is not None:
            name = f"greenroom-{card.title}.png"
            save_bytes(self, tr("Save the benchmark card"), name, png(paint_card(card)), tr("Pictures (*.png)"))


def copy_card(measured: Measured | None) -> bool:
    """Copy the benchmark card of an answer, as a picture and as text: each program takes what it can show.

    False when there is no card.
    """
    card = make_card(measured) if measured is not None else None
    if card is None:
        return False
    data = QMimeData()
    data.setText(card.text)
    data.setImageData(paint_card(card))
    QGuiApplication.clipboard().setMimeData(data)
    return True


class ShareBar(QWidget):
    """Shares of a whole in colours of the theme, as thin as a line of text is high."""

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._shares: list[tuple[float, str]] = []
        self.setFixedHeight(6)
        self.setAccessibleName(name)
        theme().changed.connect(self.update)

    def show_shares(self, shares: list[tuple[float, str]]) -> None:
        """shares: (part of the whole, the theme's name of its colour)"""
        self._shares = shares
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        outline = QPainterPath()
        outline.addRoundedRect(QRectF(self.rect()), 3, 3)
        painter.setClipPath(outline)
        painter.fillRect(self.rect(), theme().colour("line"))
        x = 0.0
        for share, colour in self._shares:
            painter.fillRect(QRectF(x, 0, share * self.width(), self.height()), theme().colour(colour))
            x += share * self.width()
