"""The file dialog opens nothing that it lists: closing a file again would give up the locks of the open chats."""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from PySide6.QtWidgets import QLabel, QPushButton, QTreeView, QWidget
from pytestqt.qtbot import QtBot

from app.chat.composing.attaching import read_text_file
from app.chat.storage.importing import read
from app.folders import chats_file
from app.language import set_language
from app.widgets.file_dialog import FileDialog
from engine.errors import GreenroomError

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/locks")


def locked(folder: Path) -> set[str]:
    """Names of the files in which this process holds a POSIX lock."""
    names = {path.stat().st_ino: path.name for path in folder.iterdir()}
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    own = [line for line in lines if line[1] == "POSIX" and line[4] == str(os.getpid())]
    return {names[inode] for line in own if (inode := int(line[5].split(":")[2])) in names}


def open_chats(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE chats (title)")
    db.commit()
    return db


def test_looking_at_the_data_folder_keeps_the_locks(private_data: Path, qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    with closing(open_chats(chats_file())):
        before = locked(private_data)
        assert "chats.sqlite-shm" in before
        dialog = FileDialog(window, "Open", str(private_data))
        dialog.setOption(FileDialog.Option.DontUseNativeDialog)
        dialog.open()
        files = dialog.findChild(QTreeView).model()
        qtbot.waitUntil(lambda: files.rowCount(dialog.findChild(QTreeView).rootIndex()) == 3, timeout=20_000)
        kinds = {files.index(row, 2, dialog.findChild(QTreeView).rootIndex()).data() for row in range(3)}
        assert kinds == {"SQLITE", "SQLITE-WAL", "SQLITE-SHM"}
        assert locked(private_data) == before
        dialog.reject()


@pytest.mark.parametrize("ending", ["", "-wal", "-shm"])
def test_the_chats_themselves_are_neither_attached_nor_imported(private_data: Path, ending: str) -> None:
    with closing(open_chats(chats_file())):
        before = locked(private_data)
        path = chats_file().with_name(chats_file().name + ending)
        with pytest.raises(GreenroomError, match="Greenroom stores its chats in it"):
            read_text_file(path)
        with pytest.raises(GreenroomError, match="Greenroom stores its chats in it"):
            read(path)
        assert locked(private_data) == before


def test_it_speaks_one_language(qtbot: QtBot) -> None:
    """Qt's own translations leave some of its words in English."""
    parent = QWidget()
    qtbot.addWidget(parent)
    set_language("ko")
    try:
        dialog = FileDialog(parent, "파일 열기")
        dialog.setOption(FileDialog.Option.DontUseNativeDialog)
        dialog.show()
        said = [part.text() for kind in (QLabel, QPushButton) for part in dialog.findChildren(kind)]
        assert len([text for text in said if text]) >= 4
        assert not [text for text in said if text and not any("가" <= letter <= "힣" for letter in text)]
        dialog.close()
    finally:
        set_language("en")
