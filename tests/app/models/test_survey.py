"""What is found on disk, without a window."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.models.survey import DEMO, demo_is_here, find_models


def test_a_closed_folder_is_one_without_models_and_no_fault(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exists = Path.exists

    def closed(path: Path) -> bool:
        if path.is_relative_to(data_folder):
            raise PermissionError(13, "Permission denied", str(path))
        return exists(path)

    # As Path.exists() answers there; whoever runs the tests may be root, to whom no folder is closed.
    monkeypatch.setattr(Path, "exists", closed)
    assert not demo_is_here()
    api: Any = SimpleNamespace(probe=lambda: None)
    assert [row.path for row in find_models(api, None, [str(data_folder / "model.gguf")]).rows][:1] == [DEMO]
