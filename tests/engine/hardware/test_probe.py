"""Recorded machines, read as a whole."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import recorded_machines as machines
from recorded_machines import GIB, MACHINES, Machine

from engine.hardware.child import Reply
from engine.hardware.probe import probe
from engine.hardware.report import HardwareReport, Kernels


def read(machine: Machine, folder: Path) -> HardwareReport:
    return probe(5, sources=machine.sources(folder / "root"), models_folder=folder, remembered_in=folder / "cache")


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_travels_as_json(name: str, tmp_path: Path) -> None:
    report = read(MACHINES[name](), tmp_path)
    assert json.loads(json.dumps(report.to_json())) == report.to_json()
    assert 1 <= report.cpu.performance_cores <= report.cpu.usable_cores <= report.cpu.logical_cores
    assert 0 < report.memory.available_bytes <= report.memory.total_bytes
    assert report.memory.bandwidth_gbs is None


def test_dual_socket_xeon(tmp_path: Path) -> None:
    report = read(machines.dual_xeon(), tmp_path)
    assert report.cpu.name == "Intel(R) Xeon(R) Gold 6454S"
    assert (report.cpu.physical_cores, report.cpu.logical_cores) == (64, 128)
    assert report.cpu.performance_cores == 64
    assert "amx_int8" in report.cpu.isa.usable
    assert [node["node"] for node in report.numa] == [0, 1]
    assert report.numa[1]["cpus"] == [*range(32, 64), *range(96, 128)]
    assert report.numa[0]["total_bytes"] == 256 * GIB
    assert report.gpus[0].name == "NVIDIA GeForce RTX 4090 D"
    assert report.gpus[0].free_bytes == 23 * GIB
    assert report.gpus[0].driver == "580.95.05"
    assert report.warnings == []


def test_container_gets_what_it_may_use(tmp_path: Path) -> None:
    report = read(machines.container(), tmp_path)
    assert (report.cpu.physical_cores, report.cpu.logical_cores) == (32, 64)
    # CPUs 0, 1, 32, 33 are two cores with two threads each.
    assert (report.cpu.usable_cores, report.cpu.performance_cores) == (4, 2)
    assert report.memory.total_bytes == 8 * GIB
    # 3 GiB used, of which 1 GiB is page cache that gives way.
    assert report.memory.available_bytes == 6 * GIB
    assert any("4 of 64 logical CPUs" in warning for warning in report.warnings)
    assert any("8.6 of the machine's 274.9 GB" in warning for warning in report.warnings)
    assert report.gpus == []


def test_laptop_never_counts_shared_memory(tmp_path: Path) -> None:
    report = read(machines.laptop(), tmp_path)
    nvidia, intel = report.gpus
    assert (nvidia.vendor, nvidia.integrated, nvidia.total_bytes) == ("nvidia", False, 8 * GIB)
    assert (intel.vendor, intel.integrated, intel.total_bytes, intel.free_bytes) == ("intel", True, 0, 0)
    assert intel.name == "Raptor Lake-P [Iris Xe Graphics]"
    assert report.cpu.physical_cores == 14
    assert report.cpu.performance_cores == 6
    assert report.memory.swap_total_bytes == 2 * GIB
    assert report.memory.total_bytes == 32 * GIB


def test_cpu_without_avx2_is_told_in_plain_words(tmp_path: Path) -> None:
    report = read(machines.old_desktop(), tmp_path)
    assert any(warning.startswith("AVX2 is missing, or switched off") for warning in report.warnings)
    assert report.cpu.kernels.int4 == "portable"
    card = report.gpus[0]
    assert (card.vendor, card.integrated, card.driver) == ("amd", False, "amdgpu")
    assert (card.total_bytes, card.free_bytes) == (16 * GIB, 15 * GIB)
    assert card.name == "AMD GPU (1002:73bf)"


def test_apu_under_cgroup_v1(tmp_path: Path) -> None:
    report = read(machines.apu(), tmp_path)
    assert report.gpus[0].integrated
    assert report.gpus[0].total_bytes == 0
    assert report.cpu.usable_cores == 3  # of a quota of 3.5
    assert report.memory.total_bytes == 16 * GIB
    assert report.memory.available_bytes == 14 * GIB
    assert any("does not let programs use avx512f" in warning for warning in report.warnings)


def test_windows_asks_the_system(tmp_path: Path) -> None:
    report = read(machines.windows(), tmp_path)
    assert report.cpu.name == "AMD Ryzen 5 5600X 6-Core Processor"
    assert (report.cpu.physical_cores, report.cpu.logical_cores, report.cpu.performance_cores) == (6, 12, 6)
    assert report.memory.available_bytes == 24 * GIB
    assert report.gpus[0].free_bytes == 11 * GIB
    assert any("torch is a CPU build" in warning for warning in report.warnings)
    assert report.numa == []
    assert report.os["torch_cuda"] == "none"


def test_apple_computer(tmp_path: Path) -> None:
    report = read(machines.macbook(), tmp_path)
    assert report.cpu.name == "Apple M2 Pro"
    assert (report.cpu.usable_cores, report.cpu.performance_cores, report.cpu.efficiency_cores) == (10, 6, 4)
    assert [(gpu.vendor, gpu.integrated, gpu.total_bytes) for gpu in report.gpus] == [("apple", True, 0)]
    assert not any("AVX2" in warning for warning in report.warnings)


def test_a_part_that_fails_leaves_the_rest(tmp_path: Path) -> None:
    whole = machines.dual_xeon()
    failed = {"native": Reply({}, "it crashed (signal 4)"), "nvml": Reply({}, "it did not answer within 5 s")}
    report = read(replace(whole, replies=failed), tmp_path)
    assert report.cpu.name == "Intel(R) Xeon(R) Gold 6454S"
    assert report.cpu.kernels == Kernels("none", "none", "none")
    # What the kernel lists still counts.
    assert "avx512f" in report.cpu.isa.usable
    assert report.gpus == []
    assert any("signal 4" in warning and "kernels" in warning for warning in report.warnings)
    assert any("did not answer" in warning and "NVML" in warning for warning in report.warnings)


def test_missing_kernels_are_said(tmp_path: Path) -> None:
    machine = machines.old_desktop()
    missing = {**machine.replies, "native": Reply({"missing": "No module named 'engine._native'"})}
    report = read(replace(machine, replies=missing), tmp_path)
    assert any("kernels are not installed" in warning for warning in report.warnings)


def test_nvidia_card_without_driver_is_said(tmp_path: Path) -> None:
    machine = machines.laptop()
    report = read(replace(machine, replies={**machine.replies, "nvml": machines.NO_NVIDIA}), tmp_path)
    assert any("no NVIDIA driver answers" in warning for warning in report.warnings)


def test_driver_error_is_said_once(tmp_path: Path) -> None:
    machine = machines.laptop()
    broken = Reply({"gpus": [], "driver": "", "error": "Driver/library version mismatch"})
    report = read(replace(machine, replies={**machine.replies, "nvml": broken}), tmp_path)
    assert sum("NVIDIA" in warning for warning in report.warnings) == 1
    assert any("version mismatch" in warning for warning in report.warnings)


def test_a_machine_that_says_nothing_still_gets_a_report(tmp_path: Path) -> None:
    counters = replace(machines.windows().counters, physical_cores=0, logical_cores=0)  # type: ignore[type-var]
    silent = Reply({}, "it crashed (exit code 1)")
    machine = Machine(replies={"native": silent, "nvml": silent, "cpuinfo": silent}, counters=counters, system="Plan9")
    report = read(machine, tmp_path)
    assert report.cpu.name == "unknown CPU"
    assert (report.cpu.physical_cores, report.cpu.logical_cores, report.cpu.usable_cores) == (1, 1, 1)
    assert len(report.warnings) == 3


def test_this_machine(tmp_path: Path) -> None:
    report = probe(30, models_folder=tmp_path / "not" / "there", remembered_in=tmp_path)
    assert report.cpu.name != "unknown CPU"
    assert report.disk.free_bytes > 0
    assert report.cpu.logical_cores >= report.cpu.usable_cores >= 1


def test_unreadable_disk_is_a_warning(tmp_path: Path) -> None:
    def refuse(_: Path) -> tuple[int, int, int]:
        raise PermissionError(13, "Permission denied")

    sources = replace(machines.old_desktop().sources(tmp_path / "root"), disk_usage=refuse)
    report = probe(5, sources=sources, models_folder=tmp_path, remembered_in=tmp_path)
    assert report.disk.free_bytes == 0
    assert any("Permission denied" in warning for warning in report.warnings)


def test_a_part_that_breaks_costs_only_itself(tmp_path: Path) -> None:
    def broken() -> dict[str, str]:
        raise ZeroDivisionError("no such thing")

    def no_counters() -> object:
        raise OSError("the interface is gone")

    sources = replace(machines.windows().sources(tmp_path / "root"), torch_build=broken, counters=no_counters)
    report = probe(5, sources=sources, models_folder=tmp_path, remembered_in=tmp_path)
    assert report.gpus[0].name == "NVIDIA GeForce RTX 3060"
    assert report.memory.total_bytes == 0
    assert report.cpu.kernels == Kernels("none", "none", "none")
    told = [warning for warning in report.warnings if "could not be read" in warning]
    assert [warning.split(" could")[0] for warning in told] == ["The processor", "The memory", "The installed torch"]
    assert "ZeroDivisionError: no such thing" in told[2]


def test_a_system_that_does_not_answer_is_said(tmp_path: Path) -> None:
    machine = machines.windows()
    silent = {**machine.replies, "system": Reply({}, "it did not answer within 5 s")}
    report = read(replace(machine, replies=silent), tmp_path)
    assert any(warning.startswith("Windows could not be asked") for warning in report.warnings)
    assert (report.cpu.performance_cores, report.cpu.sockets, report.memory.channels) == (6, 0, 0)


@pytest.mark.parametrize(
    ("driver", "capability", "cuda", "told"),
    [
        ("580.95.05", "8.9", "13.0", ""),
        ("570.12", "8.9", "13.0", "too old for CUDA 13.0; install NVIDIA's driver 580"),
        ("570.12", "8.9", "12.8", ""),
        ("580.1", "7.0", "13.0", "no longer supports cards of its age"),
        ("580.1", "7.5", "13.0", ""),
        ("470.1", "3.5", "none", ""),
        ("", "", "13.0", ""),
        ("580.1", "x", "future", ""),
    ],
)
def test_drivers_and_cards_too_old_for_torch(
    driver: str, capability: str, cuda: str, told: str, tmp_path: Path
) -> None:
    gpu = {"name": "Card", "total": 8 * GIB, "free": GIB, "integrated": False, "compute_capability": capability}
    nvml = Reply({"gpus": [gpu], "driver": driver, "error": ""})
    machine = replace(machines.old_desktop(), torch={"torch_cuda": cuda})
    report = read(replace(machine, replies={**machine.replies, "nvml": nvml}), tmp_path)
    assert told in report.gpus[0].unusable
    assert bool(report.gpus[0].unusable) == bool(told)
    assert any(warning.startswith("Card stays unused") for warning in report.warnings) == bool(told)


def test_parts_are_told_as_they_come(tmp_path: Path) -> None:
    told: list[tuple[str, HardwareReport]] = []
    sources = machines.laptop().sources(tmp_path / "root")
    whole = probe(
        5,
        sources=sources,
        models_folder=tmp_path,
        remembered_in=tmp_path,
        found=lambda part, report: told.append((part, report)),
    )
    assert [part for part, _ in told] == ["disk", "disks", "numa", "memory", "cpu", "os", "gpus"]
    for part, report in told:
        assert getattr(report, part) == getattr(whole, part)
    first = told[0][1]
    assert (first.cpu.name, first.memory.total_bytes, first.gpus) == ("unknown CPU", 0, [])
    assert told[-1][1] == whole
