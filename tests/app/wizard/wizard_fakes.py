"""What tests of the wizard share."""

from __future__ import annotations

from collections.abc import Callable

from fakes import make_report

from app.wizard.wizard import SetupWizard
from engine.hardware.report import MemoryReport

MEASURED = make_report(memory=MemoryReport(64_000_000_000, 51_200_000_000, {"8": 52.0}))

Open = Callable[..., SetupWizard]
