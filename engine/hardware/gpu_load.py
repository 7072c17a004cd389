"""How busy the GPU is now. Asked once a second by who shows it; never while planning."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

#: Where Linux's amdgpu driver says it, in percent.
_BUSY = "card*/device/gpu_busy_percent"


class GpuLoad:
    """read() says how busy the busiest GPU of that vendor is. Safe on any thread, one call at a time.

    vendor: "nvidia" | "amd" | any other, of which nothing is known
    drm:    stands in for the system's folder of graphics cards; for tests
    """

    def __init__(self, vendor: str, drm: Path = Path("/sys/class/drm")) -> None:
        self._vendor, self._drm = vendor, drm
        self._nvml: Any = None
        self._given_up = vendor not in ("nvidia", "amd")
        self._lock = threading.Lock()

    def read(self) -> float | None:
        """Share of the last moment in which it worked, 0 to 1. None where the driver does not say."""
        with self._lock:
            if self._given_up:
                return None
            found = self._read_nvidia() if self._vendor == "nvidia" else self._read_amd()
            # A driver that has no answer now will have none in a second.
            self._given_up = found is None
            return found

    def close(self) -> None:
        with self._lock:
            self._given_up = True
            if self._nvml is not None:
                with contextlib.suppress(Exception):
                    self._nvml.nvmlShutdown()
                self._nvml = None

    def _read_nvidia(self) -> float | None:
        try:
            if self._nvml is None:
                import pynvml

                pynvml.nvmlInit()
                self._nvml = pynvml
            nvml = self._nvml
            handles = (nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount()))
            return max((nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100 for handle in handles), default=None)
        except Exception:  # the library is missing, too old, or its driver is
            return None

    def _read_amd(self) -> float | None:
        found = []
        for path in self._drm.glob(_BUSY):
            with contextlib.suppress(OSError, ValueError):
                found.append(min(max(int(path.read_text()), 0), 100) / 100)
        return max(found, default=None)
