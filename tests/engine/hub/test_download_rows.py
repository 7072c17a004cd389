"""A list of downloads that somebody, or a failing disk, has changed."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fuzzing import Fuzzer

from engine.errors import GreenroomError
from engine.hub.download_store import DownloadStore
from engine.hub.downloads import DownloadManager
from engine.hub.network import NetworkSettings
from engine.hub.repository import RemoteFile, RemoteModel
from tests.canary import Canary
from tests.fake_hub import COMMIT

OFFLINE = NetworkSettings(endpoint="http://127.0.0.1:9", offline=True)
COLUMNS = {
    "downloads": "id endpoint repo revision label name form folder state position error notice owner",
    "files": "download number path nbytes sha256 blob_id etag verified safe_bytes boot",
}


def remote(name: str, repo: str = "maker/model") -> RemoteModel:
    files = tuple(RemoteFile(f"{name}-0000{i}-of-00002.gguf", 1000 + i, "a" * 64, None) for i in (1, 2))
    return RemoteModel(repo, COMMIT, "Q4_0", name, "gguf", files)


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """A list of three downloads, the second of them unfinished on the disk."""
    path = tmp_path / "downloads.db"
    store = DownloadStore(path)
    for name in ("first", "second", "third"):
        store.set_state(store.add("", remote(name), tmp_path / "models/maker/model"), "paused")
    store.close()
    folder = tmp_path / "models/maker/model"
    folder.mkdir(parents=True)
    (folder / "second-00001-of-00002.gguf.part").write_bytes(b"x" * 500)
    return path


def change(path: Path, sql: str, *values: Any) -> None:
    database = sqlite3.connect(path)
    with database:
        database.execute(sql, values)
    database.close()


def names(path: Path) -> list[str]:
    store = DownloadStore(path)
    try:
        return [stored.model.name for stored in store.all()]
    finally:
        store.close()


DAMAGE = [
    ("downloads", "repo", "../.."),
    ("downloads", "repo", "maker/other"),
    ("downloads", "repo", b"maker/model"),
    ("downloads", "repo", None),
    ("downloads", "revision", "main"),
    ("downloads", "revision", "../../../../home/me"),
    ("downloads", "label", b"\xff"),
    ("downloads", "name", "a\x1b[2J"),
    ("downloads", "form", "pickle"),
    ("downloads", "form", "safetensors"),
    ("downloads", "folder", "/home/me"),
    ("downloads", "folder", "maker/model"),
    ("downloads", "folder", "/tmp/../home/maker/model"),
    ("downloads", "folder", "/tmp/maker/model/.."),
    ("downloads", "folder", "/tmp\0/maker/model"),
    ("downloads", "folder", ""),
    ("downloads", "state", "deleting"),
    ("downloads", "position", "soon"),
    ("downloads", "position", 1 << 62),
    ("downloads", "position", -1),
    ("downloads", "position", 1.5),
    ("downloads", "endpoint", "x" * 20_000),
    ("files", "path", "../../.ssh/id"),
    ("files", "path", "/etc/passwd"),
    ("files", "path", ""),
    ("files", "path", "second-00002-of-00002.gguf"),
    ("files", "path", b"x.gguf"),
    ("files", "nbytes", -1),
    ("files", "nbytes", 1 << 62),
    ("files", "nbytes", "many"),
    ("files", "safe_bytes", -5),
    ("files", "sha256", "a"),
    ("files", "blob_id", 7.5),
    ("files", "etag", b"x"),
    ("files", "verified", 2),
    ("files", "number", 5),
    ("files", "number", "x"),
]


@pytest.mark.parametrize(("table", "column", "value"), DAMAGE, ids=ascii)
def test_a_damaged_row_is_left_out_and_the_others_stay(
    listed: Path, table: str, column: str, value: Any, tmp_path: Path
) -> None:
    where = "id = 2" if table == "downloads" else "download = 2 AND path LIKE '%00001-of-00002.gguf'"
    database = sqlite3.connect(listed)
    database.execute("PRAGMA ignore_check_constraints = ON")
    try:
        database.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,))
    except sqlite3.IntegrityError:
        # SQLite itself keeps that out; a failing disk does not ask it.
        assert value is None
        return
    finally:
        database.commit()
        database.close()
    manager = DownloadManager(tmp_path / "models", listed, OFFLINE)
    assert [status.name for status in manager.status()] == ["first", "third"]
    problem = manager.problem()
    assert problem is not None
    assert "1 of its downloads" in problem.why
    assert manager.problem() is None, "told once"
    # Added again it takes no notice of the damaged one.
    again = manager.add(remote("second"))
    assert [status.name for status in manager.status()] == ["first", "third", "second"]
    manager.pause(again)
    manager.cancel(again)
    manager.close()


def test_files_of_a_row_that_are_gone_leave_it_out(listed: Path) -> None:
    change(listed, "DELETE FROM files WHERE download = 2")
    assert names(listed) == ["first", "third"]


def test_a_damaged_error_is_no_reason_to_lose_a_download(listed: Path) -> None:
    for text in ("no JSON", "[" * 5000, "[1, 2, 3]", '["a", "b"]', "{}"):
        change(listed, "UPDATE downloads SET error = ? WHERE id = 2", text)
        assert names(listed) == ["first", "second", "third"]


def test_an_owner_that_is_none_holds_nothing(listed: Path, tmp_path: Path) -> None:
    for owner in ("x", "99999999999999999999:1", "-1:0", f"{os.getpid()}:0.00", ""):
        change(listed, "UPDATE downloads SET owner = ?, state = 'downloading' WHERE id = 2", owner)
        store = DownloadStore(listed)
        assert store.abandoned() == [2]
        assert store.claim(2)
        store.close()


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE files",
        "ALTER TABLE downloads RENAME COLUMN folder TO place",
        "ALTER TABLE files ADD COLUMN more TEXT",
        "CREATE TRIGGER x AFTER UPDATE ON downloads BEGIN DELETE FROM files; END",
        "CREATE VIEW endless AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n",
    ],
)
def test_other_tables_than_ours_are_refused(listed: Path, sql: str) -> None:
    change(listed, sql)
    before = listed.read_bytes()
    with pytest.raises(GreenroomError, match="not those of Greenroom"):
        DownloadStore(listed)
    assert listed.read_bytes() == before


def test_another_programs_database_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "downloads.db"
    change(path, "CREATE TABLE notes (text TEXT)")
    before = path.read_bytes()
    with pytest.raises(GreenroomError, match="not those of Greenroom"):
        DownloadStore(path)
    assert path.read_bytes() == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes in folders")
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_what_is_no_file_is_no_list(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "downloads.db")
    with pytest.raises(GreenroomError, match="not a regular file"):
        DownloadStore(tmp_path / "downloads.db")


def test_damage_while_it_is_open_is_a_sentence(listed: Path) -> None:
    store = DownloadStore(listed)
    change(listed, "DROP TABLE files")
    with pytest.raises(GreenroomError, match="cannot be opened"):
        store.all()
    with pytest.raises(GreenroomError, match="cannot be written"):
        store.set_etag(2, 0, "x")
    store.close()


def test_removal_takes_only_unfinished_files_of_ours(listed: Path, tmp_path: Path) -> None:
    """A list that was bent to point at the user's files."""
    home = tmp_path / "home/maker/model"
    home.mkdir(parents=True)
    precious = tmp_path / "home/precious"
    precious.write_bytes(b"precious")
    (home / "second-00001-of-00002.gguf").write_bytes(b"finished")
    (home / "second-00001-of-00002.gguf.part").hardlink_to(precious)
    (home / "second-00002-of-00002.gguf.part").symlink_to(precious)
    change(listed, "UPDATE downloads SET folder = ? WHERE id = 2", str(home))
    canary = Canary(tmp_path / "home")
    manager = DownloadManager(tmp_path / "models", listed, OFFLINE)
    manager.cancel(2)
    assert [status.name for status in manager.status()] == ["first", "third"]
    manager.close()
    canary.check()


