"""Memory modules as the firmware lists them (SMBIOS specification 3.7, structure type 17).

Linux lets only the administrator read the table and Windows everybody; where it cannot be read nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_MEMORY_DEVICE = 17
_END = 127
_KINDS = {0x18: "DDR3", 0x1A: "DDR4", 0x1E: "LPDDR4", 0x22: "DDR5", 0x23: "LPDDR5"}
#: "P0 CHANNEL A", "ChannelB-DIMM0", "CPU1_DIMM_C2", "P1_Node0_Channel3_Dimm0".
_CHANNEL = re.compile(r"channel[ _]*([a-z]|\d+)(?![a-z])|dimm[ _]*([a-z])\d?\b", re.IGNORECASE)
_SOCKET = re.compile(r"\b(?:p|cpu|proc|node)[ _]*(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Modules:
    """speed_mts: transfers per second in millions as configured; channels: filled ones. 0 and "" where not said."""

    speed_mts: int = 0
    channels: int = 0
    kind: str = ""


def memory_modules(table: bytes) -> Modules:
    """What the modules of a raw SMBIOS table have in common; the slowest rules."""
    speeds: list[int] = []
    kinds: set[str] = set()
    channels: set[tuple[str, str]] | None = set()
    for fields, strings in _structures(table):
        if fields[0] != _MEMORY_DEVICE or len(fields) < 0x15 or _word(fields, 0x0C) in (0, 0xFFFF):
            continue  # an empty slot, or one of unknown content
        speed = _word(fields, 0x20) or _word(fields, 0x15)
        if 0 < speed < 0xFFFF:
            speeds.append(speed)
        kinds.add(_KINDS.get(fields[0x12], ""))
        place = " ".join(strings[number - 1] for number in fields[0x10:0x12] if 0 < number <= len(strings))
        if match := _CHANNEL.search(place):
            socket = _SOCKET.search(place)
            if channels is not None:
                channels.add((socket[1] if socket else "", (match[1] or match[2]).lower()))
        else:
            # One module without a channel in its name and the count would be too low.
            channels = None
    return Modules(min(speeds, default=0), len(channels or ()), kinds.pop() if len(kinds) == 1 else "")


def _word(fields: bytes, offset: int) -> int:
    return int.from_bytes(fields[offset : offset + 2], "little") if len(fields) >= offset + 2 else 0


def _structures(table: bytes) -> Iterator[tuple[bytes, list[str]]]:
    """(the fixed part, its strings) of each structure; a broken table ends where it breaks."""
    position = 0
    while position + 4 <= len(table):
        length = table[position + 1]
        end = table.find(b"\0\0", position + length)
        if length < 4 or end < 0 or table[position] == _END:
            return
        strings = table[position + length : end].decode("latin-1").split("\0")
        yield table[position : position + length], strings
        position = end + 2
