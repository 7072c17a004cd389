"""Files that are there whole, or as they were before."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
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

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("engine.whole_file.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"new", on_disk=True)
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


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes")
def test_a_private_file_is_closed_to_others_and_an_exported_one_follows_the_umask(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    path.chmod(0o666)
    write_whole(path, b"new")
    assert path.stat().st_mode & 0o777 == 0o600
    write_whole(path, b"exported", private=False)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes")
def test_it_is_closed_to_others_before_anything_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = os.fsync

    def look(handle: int) -> None:
        seen.extend(path.stat().st_mode & 0o777 for path in tmp_path.iterdir())
        real(handle)

    before = os.umask(0)
    try:
        monkeypatch.setattr("engine.whole_file.os.fsync", look)
        write_whole(tmp_path / "a.json", b"secret", on_disk=True)
    finally:
        os.umask(before)
    assert seen == [0o600]
