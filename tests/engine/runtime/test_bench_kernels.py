"""The bench of the kernels alone: what it counts, not how fast this machine is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine import _native
from engine.cli.main import DONE, REFUSED, main
from engine.errors import GreenroomError
from engine.runtime import bench_kernels as module
from engine.runtime.bench_kernels import STORED, LayerShape, bench_kernels, tiers_of


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHAPES", {"small": LayerShape(64, 32, 8, 2), "large": LayerShape(96, 64, 4, 2)})
    monkeypatch.setattr(module, "_DECODE_BYTES", 1 << 16)
    monkeypatch.setattr(module, "_READ_BYTES", 1 << 20)
    monkeypatch.setattr(module, "PROMPT", 16)


def test_every_code_on_every_tier_once() -> None:
    results = bench_kernels(["small"], [1, 2], repeats=1)
    assert [(r.code, r.tier, r.threads) for r in results] == [
        (code, tier, threads) for code in STORED for tier in tiers_of(code) for threads in (1, 2)
    ]
    for r in results:
        assert r.tier == _native.kernel_tier(r.code, r.tier)
        assert r.decode_gbs > 0
        assert r.bandwidth_share == pytest.approx(r.decode_gbs / r.read_bandwidth_gbs, rel=0.9)
        assert (r.peak is None) == (r.peak_gops is None) == (r.peak_share is None)


def test_peaks_name_the_instruction_of_their_tier() -> None:
    pool = _native.ThreadPool(1)
    for code in STORED:
        for tier in tiers_of(code):
            peak = _native.arithmetic_peak(pool, code, tier)
            if peak is not None:
                name, rate = peak
                assert rate > 1e8
                assert (tier == "avx2") == (name in ("maddubs", "fma256")) or tier == "avxvnni"
    assert _native.arithmetic_peak(pool, "int4", "portable") is None
    pool.close()


def test_one_tier_alone_and_one_that_is_not_here() -> None:
    tier = tiers_of("int8")[-1]
    assert {r.tier for r in bench_kernels(["large"], [1], 1, isa=tier)} == {tier}
    with pytest.raises(GreenroomError, match=r'no kernels called "avx9".*Choose one of'):
        bench_kernels(["small"], [1], 1, isa="avx9")


def test_the_command_prints_a_table_or_json(capsys: pytest.CaptureFixture[str], data_folder: Path) -> None:
    options = ["bench", "--kernels", "--shape", "small", "-t", "1", "-r", "1"]
    assert main([*options, "--json"]) == DONE
    document = json.loads(capsys.readouterr().out)
    assert {"machine", "kernels"} <= document.keys()
    assert {"code", "tier", "decode_gbs", "bandwidth_share", "prefill_gops", "peak_share"} <= document["kernels"][
        0
    ].keys()
    assert main(options) == DONE
    table = capsys.readouterr().out
    assert all(code in table for code in STORED)


@pytest.mark.parametrize("words", [["bench"], ["bench", "demo", "--kernels"]])
def test_a_model_or_the_kernels(words: list[str], capsys: pytest.CaptureFixture[str], data_folder: Path) -> None:
    assert main(words) == REFUSED
    assert "Name a model, or use --kernels without one." in capsys.readouterr().err


def test_the_curve_is_not_drawn_of_a_model(capsys: pytest.CaptureFixture[str], data_folder: Path) -> None:
    assert main(["bench", "demo", "--curve"]) == REFUSED
    assert "Use --kernels --curve without a model." in capsys.readouterr().err


def test_a_model_on_every_tier_in_every_code(
    tiny_model: Path, capsys: pytest.CaptureFixture[str], data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its experts are float32: as stored, and re-coded to 4 and 8 bits."""
    from engine.runtime import bench

    monkeypatch.setattr(bench, "_BUFFER_BYTES", 1 << 20)
    monkeypatch.setattr(bench, "_SMALLEST_BUFFER_BYTES", 1 << 16)
    assert (
        main(["bench", str(tiny_model), "-p", "8", "-n", "2", "-t", "1", "-r", "1", "--isa", "all", "--json"]) == DONE
    )
    kernels = [result["kernel"] for result in json.loads(capsys.readouterr().out)["results"]]
    assert kernels == [f"{code} {tier}, 1 thread" for code in ("int4", "int8", "f32") for tier in tiers_of(code)]


def test_the_curve_runs_from_one_token_to_many(
    capsys: pytest.CaptureFixture[str], data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CURVE", (1, 4, 40))
    options = ["bench", "--kernels", "--curve", "--shape", "small", "-t", "2", "-r", "1"]
    assert main([*options, "--json"]) == DONE
    points = json.loads(capsys.readouterr().out)["curve"]
    assert [(p["code"], p["tokens"]) for p in points] == [(code, n) for code in STORED for n in (1, 4, 40)]
    # 3 matrices of 64 x 32, 2 experts a token, a multiplication and an addition each.
    for p in points:
        assert p["gops"] == pytest.approx(2 * 3 * 64 * 32 * 2 * p["tokens"] / p["us"] / 1e3)
    assert main(options) == DONE
    assert "us per token" in capsys.readouterr().out
