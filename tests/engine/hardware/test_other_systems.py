"""What Windows, macOS and the firmware say, from buffers as they give them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_machines import smbios

from engine.hardware import child, macos, windows
from engine.hardware.generations import generation
from engine.hardware.smbios import Modules, memory_modules


def record(relation: int, body: bytes) -> bytes:
    return struct.pack("<II", relation, 8 + len(body)) + body


def core(flags: int, efficiency: int) -> bytes:
    return record(0, bytes([flags, efficiency]) + bytes(22 + 16))


def cache(level: int, size: int, kind: int) -> bytes:
    return record(2, struct.pack("<BBHII", level, 8, 64, size, kind) + bytes(32))


def test_a_hybrid_processor_under_windows() -> None:
    buffer = b"".join([core(1, 1)] * 6 + [core(0, 0)] * 8)
    buffer += cache(1, 48 << 10, 2) + cache(1, 32 << 10, 1) + cache(2, 1280 << 10, 0) + cache(3, 24 << 20, 0)
    buffer += record(3, bytes(32)) + record(1, bytes(32)) + record(7, b"unknown!")
    assert windows.processor_facts(buffer) == {
        "performance_cores": 6,
        "efficiency_cores": 8,
        "sockets": 1,
        "smt": True,
        "caches": {"l1d": 48 << 10, "l2": 1280 << 10, "l3": 24 << 20},
    }


def test_equal_cores_are_all_performance_cores() -> None:
    facts = windows.processor_facts(core(0, 0) * 4)
    assert (facts["performance_cores"], facts["efficiency_cores"], facts["smt"]) == (4, 0, False)


@given(st.binary(max_size=200))
def test_broken_buffers_end_the_list(buffer: bytes) -> None:
    facts = windows.processor_facts(core(1, 0) + buffer)
    assert facts["performance_cores"] + facts["efficiency_cores"] >= 1


def test_sysctl_of_an_apple_processor() -> None:
    text = "hw.perflevel0.physicalcpu: 8\nhw.perflevel1.physicalcpu: 4\nhw.packages: 1\n"
    text += "hw.perflevel0.l2cachesize: 16777216\n"
    assert macos.processor_facts(text) == {
        "performance_cores": 8,
        "efficiency_cores": 4,
        "sockets": 1,
        "caches": {"l2": 16 << 20},
    }
    assert macos.processor_facts("sysctl: unknown oid") == {"sockets": 0, "caches": {}}


def test_the_system_is_asked_on_the_system_alone() -> None:
    assert child.system_part() == {}


def test_memory_modules() -> None:
    dual = smbios(2, 0x1A, 3200, "DIMM 1", "P0 CHANNEL {1}")
    assert memory_modules(dual) == Modules(3200, 2, "DDR4")
    assert memory_modules(smbios(4, 0x22, 5600, "Controller0-Channel{1}-DIMM0", "BANK 0")) == Modules(5600, 4, "DDR5")
    assert memory_modules(smbios(12, 0x22, 4800, "DIMM_{1}1", "P0_Node0")) == Modules(4800, 12, "DDR5")
    # A place without a channel: how many are filled is not known.
    assert memory_modules(smbios(2, 0x1A, 3200, "Slot {0}", "Bank")) == Modules(3200, 0, "DDR4")
    assert memory_modules(b"") == Modules()


@given(st.binary(max_size=300))
def test_any_table_is_read_to_its_end(table: bytes) -> None:
    found = memory_modules(table)
    assert 0 <= found.speed_mts < 0xFFFF


@pytest.mark.parametrize(
    ("vendor", "numbers", "name"),
    [
        ("GenuineIntel", (6, 0x55, 4), "Skylake-SP"),
        ("GenuineIntel", (6, 0x55, 7), "Cascade Lake"),
        ("GenuineIntel", (6, 0x55, 11), "Cooper Lake"),
        ("GenuineIntel", (6, 0xCF, 2), "Emerald Rapids"),
        ("AuthenticAMD", (0x17, 1, 2), "Zen"),
        ("AuthenticAMD", (0x17, 8, 2), "Zen+"),
        ("AuthenticAMD", (0x17, 0x31, 0), "Zen 2"),
        ("AuthenticAMD", (0x19, 1, 1), "Zen 3"),
        ("AuthenticAMD", (0x19, 0x11, 1), "Zen 4"),
        ("AuthenticAMD", (0x1A, 2, 1), "Zen 5"),
        ("AuthenticAMD", (0x1A, 0x50, 0), ""),
        ("AuthenticAMD", (0x15, 2, 0), "Bulldozer"),
        ("GenuineIntel", (15, 6, 0), ""),
        ("", (0, 0, 0), ""),
    ],
)
def test_generations(vendor: str, numbers: tuple[int, int, int], name: str) -> None:
    assert generation(vendor, *numbers) == name
