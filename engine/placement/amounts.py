"""Amounts of memory as the user reads them, rounded so that visible sums add up.

GB are 10^9 bytes and MB 10^6, as on download pages. What is needed is rounded up, what is free is rounded down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.words import joined, say

#: How each role is called in a sentence.
ROLE_NAMES = {
    "experts": say("routed experts"),
    "hot_experts": say("copies of routed experts"),
    "shared_experts": say("shared experts"),
    "dense_mlp": say("MLP layers"),
    "attention": say("attention"),
    "router_and_norms": say("router and norms"),
    "embeddings": say("embeddings"),
    "lm_head": say("output head"),
    "kv_cache": say("KV cache"),
    "buffers": say("program and buffers"),
}


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


def unit_for(*amounts: int) -> Unit:
    """MB when everything is below 1 GB, else tenths of a GB: one unit for all numbers of one sum."""
    return MB if max(amounts, default=0) < 1_000_000_000 else GB


def amount(nbytes: int) -> str:
    """One amount alone, rounded up: "17.2 GB", "310 MB"."""
    unit = unit_for(nbytes)
    return unit.write(unit.up(nbytes))


def free_amount(nbytes: int) -> str:
    """One amount of free memory, rounded down."""
    unit = unit_for(nbytes)
    return unit.write(unit.down(nbytes))


def rounded_parts(parts: Mapping[str, int], unit: Unit) -> dict[str, int]:
    """Steps per part such that they add up to the rounded-up total (largest remainders get the spare steps)."""
    total = unit.up(sum(parts.values()))
    steps = {name: nbytes // unit.step for name, nbytes in parts.items()}
    by_remainder = sorted(parts, key=lambda name: parts[name] % unit.step, reverse=True)
    for name in by_remainder[: total - sum(steps.values())]:
        steps[name] += 1
    return steps


def addition(parts: Mapping[str, int], unit: Unit) -> str:
    """ "routed experts 17.2 GB + attention 0.8 GB = 18.0 GB"; parts that round to nothing are left out."""
    steps = {name: count for name, count in rounded_parts(parts, unit).items() if count}
    terms = [joined(" ", (title, unit.write(steps[name]))) for name, title in ROLE_NAMES.items() if name in steps]
    if len(terms) < 2:
        return terms[0] if terms else unit.write(0)
    return joined(" = ", (joined(" + ", terms), unit.write(sum(steps.values()))))
