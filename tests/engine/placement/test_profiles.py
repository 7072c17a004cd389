"""What was measured here takes the place of the table's figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_machines import make_report

from engine.hardware.report import Calibration, HardwareReport, KernelSpeed
from engine.placement.machines import VIRTUAL_SPREAD, link_bandwidth, ram_bandwidth
from engine.placement.profiles import (
    ALONE_S,
    GREENROOM,
    MEASURED_SPREAD,
    WHOLE_MODEL_SHARE,
    WHOLE_PROMPT_SHARE,
    measured_profile,
)


def calibrated(read: float = 60.0, decode: float = 45.0, gops: float = 5000.0, **changes: object) -> HardwareReport:
    kernels = {
        "small": KernelSpeed(decode, [decode, decode], gops / 2),
        "large": KernelSpeed(decode + 5, [decode, decode + 6], gops),
    }
    calibration = Calibration({"8": read}, {"8": [read - 2, read + 1]}, 8, kernels, None, 4.0, 0.1)
    report = make_report(bandwidth={"8": read})
    return replace(report, calibration=replace(calibration, **changes))  # type: ignore[arg-type]


def test_nothing_measured_leaves_the_table() -> None:
    assert measured_profile(make_report()) is GREENROOM
    assert measured_profile(calibrated(threads=0)) is GREENROOM


def test_shares_are_of_the_kernels() -> None:
    profile = measured_profile(calibrated())
    # 8 experts of 2.65 and 24.8 MB, without what their first rows are waited for.
    speeds = [1 / (1 / gbs - GREENROOM.expert_s / (megabytes / 1e3)) for gbs, megabytes in ((45, 2.654), (50, 24.773))]
    assert profile.share_small == pytest.approx(speeds[0] / 60 * WHOLE_MODEL_SHARE, rel=1e-3)
    assert profile.share_large == pytest.approx(speeds[1] / 60 * WHOLE_MODEL_SHARE, rel=1e-3)
    assert profile.spread == MEASURED_SPREAD


def test_the_pools_latency_is_shared_among_its_threads() -> None:
    assert measured_profile(calibrated()).region_s == pytest.approx((4e-6 - ALONE_S) / 8)
    assert measured_profile(calibrated(region_us=1.0)).region_s == 0
    assert measured_profile(calibrated(region_us=None)).region_s == GREENROOM.region_s


def test_arithmetic_scales_every_code() -> None:
    profile = measured_profile(calibrated())
    core = profile.gops_per_core["int4", "avx512vnni"]
    # Reading 16 experts once and what stands between the matrices is not arithmetic.
    assert 1.0 < core / (5000 / 8 * WHOLE_PROMPT_SHARE) < 1.2
    factor = core / GREENROOM.gops_per_core["int4", "avx512vnni"]
    assert profile.gops_per_core["bf16", "avx2"] == pytest.approx(factor * GREENROOM.gops_per_core["bf16", "avx2"])
    assert profile.attention_gops["avx512"] == pytest.approx(factor * GREENROOM.attention_gops["avx512"])


def test_a_faster_machine_is_faster_in_all_that_it_computes() -> None:
    slow, fast = (measured_profile(calibrated(gops=gops)) for gops in (2500.0, 5000.0))
    for part in ("attention_gops", "gops_per_core"):
        for kind, speed in getattr(slow, part).items():
            assert getattr(fast, part)[kind] == pytest.approx(2 * speed, rel=0.15)
    assert slow.between_s["avx512"] == pytest.approx(2 * fast.between_s["avx512"], rel=0.15)


def test_a_narrow_mlp_tells_what_stands_between_matrices() -> None:
    wide = measured_profile(calibrated())
    for seconds in (0.3e-9, 0.6e-9):
        # A token of 576 x 1536 on 8 cores.
        core = wide.gops_per_core["int4", "avx512vnni"] / WHOLE_PROMPT_SHARE
        spent = 2 * 3 * 576 * 1536 / (core * 8e9) + (2 * 576 + 3 * 1536) * seconds / 8
        narrow = 2 * 3 * 576 * 1536 / spent / 1e9
        profile = measured_profile(calibrated(narrow_gops=narrow))
        assert profile.between_s["avx512"] == pytest.approx(seconds / WHOLE_PROMPT_SHARE, rel=0.01)
        assert profile.gops_per_core == wide.gops_per_core
    # A disturbed one is not believed without limits.
    assert measured_profile(calibrated(narrow_gops=1.0)).between_s["avx512"] <= 3.1 * wide.between_s["avx512"]


def test_a_measurement_that_cannot_be_is_left_out() -> None:
    assert measured_profile(calibrated(gops=1.0)).gops_per_core == {
        kind: gops * WHOLE_PROMPT_SHARE for kind, gops in GREENROOM.gops_per_core.items()
    }


def test_a_disturbed_read_is_not_slower_than_the_kernels() -> None:
    report = calibrated(read=20.0)
    assert ram_bandwidth(report, 8).likely == 50.0
    assert measured_profile(report).share_small == WHOLE_MODEL_SHARE
    # Of other threads nothing is known.
    assert ram_bandwidth(report, 4).likely == 20.0


def test_the_cores_of_a_virtual_machine_move() -> None:
    report = calibrated()
    moved = replace(report, cpu=replace(report.cpu, virtual=True))
    still, spread = ram_bandwidth(report, 8), ram_bandwidth(moved, 8)
    assert spread.likely == still.likely
    assert (spread.low, spread.high) == (still.likely * VIRTUAL_SPREAD[0], still.likely * VIRTUAL_SPREAD[1])
    assert ram_bandwidth(moved, 1).low == ram_bandwidth(report, 1).low


@pytest.mark.parametrize("virtual", [False, True])
def test_the_present_is_likely_and_the_past_may_come_back(virtual: bool) -> None:
    report = calibrated()
    now = replace(report.memory, present_gbs={"8": 30.0})
    found = ram_bandwidth(replace(report, memory=now, cpu=replace(report.cpu, virtual=virtual)), 8)
    assert found.likely == 30.0
    assert found.low <= 0.9 * 30.0
    assert found.high >= 60.0
    # Nothing was looked at with other threads.
    assert ram_bandwidth(replace(report, memory=now), 4).likely == 60.0


@pytest.mark.parametrize(("generation", "width", "gbs"), [(0, 0, 24.6), (4, 16, 24.6), (3, 8, 6.1), (5, 16, 49.2)])
def test_a_link_by_its_kind(generation: int, width: int, gbs: float) -> None:
    gpu = make_report(vram=24 * 10**9).gpus[0]
    assert link_bandwidth(replace(gpu, pcie_generation=generation, pcie_width=width)) == pytest.approx(gbs, abs=0.05)
