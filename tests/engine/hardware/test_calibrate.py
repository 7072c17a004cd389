"""Measured bandwidth: which thread counts, when it is remembered, how it is stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import recorded_machines as machines

from engine import _native
from engine.errors import Cancelled, GreenroomError
from engine.hardware import busy, calibrate
from engine.hardware.child import Reply, child_main
from engine.hardware.kernel_speed import SHAPES, TINY, kept_readings, measure_kernels
from engine.hardware.probe import probe
from engine.hardware.report import Calibration, DeviceSpeed, HardwareReport, KernelSpeed
from engine.progress import Progress


@pytest.fixture
def report(tmp_path: Path) -> HardwareReport:
    sources = machines.laptop().sources(tmp_path / "root")
    return probe(5, sources=sources, models_folder=tmp_path, remembered_in=tmp_path)


WHOLE = Calibration({"1": 10.5}, {"1": [9.0, 11.0]})
KERNELS = {"small": KernelSpeed(30.0, [28.0, 31.0], 300.0), "large": KernelSpeed(35.0, [20.0, 36.0], 320.0)}


class FakePool:
    """Tells how many threads were asked for; bandwidth grows with them up to four."""

    open = 0

    def __init__(self, threads: int) -> None:
        self.threads = threads
        FakePool.open += 1

    def close(self) -> None:
        FakePool.open -= 1


@pytest.fixture
def fake_kernels(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The list of (threads, bytes) measured."""
    calls: list[tuple[int, int]] = []

    def read(pool: FakePool, nbytes: int, repeats: int) -> list[float]:
        calls.append((pool.threads, nbytes))
        return [min(pool.threads, 4) * 10e9] * (repeats - 1) + [1e9]  # one slow moment

    def kernels(report: HardwareReport, threads: int, known: Calibration, *_: object) -> Calibration:
        return replace(known, threads=threads, kernels=KERNELS, region_us=4.0, handover_us=0.1)

    monkeypatch.setattr(calibrate, "measure_kernels", kernels)
    monkeypatch.setattr(_native, "ThreadPool", FakePool)
    monkeypatch.setattr(_native, "read_bandwidth", read)
    return calls


def test_thread_counts_include_cores_and_all(report: HardwareReport) -> None:
    assert calibrate.thread_counts(report) == [1, 2, 4, 6, 8, 16, 20]


def test_the_median_counts(report: HardwareReport, fake_kernels: list[tuple[int, int]]) -> None:
    reports: list[Progress] = []
    measured = calibrate.measure(report, reports.append)
    wide = dict.fromkeys(["4", "6", "8", "16", "20"], 40.0)
    assert measured.bandwidth_gbs == {"1": 10.0, "2": 20.0, **wide}
    # The slow moments are no second speed of this machine.
    assert measured.spread_gbs["8"] == [40.0, 40.0]
    assert (measured.threads, measured.kernels) == (6, KERNELS)
    assert FakePool.open == 0
    assert reports[-1].done == reports[-1].total
    assert [threads for threads, _ in fake_kernels[:7]] == [1, 2, 4, 6, 8, 16, 20]


def test_a_buffer_fits_in_free_memory(report: HardwareReport, fake_kernels: list[tuple[int, int]]) -> None:
    tight = replace(report, memory=replace(report.memory, available_bytes=1 << 30))
    calibrate.measure(tight)
    assert {nbytes for _, nbytes in fake_kernels} == {1 << 28}


def test_too_little_memory_is_one_sentence(report: HardwareReport) -> None:
    tiny = replace(report, memory=replace(report.memory, available_bytes=200_000_000))
    with pytest.raises(GreenroomError, match="only 200 MB"):
        calibrate.measure(tiny)


@pytest.mark.parametrize(("others", "share"), [(0.0, 0.0), (0.1, 0.1), (0.8, 0.8)])
def test_busy_neighbours_are_told(
    tmp_path: Path,
    fake_kernels: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
    others: float,
    share: float,
) -> None:
    looks = iter([(100.0, 1000.0), (100.0 + 20 * others, 1020.0)])
    monkeypatch.setattr(busy, "taken_by_others", lambda: next(looks))
    sources = machines.laptop().sources(tmp_path / "root")
    for calibration in (True, False):
        options = {"sources": sources, "models_folder": tmp_path, "remembered_in": tmp_path / "cache"}
        found = probe(5, calibrate=calibration, **options)
        assert found.calibration is not None
        assert found.calibration.disturbed == share
        assert any("measure again" in warning for warning in found.warnings) == (share > busy.MUCH_DISTURBED)


