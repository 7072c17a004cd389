"""What is removed with all that is in it: folders of ours, and no others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine import own_folders
from engine.errors import GreenroomError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def made(folder: Path) -> Path:
    own_folders.make(folder)
    (folder / "deep").mkdir()
    (folder / "deep/file").write_bytes(b"x")
    return folder


def test_a_folder_of_ours_goes_with_all_that_is_in_it(root: Path) -> None:
    own_folders.remove(made(root / "ours"), root)
    assert list(root.iterdir()) == []


def test_what_links_in_it_lead_to_stays(root: Path, tmp_path: Path) -> None:
    ours, outside = made(root / "ours"), tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"x")
    (ours / "folder").symlink_to(outside)
    (ours / "file").symlink_to(outside / "file")
    own_folders.remove(ours, root)
    assert list(root.iterdir()) == []
    assert (outside / "file").read_bytes() == b"x"


def refused(folder: Path, root: Path) -> None:
    before = sorted(folder.rglob("*"))
    with pytest.raises(GreenroomError, match="did not make it"):
        own_folders.remove(folder, root)
    assert sorted(folder.rglob("*")) == before


def test_a_folder_without_our_mark_stays(root: Path) -> None:
    folder = root / "mine"
    folder.mkdir()
    (folder / "file").write_bytes(b"x")
    refused(folder, root)
    for mark in (b"", b"another text", own_folders._MARK_TEXT + b"more"):
        (folder / own_folders.MARK).write_bytes(mark)
        refused(folder, root)


def test_a_mark_that_is_no_file_is_none(root: Path) -> None:
    ours, folder = made(root / "ours"), root / "mine"
    folder.mkdir()
    (folder / own_folders.MARK).symlink_to(ours / own_folders.MARK)
    refused(folder, root)
    (folder / own_folders.MARK).unlink()
    os.mkfifo(folder / own_folders.MARK)
    refused(folder, root)


def test_only_what_lies_below_the_root_goes(root: Path, tmp_path: Path) -> None:
    outside, itself = made(tmp_path / "outside"), made(tmp_path / "itself")
    (root / "link").symlink_to(outside)
    (root / "up").symlink_to(tmp_path)
    for folder in (outside, root / "../outside", root / "link", root / "up/outside", tmp_path / "missing"):
        refused(folder, root)
    refused(itself, itself)
    refused(itself / ".", tmp_path / "missing")
    refused(root / "..", root)


def test_the_home_folder_and_those_above_it_stay(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = made(root / "home")
    (home / "me").mkdir()
    for place in (home, home / "me"):
        monkeypatch.setenv("HOME", str(place))
        refused(home, root)


def test_nothing_is_made_where_something_lies(root: Path, tmp_path: Path) -> None:
    (root / "file").write_bytes(b"x")
    (root / "link").symlink_to(tmp_path)
    for name in ("file", "link"):
        with pytest.raises(FileExistsError):
            own_folders.make(root / name)


def test_a_scratch_folder_goes_unless_it_gets_a_name(root: Path) -> None:
    with own_folders.scratch(root) as first:
        (first / "x").write_bytes(b"x")
    assert list(root.iterdir()) == []
    with own_folders.scratch(root) as second:
        second.rename(root / "kept")
    assert list(root.iterdir()) == [root / "kept"]
    with pytest.raises(KeyError), own_folders.scratch(root):
        raise KeyError
    assert list(root.iterdir()) == [root / "kept"]


def test_only_old_scratch_folders_of_ours_are_abandoned(root: Path) -> None:
    new, old, mine = (root / f".greenroom-scratch-{name}" for name in ("new", "old", "mine"))
    for folder in (made(new), made(old)):
        assert own_folders.is_own(folder)
    mine.mkdir()
    for folder in (old, mine):
        os.utime(folder, (0, 0))
    own_folders.remove_abandoned(root)
    assert sorted(root.iterdir()) == [mine, new]
