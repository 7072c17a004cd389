"""Files that are there whole, or as they were before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.whole_file import open_regular, read_bounded, write_whole


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

    def half(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
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


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no such files here")
def test_what_would_make_us_wait_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="Invalid argument"):
            open_regular(path)
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)


def test_a_file_is_read_to_a_bound_whatever_size_it_claims(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100)
    assert [len(read_bounded(path, most)) for most in (10, 99, 100, 1000)] == [11, 100, 100, 100]
    path.write_bytes(b"")
    assert read_bounded(path, 10) == b""
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert len(read_bounded(path, 10)) == 11


@pytest.mark.skipif(not Path("/proc/self/pagemap").exists(), reason="no such files here")
def test_a_file_of_the_system_that_says_it_is_empty_and_never_ends(tmp_path: Path) -> None:
    assert Path("/proc/self/pagemap").stat().st_size == 0
    assert len(read_bounded(Path("/proc/self/pagemap"), 100_000)) <= 100_001
