"""The report to copy."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import make_report

from app.hardware.report_text import report_text
from engine.hardware.report import DiskReport, MemoryReport


def test_it_says_what_the_page_says() -> None:
    report = make_report(
        memory=MemoryReport(64_000_000_000, 51_200_000_000, {"16": 49.5, "8": 52.0}), warnings=["Update the driver."]
    )
    text = report_text(report)
    assert "[ok] Memory: 64.0 GB, 51.2 GB free. (52.0 GB/s with 8 threads)" in text
    assert "[warning] Note: Update the driver." in text
    assert "by number of threads: 52.0 with 8, 49.5 with 16" in text


def test_no_folder_and_no_name_of_a_user_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home/kim"))
    monkeypatch.setattr("getpass.getuser", lambda: "kim")
    report = make_report(
        disk=DiskReport("/mnt/kim/models", 412_000_000_000, 10**12),
        warnings=["/home/kim/.cache/x cannot be written.", "/mnt/kim is full."],
    )
    text = report_text(report)
    assert "kim" not in text
    assert "~/.cache/x" in text
    assert "412 GB free" in text
