"""Machines known by name, and machines that are not here."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_machines import MakeReport, make_report
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import GreenroomError
from engine.hardware.report import Calibration, DeviceSpeed, GpuReport
from engine.placement.machines import ram_bandwidth, what_if
from engine.placement.parts import cpus, find_cpu, find_gpu, gpus

GB = 1_000_000_000


@pytest.mark.parametrize(
    ("name", "memory", "channels"),
    [
        ("AMD Ryzen 5 5600X 6-Core Processor", "DDR4-3200", 2),
        ("5600X", "DDR4-3200", 2),
        ("AMD Ryzen 9 7950X 16-Core Processor", "DDR5-5200", 2),
        ("AMD Ryzen 7 7840U w/ Radeon 780M Graphics", "DDR5-5200", 2),
        ("AMD Ryzen 7 5800H with Radeon Graphics", "DDR4-3200", 2),
        ("AMD Ryzen 9 9950X 16-Core Processor", "DDR5-5600", 2),
        ("AMD RYZEN AI MAX+ 395 w/ Radeon 8060S", "LPDDR5X-8000", 4),
        ("AMD Ryzen Threadripper PRO 5955WX 16-Cores", "DDR4-3200", 8),
        ("AMD Ryzen Threadripper 7970X 32-Cores", "DDR5-5200", 4),
        ("AMD EPYC 9355 32-Core Processor", "DDR5-6000", 12),
        ("AMD EPYC 9654 96-Core Processor", "DDR5-4800", 12),
        ("AMD EPYC 7543 32-Core Processor", "DDR4-3200", 8),
        ("Intel(R) Xeon(R) Gold 6454S", "DDR5-4800", 8),
        ("Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz", "DDR4-3200", 8),
        ("INTEL(R) XEON(R) PLATINUM 8592+", "DDR5-5600", 8),
        ("Intel(R) Xeon(R) 6980P", "DDR5-6400", 12),
        ("Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz", "DDR4-2400", 4),
        ("Intel(R) Core(TM) i9-14900K", "DDR5-5600", 2),
        ("13th Gen Intel(R) Core(TM) i7-13700H", "DDR5-5600", 2),
        ("Intel(R) Core(TM) i7-8700K CPU @ 3.70GHz", "DDR4-2666", 2),
        ("Intel(R) Core(TM) i5-2500K CPU @ 3.30GHz", "DDR3-1600", 2),
        ("Intel(R) Core(TM) Ultra 7 265K", "DDR5-6400", 2),
    ],
)
def test_cpu_generations(name: str, memory: str, channels: int) -> None:
    model = find_cpu(name)
    assert model is not None
    assert (model.memory, model.channels) == (memory, channels)


@pytest.mark.parametrize("name", ["AMD EPYC", "Apple M2 Pro", "unknown CPU", "", "Loongson-3A6000"])
def test_other_names_are_not_guessed(name: str) -> None:
    assert find_cpu(name) is None


@pytest.mark.parametrize(
    ("name", "gbs"),
    [
        ("NVIDIA GeForce RTX 4090 D", 1008),
        ("NVIDIA GeForce RTX 4090", 1008),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 576),
        ("NVIDIA GeForce RTX 3060 Ti", 448),
        ("NVIDIA GeForce RTX 3060", 360),
        ("NVIDIA H100 80GB HBM3", 3350),
        ("NVIDIA H100 PCIe", 2000),
        ("NVIDIA L4", 300),
        ("NVIDIA L40S", 864),
        ("Tesla T4", 320),
        ("NVIDIA Something New", 250),
    ],
)
def test_gpus(name: str, gbs: float) -> None:
    assert find_gpu(name).bandwidth_gbs == gbs


def test_tables_are_sane() -> None:
    for cpu in cpus():
        assert 20 < cpu.peak_gbs < 700
        assert cpu.memory.endswith(str(cpu.megatransfers))
    for gpu in gpus():
        assert 100 < gpu.bandwidth_gbs < 10000
        assert gpu.teraflops > 0
        assert 6 <= gpu.vram_gb <= 192
    assert {row.source for row in (*cpus(), *gpus())} == {"intel", "amd", "nvidia"}


def test_measured_bandwidth_comes_first(machine: MakeReport) -> None:
    report = machine(bandwidth={"1": 20.0, "2": 36.0, "8": 60.0})
    assert ram_bandwidth(report, 8).likely == 60.0
    assert ram_bandwidth(report, 5).likely == pytest.approx(48.0)
    assert ram_bandwidth(report, 64).likely == 60.0
    assert ram_bandwidth(report, 2).source == "measured"


def test_two_speeds_of_one_machine_widen_the_range(machine: MakeReport) -> None:
    report = machine(bandwidth={"1": 16.0, "8": 60.0})
    steady = ram_bandwidth(report, 8)
    flips = replace(report, calibration=Calibration({"8": 60.0}, {"1": [15.0, 16.0], "8": [35.0, 62.0]}))
    found = ram_bandwidth(flips, 8)
    assert (found.low, found.likely, found.high) == (35.0, 60.0, 63.0)
    assert (steady.low, steady.high) == (54.0, 63.0)
    assert ram_bandwidth(what_if(flips, ram_bandwidth=80.0), 8).low == 72.0


def test_the_table_has_a_wider_range_than_a_measurement(machine: MakeReport) -> None:
    measured = ram_bandwidth(machine(bandwidth={"8": 60.0}), 8)
    table = ram_bandwidth(machine(), 8)
    guess = ram_bandwidth(machine(cpu="AMD EPYC"), 8)
    widths = [(found.high - found.low) / found.likely for found in (measured, table, guess)]
    assert widths == sorted(widths)
    assert table.source == "DDR5-5200 in 2 channels"
    assert table.likely == pytest.approx(2 * 8 * 5.2 * 0.85)
    assert ram_bandwidth(machine(), 1).likely == 16


@given(st.dictionaries(st.integers(1, 256).map(str), st.floats(1, 500), min_size=1), st.integers(1, 300))
def test_interpolation_stays_between_measurements(points: dict[str, float], threads: int) -> None:
    found = ram_bandwidth(make_report(bandwidth=points), threads)
    assert min(points.values()) * 0.999 <= found.likely <= max(points.values()) * 1.001


def test_two_sockets_are_less_than_twice_one(machine: MakeReport) -> None:
    one = what_if(machine(), cpu="EPYC 9355")
    two = what_if(machine(), cpu="2x EPYC 9355")
    assert two.cpu.physical_cores == 2 * one.cpu.physical_cores
    ratio = ram_bandwidth(two, 64).likely / ram_bandwidth(one, 64).likely
    assert 1.4 <= ratio <= 1.55


@pytest.mark.parametrize(
    ("name", "cores"),
    [
        ("Ryzen 9 7950X", 16),
        ("Ryzen 9 5900X", 12),
        ("Ryzen 7 7800X3D", 8),
        ("Ryzen 5 5600G", 6),
        ("Core i9-14900K", 8),
        ("Core i9-10900K", 10),
        ("i5-13600K", 6),
        ("i7-7700K", 4),
        ("Xeon Gold 6454S", 32),
        ("2x EPYC 7763", 64),
        ("Threadripper PRO 5955WX", 32),
    ],
)
def test_cores_by_name(name: str, cores: int, machine: MakeReport) -> None:
    assert what_if(machine(), cpu=name).cpu.performance_cores == cores


def test_sockets_in_the_name_or_beside_it(machine: MakeReport) -> None:
    named = what_if(machine(), cpu="2x EPYC 9355")
    beside = what_if(machine(), cpu="EPYC 9355", sockets=2)
    assert (named.cpu.sockets, named.cpu.physical_cores) == (beside.cpu.sockets, beside.cpu.physical_cores) == (2, 64)
    assert ram_bandwidth(named, 64) == ram_bandwidth(beside, 64)
    # One socket in three nodes is still one socket.
    split = replace(machine(cpu="Xeon 6980P", cores=128), numa=[{}, {}, {}])
    split = replace(split, cpu=replace(split.cpu, sockets=1))
    assert ram_bandwidth(split, 128).likely == pytest.approx(12 * 8 * 6.4 * 0.85)


def test_modules_that_were_read_beat_the_platform(machine: MakeReport) -> None:
    report = machine()
    slow = replace(report, memory=replace(report.memory, kind="DDR5", speed_mts=4000, channels=1))
    found = ram_bandwidth(slow, 8)
    assert found.likely == pytest.approx(8 * 4 * 0.85)
    assert found.source == "DDR5 at 4000 in 1 channel"
    assert found.high / found.low < ram_bandwidth(report, 8).high / ram_bandwidth(report, 8).low


def test_another_cpu_forgets_what_was_measured_here(machine: MakeReport) -> None:
    report = what_if(machine(bandwidth={"8": 60.0}), cpu="Xeon Gold 6454S", threads=24)
    assert report.memory.bandwidth_gbs is None
    assert report.cpu.physical_cores == 24
    assert report.cpu.kernels.int4 == "avx512vnni"
    assert what_if(machine(), cpu="i7-8700K").cpu.kernels.bf16 == "avx2"


def test_other_memory(machine: MakeReport) -> None:
    report = what_if(machine(), ram=192 * GB, ram_bandwidth=85.5)
    assert report.memory.total_bytes == 192 * GB
    assert report.memory.available_bytes == 186 * GB
    assert ram_bandwidth(report, 3).likely == 85.5


def test_another_gpu(machine: MakeReport) -> None:
    cpu_torch = replace(machine(), os={"torch_cuda": "none"})
    report = what_if(cpu_torch, vram=32 * GB, gpu="RTX 5090")
    assert report.gpus == [GpuReport("RTX 5090", "nvidia", 32 * GB, 32 * GB, False)]
    assert "torch_cuda" not in report.os
    assert what_if(machine(vram=24 * GB), vram=48 * GB).gpus[0].name == "NVIDIA GeForce RTX 4090"
    assert what_if(machine(vram=24 * GB), gpu="RTX 5090").gpus[0].total_bytes == 32 << 30
    assert what_if(machine(), gpu="RTX 4090").gpus[0].total_bytes == 24 << 30
    assert what_if(machine(vram=24 * GB), gpu="Future card").gpus[0].total_bytes == 24 * GB
    assert what_if(machine(vram=24 * GB), vram=0).gpus == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"cpu": "Abacus 3000"},
        {"ram": 0},
        {"ram": -5},
        {"vram": -1},
        {"ram_bandwidth": 0.0},
        {"ram_bandwidth": float("nan")},
        {"threads": 0},
        {"gpu": "Future card"},
        {"sockets": 2},
        {"cpu": "EPYC 9355", "sockets": 3},
    ],
)
def test_impossible_machines_are_refused(wrong: dict, machine: MakeReport) -> None:
    with pytest.raises(GreenroomError):
        what_if(machine(), **wrong)


def test_nothing_asked_changes_nothing(machine: MakeReport) -> None:
    assert what_if(machine(vram=24 * GB)) == machine(vram=24 * GB)


def test_another_card_is_not_as_fast_as_the_measured_one() -> None:
    calibration = Calibration({"8": 60.0}, devices={"cuda:0": DeviceSpeed(memory_gbs=900.0)})
    here = replace(make_report(vram=12 * GB), calibration=calibration)
    for changed in (what_if(here, gpu="RTX 5090"), what_if(here, vram=24 * GB), what_if(here, vram=0)):
        assert changed.calibration is not None
        assert changed.calibration.devices == {}
        assert changed.calibration.bandwidth_gbs == {"8": 60.0}
    more = what_if(here, ram=128 * GB).calibration
    assert more is not None
    assert more.devices


@pytest.mark.parametrize(("gb", "gbs"), [(0, 250), (8, 250), (16, 448), (24, 672), (80, 800)])
def test_an_unknown_card_is_guessed_by_its_memory(gb: int, gbs: float) -> None:
    guessed = find_gpu("a card of next year", gb << 30)
    assert guessed.bandwidth_gbs == pytest.approx(gbs)
    assert 15 <= guessed.teraflops <= 80
    assert find_gpu("RTX 3060", gb << 30).bandwidth_gbs == 360