def test_what_others_took_is_part_of_all() -> None:
    others, every = busy.taken_by_others()
    assert 0 <= others <= every


def test_it_can_be_stopped(report: HardwareReport, fake_kernels: list[tuple[int, int]]) -> None:
    def stop(progress: Progress) -> None:
        if progress.done == 2:
            raise Cancelled

    with pytest.raises(Cancelled):
        calibrate.measure(report, stop)
    assert len(fake_kernels) == 2
    assert FakePool.open == 0


def test_the_budget_ends_it_after_a_whole_round(
    report: HardwareReport, fake_kernels: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate, "BUDGET_SECONDS", -1)
    assert len(calibrate.measure(report).bandwidth_gbs) == 7
    assert len(fake_kernels) == 7


def test_remembered_for_this_hardware_only(report: HardwareReport, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "cache"
    assert calibrate.recall(folder, report) is None
    whole = Calibration({"1": 10.5, "8": 61.0}, {"1": [9.0, 11.0], "8": [40.0, 62.0]}, 8, KERNELS, 900.0, 4.0, None)
    assert calibrate.store(folder, report, whole) == []
    assert calibrate.recall(folder, report) == whole
    assert [file.name for file in folder.iterdir()] == [calibrate.FILE_NAME]
    more = replace(report, memory=replace(report.memory, total_bytes=report.memory.total_bytes * 2))
    other = replace(report, cpu=replace(report.cpu, name="another"))
    fewer = replace(report, cpu=replace(report.cpu, usable_cores=4))
    assert [calibrate.recall(folder, changed) for changed in (more, other, fewer)] == [None] * 3


def test_another_version_measures_again(
    report: HardwareReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrate.store(tmp_path, report, WHOLE)
    monkeypatch.setattr("engine.__version__", "99.0")
    assert calibrate.recall(tmp_path, report) is None


def with_part(record: dict, name: str, value: object) -> str:
    return json.dumps({**record, "calibration": {**record["calibration"], name: value}})


@pytest.mark.parametrize(
    "change",
    [
        lambda record: "{",
        lambda record: "[]",
        lambda record: with_part(record, "bandwidth_gbs", {"1": -3}),
        lambda record: with_part(record, "bandwidth_gbs", {"1": float("nan")}),
        lambda record: with_part(record, "bandwidth_gbs", {"many": 3}),
        lambda record: with_part(record, "bandwidth_gbs", {}),
        lambda record: with_part(record, "bandwidth_gbs", [1]),
        lambda record: with_part(record, "spread_gbs", {"1": [1, 2, 3]}),
        lambda record: with_part(record, "kernels", {"small": 3}),
        lambda record: with_part(record, "region_us", -1),
        lambda record: with_part(record, "threads", "many"),
        lambda record: json.dumps({"calibration": record["calibration"]}),
        lambda record: json.dumps({"fingerprint": record["fingerprint"], "bandwidth_gbs": {"1": 3}}),
    ],
)
def test_a_damaged_file_is_as_good_as_none(change, report: HardwareReport, tmp_path: Path) -> None:
    calibrate.store(tmp_path, report, WHOLE)
    file = tmp_path / calibrate.FILE_NAME
    file.write_text(change(json.loads(file.read_text())))
    assert calibrate.recall(tmp_path, report) is None


def test_an_unwritable_cache_is_a_warning(report: HardwareReport, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    warnings = calibrate.store(tmp_path / "file" / "cache", report, WHOLE)
    assert len(warnings) == 1
    assert "could not be remembered" in warnings[0]


def test_probe_measures_once_and_remembers(tmp_path: Path, fake_kernels: list[tuple[int, int]]) -> None:
    sources = machines.laptop().sources(tmp_path / "root")
    first = probe(5, calibrate=True, sources=sources, models_folder=tmp_path, remembered_in=tmp_path / "cache")
    measurements = len(fake_kernels)
    second = probe(5, sources=sources, models_folder=tmp_path, remembered_in=tmp_path / "cache")
    assert measurements > 0
    assert len(fake_kernels) == measurements
    assert first.calibration == second.calibration == calibrate.recall(tmp_path / "cache", first)
    assert first.calibration is not None
    assert first.memory.bandwidth_gbs == second.memory.bandwidth_gbs == first.calibration.bandwidth_gbs


def test_a_quick_measurement_is_the_best_of_short_reads(
    report: HardwareReport, fake_kernels: list[tuple[int, int]]
) -> None:
    assert calibrate.measure_quickly(report) == Calibration({"6": 40.0})
    assert fake_kernels == [(6, 256 << 20)]
    assert FakePool.open == 0
    tiny = replace(report, memory=replace(report.memory, available_bytes=200_000_000))
    assert calibrate.measure_quickly(tiny) is None


def test_the_present_state_is_looked_at_where_one_is_remembered(
    tmp_path: Path, fake_kernels: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = machines.laptop().sources(tmp_path / "root")

    def look(**options: bool) -> HardwareReport:
        return probe(5, sources=sources, models_folder=tmp_path, remembered_in=tmp_path / "cache", **options)

    assert look(present=True).memory.present_gbs is None
    remembered = look(calibrate=True)
    assert remembered.memory.present_gbs is None
    fake_kernels.clear()
    monkeypatch.setattr(_native, "read_bandwidth", lambda *_: [20e9, 21e9, 21e9, 22e9])
    now = look(present=True)
    assert now.memory.present_gbs == {"6": 21.2}
    assert now.calibration == remembered.calibration
    assert look().memory.present_gbs is None
    assert calibrate.recall(tmp_path / "cache", now) == remembered.calibration


def test_one_thread_needs_no_look(report: HardwareReport, fake_kernels: list[tuple[int, int]]) -> None:
    assert calibrate.measure_present(report, replace(WHOLE, threads=1)) is None
    tiny = replace(report, memory=replace(report.memory, available_bytes=200_000_000))
    assert calibrate.measure_present(tiny, replace(WHOLE, threads=6)) is None
    assert not fake_kernels


def test_a_quick_probe_measures_only_what_is_not_remembered(
    tmp_path: Path, fake_kernels: list[tuple[int, int]]
) -> None:
    sources = machines.laptop().sources(tmp_path / "root")

    def look(**options: bool) -> HardwareReport:
        return probe(5, sources=sources, models_folder=tmp_path, remembered_in=tmp_path / "cache", **options)

    assert look().memory.bandwidth_gbs is None
    assert look(quick=True).memory.bandwidth_gbs == look(quick=True).memory.bandwidth_gbs == {"6": 40.0}
    assert len(fake_kernels) == 1
    careful = look(calibrate=True).memory.bandwidth_gbs
    assert look(quick=True).memory.bandwidth_gbs == careful
    assert careful != {"6": 40.0}


@pytest.mark.parametrize(
    ("readings", "kept"),
    [
        ([40, 41, 39, 40, 1], [40, 41, 39, 40]),
        # Two of five at half speed: the machine has two speeds.
        ([40, 41, 39, 20, 21], [40, 41, 39, 20, 21]),
        ([7], [7]),
    ],
)
def test_outliers_go_and_second_speeds_stay(readings: list[float], kept: list[float]) -> None:
    assert kept_readings(readings) == kept


def test_this_machine_reads_at_a_plausible_rate(report: HardwareReport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "ROUNDS", 1)
    monkeypatch.setattr(calibrate, "BUFFER_BYTES", 128 << 20)
    monkeypatch.setattr("engine.hardware.kernel_speed._SECONDS", 0.0)
    monkeypatch.setattr("engine.hardware.kernel_speed.PROMPT", 8)
    # Room for a layer of the small experts, none for one of the large ones.
    small = replace(report, cpu=replace(report.cpu, usable_cores=1, performance_cores=1))
    small = replace(small, memory=replace(small.memory, available_bytes=600_000_000))
    said: list[str] = []
    measured = calibrate.measure(small, lambda progress: said.append(progress.message))
    assert list(measured.bandwidth_gbs) == ["1"]
    assert 0.5 < measured.bandwidth_gbs["1"] < 1000
    assert list(measured.kernels) == ["small"]
    speed = measured.kernels["small"]
    assert 0 < speed.spread_gbs[0] <= speed.spread_gbs[1] < 10_000
    assert 0 < speed.decode_gbs < 10_000
    assert speed.prefill_gops > 0
    assert measured.narrow_gops is not None
    assert measured.narrow_gops > 0
    assert measured.region_us is not None
    assert measured.region_us > 0
    assert measured.handover_us is None  # one thread hands nothing over
    assert said[-1] == "This PC is measured"


def test_kernels_can_be_stopped_between_steps(report: HardwareReport) -> None:
    def stop(progress: Progress) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        measure_kernels(report, 1, WHOLE, stop, 0, 3)


def test_the_shapes_are_the_two_regimes() -> None:
    # Eight experts of each are far larger than a cache of one core, and the last layer is nothing.
    assert [shape.stored_bytes for shape in SHAPES] == [3 * 2048 * 768 * 18 // 32, 3 * 7168 * 2048 * 18 // 32]
    assert TINY.stored_bytes < 2000


# --- graphics cards -----------------------------------------------------------------------------------------------


def test_a_card_is_measured_last(report: HardwareReport, fake_kernels: list[tuple[int, int]]) -> None:
    asked: list[str] = []
    reports: list[Progress] = []

    def answer(part: str, timeout: float, waiting: Callable[[], None]) -> Reply:
        asked.append(part)
        waiting()
        return Reply({"to_pinned_gbs": 24.5, "memory_gbs": 800.0}) if part.endswith("0") else Reply({}, "it crashed")

    measured = calibrate.measure(report, reports.append, ["cuda:0", "cuda:1"], answer)
    assert asked == ["device=cuda:0", "device=cuda:1"]
    assert measured.devices == {"cuda:0": DeviceSpeed(to_pinned_gbs=24.5, memory_gbs=800.0)}
    assert [p.message for p in reports[-3:-1]] == ["Measuring the graphics card"] * 2
    assert calibrate.store(report_folder := Path(report.disk.path), report, measured) == []
    assert calibrate.recall(report_folder, report) == measured


@pytest.mark.parametrize("value", [{"memory_gbs": 0.0}, {"memory_gbs": "fast"}, {"memory_gbs": float("nan")}])
def test_a_speed_that_is_none_is_left_out(
    report: HardwareReport, fake_kernels: list[tuple[int, int]], value: dict[str, object]
) -> None:
    measured = calibrate.measure(report, devices=["cuda:0"], ask_device=lambda *_: Reply(value))
    assert measured.devices == {}


def test_the_cards_that_a_plan_can_use(report: HardwareReport) -> None:
    (card,) = [gpu for gpu in report.gpus if gpu.vendor == "nvidia"]
    built = replace(report, os={**report.os, "torch_cuda": "13.0"})
    assert calibrate.usable_devices(built) == ["cuda:0"]
    assert calibrate.usable_devices(replace(built, gpus=[replace(card, unusable="is too old"), card])) == ["cuda:1"]
    assert calibrate.usable_devices(replace(report, os={**report.os, "torch_cuda": "none"})) == []


def test_a_simulated_card_answers_from_its_own_process() -> None:
    ticks: list[int] = []
    settings = "sim:vram=1e8,copy=2e9"
    reply = calibrate.ask_child(f"device={settings}", 300, lambda: ticks.append(1))
    assert reply.failure == ""
    found = calibrate.device_speed(reply.value)
    # No faster than its link; a busy PC may make it slower.
    assert found.to_pinned_gbs is not None
    assert 0 < found.to_pinned_gbs <= 2.0
    assert found.memory_gbs is not None
    assert found.teraflops is None
    assert ticks


def test_a_card_that_is_not_there_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert child_main(["device=sim:vram=much"]) == 1
    failure = json.loads(capsys.readouterr().out)["failure"]
    assert failure.startswith('The simulated device "sim:vram=much" cannot be used')
    assert child_main(["device="]) == 2


def test_the_wait_for_a_card_can_be_broken_off() -> None:
    def stop() -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        calibrate.ask_child("device=sim", 60, stop)


# --- in between -----------------------------------------------------------------------------------------------------


def test_a_quick_measurement_is_repeated_after_a_while(report: HardwareReport, tmp_path: Path) -> None:
    quick = Calibration({"6": 20.0})
    assert calibrate.worth_measuring(tmp_path, None)
    calibrate.store(tmp_path, report, quick)
    assert not calibrate.worth_measuring(tmp_path, quick)
    old = (tmp_path / calibrate.FILE_NAME).stat().st_mtime - calibrate.REPEAT_AFTER_SECONDS - 1
    os.utime(tmp_path / calibrate.FILE_NAME, (old, old))
    assert calibrate.worth_measuring(tmp_path, quick)
    # What took ten seconds stays.
    assert not calibrate.worth_measuring(tmp_path, replace(quick, threads=6))


def test_of_quick_measurements_the_best_counts(report: HardwareReport, fake_kernels: list[tuple[int, int]]) -> None:
    assert calibrate.measure_quickly(report) == Calibration({"6": 40.0})
    assert calibrate.measure_quickly(report, Calibration({"6": 55.0})) == Calibration({"6": 55.0})
    assert calibrate.measure_quickly(report, Calibration({"6": 15.0})) == Calibration({"6": 40.0})
