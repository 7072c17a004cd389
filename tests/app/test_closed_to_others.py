"""The real program, with an umask that closes nothing and a folder that an older one left open."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: The program, which keeps a chat, a preset and a setting, looks at its files, and ends.
PROGRAM = """
import json, os, sys
from pathlib import Path
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from app.__main__ import main

data = Path(os.environ["GREENROOM_DATA"])

def tick():
    window = next((w for w in QApplication.topLevelWidgets() if hasattr(w, "chat_page")), None)
    if window is None or window.store is None:
        QTimer.singleShot(20, tick)
        return
    store = window.store
    chat = store.create_chat("What is private?")
    store.add_message(chat, None, "user", "What is private?")
    from app.chat.storage.preset_store import PresetStore
    from app.chat.storage.presets import BUILT_IN
    from dataclasses import replace
    PresetStore().save(replace(BUILT_IN[0], name="Mine"))
    window._settings.change(theme="dark", proxy="http://me:s3cret@proxy.example:3128")
    open_ = sorted(str(p.relative_to(data)) for p in (data, *data.rglob("*")) if p.lstat().st_mode & 0o077)
    print(json.dumps({"all": sorted(p.name for p in data.iterdir()), "open": open_}), flush=True)
    window.end_now()

old = QApplication.exec
def exec_(*_):
    QTimer.singleShot(0, tick)
    return old()
QApplication.exec = exec_
sys.exit(main([]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes")
@pytest.mark.parametrize("old", [False, True], ids=["first start", "old folder"])
def test_other_users_read_nothing_while_it_runs_and_afterwards(tmp_path: Path, old: bool) -> None:
    data = tmp_path / "data"
    if old:
        (data / "logs").mkdir(parents=True)
        for name in ("settings.json", "presets.json.unreadable", "logs/greenroom.log", "logs/greenroom.log.1"):
            (data / name).write_text('{"start": "nothing"}')
            (data / name).chmod(0o644)
        for folder in (data / "logs", data):
            folder.chmod(0o755)
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "GREENROOM_DATA": str(data), "LC_ALL": "C.UTF-8"}
    environment.pop("XDG_RUNTIME_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        umask=0,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {"chats.sqlite", "chats.sqlite-wal", "presets.json", "settings.json", "logs"} <= set(found["all"])
    # Qt makes it, and there is nothing in it but the number of the process.
    assert [name for name in found["open"] if name != "greenroom.lock"] == []
    left = [path for path in (data, *data.rglob("*")) if path.lstat().st_mode & 0o077]
    assert [path.name for path in left if path.name != "greenroom.lock"] == []
    everything = b"".join(path.read_bytes() for path in data.rglob("*") if path.is_file())
    assert b"What is private?" in everything
    assert b"s3cret" not in everything
