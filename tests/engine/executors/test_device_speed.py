"""What calibration measures of a device, on those that are always here."""

from __future__ import annotations

import pytest

from engine.executors import device_speed as speed
from engine.executors.devices import HostDevice


def test_a_simulated_link_is_no_faster_than_it_was_told() -> None:
    found = speed.device_speed("sim:vram=4e7,copy=1e9")
    assert set(found) == {
        "to_pinned_gbs",
        "to_pageable_gbs",
        "from_pinned_gbs",
        "from_pageable_gbs",
        "memory_gbs",
    }
    assert all(value > 0 for value in found.values())
    assert max(found[name] for name in found if name != "memory_gbs") <= 1.0


def test_without_page_locking_only_other_copies_are_measured() -> None:
    found = speed.device_speed("sim:vram=4e7,copy=1e9,fail=pin")
    assert not any("pinned" in name for name in found)


def test_arithmetic_and_codes_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "MATRIX", 256)
    device = HostDevice()
    assert speed._arithmetic(device, 1 << 24)["teraflops"] > 0
    assert speed._codes(device, 1 << 24)["code_gweights"] > 0
