"""Files that are there whole, or as they were before."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.whole_file import write_whole


def test_a_file_is_written_and_written_again(tmp_path: Path) -> None:
    for data in (b"one", b"another"):
        write_whole(tmp_path / "a.json", data)
        assert (tmp_path / "a.json").read_bytes() == data
    assert list(tmp_path.iterdir()) == [tmp_path / "a.json"]


def test_what_fails_half_way_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_replaced_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_whole(tmp_path / "folder", b"x")
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "missing" / "a", b"x")


def test_a_long_name_leaves_room_for_the_unfinished_one(tmp_path: Path) -> None:
    path = tmp_path / ("모" * 83 + ".json")
    write_whole(path, b"x")
    assert path.read_bytes() == b"x"
