"""`greenroom compare` and the what-if options, as their users meet them."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from fake_machines import make_report

from engine.cli.main import main
from engine.hardware.report import DiskReport
from engine.hub.catalogue import catalogue
from engine.placement.recommend import recommend

REFUSED = 2
GB = 10**9
CATALOGUE = list(catalogue())


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_combinations_of_parts(tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "table.csv"
    parts = ["--ram", "64,128", "--gpu", "RTX 4090,RTX 5090", "--cpu", "2x EPYC 9355"]
    said = document(capsys, "compare", str(tiny_model), *parts, "--csv", str(table))
    names = [row["name"] for row in said["machines"]]
    assert names[0] == "This PC"
    assert names[1] == "2x EPYC 9355, 64 GB RAM, RTX 4090"
    assert len(names) == 5
    assert [row["machine"] for row in csv.DictReader(io.StringIO(table.read_text()))] == names


def test_prices_and_words(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(tiny_model), "--vram", "24", "--price-per-hour", "0,1.5", "--price", "900,0"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "cost" in shown[1]
    assert shown[2].startswith("This PC")
    assert shown[3].startswith("24 GB VRAM")
    assert "3 years, 8 hours a day, without electricity" in shown[-1]


def test_a_file_of_machines(tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "machines.json"
    file.write_text('[{"name": "Server", "cpu": "Xeon Gold 6454S", "ram_gb": 512, "price": 9000}]')
    said = document(capsys, "compare", str(tiny_model), "--machines", str(file))
    assert [row["name"] for row in said["machines"]] == ["This PC", "Server"]
    assert said["machines"][1]["cost_per_million"]["likely"] > 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--machines", "/nowhere.json"], "No such file"),
        (["--machines", "x", "--ram", "64"], "the file says"),
        (["--price", "1,2,3"], "3 prices for 1 machines"),
        (["--ram", ",".join(["8"] * 65)], "at most 64"),
        (["--hours-per-day", "25"], "24 hours"),
        (["--gpu", "RTX 4090,"], "empty name"),
        (["--csv", "/nowhere/at/all.csv"], "No such file"),
    ],
)
def test_refusals(words: list[str], why: str, tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(tiny_model), *words, "--json"]) == REFUSED
    error = json.loads(capsys.readouterr().out)["error"]
    assert why in error["why"]
    assert error["remedy"]


def test_a_plan_for_two_sockets(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = document(capsys, "plan", str(tiny_model), "--cpu", "Xeon 6454S", "--gpu", "RTX 4090", "--ram", "512")
    two = document(capsys, "plan", str(tiny_model), "--cpu", "Xeon 6454S", "--sockets", "2", "--keep-gpu")
    assert (one["mode"], one["threads"]) == ("all_gpu", 32)
    assert (two["mode"], two["threads"]) == ("cpu", 64)


def test_recommendations(capsys: pytest.CaptureFixture[str]) -> None:
    # A machine of its own, so that this one's memory and disk do not matter.
    words = ["recommend", "--ram", "8", "--vram", "0", "--cpu", "i7-8700K"]
    said = document(capsys, *words)
    assert said["unsuited"]
    assert main([*words, "--top", "1"]) == 0
    shown = capsys.readouterr().out
    if said["ranked"]:
        assert shown.startswith(f"1. {said['ranked'][0]['name']}")
        assert "greenroom download" in shown
    assert main(["recommend", "--ram", "0.5", "--vram", "0"]) == 0
    assert "No model of the catalogue fits here" in capsys.readouterr().out


def test_sizes_that_nobody_confirmed_say_so() -> None:
    entry = CATALOGUE[0]
    unconfirmed = replace(entry, downloads=tuple(replace(download, nbytes=None) for download in entry.downloads))
    machine = make_report(ram=512 * GB, free=500 * GB)
    for model, sign in ((entry, ""), (unconfirmed, "~")):
        confirmed = [replace(d, nbytes=model.nbytes(d)) if not sign else d for d in model.downloads]
        (found,) = recommend([replace(model, downloads=tuple(confirmed))], machine).ranked
        assert any(re.match(rf"{sign}\d[\d.]* [GM]B to download", reason) for reason in found.reasons)


def test_a_disk_that_cannot_be_read_is_not_called_too_small(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    warning = "Free space of /closed could not be read: Permission denied; choose another folder in the settings."
    report = replace(make_report(), disk=DiskReport("/closed", 0, 0), warnings=[warning])
    monkeypatch.setattr("engine.probe", lambda **_: report)
    assert main(["recommend", "--top", "1"]) == 0
    shown = capsys.readouterr()
    assert "how much is free at /closed could not be read" in shown.out
    assert warning in shown.err


def test_an_unknown_word_points_to_the_verbs_own_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "foo"]) == REFUSED
    assert 'unrecognized arguments: foo. "greenroom models --help" lists' in capsys.readouterr().err


def test_a_model_that_is_not_here_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    parts = ["--cpu", "Xeon Gold 6454S", "--ram", "512", "--gpu", "RTX 4090 D", "--vram", "24", "--context", "139000"]
    said = document(capsys, "plan", "deepseek-v3", *parts)
    assert said["mode"] == "hybrid"
    assert said["bytes"]["vram"]["kv_cache"] == 139_000 * 61 * 576 * 2
    assert said["explanation"][0].startswith("Only a plan: it is DeepSeek-V3")
    rows = document(capsys, "compare", "glm-4.6:Q3_K_M", "--ram", "256")["machines"]
    assert rows[1]["mode"] == "cpu"


def test_what_the_catalogue_lists_can_be_planned_by_that_name(capsys: pytest.CaptureFixture[str]) -> None:
    download = CATALOGUE[0].downloads[-1]
    said = document(capsys, "plan", f"{download.repo}:{download.label}")
    assert said["model"]["name"] == f"{CATALOGUE[0].name} {download.label}"
    assert main(["plan", "nonsense"]) == REFUSED
    assert "greenroom models --catalogue" in capsys.readouterr().err


def test_a_model_that_is_not_here_is_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "deepseek-v3", "--prompt", "hi"]) == REFUSED
    assert 'The model "deepseek-v3" was not found' in capsys.readouterr().err


def test_a_picture_is_painted_by_who_can(tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", str(tiny_model), "--ram", "64", "--picture", str(tmp_path / "a.png")]
    assert main(words) == REFUSED
    assert "without the window program" in capsys.readouterr().err
    seen: list[tuple[Path, int, str, float]] = []
    assert main(words, lambda path, rows, title, use: seen.append((path, len(rows), title, use.years))) == 0
    assert seen == [(tmp_path / "a.png", 2, seen[0][2], 3.0)]

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    assert main(words, full) == REFUSED
    assert "No space left on device" in capsys.readouterr().err
