"""What `main` changes in its process is as before in the next test."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.hardware import calibrate
from engine.hardware.report import Calibration, HardwareReport


@pytest.fixture(autouse=True)
def _command_line(data_folder: Path) -> Iterator[None]:
    """`main` takes Ctrl-C for the end of the process and opens a log."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)
    for log in [log for log in logging.getLogger().handlers if log.name == "greenroom log file"]:
        logging.getLogger().removeHandler(log)
        log.close()


@pytest.fixture(autouse=True)
def measured_machines(monkeypatch: pytest.MonkeyPatch) -> list[HardwareReport]:
    """Plans measure the RAM, which takes a while: not here. The list of machines that would have been."""
    asked: list[HardwareReport] = []

    def measure(report: HardwareReport, known: Calibration | None = None) -> Calibration:
        asked.append(report)
        return Calibration({"1": 20.0})

    monkeypatch.setattr(calibrate, "measure_quickly", measure)
    return asked
