"""Downloads by hand, with figures: `python -m tests.benchmarks.downloads [GIGABYTES]`.

Speed over loopback from a hub in a process of its own, how long the window's thread waits meanwhile, how fast files are
verified, and the memory of a manager with fifty files in its queue.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

SERVER = """
import sys, time
from tests.fake_hub import FakeHub, Pattern
with FakeHub() as hub:
    hub.add("maker/model", {"m-Q4_0.gguf": Pattern(int(sys.argv[1]), seed=1)})
    parts = {f"p-Q8_0-{i:05d}-of-00050.gguf": Pattern(1_000_000, seed=i) for i in range(1, 51)}
    hub.add("maker/parts", parts)
    print(hub.url, flush=True)
    sys.stdin.read()
"""


def main() -> None:
    nbytes = round(float(sys.argv[1] if len(sys.argv) > 1 else "1") * 1e9)
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(nbytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    try:
        measure(server.stdout.readline().strip(), nbytes)
    finally:
        server.communicate()


def measure(url: str, nbytes: int) -> None:
    import psutil

    from engine.hub.downloads import DownloadManager
    from engine.hub.network import NetworkSettings
    from engine.hub.repository import Hub

    settings = NetworkSettings(endpoint=url)
    (model,) = Hub(settings).repository("maker/model").models
    (parts,) = Hub(settings).repository("maker/parts").models
    before = psutil.Process().memory_info().rss
    with tempfile.TemporaryDirectory() as folder:
        manager = DownloadManager(Path(folder) / "models", Path(folder) / "downloads.db", settings)
        manager.start()
        manager.set_limits(at_once=0)
        manager.add(parts)
        print(f"memory with 50 files queued: {psutil.Process().memory_info().rss / 1e6:.0f} MB of the whole process")
        manager.cancel(manager.status()[0].id)
        manager.set_limits(at_once=1)
        started, verifying = time.monotonic(), 0.0
        download = manager.add(model)
        # This thread stands in for the window's: it wants to run every millisecond.
        slept: list[float] = []
        while True:
            moment = time.monotonic()
            time.sleep(0.001)
            slept.append(time.monotonic() - moment)
            if len(slept) % 100 == 0:
                status = manager.status()[0]
                if status.state == "verifying" and not verifying:
                    verifying = time.monotonic()
                if status.state in ("finished", "failed"):
                    break
        ended = time.monotonic()
        slept.sort()
        print(f"download: {nbytes / 1e6 / ((verifying or ended) - started):.0f} MB/s")
        if verifying:
            print(f"verification: {nbytes / 1e6 / (ended - verifying):.0f} MB/s")
        usual, worst = slept[len(slept) * 99 // 100], slept[-1]
        print(f"a waiting thread ran again after {1000 * usual:.1f} ms (99 %), {1000 * worst:.1f} ms at worst")
        print(f"memory grew by {(psutil.Process().memory_info().rss - before) / 1e6:.0f} MB")
        assert manager.status()[0].id == download
        manager.close()


if __name__ == "__main__":
    main()
