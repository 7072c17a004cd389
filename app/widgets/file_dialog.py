"""The dialog that asks for files and folders: the system's own, or Qt's, which must not open what it lists."""

from __future__ import annotations

from functools import cache

from PySide6.QtCore import QDir, QFileInfo, QSize, Qt
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QFileDialog, QFileIconProvider, QWidget

from app.language import tr

SIZE = QSize(820, 520)


class _ByNameOnly(QFileIconProvider):
    """Knows a file by its name.

    Qt's provider opens a file whose name says nothing and closes it again. Where locks are POSIX's, closing a file
    gives up all that the program has locked in it: looking at the data folder in a dialog took the locks off the open
    chats, and the next program to read them could have cut their index off under this one.
    """

    def icon(self, what: QFileInfo | QFileIconProvider.IconType) -> QIcon:
        kinds = QFileIconProvider.IconType
        if isinstance(what, QFileInfo):
            what = kinds.Drive if what.isRoot() else kinds.Folder if what.isDir() else kinds.File
        return super().icon(what)

    def type(self, info: QFileInfo) -> str:
        if info.isDir():
            return tr("Folder")
        return info.suffix().upper() or tr("File")


@cache
def _icons() -> _ByNameOnly:
    """One for all: a dialog that goes still asks it from a thread of its own, after what Python knew of it has gone."""
    return _ByNameOnly()


class FileDialog(QFileDialog):
    """Deleted when it is closed."""

    def __init__(self, parent: QWidget, title: str, start: str = "", kinds: str = "") -> None:
        """start: the folder, or the file in it, that is shown first; kinds: filters, e.g. "Pictures (*.png)"."""
        super().__init__(parent, title, start, kinds)
        if not start and self.directory() == QDir.current():
            # Nothing was chosen yet, and where the program was started means nothing to its user.
            self.setDirectory(QDir.home())
        # Qt's own translations have no words for these.
        self.setLabelText(QFileDialog.DialogLabel.LookIn, tr("Look in:"))
        self.setLabelText(QFileDialog.DialogLabel.FileType, tr("Files of type:"))
        self.resize(SIZE)
        self.setIconProvider(_icons())
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
