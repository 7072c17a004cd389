"""The real program is told to end while its chats cannot be saved: nobody is waited for."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
#: The program, whose disk is full as soon as its window is there; then it gets a signal, or its window is closed.
PROGRAM = """
import os, signal, sys
sys.path[:0] = [{chat!r}]
import pytest
from full_disk import LONG, FullDisk
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from app.__main__ import main

disk, ticks, end = FullDisk(pytest.MonkeyPatch()), [], {end!r}

def tick():
    window = next((w for w in QApplication.topLevelWidgets() if hasattr(w, "chat_page")), None)
    if window is None or window.store is None:
        QTimer.singleShot(20, tick)
    elif not ticks:
        ticks.append(1)
        store = window.store
        disk.fill(store)
        chat = store.create_chat("What is lost?")
        question = store.add_message(chat, None, "user", "What is lost?")
        store.finish(store.add_message(chat, question, "assistant"), LONG, None, "end")
        window.chat_page.composer.set_text("half a thought")
        if hasattr(signal, end):
            os.kill(os.getpid(), getattr(signal, end))
        else:
            if end == "session":
                QApplication.instance().commitDataRequest.emit(None)
            window.close()
            QTimer.singleShot(300, tick)
    elif window.isVisible():
        # It is still there when its window was only closed: it asks.
        from app.chat.unsaved_question import UnsavedQuestion
        print("asks", len(window.findChildren(UnsavedQuestion)), flush=True)
        if end == "frees":
            disk.free(window.store)
        window.end_now()

old = QApplication.exec
def exec_(*_):
    QTimer.singleShot(0, tick)
    return old()
QApplication.exec = exec_
sys.exit(main([]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="has no such signals")
@pytest.mark.parametrize(
    ("end", "says"),
    [("SIGTERM", ""), ("SIGHUP", ""), ("session", ""), ("closed", "asks 1"), ("frees", "asks 1")],
)
def test_nobody_is_waited_for_unless_a_user_closes_the_window(tmp_path: Path, end: str, says: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "settings.json").write_text('{"start": "nothing"}')
    environment = {
        **os.environ,
        "QT_QPA_PLATFORM": "offscreen",
        "GREENROOM_DATA": str(data),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    code = PROGRAM.format(chat=str(HERE / "chat"), end=end)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=HERE.parents[1], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == says
    with closing(sqlite3.connect(data / "chats.sqlite")) as db:
        answers = [row[0] for row in db.execute("SELECT text FROM messages WHERE role = 'assistant' AND text != ''")]
    # The last try to save is at the very end.
    assert [text[:8] for text in answers] == (["A senten"] if end == "frees" else [])
