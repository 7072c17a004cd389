"""The whole report of every recorded machine, and what it tells the user to do.

Run as a program, this file writes down the reports as they are now, for `git diff` to show what a change did.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from recorded_processors import ALL

from engine.hardware.probe import probe

FILE = Path(__file__).with_name("expected_reports.json")
EXPECTED: dict[str, dict[str, Any]] = json.loads(FILE.read_text())


def read(name: str, folder: Path) -> dict[str, Any]:
    sources = ALL[name]().sources(folder / "root")
    report = probe(5, sources=sources, models_folder=Path("/models"), remembered_in=folder / "cache")
    return report.to_json()


def test_there_are_enough_machines() -> None:
    assert len(ALL) >= 15
    assert EXPECTED.keys() == ALL.keys()


@pytest.mark.parametrize("name", ALL)
def test_the_whole_report(name: str, tmp_path: Path) -> None:
    assert read(name, tmp_path) == EXPECTED[name]


#: What a warning may tell the user to do.
REMEDIES = ("install ", "run the set-up again", "raise ", "update ", "Give ", "choose ", "Switch ", "restart ")


@pytest.mark.parametrize("name", ALL)
def test_every_warning_names_its_remedy(name: str) -> None:
    for warning in EXPECTED[name]["warnings"]:
        assert any(remedy in warning for remedy in REMEDIES), warning
        assert warning.endswith(".")


def write_down() -> None:
    machines = []
    for name in ALL:
        with tempfile.TemporaryDirectory() as folder:
            parts = [f"  {json.dumps(part)}: {json.dumps(said)}" for part, said in read(name, Path(folder)).items()]
        machines.append(f" {json.dumps(name)}: {{\n" + ",\n".join(parts) + "\n }")
    FILE.write_text("{\n" + ",\n".join(machines) + "\n}\n")


if __name__ == "__main__":
    write_down()
