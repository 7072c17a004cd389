"""Amounts of memory as people read them: GB are 10^9 bytes and MB 10^6, as on download pages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """One step of rounding: bytes per step and how a number of steps is written."""

    step: int
    name: str
    decimals: int

    def up(self, nbytes: int) -> int:
        return -(-nbytes // self.step)

    def down(self, nbytes: int) -> int:
        return nbytes // self.step

    def write(self, steps: int) -> str:
        return f"{steps / 10**self.decimals:.{self.decimals}f} {self.name}"


GB = Unit(100_000_000, "GB", 1)
MB = Unit(1_000_000, "MB", 0)


def unit_for(total: int) -> Unit:
    """MB for what is below 1 GB, else tenths of a GB: one unit for all numbers of one sum."""
    return MB if total < 1_000_000_000 else GB


def size_up(nbytes: int) -> str:
    """What is needed, rounded up: "17.2 GB", "310 MB"."""
    unit = unit_for(MB.up(nbytes) * MB.step)
    return unit.write(unit.up(nbytes))


def size_down(nbytes: int) -> str:
    """What is free, rounded down."""
    unit = unit_for(nbytes)
    return unit.write(unit.down(nbytes))


def size_text(nbytes: float) -> str:
    """The nearest: "377 GB", "17.9 GB", "840 MB", "2.5 MB", "340 B"; with "/s" behind it a rate."""
    for name, factor, whole_from in (("GB", 1e9, 99.95), ("MB", 1e6, 9.95), ("kB", 1e3, 9.95)):
        if (value := nbytes / factor) >= 0.9995:
            return f"{value:.{0 if value >= whole_from else 1}f} {name}"
    return f"{nbytes:.0f} B"


def size_fine(nbytes: float) -> str:
    """With a digit more, for what is divided by a speed: "1.25 GB", "57.3 MB"."""
    return f"{nbytes / 1e9:.2f} GB" if nbytes >= 1e8 else f"{nbytes / 1e6:.1f} MB"
