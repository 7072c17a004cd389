"""The script for machines with a GPU runs to its end on the simulated accelerator, and finds what is wrong there."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from engine.executors.hybrid.packed_layer import PackedLayer

SCRIPT = Path(__file__).with_name("check_gpu.py")


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_gpu", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_gpu"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    del sys.modules["check_gpu"]
    return module


def test_the_script_checks_every_plan(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    command = [sys.executable, SCRIPT, "--device", "sim", "--tokens", "4", "--out", out]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(out.read_text())
    assert document["copies"] == "right, page-locked"
    modes = ["cpu", "hybrid", "hybrid", "all_gpu", "cpu", "hybrid", "all_gpu"]
    assert [row["mode"] for row in document["plans"]] == modes
    for row in document["plans"]:
        assert row["decode_tps"] > 0
        assert row["notes"] == []
    half = document["plans"][2]
    assert half["prefill"] == "streamed"
    assert 0 < half["hit_rate"] < 1
    assert document["problems"] == []
    assert "Everything is as it should be" in done.stdout
    assert "WRONG" not in done.stdout


def test_a_device_that_breaks_down_is_told(tmp_path: Path) -> None:
    command = [sys.executable, SCRIPT, "--device", "sim:error_after=3000", "--tokens", "4"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WRONG  experts in RAM: " in done.stdout
    assert "has stopped working" in done.stdout
    assert "Please report" in done.stdout


def test_experts_computed_wrongly_on_the_device_are_told(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = PackedLayer.compute

    def wrong(*arguments: Any) -> torch.Tensor:
        return torch.roll(right(*arguments), 1, -1)

    monkeypatch.setattr(PackedLayer, "compute", wrong)
    path = tmp_path / "model.gguf"
    script.write_model(path, script.TINY)
    rows = script.check(path, "sim", 1, 4)
    found = list(script.problems({"copies": "right, page-locked", "plans": rows}))
    for plan in ("experts in RAM", "half of them cached"):
        for what in ("an answer", "a prompt with streamed weights"):
            assert any(line.startswith(f"{plan}: {what} is off by") for line in found), found
    assert not [line for line in found if line.startswith(("CPU", "all on"))]


def test_each_other_problem_is_told(script: ModuleType) -> None:
    good = {"plan": "P", "mode": "hybrid", "wished": "hybrid", "exact": True, "error": 0.0, "decode_error": 0.0}
    good |= {"greedy": 0.0, "prefill": "streamed", "peak_vram": 100, "planned_vram": 100}

    def told(copies: str = "right", **changes: Any) -> list[str]:
        return list(script.problems({"copies": copies, "plans": [good | changes]}))

    assert told() == []
    assert "wrong in round 3" in told(copies="wrong in round 3")[0]
    assert "cpu where it should be hybrid" in told(mode="cpu")[0]
    assert told(failed="no memory") == ["P: no memory"]
    assert "a prompt is off" in told(error=float("nan"))[0]
    assert "an answer is off" in told(decode_error=0.01)[0]
    assert told(decode_error=0.01, exact=False) == []
    assert "most likely token" in told(greedy=0.1)[0]
    assert "were not" in told(prefill="cpu")[0]
    assert "more VRAM" in told(peak_vram=106)[0]
