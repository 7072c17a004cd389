"""What Windows says about cores, caches, memory modules and display adapters. Runs in the probe's child process."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Iterator
from typing import Any

_CORE, _NODE, _CACHE, _PACKAGE = 0, 1, 2, 3
_ALL = 0xFFFF
_INSTRUCTIONS = 1
_ADAPTERS = r"SYSTEM\CurrentControlSet\Control\Class\{4d36e968-e325-11ce-bfc1-08002be10318}"


def processor_facts(buffer: bytes) -> dict[str, Any]:
    """Counts from what GetLogicalProcessorInformationEx(RelationAll) fills in.

    Cores of the highest efficiency class are the performance cores; where there is one class, all are.
    """
    classes: list[int] = []
    sockets, smt = 0, False
    caches = {"l1d": 0, "l2": 0, "l3": 0}
    for relation, body in _records(buffer):
        if relation == _CORE and len(body) >= 2:
            smt |= bool(body[0] & 1)
            classes.append(body[1])
        elif relation == _PACKAGE:
            sockets += 1
        elif relation == _CACHE and len(body) >= 12:
            level, _, _, size, kind = struct.unpack_from("<BBHII", body)
            name = {1: "l1d", 2: "l2", 3: "l3"}.get(level)
            if name and kind != _INSTRUCTIONS:
                caches[name] += size
    fast = max(classes, default=0)
    efficiency = sum(found < fast for found in classes)
    return {
        "performance_cores": len(classes) - efficiency,
        "efficiency_cores": efficiency,
        "sockets": sockets,
        "smt": smt,
        "caches": {name: size for name, size in caches.items() if size},
    }


def _records(buffer: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + 8 <= len(buffer):
        relation, size = struct.unpack_from("<II", buffer, position)
        if size < 8 or position + size > len(buffer):
            return
        yield relation, buffer[position + 8 : position + size]
        position += size


def facts() -> dict[str, Any]:
    """Everything Windows says; what it does not say is left out."""
    if sys.platform != "win32":
        return {}
    kernel = ctypes.windll.kernel32
    size = ctypes.c_ulong(0)
    kernel.GetLogicalProcessorInformationEx(_ALL, None, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    known: dict[str, Any] = {}
    if kernel.GetLogicalProcessorInformationEx(_ALL, buffer, ctypes.byref(size)):
        known |= processor_facts(buffer.raw[: size.value])
    provider = int.from_bytes(b"RSMB", "big")
    length = kernel.GetSystemFirmwareTable(provider, 0, None, 0)
    if length > 8:
        table = ctypes.create_string_buffer(length)
        if kernel.GetSystemFirmwareTable(provider, 0, table, length) == length:
            # Eight bytes of versions and length stand before the table.
            known["smbios"] = table.raw[8:].hex()
    known["adapters"] = list(_adapters())
    return known


def _adapters() -> Iterator[dict[str, Any]]:
    if sys.platform != "win32":
        return
    import winreg

    def value(key: Any, name: str) -> Any:
        try:
            return winreg.QueryValueEx(key, name)[0]
        except OSError:
            return None

    with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, _ADAPTERS) as folder:
        for index in range(winreg.QueryInfoKey(folder)[0]):
            name = winreg.EnumKey(folder, index)
            if not name.isdigit():
                continue
            try:
                with winreg.OpenKey(folder, name) as key:
                    yield {
                        "name": str(value(key, "DriverDesc") or ""),
                        "device": str(value(key, "MatchingDeviceId") or "").lower(),
                        # WMI's figure ends at 4 GB; this one has 64 bits.
                        "total": int(value(key, "HardwareInformation.qwMemorySize") or 0),
                        "driver": str(value(key, "DriverVersion") or ""),
                    }
            except OSError:
                continue
