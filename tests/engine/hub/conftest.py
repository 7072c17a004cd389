"""The dense model that the demo is made from."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.hub import demo


@pytest.fixture(scope="session")
def dense(demo_model: Path) -> Path:
    """The dense GGUF beside the prepared demo."""
    path = demo.dense_path(demo_model.parent)
    if not path.is_file():
        demo.fetch_dense(demo_model.parent)
    return path
