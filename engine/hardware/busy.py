"""How busy other programs keep the CPU while something is measured."""

from __future__ import annotations

import time

import psutil

#: Other programs that take more than this share of the CPU spoil a measurement.
MUCH_DISTURBED = 0.2


class OtherPrograms:
    """Watches from when it is made. A system that counts no CPU time has none that is known of."""

    def __init__(self) -> None:
        self._before = taken_by_others()

    def share(self) -> float:
        """Of all CPU time since then what other programs have used, 0 to 1."""
        others, every = taken_by_others()
        share = (others - self._before[0]) / max(1e-3, every - self._before[1])
        return round(min(1.0, max(0.0, share)), 2)


def taken_by_others() -> tuple[float, float]:
    """CPU seconds that other programs have used on this machine, and all there have been."""
    try:
        times = psutil.cpu_times()
    except (OSError, psutil.Error):
        return 0.0, 0.0
    every = sum(getattr(times, name) for name in ("user", "system", "idle"))
    idle = times.idle
    for name in ("nice", "irq", "softirq", "steal", "iowait", "interrupt", "dpc"):
        every += getattr(times, name, 0.0)
    idle += getattr(times, "iowait", 0.0)
    return every - idle - time.process_time(), every
