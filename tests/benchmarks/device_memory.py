"""What of a process' memory is RAM, where a simulated accelerator keeps its tensors in the same process.

The process shows what its devices hold in a small shared file; another one looks at that and at the process. A thread
of the same process would not do: it stands still in the very operations that take most.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.executors.simulated.device import SimDevice

#: Bytes held on devices, operations under way, and operations done; behind them turns of the interpreter since a tensor
#: of a device was let go, and whether the process has begun what shall be looked at.
_SHOWN = ("held", "working", "worked")
_ENTRY, _ENTRIES = Struct("q"), len(_SHOWN) + 2
#: Seconds between two turns, and how many it takes until the system has the memory of what was let go: a tensor is told
#: to be gone before it is, and the thread that lets it go may have to wait for a core in the middle of it.
_TURN, _TURNS = 0.001, 2


def begin(path: Path) -> None:
    """What this process took before does not count."""
    _ENTRY.pack_into(_map(path), _ENTRY.size * (_ENTRIES - 1), 1)


def show(path: Path) -> list[SimDevice]:
    """From now on devices of this process show there what they hold. Returns those opened since."""
    from engine.executors.simulated import device as sim

    shown = _map(path)
    devices: list[SimDevice] = []

    class Shown(sim._Memory):
        def __setattr__(self, name: str, value: object) -> None:
            if name in _SHOWN:
                at = _ENTRY.size * _SHOWN.index(name)
                change = value - getattr(self, name, 0)  # type: ignore[operator]
                if name == "held" and change < 0:
                    _ENTRY.pack_into(shown, _ENTRY.size * len(_SHOWN), 0)
                _ENTRY.pack_into(shown, at, _ENTRY.unpack_from(shown, at)[0] + change)
            super().__setattr__(name, value)

    opened = sim.SimDevice.__init__

    def open_shown(device: SimDevice, *args: object) -> None:
        opened(device, *args)  # type: ignore[arg-type]
        devices.append(device)

    def turn() -> None:
        while True:
            time.sleep(_TURN)
            at = _ENTRY.size * len(_SHOWN)
            _ENTRY.pack_into(shown, at, _ENTRY.unpack_from(shown, at)[0] + 1)

    threading.Thread(target=turn, daemon=True).start()
    sim._Memory = Shown  # type: ignore[misc]
    sim.SimDevice.__init__ = open_shown  # type: ignore[method-assign, assignment]
    return devices


class Watch:
    """At a process that shows its devices in a file, which this makes. peak: bytes of RAM, without the devices'."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_ENTRY.size * _ENTRIES))
        self._shown = _map(path)
        self.peak = 0
        self._last = 0

    def look(self, pid: int) -> None:
        *before, turns, begun = self._entries()
        nbytes = anonymous(pid)
        *after, _, _ = self._entries()
        held, working, done = before
        # A device's work space is the CPU's while it computes: it is looked at between operations only.
        if not begun or working or before != after or (done and turns < _TURNS):
            return
        self.peak = max(self.peak, min(nbytes - held, self._last))
        self._last = nbytes - held

    def _entries(self) -> tuple[int, ...]:
        return tuple(value for (value,) in _ENTRY.iter_unpack(self._shown))


def anonymous(pid: int) -> int:
    """Bytes of anonymous memory; 0 of a process that has ended. Linux only."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon")), 0)


def _map(path: Path) -> mmap.mmap:
    file = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(file, 0)
    finally:
        os.close(file)
