"""kill -9 in the midst of a download, again and again.

GREENROOM_CRASHES and GREENROOM_CRASH_BYTES set how often and how large; 100 and 1000000000 take some minutes.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from engine.control import Control
from engine.hub.network import NetworkSettings
from engine.hub.repository import Hub
from engine.hub.transfer import verify
from tests.fake_hub import FakeHub, Pattern

CRASHES = int(os.environ.get("GREENROOM_CRASHES", "4"))
NBYTES = int(os.environ.get("GREENROOM_CRASH_BYTES", "24000000"))
MAX_TWICE = 16 << 20

PROGRAM = """
import sys
from pathlib import Path
from engine.hub.downloads import DownloadManager
from engine.hub.network import NetworkSettings
from engine.hub.repository import Hub

url, folder = sys.argv[1], Path(sys.argv[2])
settings = NetworkSettings(endpoint=url)
manager = DownloadManager(folder / "models", folder / "downloads.db", settings, bytes_per_s=int(sys.argv[3]))
manager.start()
if not manager.status():
    manager.add(Hub(settings).repository("maker/model").models[0])
print(manager.wait(manager.status()[0].id).state, flush=True)
manager.close()
"""


def test_a_download_survives_kill_9_at_any_moment(tmp_path: Path) -> None:
    part = tmp_path / "models/maker/model/m-Q4_0.gguf.part"
    with FakeHub() as hub:
        hub.add("maker/model", {"m-Q4_0.gguf": Pattern(NBYTES, seed=3)})
        (model,) = Hub(NetworkSettings(endpoint=hub.url)).repository("maker/model").models
        speed = 10**9 if NBYTES > 10**8 else NBYTES

        def start(bytes_per_s: int) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", PROGRAM, hub.url, str(tmp_path), str(bytes_per_s)]
            return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

        lengths = []
        for crash in range(CRASHES):
            program = start(speed)
            # Evenly over the file, each time a little past a random point.
            until = int(NBYTES * (crash + random.random()) / CRASHES)
            while program.poll() is None and (part.stat().st_size if part.exists() else 0) < until:
                time.sleep(0.001)
            program.send_signal(signal.SIGKILL)
            program.communicate()
            lengths.append(part.stat().st_size if part.exists() else NBYTES)
        program = start(10**9)
        output, _ = program.communicate(timeout=120)
        assert output.strip() == "finished"
        assert verify(part.with_suffix(""), model.files[0], Control(), lambda _: None)
        # Every answer began within a small step of what lay on disk when the program before was killed.
        begun = hub.first_bytes["m-Q4_0.gguf"]
        assert begun[0] == 0
        for length in lengths:
            if 0 < length < NBYTES:
                assert min(abs(length - first) for first in begun) <= MAX_TWICE
        assert begun == sorted(begun)
