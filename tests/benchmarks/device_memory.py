"""What of this process' memory is RAM, where a simulated accelerator keeps its tensors in the same process."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from engine.executors.sim import SimDevice

#: Seconds between two looks.
INTERVAL = 0.002


class Watch:
    """From now on until `end`, on a thread of its own. Linux only."""

    def __init__(self) -> None:
        self._devices: list[SimDevice] = []
        self._ram = self._vram = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        opened = SimDevice.__init__

        def open_watched(device: SimDevice, *args: object) -> None:
            opened(device, *args)  # type: ignore[arg-type]
            self._devices.append(device)

        SimDevice.__init__ = open_watched  # type: ignore[method-assign, assignment]
        self._thread.start()

    def end(self) -> dict[str, int]:
        """Bytes at their peaks: anonymous memory beside the device's tensors, and those."""
        self._stop.set()
        self._thread.join()
        return {"ram_peak": self._ram, "vram_peak": max(device.memory().peak for device in self._devices)}

    def _look(self) -> None:
        with Path("/proc/self/status").open() as file:
            last = 0
            while not self._stop.is_set():
                before = self._on_devices()
                file.seek(0)
                anonymous = next((int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon")), 0)
                # A device's work space is the CPU's while it computes: it is looked at between operations only.
                if before is not None and before == self._on_devices():
                    # Twice in a row: the system takes freed memory back a moment after it is let go.
                    held = anonymous - before[0]
                    self._ram, last = max(self._ram, min(held, last)), held
                time.sleep(INTERVAL)

    def _on_devices(self) -> tuple[int, int] | None:
        """(bytes held, operations so far), or None while one is being done."""
        memories = [device.memory_in_use for device in self._devices]
        if any(memory.working for memory in memories):
            return None
        return sum(memory.held for memory in memories), sum(memory.worked for memory in memories)
