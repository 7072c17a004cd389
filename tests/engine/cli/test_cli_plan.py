"""`greenroom plan`."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import document

import engine
from engine.cli.main import DONE, REFUSED, main
from engine.hardware.report import HardwareReport
from engine.placement.plan import Prediction, Range


def test_wishes_reach_the_plan(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = "--threads 1 --device cpu --dtype float32 --kv-type f32 --context 64 --isa portable"
    assert main(["plan", str(tiny_model), *options.split(), "--json"]) == DONE
    told = document(capsys)
    wished = {"threads": 1, "device": "cpu", "dense_dtype": "float32", "kv_type": "f32", "context": 64}
    assert {name: told[name] for name in wished} == wished
    assert told["isa"] == "portable"


def test_plan_json_has_the_documented_fields(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(tiny_model), "--json"]) == DONE
    told = document(capsys)
    assert {"mode", "label", "bytes", "prediction", "explanation", "alternatives"} <= told.keys()
    assert {"ram", "vram", "ram_total", "vram_total"} <= told["bytes"].keys()
    assert {"decode_tps", "prefill_tps", "bottleneck"} <= told["prediction"].keys()
    assert {"low", "likely", "high"} == told["prediction"]["decode_tps"].keys()


def test_plan_in_words_shows_label_and_arithmetic(
    tiny_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Free RAM changes from one look to the next.
    report = engine.probe()
    monkeypatch.setattr(engine, "probe", lambda **_: report)
    assert main(["plan", str(tiny_model), "--json"]) == DONE
    told = document(capsys)
    assert main(["plan", str(tiny_model)]) == DONE
    shown = capsys.readouterr().out
    assert told["label"] in shown.splitlines()[1]
    assert all(line in shown for line in told["explanation"])


@pytest.mark.parametrize(
    ("likely", "full", "shown"),
    [
        (92.4, 25.2, "Answers at about 92 tok/s (60 to 120), 25 with all 8192 tokens: limited by RAM."),
        (92.4, 90.0, "Answers at about 92 tok/s (60 to 120): limited by RAM."),
        (2.44, None, "Answers at about 2.4 tok/s (60 to 120): limited by RAM."),
    ],
)
def test_predicted_speeds_are_written_without_more_digits_than_are_known(
    likely: float,
    full: float | None,
    shown: str,
    tiny_model: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: Any,
) -> None:
    said = Prediction(Range(60.3, likely, 121), Range(1204, 2649, 4218), "limited by RAM", full)
    real = engine.plan
    monkeypatch.setattr(
        engine, "plan", lambda *a, **k: replace(real(*a, **k), prediction=said, context=8192, mode="cpu")
    )
    assert main(["plan", str(tiny_model)]) == DONE
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert shown in lines
    assert "Reads prompts at about 2600 tok/s (1200 to 4200)." in lines


def test_a_plan_measures_the_ram_once_and_not_for_another_pc(
    tiny_model: Path, capsys: pytest.CaptureFixture[str], measured_machines: list[HardwareReport]
) -> None:
    for options in (["--ram-bandwidth", "60"], ["--cpu", "Ryzen 9 7950X"]):
        assert main(["plan", str(tiny_model), *options]) == DONE
    assert main(["probe"]) == DONE
    assert measured_machines == []
    for _ in range(2):
        assert main(["plan", str(tiny_model)]) == DONE
    assert len(measured_machines) == 1
    capsys.readouterr()
    assert main(["probe", "--json"]) == DONE
    assert document(capsys)["memory"]["bandwidth_gbs"] == {"1": 20.0}


def test_plan_for_another_pc(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--ram", "64", "--cpu", "Ryzen 9 7950X", "--ram-bandwidth", "60", "--vram", "0"]
    assert main(["plan", str(tiny_model), *options, "--json"]) == DONE
    assert document(capsys)["mode"] == "cpu"
    assert main(["plan", str(tiny_model), "--cpu", "Abacus 3000"]) == REFUSED
    assert "Abacus 3000" in capsys.readouterr().err


def test_the_context_takes_the_prompt_that_is_asked_about(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def plan(*options: str) -> int:
        return main(["plan", str(tiny_model), "--json", *options])

    assert plan("--context", "64", "--prompt-tokens", "64") == DONE
    assert document(capsys)["context"] == 64
    assert plan("--context", "64", "--prompt-tokens", "65") == REFUSED
    why = str(document(capsys)["error"])
    assert "A prompt of 65 tokens cannot be planned" in why
    assert "--context 65" in why
    # No more than the model was made for.
    assert plan("--prompt-tokens", "1000000") == REFUSED
    assert re.search(r"A context of 1000000 tokens cannot be planned", str(document(capsys)["error"]))
