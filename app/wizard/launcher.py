"""Opens the wizard for the window, and says what came of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Signal, Slot
from PySide6.QtWidgets import QWidget

from app import tasks
from app.hardware.gauge import Measure
from app.host import EngineHost
from app.models.download_host import DownloadHost, network_settings
from app.settings.store import SettingsStore

if TYPE_CHECKING:
    from app.models.survey import ModelRow
    from app.wizard.wizard import SetupWizard


class WizardLauncher(QObject):
    """One wizard at a time; it is made when it is first wanted."""

    demoWanted = Signal()
    #: A download was asked for.
    downloadBegun = Signal()
    #: HardwareReport or None, after one of the others or none
    closed = Signal(object)

    def __init__(
        self,
        host: EngineHost,
        settings: SettingsStore,
        downloads: DownloadHost,
        measure: Measure,
        demo_is_here: Callable[[], bool],
        window: QWidget,
    ) -> None:
        super().__init__(window)
        self._host, self._settings, self._downloads = host, settings, downloads
        self._measure, self._demo_is_here, self._window = measure, demo_is_here, window
        self.wizard: SetupWizard | None = None

    @property
    def first_start(self) -> bool:
        return not self._settings.values.welcomed

    @Slot()
    def open(self) -> None:
        from app.wizard.study import Study
        from app.wizard.wizard import SetupWizard

        if self.wizard is not None:
            return
        study = Study(self._host.api, self._settings.values, self._measure, self._demo_is_here)
        wizard = self.wizard = SetupWizard(study, self._window)
        wizard.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        wizard.demoWanted.connect(self.demoWanted)
        wizard.downloadWanted.connect(self._download)
        wizard.finished.connect(self._end)
        wizard.open()

    def close(self) -> None:
        if self.wizard is not None:
            self.wizard.reject()

    @Slot(object)
    def _download(self, row: ModelRow) -> None:
        from app.models.survey import find_remote

        self.downloadBegun.emit()
        settings = network_settings(self._settings.values)
        tasks.run(find_remote, settings, row.choice, done=self._downloads.add, failed=self._downloads.failed.emit)

    @Slot()
    def _end(self) -> None:
        report = self.wizard.findings.report if self.wizard is not None else None
        self.wizard = None
        self._settings.change(welcomed=True)
        self.closed.emit(report)
