"""Another program on the same screen, from which things are dragged and copied.

    python other_program.py file PATH | text CHARACTERS | words TEXT | image
    python other_program.py take PATH

It puts that on the clipboard, and lets it be dragged out of its window, which is called "Other program"; or it keeps
what is on the clipboard, a picture as PATH.png and a text as PATH.txt, and ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PySide6.QtCore import QMimeData, Qt, QUrl
from PySide6.QtGui import QClipboard, QDrag, QImage, QMouseEvent
from PySide6.QtWidgets import QApplication, QLabel


def what(kind: str, value: str) -> QMimeData:
    data = QMimeData()
    if kind == "file":
        data.setUrls([QUrl.fromLocalFile(value)])
    elif kind == "words":
        data.setText(value)
    elif kind == "text":
        data.setText(("The sea is wide and deep. " * (int(value) // 26 + 1))[: int(value)])
    else:
        picture = QImage(64, 64, QImage.Format.Format_RGB32)
        picture.fill(Qt.GlobalColor.darkGreen)
        data.setImageData(picture)
    return data


def take(clipboard: QClipboard, to: Path) -> None:
    data = clipboard.mimeData()
    if data.hasImage():
        clipboard.image().save(str(to.with_suffix(".png")))
    if data.hasText():
        to.with_suffix(".txt").write_text(data.text(), encoding="utf-8")


class Source(QLabel):
    def __init__(self, given: list[str]) -> None:
        super().__init__("Drag me")
        self.given = given
        self.setWindowTitle("Other program")
        # Where it is put, above all others.
        self.setWindowFlags(Qt.WindowType.X11BypassWindowManagerHint | Qt.WindowType.WindowStaysOnTopHint)
        self.setGeometry(20, 300, 120, 60)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        drag = QDrag(self)
        drag.setMimeData(what(*self.given))
        drag.exec(Qt.DropAction.CopyAction)


if __name__ == "__main__":
    application = QApplication(sys.argv[:1])
    if sys.argv[1] == "take":
        take(application.clipboard(), Path(sys.argv[2]))
        sys.exit(0)
    application.clipboard().setMimeData(what(*[*sys.argv[1:], ""][:2]))
    window = Source([*sys.argv[1:], ""][:2])
    window.show()
    sys.exit(application.exec())
