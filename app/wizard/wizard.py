"""The compatibility wizard: four pages, and what the user wants to begin with at the end."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget, QWizard

from app.language import tr
from app.models.survey import ModelRow
from app.theme import theme
from app.theme.theme import restyle
from app.wizard.pages import INSET, FitsPage, StartPage, ThisPcPage, WelcomePage
from app.wizard.steps import MARKS, SLIM, WIDE, Steps
from app.wizard.study import Findings, Study

SIZE, MINIMUM = QSize(980, 760), QSize(680, 360)
#: A narrower wizard has a slimmer list of steps.
NARROW = 820
#: And one narrower than this only their marks.
BARE = 600
_DEMO = QWizard.WizardButton.CustomButton1
_NEXT, _BACK = QWizard.WizardButton.NextButton, QWizard.WizardButton.BackButton
_FINISH = QWizard.WizardButton.FinishButton


class SetupWizard(QWizard):
    """Closing it, at any page, wants nothing: `finished` follows in every case, after one of the others or none."""

    demoWanted = Signal()
    #: ModelRow
    downloadWanted = Signal(object)

    def __init__(self, study: Study, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.findings = Findings(study, self)
        self.setWindowTitle(tr("Greenroom setup"))
        self.setWizardStyle(QWizard.WizardStyle.ModernStyle)
        self.setOption(QWizard.WizardOption.NoCancelButton)
        self.setOption(QWizard.WizardOption.NoBackButtonOnStartPage)
        self.setOption(QWizard.WizardOption.HaveCustomButton1)
        self.setMinimumSize(MINIMUM)
        room = self.screen().availableGeometry().size() - QSize(24, 56)
        self.resize(SIZE.boundedTo(room).expandedTo(MINIMUM))

        self.welcome, self.this_pc = WelcomePage(), ThisPcPage(self.findings)
        self.fits, self.start = FitsPage(self.findings), StartPage(self.findings)
        pages = (self.welcome, self.this_pc, self.fits, self.start)
        for page in pages:
            self.addPage(page)
        # Not Qt's side widget: that has a margin, and ends above the buttons.
        self.steps = Steps([page.name for page in pages], self)
        self.steps.skipped.connect(self.reject)
        self._build_buttons()
        self.fits.downloadWanted.connect(self._download)
        self.start.chosen.connect(self._name_finish)
        self.currentIdChanged.connect(self._follow)
        self.finished.connect(self.findings.stop)

    def _build_buttons(self) -> None:
        stretch = QWizard.WizardButton.Stretch
        self.setButtonLayout([_BACK, stretch, _DEMO, _NEXT, _FINISH])
        self.setButtonText(_BACK, tr("Back"))
        self.setButtonText(_NEXT, tr("Continue"))
        self.setButtonText(_DEMO, tr("Chat now with the demo model"))
        for which in (_NEXT, _FINISH):
            self.button(which).setProperty("kind", "primary")
        for which in (_BACK, _NEXT, _DEMO, _FINISH):
            found = self.button(which)
            found.setFocusPolicy(Qt.FocusPolicy.TabFocus)
            restyle(found)
        self.button(_DEMO).clicked.connect(self._chat_now)
        self._name_finish()

    @Slot(int)
    def _follow(self, page: int) -> None:
        if page < 0:
            return
        self.steps.show_step(self.pageIds().index(page))
        self._arrange()
        self.button(_DEMO).setVisible(self.currentPage() is not self.start)
        first = self.start.demo if self.start.demo.isChecked() else self.start.download
        (first if self.currentPage() is self.start else self.button(_NEXT)).setFocus(Qt.FocusReason.TabFocusReason)
        if self.currentPage() is self.welcome:
            # By the time that the user goes on, most of it is known.
            self.findings.begin()

    def _arrange(self) -> None:
        """The steps at the left, the page beside them. Qt's own frame has room for neither."""
        look = theme()
        bare = self.width() < look.px(BARE)
        left = look.px(MARKS if bare else SLIM if self.width() < look.px(NARROW) else WIDE)
        self.steps.show_words(not bare)
        self.steps.setGeometry(0, 0, left, self.height())
        page = self.button(_NEXT).parentWidget()
        page.setGeometry(left + INSET, 0, self.width() - left - 2 * INSET, self.height() - INSET + 4)

    @Slot()
    def _name_finish(self) -> None:
        self.setButtonText(_FINISH, tr("Start") if self.start.demo.isChecked() else tr("Download and start"))

    @Slot()
    def _chat_now(self) -> None:
        self.demoWanted.emit()
        super().accept()

    @Slot(object)
    def _download(self, row: ModelRow) -> None:
        self.downloadWanted.emit(row)
        super().accept()

    def accept(self) -> None:
        row = self.start.wanted
        if row is None:
            self.demoWanted.emit()
        else:
            self.downloadWanted.emit(row)
        super().accept()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()
