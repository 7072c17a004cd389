"""Rounded numbers that add up."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from engine.placement.amounts import ROLE_NAMES, addition, rounded_parts
from engine.units import GB, MB, unit_for

PARTS = st.dictionaries(st.sampled_from(list(ROLE_NAMES)), st.integers(0, 10**13), min_size=1)


@given(PARTS)
def test_parts_add_up_to_the_rounded_total(parts: dict[str, int]) -> None:
    unit = unit_for(sum(parts.values()))
    steps = rounded_parts(parts, unit)
    assert sum(steps.values()) == unit.up(sum(parts.values()))
    assert all(abs(steps[name] * unit.step - nbytes) < unit.step for name, nbytes in parts.items())


@given(PARTS)
def test_the_written_sum_is_right(parts: dict[str, int]) -> None:
    for unit in (GB, MB):
        text = addition(parts, unit)
        numbers = [round(float(number) * 10) for number in re.findall(r"([\d.]+) (?:GB|MB)", text)]
        if " = " in text:
            assert sum(numbers[:-1]) == numbers[-1]
        else:
            assert len(numbers) == 1


def test_an_addition_reads_well() -> None:
    parts = {"kv_cache": 1_000_000, "attention": 810_000_000, "experts": 17_180_000_000}
    assert addition(parts, GB) == "routed experts 17.2 GB + attention 0.8 GB = 18.0 GB"
