"""A made-up accelerator: what its name says of it, and how it looks in a report.

It lets every plan for a GPU be seen and tested on a PC without one. The CPU does its work, so it is not fast.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from engine.errors import GreenroomError
from engine.hardware.report import GpuReport
from engine.words import say

NAME = "Simulated accelerator"
#: What can be made to fail: page-locking of host memory, capturing a step as a graph.
FAULTS = ("pin", "capture")
#: Least and most of each setting. Nobody can break off a copy under way: none takes minutes.
_BOUNDS = {
    "vram": (1, 1e15),
    "copy": (1e6, 1e15),
    "latency": (0, 1),
    "error_after": (0, 1e15),
    "seed": (0, 1e15),
}


@dataclass(frozen=True)
class Simulated:
    """Settings, as in "sim:vram=4e9,copy=12e9,latency=20e-6,fail=pin".

    vram:    bytes of its memory; what does not fit raises torch's out-of-memory error
    copy:    bytes per second between RAM and its memory
    latency: seconds before a copy starts, half as long or half as long again by chance
    fail:    one of FAULTS, or ""
    error_after: operations after which the device breaks down; 0 for never
    seed:    of that chance
    """

    vram: int = 4_000_000_000
    copy: float = 12e9
    latency: float = 20e-6
    fail: str = ""
    error_after: int = 0
    seed: int = 0

    def gpu(self) -> GpuReport:
        return GpuReport(NAME, "simulated", self.vram, self.vram, integrated=False, drives_display=False)


def is_simulated(device: str) -> bool:
    return device.partition(":")[0] == "sim"


def simulated(device: str) -> Simulated:
    """What "sim" or "sim:name=value,..." says. Raises GreenroomError for anything else."""
    kinds = {field.name: field.type for field in fields(Simulated)}
    kind, _, text = device.partition(":")
    if kind != "sim":
        raise _refuse(device, "it does not begin with sim")
    values: dict[str, int | float | str] = {}
    for setting in filter(None, map(str.strip, text.split(","))):
        name, _, value = setting.partition("=")
        if name not in kinds:
            raise _refuse(device, f'it has no setting "{name}"')
        if name in values:
            raise _refuse(device, f"it says {name} twice")
        values[name] = _fault(device, value) if name == "fail" else _amount(device, name, value, kinds[name] == "int")
    return Simulated(**values)  # type: ignore[arg-type]


def _fault(device: str, value: str) -> str:
    if value not in FAULTS:
        raise _refuse(device, f'"{value}" is nothing that can fail, {" and ".join(FAULTS)} are')
    return value


def _amount(device: str, name: str, value: str, whole: bool) -> int | float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    least, most = _BOUNDS[name]
    if not least <= number <= most:
        raise _refuse(device, f"{name}={value} is no number from {least:g} to {most:g}")
    if whole and number != int(number):
        raise _refuse(device, f"{name}={value} is no whole number")
    return int(number) if whole else number


def _refuse(device: str, why: str) -> GreenroomError:
    return GreenroomError(
        say('The simulated device "{device}" cannot be used', device=device),
        why,
        say('Write it like "sim:vram=4e9,copy=12e9,latency=20e-6,fail={value}".', value=FAULTS[0]),
    )
