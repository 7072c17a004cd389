"""Machines to plan for."""

from __future__ import annotations

import pytest
from fake_machines import MakeReport, make_report


@pytest.fixture
def machine() -> MakeReport:
    return make_report
