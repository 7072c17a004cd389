"""The wizard's pages. Each shows what the findings say so far; none of them ever keeps the user from going on."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import (
    QButtonGroup,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLayout,
    QProgressBar,
    QRadioButton,
    QVBoxLayout,
    QWidget,
    QWizardPage,
)

from app.hardware.check_row import CheckList
from app.hardware.checks import checks, so_far, waiting
from app.hardware.gauge import doing
from app.language import mark, told, tr
from app.models.survey import ModelRow
from app.theme import theme
from app.theme.icons import make_pixmap
from app.theme.theme import restyle
from app.widgets.buttons import button
from app.widgets.labels import ElideLabel, label
from app.widgets.page import MARGIN, scrolled
from app.wizard.card import OfferCard
from app.wizard.ranking import Fits
from app.wizard.study import Findings
from app.words import in_words, rate_range, sentence
from engine.hardware.report import HardwareReport
from engine.progress import Progress
from engine.units import size_text

#: Between the frame and the page; Qt's wizard keeps its buttons that much further inside than a page of ours.
INSET = 18
#: Lines of text stay readable up to here.
TEXT_WIDTH = 560


class Page(QWizardPage):
    """A title, a sentence under it, and content that scrolls when the window is small.

    title, lead: as marked, translated here
    """

    def __init__(self, title: str, lead: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.name = title
        self.setAccessibleName(tr(title))
        self.lead = label(tr(lead) if lead else "", "muted", wrap=True)
        self.content = QVBoxLayout()
        self.content.setSpacing(8)
        self.content.addWidget(label(tr(title), "title"))
        self.content.addWidget(self.lead)
        self.content.addSpacing(8)

    def _finish(self) -> None:
        self.content.addStretch(1)
        area = scrolled(self.content)
        area.widget().layout().setContentsMargins(MARGIN - INSET, 30, MARGIN - INSET, 12)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(area)


class _Point(QWidget):
    """An icon with a heading and a few lines."""

    def __init__(self, icon: str, title: str, text: str) -> None:
        super().__init__()
        self._icon, self._mark = icon, QLabel()
        self._mark.setFixedSize(theme().px(20), theme().px(22))
        said = label(tr(text), "muted", wrap=True)
        said.setMaximumWidth(theme().px(TEXT_WIDTH))
        lines = QVBoxLayout()
        lines.setSpacing(3)
        lines.addWidget(label(tr(title), "heading"))
        lines.addWidget(said)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 8, 0, 8)
        row.setSpacing(16)
        row.addWidget(self._mark, 0, Qt.AlignmentFlag.AlignTop)
        row.addLayout(lines, 1)
        # Takes what the lines leave, so that the icon keeps its width.
        row.addStretch(0)
        theme().changed.connect(self._draw)
        self._draw()

    def _draw(self) -> None:
        self._mark.setPixmap(make_pixmap(self._icon, theme().tokens.accent, theme().px(20), self.devicePixelRatioF()))


class WelcomePage(Page):
    POINTS = (
        (
            "models",
            mark("Large models on an ordinary PC"),
            mark(
                "Mixture-of-experts models use only a small part of their weights for each token. Greenroom "
                "keeps the experts in RAM, where there is room, and the rest on the GPU, if there is one."
            ),
        ),
        (
            "gauge",
            mark("Know before you download"),
            mark("Greenroom checks this PC and tells you whether each model fits, how fast it will be, and why."),
        ),
        (
            "check",
            mark("Nothing leaves this PC"),
            mark(
                "Chats, files and measurements stay here. The network is used only for things you choose to download."
            ),
        ),
    )

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(
            mark("Welcome to Greenroom"), mark("Chat with language models that run entirely on this PC."), parent
        )
        self.name = mark("Welcome")
        for point in self.POINTS:
            self.content.addWidget(_Point(*point))
        self._finish()


class ThisPcPage(Page):
    LEAD = mark("Measured and kept on this PC. Nothing is sent anywhere.")

    def __init__(self, findings: Findings, parent: QWidget | None = None) -> None:
        super().__init__(mark("This PC"), self.LEAD, parent)
        self._findings = findings
        self.list = CheckList(margin=0)
        self.list.show_checks(waiting())
        self._bar = QProgressBar()
        self._bar.setTextVisible(False)
        self._bar.setAccessibleName(tr("Measuring memory speed"))
        self._doing = ElideLabel("", "small")
        self.skip = button(tr("Skip"), name=tr("Skip measuring memory"))
        self.skip.clicked.connect(findings.skip)
        self.work = QWidget()
        work = QHBoxLayout(self.work)
        work.setContentsMargins(0, 8, 0, 0)
        work.setSpacing(12)
        work.addWidget(self._bar, 1)
        work.addWidget(self._doing, 1)
        work.addWidget(self.skip)
        self.trouble = label("", "warn", wrap=True)
        self.again = button(tr("Try again"), icon="refresh")
        self.again.clicked.connect(self._retry)
        for part in (self.list, self.work, self.trouble):
            self.content.addWidget(part)
        self.content.addWidget(self.again, 0, Qt.AlignmentFlag.AlignLeft)
        self._finish()
        findings.changed.connect(self._show)
        findings.progressed.connect(self._show_progress)
        self._show()

    def initializePage(self) -> None:
        self._findings.begin()

    @Slot()
    def _show(self) -> None:
        found = self._findings
        error = found.probe_error or found.measure_error
        self.work.setVisible(found.measuring)
        self.trouble.setText("" if error is None else in_words(error))
        self.trouble.setVisible(error is not None)
        self.again.setVisible(error is not None)
        if found.report is not None:
            self.list.show_checks(checks(found.report))
        elif found.partial is not None:
            self.list.show_checks(so_far(found.partial, found.known))
        else:
            self.list.show_checks(waiting())
        self.list.setVisible(found.probe_error is None)

    @Slot(object)
    def _show_progress(self, progress: Progress) -> None:
        self._bar.setRange(0, max(0, progress.total))
        self._bar.setValue(progress.done)
        self._doing.setText(doing(progress))

    @Slot()
    def _retry(self) -> None:
        if self._findings.report is None:
            self._findings.begin()
        else:
            self._findings.measure()


class FitsPage(Page):
    #: ModelRow
    downloadWanted = Signal(object)

    MEASURED = mark(
        "Predicted from measurements of this PC. After your first answer you will see predicted and measured "
        "speeds together."
    )
    GUESSED = mark("Predicted from similar PCs. The ranges are wide because this PC's memory was not measured.")

    def __init__(self, findings: Findings, parent: QWidget | None = None) -> None:
        super().__init__(mark("What fits"), "", parent)
        self._findings = findings
        self._shown: Fits | None = None
        self._cards = QVBoxLayout()
        self._cards.setSpacing(10)
        self.content.addLayout(self._cards)
        self._note = label("", "small", wrap=True)
        self.content.addWidget(self._note)
        self._finish()
        findings.changed.connect(self._show)
        self._show()

    @property
    def cards(self) -> list[OfferCard]:
        return [self._cards.itemAt(i).widget() for i in range(self._cards.count())]

    def initializePage(self) -> None:
        self._findings.begin()
        self._findings.want_plans()

    @Slot()
    def _show(self) -> None:
        found = self._findings
        if found.fits is None or found.report is None:
            self.lead.setText(_why_nothing_yet(found))
            return
        measured = bool(found.report.memory.bandwidth_gbs)
        self.lead.setText(tr(self.MEASURED if measured else self.GUESSED))
        if found.fits is self._shown:
            return
        self._shown = found.fits
        _clear(self._cards)
        disk = found.report.disk
        for row in found.fits.rows:
            why = found.fits.reasons if row is found.fits.best else None
            card = OfferCard(row, why, disk.free_bytes if disk.known else None)
            card.downloadWanted.connect(self.downloadWanted)
            self._cards.addWidget(card)
        self._note.setText(_bottom_line(found.fits, found.report))


def _why_nothing_yet(found: Findings) -> str:
    if found.probe_error is not None:
        return tr(
            "{why} Nothing can be predicted until this works. The Models page will try again.",
            why=str(found.probe_error),
        )
    if found.fits_error is not None:
        return str(found.fits_error)
    return tr("Calculating how the models in the catalogue would run here…")


def _bottom_line(fits: Fits, report: HardwareReport) -> str:
    best = fits.best
    if best is not None and best.plan is not None:
        said = sentence(told(best.plan.prediction.bottleneck)).rstrip(".").replace("/s", "/\u2060s")
        return tr("{why}. Find more models and sizes on the Models page.", why=said)
    if any(row.plan is not None and row.plan.runnable for row in fits.rows):
        return tr("There is not enough disk space for a download. Free some, or choose another folder in the settings.")
    return tr(
        "No model in the catalogue fits in {amount} of free RAM. Close other programs or add RAM. The demo "
        "model runs here already.",
        amount=size_text(report.memory.available_bytes),
    )


class StartPage(Page):
    """Two choices; the wizard's last button does what is chosen."""

    chosen = Signal()

    def __init__(self, findings: Findings, parent: QWidget | None = None) -> None:
        super().__init__(mark("Start"), mark("Choose how to start. You can change everything later."), parent)
        self._findings = findings
        self.demo = QRadioButton(tr("Chat now with the built-in demo model"))
        self.download = QRadioButton(tr("Download the recommended model"))
        self._demo_about = label("", "muted", wrap=True)
        self._download_about = label("", "muted", wrap=True)
        self.demo.setChecked(True)
        group = QButtonGroup(self)
        self._choices: list[QFrame] = []
        for choice, about in ((self.demo, self._demo_about), (self.download, self._download_about)):
            group.addButton(choice)
            choice.toggled.connect(self._mark)
            card = QFrame()
            card.setProperty("surface", "card")
            box = QVBoxLayout(card)
            box.setContentsMargins(16, 13, 16, 13)
            box.setSpacing(4)
            box.addWidget(choice)
            about.setContentsMargins(28, 0, 0, 0)
            box.addWidget(about)
            self._choices.append(card)
            self.content.addWidget(card)
        self._finish()
        findings.changed.connect(self._show)
        self._show()
        self._mark()

    def initializePage(self) -> None:
        self._findings.begin()
        self._findings.want_plans()

    @property
    def wanted(self) -> ModelRow | None:
        """The model to download; None for the demo."""
        fits = self._findings.fits
        return fits.best if fits is not None and self.download.isChecked() else None

    @Slot()
    def _show(self) -> None:
        here = self._findings.demo_here
        kind = tr("A small demo model. It makes mistakes, but shows what chatting in Greenroom is like.")
        when = tr("No download needed.") if here or here is None else tr("It needs a one-time download of 93 MB.")
        self._demo_about.setText(f"{kind} {when}")
        self.demo.setAccessibleDescription(self._demo_about.text())
        fits = self._findings.fits
        best = fits.best if fits is not None else None
        self._choices[1].setVisible(best is not None)
        if best is None or best.plan is None:
            self.demo.setChecked(True)
            return
        self.download.setText(tr("Download {model}", model=best.name))
        speed = rate_range(best.plan.prediction.decode_tps)
        predicted = tr("predicted {range} tok/s", range=speed).replace("/s", "/\u2060s")
        what = f"{best.size} · {told(best.plan.short_label)} · {predicted}."
        self._download_about.setText(f"{what} {tr('It downloads in the background and can be paused.')}")
        self.download.setAccessibleDescription(self._download_about.text())

    def _mark(self) -> None:
        for card, choice in zip(self._choices, (self.demo, self.download), strict=True):
            card.setProperty("best", "true" if choice.isChecked() else "false")
            restyle(card)
        self.chosen.emit()


def _clear(box: QLayout) -> None:
    while (item := box.takeAt(0)) is not None:
        item.widget().hide()
        item.widget().deleteLater()
