"""The report in words."""

from __future__ import annotations

from dataclasses import replace

from fakes import make_report

from app.hardware.checks import Check, checks, plain_name
from engine.hardware.report import Calibration, DiskReport, GpuReport, Isa, KernelSpeed, MemoryReport


def by_title(found: list[Check]) -> dict[str, Check]:
    return {check.title: check for check in found}


def test_a_good_machine_has_no_warnings() -> None:
    report = make_report(memory=MemoryReport(64_000_000_000, 51_200_000_000, {"4": 40.0, "8": 52.0, "16": 49.5}))
    found = checks(report)
    assert [check.state for check in found] == ["good"] * 5
    assert by_title(found)["Memory"].note == "52.0 GB/s with 8 threads"
    assert by_title(found)["Instructions"].note == "kernels: avx512vnni, avx512"


def test_missing_avx2_is_a_problem_with_its_possible_cause() -> None:
    cpu = replace(make_report().cpu, isa=Isa(["sse4_2"], ["sse4_2"]))
    check = by_title(checks(make_report(cpu=cpu)))["Instructions"]
    assert check.state == "bad"
    assert "BIOS" in check.sentence


def test_instructions_the_system_withholds_are_named() -> None:
    cpu = replace(make_report().cpu, isa=Isa(["avx2", "amx"], ["avx2"]))
    check = by_title(checks(make_report(cpu=cpu)))["Instructions"]
    assert check.state == "warn"
    assert "AMX" in check.sentence


def test_shared_memory_is_never_counted_as_vram() -> None:
    shared = GpuReport("AMD Radeon iGPU", "AMD", 8_000_000_000, 8_000_000_000, True)
    found = by_title(checks(make_report(gpus=[shared])))
    assert "No GPU with its own memory" in found["GPU"].sentence
    assert "not counted" in found["Not counted"].sentence


def test_a_limited_process_a_full_disk_and_little_memory_are_warned_about() -> None:
    report = make_report(
        cpu=replace(make_report().cpu, usable_cores=2),
        memory=MemoryReport(8_000_000_000, 1_000_000_000),
        disk=DiskReport("/", 5_000_000_000, 100_000_000_000),
        warnings=["Locked memory is limited to 8 GB."],
    )
    found = by_title(checks(report))
    assert [found[t].state for t in ("CPU", "Memory", "Disk", "Note")] == ["warn"] * 4
    assert "only 2 of them" in found["CPU"].sentence


def test_memory_is_said_to_be_as_fast_as_predictions_take_it() -> None:
    """Reads that a busy moment slowed down, beside kernels that read faster."""
    report = make_report(memory=MemoryReport(64_000_000_000, 51_200_000_000, {"1": 11.0, "8": 16.7}))
    kernels = {"small": KernelSpeed(35.1, [30.0, 40.0], 176.5)}
    found = replace(report, calibration=Calibration({"1": 11.0, "8": 16.7}, threads=8, kernels=kernels))
    assert by_title(checks(found))["Memory"].note == "35.1 GB/s with 8 threads"
    assert by_title(checks(report))["Memory"].note == "16.7 GB/s with 8 threads"


def test_names_of_processors_lose_what_says_nothing() -> None:
    assert plain_name("Intel(R) Core(TM) i7-4770 CPU @ 3.40GHz") == "Intel Core i7-4770"
    assert plain_name("AMD Ryzen 9 9950X 16-Core Processor") == "AMD Ryzen 9 9950X"
    assert plain_name("QEMU Virtual CPU version 2.5+") == "QEMU Virtual CPU version 2.5+"


def test_a_card_that_is_not_used_gets_no_tick() -> None:
    other = GpuReport("AMD Radeon RX 7900 XTX", "amd", 25_000_000_000, 24_000_000_000, False)
    check = by_title(checks(make_report(gpus=[other])))["GPU"]
    assert check.state == "note"
    assert "Not used: this version supports NVIDIA GPUs only" in check.sentence
    card = replace(make_report().gpus[0], vendor="nvidia")
    told = "The installed torch is a CPU build, so the NVIDIA GPU stays unused; run the set-up again for CUDA."
    found = by_title(checks(make_report(gpus=[card], warnings=[told])))
    assert found["GPU"].state == "warn"
    assert found["GPU"].sentence == f"{card.name}, 12.0 GB, 11.3 GB free. {told}"
    assert "Note" not in found
