"""Fixtures every part shares: a private data folder, and the demo model prepared once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Before anything imports Qt: tests never open a window on the user's screen.
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

# No test asserts on time, property tests included: machines are shared and slow.
settings.register_profile("greenroom", deadline=None)
settings.load_profile("greenroom")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stress", type=float, default=30.0, help="seconds of the hybrid runtime's stress test")
    parser.addoption("--stress-seed", type=int, default=0, help="of its first round")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests run only where they are asked for."""
    if "slow" in config.option.markexpr:
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The prepared demo checkpoint in the user's own data folder, made if it is missing."""
    from engine.hub.demo import prepare_demo

    return prepare_demo()


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private GREENROOM_DATA for one test."""
    folder = tmp_path / "data"
    monkeypatch.setenv("GREENROOM_DATA", str(folder))
    return folder
