"""A folder that is closed hides what lies in it; nothing there is said to be gone, and nothing breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.paths import is_gone


def test_only_what_is_certainly_not_there_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "model.gguf"
    assert is_gone(file)
    assert is_gone(str(file / "below"))
    assert is_gone("a\0b")
    file.touch()
    assert not is_gone(file)

    def closed(path: Path, **_: object) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", closed)
        assert not is_gone(file)
