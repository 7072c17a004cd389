"""Fixtures every part shares: a private data folder, and the demo model prepared once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before anything imports Qt: tests never open a window on the user's screen.
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The prepared demo checkpoint in the user's own data folder, made if it is missing."""
    from engine.hub.demo import demo_path, ensure_demo

    return demo_path() if demo_path().exists() else ensure_demo()


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private GREENROOM_DATA for one test."""
    folder = tmp_path / "data"
    monkeypatch.setenv("GREENROOM_DATA", str(folder))
    return folder
