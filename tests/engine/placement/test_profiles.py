"""What was measured here takes the place of the table's figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_machines import make_report

from engine.hardware.report import Calibration, HardwareReport, KernelSpeed
from engine.placement.machines import VIRTUAL_SPREAD, link_bandwidth, ram_bandwidth
from engine.placement.profiles import GREENROOM, LARGER_CHUNK, WHOLE_MODEL_SHARE, WHOLE_PROMPT_SHARE, measured_profile


def calibrated(read: float = 60.0, decode: float = 45.0, gops: float = 2600.0, **changes: object) -> HardwareReport:
    kernels = {
        "small": KernelSpeed(decode, [decode, decode], gops),
        "large": KernelSpeed(decode + 5, [decode, decode + 6], gops / 2),
    }
    calibration = Calibration({"8": read}, {"8": [read - 2, read + 1]}, 8, kernels, 4.0, 0.1)
    report = make_report(bandwidth={"8": read})
    return replace(report, calibration=replace(calibration, **changes))  # type: ignore[arg-type]


def test_nothing_measured_leaves_the_table() -> None:
    assert measured_profile(make_report()) is GREENROOM
    assert measured_profile(calibrated(threads=0)) is GREENROOM


def test_shares_are_of_the_kernels() -> None:
    profile = measured_profile(calibrated())
    assert profile.share_small == pytest.approx(45 / 60 * WHOLE_MODEL_SHARE)
    assert profile.share_large == pytest.approx(50 / 60 * WHOLE_MODEL_SHARE)


def test_the_pools_latency_is_shared_among_its_threads() -> None:
    assert measured_profile(calibrated()).region_s == pytest.approx(4e-6 / 8)
    assert measured_profile(calibrated(region_us=None)).region_s == GREENROOM.region_s


def test_arithmetic_scales_every_code() -> None:
    profile = measured_profile(calibrated())
    core = 2600 / 8 * LARGER_CHUNK * WHOLE_PROMPT_SHARE
    assert profile.gops_per_core["int4", "avx512vnni"] == pytest.approx(core)
    factor = core / GREENROOM.gops_per_core["int4", "avx512vnni"]
    assert profile.gops_per_core["bf16", "avx2"] == pytest.approx(factor * GREENROOM.gops_per_core["bf16", "avx2"])
    assert profile.attention_gops["avx512"] == pytest.approx(factor * GREENROOM.attention_gops["avx512"])


def test_a_measurement_that_cannot_be_is_left_out() -> None:
    assert measured_profile(calibrated(gops=1.0)).gops_per_core == GREENROOM.gops_per_core


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
    assert (spread.low, spread.high) == (still.low * VIRTUAL_SPREAD[0], still.high * VIRTUAL_SPREAD[1])
    assert ram_bandwidth(moved, 1).low == ram_bandwidth(report, 1).low


@pytest.mark.parametrize(("generation", "width", "gbs"), [(0, 0, 24.6), (4, 16, 24.6), (3, 8, 6.1), (5, 16, 49.2)])
def test_a_link_by_its_kind(generation: int, width: int, gbs: float) -> None:
    gpu = make_report(vram=24 * 10**9).gpus[0]
    assert link_bandwidth(replace(gpu, pcie_generation=generation, pcie_width=width)) == pytest.approx(gbs, abs=0.05)
