"""Other users of the PC read nothing of what Greenroom keeps, whatever the umask is and whatever an older one left."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine import folders
from engine.folders import (
    cache_folder,
    close_to_others,
    config_folder,
    data_folder,
    log_folder,
    make_private,
    make_private_database,
    open_private,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes")


def mode(path: Path) -> int:
    return path.lstat().st_mode & 0o777


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_one_folder_takes_everything_where_the_user_names_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENROOM_DATA", str(tmp_path))
    assert (config_folder(), data_folder()) == (tmp_path, tmp_path)
    assert (cache_folder(), log_folder()) == (tmp_path / "cache", tmp_path / "logs")
    monkeypatch.delenv("GREENROOM_DATA")
    assert all("greenroom" in str(f()).lower() for f in (config_folder, data_folder, cache_folder, log_folder))


@pytest.mark.usefixtures("umask")
def test_folders_are_closed_from_the_start_and_so_are_missing_ones_above_them(tmp_path: Path) -> None:
    made = make_private(tmp_path / "share" / "greenroom" / "logs")
    assert made == make_private(made), "it may be there"
    assert [mode(folder) for folder in (made, made.parent, made.parent.parent)] == [0o700] * 3


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        make_private(tmp_path / "file")
    with pytest.raises(OSError, match="file"):
        make_private(tmp_path / "file" / "logs")


@pytest.mark.usefixtures("umask")
def test_an_opened_file_is_closed_to_others_also_one_that_was_there(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("old")
    old.chmod(0o666)
    for path in (old, new):
        with open(path, "a", opener=open_private) as file:
            assert mode(path) == 0o600
            file.write(" more")
    assert old.read_text() == "old more"


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="link"), open(tmp_path / "link", "a", opener=open_private):
        pass
    assert not (tmp_path / "victim").exists()


@pytest.mark.usefixtures("umask")
def test_a_database_and_what_sqlite_lays_beside_it_are_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite"
    make_private_database(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE t (x)")
        db.execute("INSERT INTO t VALUES (1)")
        db.commit()
        files = sorted(tmp_path.iterdir())
        assert [file.name for file in files] == ["chats.sqlite", "chats.sqlite-shm", "chats.sqlite-wal"]
        assert [mode(file) for file in files] == [0o600] * 3
        for file in files:
            file.chmod(0o644)
        make_private_database(path)
        assert [mode(file) for file in files] == [0o600] * 3


def test_a_database_in_memory_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_private_database(Path(":memory:"))
    assert list(tmp_path.iterdir()) == []


def test_an_open_database_keeps_its_locks(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite"
    make_private_database(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("CREATE TABLE t (x)")
        db.execute("BEGIN IMMEDIATE")
        make_private_database(path)
        look = f"import sqlite3; sqlite3.connect({str(path)!r}, timeout=0).execute('BEGIN IMMEDIATE')"
        assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", look]) == 1, "another process has to wait"


def old_folder(place: Path) -> Path:
    """As a program with an umask of 022 left it."""
    for name in ("chats.sqlite", "chats.sqlite-wal", "settings.json", "logs/greenroom.log", "models/a/model.gguf"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(name)
        (place / name).chmod(0o644)
    for folder in (place, place / "logs", place / "models", place / "models" / "a"):
        folder.chmod(0o755)
    return place


def test_what_an_older_start_left_open_is_closed_and_the_models_stay_as_they_are(data_folder: Path) -> None:
    old_folder(data_folder)
    (data_folder / "run.sh").write_text("")
    (data_folder / "run.sh").chmod(0o755)
    close_to_others()
    assert [mode(path) for path in (data_folder, data_folder / "logs")] == [0o700] * 2
    closed = ("chats.sqlite", "chats.sqlite-wal", "settings.json", "logs/greenroom.log")
    assert [mode(data_folder / name) for name in closed] == [0o600] * 4
    assert [mode(data_folder / name) for name in ("models", "models/a", "models/a/model.gguf")] == [0o755, 0o755, 0o644]
    assert mode(data_folder / "run.sh") == 0o700, "what the owner may do stays"


def test_links_are_not_followed(tmp_path: Path, data_folder: Path) -> None:
    old_folder(data_folder)
    outside = old_folder(tmp_path / "outside")
    (data_folder / "link").symlink_to(outside / "settings.json")
    (data_folder / "linked").symlink_to(outside)
    (data_folder / "gone").symlink_to(tmp_path / "nowhere")
    os.mkfifo(data_folder / "pipe", 0o666)
    close_to_others()
    assert (mode(outside), mode(outside / "settings.json")) == (0o755, 0o644)


def test_a_folder_that_its_owner_keeps_elsewhere_behind_a_link_is_closed(tmp_path: Path, data_folder: Path) -> None:
    elsewhere = old_folder(tmp_path / "big disk")
    data_folder.symlink_to(elsewhere)
    close_to_others()
    assert (mode(elsewhere), mode(elsewhere / "chats.sqlite")) == (0o700, 0o600)


def test_what_is_not_ours_is_left_alone(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_folder(data_folder)
    monkeypatch.setattr(folders.os, "getuid", lambda: os.geteuid() + 1)
    close_to_others()
    assert (mode(data_folder), mode(data_folder / "chats.sqlite")) == (0o755, 0o644)


def test_the_home_folder_is_more_than_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = old_folder(tmp_path / "home")
    monkeypatch.setenv("HOME", str(home))
    for named in (home, home.parent):
        monkeypatch.setenv("GREENROOM_DATA", str(named))
        close_to_others()
    assert (mode(home), mode(home / "settings.json")) == (0o755, 0o644)
    assert mode(home / "logs") == 0o700, "that one is ours"


def test_the_work_is_bounded(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_folder(data_folder)
    monkeypatch.setattr(folders, "_MOST_ENTRIES", 2)
    looked: list[Path] = []
    monkeypatch.setattr(folders, "_close_entry", looked.append)
    close_to_others()
    assert 1 <= len([path for path in looked if path.parent == data_folder]) <= 2
    assert mode(data_folder) == 0o700


def test_without_any_folder_there_is_nothing_to_do(data_folder: Path) -> None:
    close_to_others()
    assert not data_folder.exists()