def hostile_value(rng: random.Random, table: str, column: str, tmp_path: Path) -> Any:
    folder = str(tmp_path / "home")
    texts = [
        "", "..", "../..", "maker/model", "home/precious", f"{folder}/maker/model", folder, "/", str(tmp_path), "main",
        COMMIT, "gguf", "safetensors", "queued", "finished", "failed", "downloading", "a\0b", "\x1b[2J", "x" * 20_000,
        "second.gguf", "../../../home/precious", "precious", "precious.part", '["a","b","c"]', "[" * 3000, "1:1",
        f"{os.getpid()}:0", "~", "C:\\x", "a" * 64, "a" * 40,
    ]  # fmt: skip
    numbers = [0, 1, 2, 3, 4, 4, -1, 2**31, 2**53, 2**62, -(2**63), 2**63 - 1, 0.5, 1e308, float("inf")]
    kinds: list[Callable[[], Any]] = [
        lambda: rng.choice(texts),
        lambda: rng.choice(numbers),
        lambda: rng.randbytes(rng.randrange(40)),
        lambda: None,
    ]
    return rng.choice(kinds)()


def test_fuzzed_values_hurt_nobody(fuzzer: Fuzzer, tmp_path: Path) -> None:
    """Any value in any column: what can be used goes on, all verbs are sentences, and the user's files stay."""
    home = tmp_path / "home"
    (home / "maker/model").mkdir(parents=True)
    for name in ("precious", "precious.part", "maker/model/second.gguf", "maker/model/config.json"):
        (home / name).write_bytes(name.encode())
    canary = Canary(home)
    sound = tmp_path / "sound.db"
    store = DownloadStore(sound)
    for name in ("first", "second", "third"):
        store.add("", remote(name), tmp_path / "models/maker/model")
    store.close()
    for rng in fuzzer.rounds():
        path = tmp_path / f"{fuzzer.seed}.db"
        shutil.copyfile(sound, path)
        database = sqlite3.connect(path, isolation_level=None)
        changed = set()
        for _ in range(rng.randint(1, 4)):
            table = rng.choice(list(COLUMNS))
            column = rng.choice(COLUMNS[table].split())
            row = rng.choice(database.execute(f"SELECT rowid FROM {table}").fetchall())[0]
            owner = row if table == "downloads" else (row + 1) // 2
            try:
                database.execute(
                    f"UPDATE {table} SET {column} = ? WHERE rowid = ?",
                    (hostile_value(rng, table, column, tmp_path), row),
                )
            except sqlite3.Error:
                continue
            changed |= {owner}
            if column in ("id", "download"):
                changed |= {1, 2, 3}
        database.close()
        manager = DownloadManager(tmp_path / "models", path, OFFLINE, at_once=0)
        manager.start()
        found = manager.status()
        assert {name for i, name in enumerate(("first", "second", "third"), 1) if i not in changed} <= {
            status.name for status in found
        }
        manager.problem()
        manager.reorder([status.id for status in found[:1]])
        for status in found:
            for verb in (manager.pause, manager.resume, manager.cancel):
                try:
                    verb(status.id)
                except GreenroomError:
                    continue
        added = manager.add(replace(remote("new"), repo="maker/new"))
        assert added in {status.id for status in manager.status()}
        manager.close()
        for ending in ("", "-wal", "-shm"):
            Path(f"{path}{ending}").unlink(missing_ok=True)
    canary.check()
