"""How busy the GPU is, where a driver says it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.hardware.gpu_load import GpuLoad


class Nvml:
    """Stands in for NVIDIA's library."""

    def __init__(self, *loads: int) -> None:
        self.loads, self.started, self.ended = loads, 0, 0

    def nvmlInit(self) -> None:  # noqa: N802
        self.started += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.ended += 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.loads)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=self.loads[handle])


def test_of_several_cards_the_busiest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml(3, 87)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    load = GpuLoad("nvidia")
    assert load.read() == 0.87
    assert load.read() == 0.87
    load.close()
    assert (nvml.started, nvml.ended) == (1, 1)
    assert load.read() is None


def test_without_a_driver_it_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml()
    calls = []

    def fail() -> None:
        calls.append(1)
        raise RuntimeError("no driver")

    monkeypatch.setattr(nvml, "nvmlInit", fail)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    load = GpuLoad("nvidia")
    assert [load.read(), load.read()] == [None, None]
    assert len(calls) == 1


def test_amd_says_it_in_a_file(tmp_path: Path) -> None:
    for card, text in (("card0", "12\n"), ("card1", "64\n"), ("card2", "nonsense")):
        (tmp_path / card / "device").mkdir(parents=True)
        (tmp_path / card / "device" / "gpu_busy_percent").write_text(text)
    assert GpuLoad("amd", tmp_path).read() == 0.64
    assert GpuLoad("amd", tmp_path / "none").read() is None


def test_of_other_vendors_nothing_is_known() -> None:
    assert GpuLoad("intel").read() is None
