from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.cli.main import DONE, REFUSED, main
from tests.fake_hub import FakeHub, Fault, Pattern


@pytest.fixture
def hub(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with FakeHub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        hub.add("maker/model", {"m-Q4_0.gguf": Pattern(1_500_000, seed=1), "m-Q8_0.gguf": Pattern(2_500_000, seed=2)})
        yield hub


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["download", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_model_comes_to_the_models_folder(
    hub: FakeHub, data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, document = run(capsys, "maker/model:q4_0")
    path = data_folder / "models/maker/model/m-Q4_0.gguf"
    assert (code, document["state"], document["path"]) == (DONE, "finished", str(path))
    assert path.stat().st_size == 1_500_000


def test_to_another_folder(hub: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, document = run(capsys, "maker/model:Q4_0", "--to", str(tmp_path / "there"))
    assert document["path"] == str(tmp_path / "there/maker/model/m-Q4_0.gguf")


def test_without_a_label_the_choices_are_named(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = run(capsys, "maker/model")
    assert code == REFUSED
    assert "Q4_0, Q8_0" in document["error"]["remedy"]


def test_listing(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = run(capsys, "maker/model", "--list")
    assert code == DONE
    assert [(m["label"], m["bytes"]) for m in document["models"]] == [("Q4_0", 1_500_000), ("Q8_0", 2_500_000)]
    assert sum(hub.bytes_sent.values()) == 0


def test_a_failed_download_is_listed_and_goes_on(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.repositories["maker/model"].files["m-Q4_0.gguf"].faults = [Fault("redirect_loop")]
    code, document = run(capsys, "maker/model:Q4_0")
    assert code == REFUSED
    assert "redirected" in document["error"]["why"]
    code, document = run(capsys)
    assert [d["state"] for d in document["downloads"]] == ["failed"]
    hub.repositories["maker/model"].files["m-Q4_0.gguf"].faults = []
    assert run(capsys, "maker/model:Q4_0")[0] == DONE
    assert run(capsys)[1]["downloads"] == []


def test_the_plan_before_the_download(
    hub: FakeHub, demo_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:

    hub.add("maker/demo", {"demo-Q4_1.gguf": demo_model.read_bytes()})
    code, document = run(capsys, "maker/demo", "--plan")
    assert code == DONE
    assert document["mode"] in ("cpu", "tight", "hybrid", "all_gpu")
    assert document["prediction"]["decode_tps"]["likely"] > 0
    assert document["download_bytes"] == demo_model.stat().st_size > 2 * hub.bytes_sent["demo-Q4_1.gguf"]


def test_the_catalogue_planned_for_this_machine(
    data_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.resources import asset

    # Two of its models are enough, and make it an update of a user's own.
    whole = json.loads(asset("catalogue.json").read_bytes())
    small = [model for model in whole["models"] if model["tier"] == "home"][3:5]
    data_folder.mkdir(parents=True, exist_ok=True)
    (data_folder / "catalogue.json").write_text(json.dumps({**whole, "date": "9999-01-01", "models": small}))
    assert main(["models", "--catalogue", "--json"]) == DONE
    rows = json.loads(capsys.readouterr().out)["catalogue"]
    assert {row["id"] for row in rows} == {model["id"] for model in small}
    assert all(row["bytes"] > 10**9 and row["mode"] and row["decode_tps"] > 0 for row in rows)
