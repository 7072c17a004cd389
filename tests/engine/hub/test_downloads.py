"""The queue: order, pause, resume, cancel, restarts, room on the disk, bad files."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.errors import GreenroomError
from engine.hub import disk_room, download_store
from engine.hub.download_store import DownloadStore
from engine.hub.downloads import DownloadManager, DownloadStatus
from engine.hub.network import NetworkSettings
from engine.hub.repository import Hub, RemoteFile, RemoteModel
from engine.hub.transfer import RetryPolicy
from tests.fake_hub import COMMIT, FakeHub, Fault, Pattern
from tests.raw_server import RawServer, silent

REPO = "maker/model"
NBYTES = 2_000_000
PARTS = {f"big-Q8_0-0000{i}-of-00003.gguf": Pattern(NBYTES + i, seed=i) for i in (1, 2, 3)}


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        folder = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": Pattern(NBYTES, seed=7)}
        hub.add(REPO, {"one-Q4_0.gguf": Pattern(NBYTES, seed=5), **PARTS})
        hub.add("maker/folder", folder)
        yield hub


Make = Callable[..., DownloadManager]


@pytest.fixture
def make(hub: FakeHub, tmp_path: Path) -> Iterator[Make]:
    """Managers on one folder and one database, closed at the end."""
    made: list[DownloadManager] = []

    def build(**options: object) -> DownloadManager:
        settings = NetworkSettings(endpoint=hub.url, stall_s=0.5)
        manager = DownloadManager(
            tmp_path / "models",
            tmp_path / "downloads.db",
            settings,
            policy=RetryPolicy(attempts=3, first_s=0.001),
            **options,  # type: ignore[arg-type]
        )
        made.append(manager)
        manager.start()
        return manager

    yield build
    for manager in made:
        if not manager._closing.is_set():
            manager.close()


def model(hub: FakeHub, label: str = "Q4_0", repo: str = REPO) -> RemoteModel:
    return next(m for m in Hub(NetworkSettings(endpoint=hub.url)).repository(repo).models if m.label == label)


def until(manager: DownloadManager, download: int, wanted: Callable[[DownloadStatus], bool]) -> DownloadStatus:
    for _ in range(4000):
        found = next(s for s in manager.status() if s.id == download)
        if wanted(found):
            return found
        time.sleep(0.005)
    raise AssertionError(f"never came about: {found}")


def test_a_split_model_is_one_download_of_verified_files(hub: FakeHub, make: Make, tmp_path: Path) -> None:
    manager = make()
    download = manager.add(model(hub, "Q8_0"))
    done = manager.wait(download, 30)
    assert (done.state, done.done, done.total) == ("finished", 3 * NBYTES + 6, 3 * NBYTES + 6)
    folder = tmp_path / "models/maker/model"
    assert sorted(p.name for p in folder.iterdir()) == sorted(PARTS)
    assert done.path == folder / "big-Q8_0-00001-of-00003.gguf"
    assert (folder / "big-Q8_0-00002-of-00003.gguf").read_bytes() == b"".join(
        bytes(PARTS["big-Q8_0-00002-of-00003.gguf"].read(at, 1 << 20)) for at in range(0, NBYTES + 2, 1 << 20)
    )


def test_a_folder_of_safetensors_appears_only_when_it_is_whole(hub: FakeHub, make: Make, tmp_path: Path) -> None:
    hub.repositories["maker/folder"].files["model.safetensors"].faults = [Fault("stall", at=1_000_000)]
    manager = make()
    download = manager.add(model(hub, "safetensors", "maker/folder"))
    until(manager, download, lambda s: s.done >= 1_000_000)
    assert {p.suffix for p in (tmp_path / "models/maker/folder").iterdir()} == {".part"}
    done = manager.wait(download, 30)
    assert done.state == "finished"
    assert done.path == tmp_path / "models/maker/folder"
    assert sorted(p.name for p in done.path.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]


def test_pause_and_resume_fetch_nothing_twice(hub: FakeHub, make: Make) -> None:
    manager = make(bytes_per_s=4_000_000)
    download = manager.add(model(hub))
    until(manager, download, lambda s: s.done > 200_000)
    manager.pause(download)
    paused = manager.wait(download)
    assert paused.state == "paused"
    assert 200_000 < paused.done < NBYTES
    written = paused.done
    manager.set_limits(bytes_per_s=0)
    manager.resume(download)
    assert manager.wait(download, 30).state == "finished"
    assert hub.first_bytes["one-Q4_0.gguf"] == [0, written]


def test_cancel_leaves_nothing_behind(hub: FakeHub, make: Make, tmp_path: Path) -> None:
    manager = make(bytes_per_s=1_000_000)
    download = manager.add(model(hub))
    until(manager, download, lambda s: s.done > 100_000)
    manager.cancel(download)
    assert manager.status() == []
    assert list((tmp_path / "models").rglob("*")) == []


def test_the_queue_keeps_its_order_and_limit(hub: FakeHub, make: Make) -> None:
    manager = make(at_once=1, bytes_per_s=500_000)
    first, second = manager.add(model(hub)), manager.add(model(hub, "Q8_0"))
    third = manager.add(model(hub, "safetensors", "maker/folder"))
    until(manager, first, lambda s: s.state == "downloading")
    assert [s.state for s in manager.status()] == ["downloading", "queued", "queued"]
    manager.reorder([third, second])
    assert [s.id for s in manager.status()] == [third, second, first]
    manager.pause(first)
    until(manager, third, lambda s: s.state == "downloading")
    manager.pause(second)
    manager.set_limits(bytes_per_s=0)
    assert manager.wait(third, 30).state == "finished"
    assert {s.id: s.state for s in manager.status()} == {first: "paused", second: "paused", third: "finished"}


def test_the_same_model_twice_is_one_download(hub: FakeHub, make: Make) -> None:
    manager = make(bytes_per_s=100_000)
    assert manager.add(model(hub)) == manager.add(model(hub))
    assert len(manager.status()) == 1


def test_a_new_start_goes_on_where_the_last_one_ended(hub: FakeHub, make: Make, tmp_path: Path) -> None:
    first = make(bytes_per_s=3_000_000)
    download = first.add(model(hub))
    until(first, download, lambda s: s.done > 300_000)
    first.close()
    written = (tmp_path / "models/maker/model/one-Q4_0.gguf.part").stat().st_size
    assert make().wait(download, 30).state == "finished"
    assert hub.first_bytes["one-Q4_0.gguf"] == [0, written]


def test_after_the_machine_went_down_only_synced_bytes_are_trusted(
    hub: FakeHub, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make(bytes_per_s=3_000_000)
    download = first.add(model(hub))
    until(first, download, lambda s: s.done > 400_000)
    first.close()
    part = tmp_path / "models/maker/model/one-Q4_0.gguf.part"
    size = part.stat().st_size
    # What a power cut leaves: the length is right, the last blocks were never written.
    with part.open("r+b") as file:
        file.seek(100_000)
        file.write(bytes(size - 100_000))
    store = DownloadStore(tmp_path / "downloads.db")
    store.set_safe(download, 0, 100_000, "the boot before")
    store.close()
    assert make().wait(download, 30).state == "finished"


def test_wrong_bytes_are_thrown_away_and_offered_again(hub: FakeHub, make: Make, tmp_path: Path) -> None:
    hub.repositories[REPO].files["one-Q4_0.gguf"].faults = [Fault("wrong_bytes", at=1_000_000)]
    manager = make()
    download = manager.add(model(hub))
    failed = manager.wait(download, 30)
    assert failed.state == "failed"
    assert failed.error is not None
    assert "checksum" in failed.error.why
    assert not list((tmp_path / "models").rglob("*.gguf*"))
    manager.resume(download)
    assert manager.wait(download, 30).state == "finished"


def test_a_file_that_changes_under_way_is_fetched_anew_and_said(hub: FakeHub, make: Make) -> None:
    file = hub.repositories[REPO].files["one-Q4_0.gguf"]
    file.faults = [Fault("stall", at=500_000)]
    manager = make()
    download = manager.add(model(hub))
    until(manager, download, lambda status: status.done >= 500_000)
    manager.pause(download)
    file.faults = [Fault("etag")]
    manager.resume(download)
    finished = manager.wait(download, 20)
    assert finished.state == "finished"
    assert "was changed" in finished.notice
    # What had come of the other version was of no use.
    assert hub.first_bytes["one-Q4_0.gguf"][-1] == 0


def test_a_file_that_is_there_already_is_checked_not_fetched(hub: FakeHub, make: Make, tmp_path: Path) -> None:
    target = tmp_path / "models/maker/model/one-Q4_0.gguf"
    target.parent.mkdir(parents=True)
    whole = Pattern(NBYTES, seed=5)
    target.write_bytes(b"".join(bytes(whole.read(at, 1 << 20)) for at in range(0, NBYTES, 1 << 20)))
    manager = make()
    assert manager.wait(manager.add(model(hub)), 30).state == "finished"
    assert hub.bytes_sent["one-Q4_0.gguf"] == 0
    # One that only looks like it is replaced.
    target.write_bytes(bytes(NBYTES))
    assert manager.wait(manager.add(model(hub)), 30).state == "finished"
    assert target.read_bytes()[:100] == bytes(whole.read(0, 100))


def test_another_models_folder_leaves_what_is_under_way(hub: FakeHub, make: Make, tmp_path: Path) -> None:
    hub.repositories[REPO].files["one-Q4_0.gguf"].faults = [Fault("stall", at=500_000)]
    manager = make()
    first = manager.add(model(hub))
    until(manager, first, lambda status: status.done >= 500_000)
    manager.set_folder(tmp_path / "elsewhere")
    second = manager.add(model(hub, "Q8_0"))
    assert {manager.wait(each, 20).state for each in (first, second)} == {"finished"}
    assert (tmp_path / "models" / REPO / "one-Q4_0.gguf").exists()
    assert len(list((tmp_path / "elsewhere" / REPO).glob("*.gguf"))) == 3


def test_too_little_room_is_said_before_the_start(
    hub: FakeHub, make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    manager = make(bytes_per_s=100_000)
    manager.add(model(hub))
    free = disk_room.SPACE_KEPT + 3 * NBYTES
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    # It would fit alone, but not beside what is on its way already.
    with pytest.raises(GreenroomError, match="more for other downloads"):
        manager.add(model(hub, "Q8_0"))
    assert len(manager.status()) == 1


def test_fat32_is_named_before_four_gigabytes_are_lost(
    hub: FakeHub, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_room, "_file_system", lambda _: "vfat")
    monkeypatch.setattr(disk_room, "_FAT32_LIMIT", 1_000_000)
    with pytest.raises(GreenroomError, match="FAT32"):
        make().add(model(hub))


def test_offline_and_gated_end_in_a_sentence(hub: FakeHub, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = model(hub)
    hub.repositories[REPO].gated = True
    manager = make()
    download = manager.add(wanted)
    failed = manager.wait(download, 30)
    assert failed.error is not None
    assert "accept its terms" in failed.error.remedy
    manager.set_network(NetworkSettings(endpoint=hub.url, offline=True))
    manager.resume(download)
    failed = manager.wait(download, 30)
    assert failed.error is not None
    assert "offline" in failed.error.why


def test_two_programs_do_not_take_the_same_download(
    hub: FakeHub, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = make(bytes_per_s=500_000)
    download = manager.add(model(hub))
    until(manager, download, lambda s: s.state == "downloading")
    other = DownloadStore(tmp_path / "downloads.db")
    other._owner = "another"
    # The first program is alive, so its claim stands; a claim by a process that is gone does not.
    assert not other.claim(download)
    assert other.abandoned() == []
    monkeypatch.setattr(download_store, "_is_running", lambda owner: False)
    assert other.abandoned() == [download]
    assert other.claim(download)
    other.close()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes in folders")
@pytest.mark.parametrize("ending", ["", ".part"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "hard link"])
def test_what_lies_in_a_files_place_is_not_written_to(
    hub: FakeHub, make: Make, tmp_path: Path, kind: str, ending: str
) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    place = tmp_path / f"models/maker/model/one-Q4_0.gguf{ending}"
    place.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind == "link":
        place.symlink_to(precious)
    else:
        place.hardlink_to(precious)
    manager = make()
    try:
        state = manager.wait(manager.add(model(hub)), 30).state
    except GreenroomError:
        # Refused before it is put into the queue.
        assert (kind, ending) == ("link", "")
        state = "failed"
    # A name of another file may go to the finished model: that file keeps its other names.
    assert state == ("finished" if (kind, ending) == ("hard link", "") else "failed")
    assert precious.read_bytes() == b"precious"
    assert os.path.lexists(place)


def test_a_list_from_a_newer_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "downloads.db"
    store = DownloadStore(path)
    store._db.execute("PRAGMA user_version = 99")
    store.close()
    before = path.read_bytes()
    with pytest.raises(GreenroomError, match="newer Greenroom"):
        DownloadStore(path)
    assert path.read_bytes() == before


def test_a_damaged_list_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "downloads.db"
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(GreenroomError, match="can be deleted, the files stay"):
        DownloadStore(path)


WAITING = RemoteModel(REPO, COMMIT, "Q4_0", "one-Q4_0", "gguf", (RemoteFile("one-Q4_0.gguf", 1000, None, None),))


@pytest.mark.parametrize("verb", ["pause", "cancel", "close"])
def test_no_verb_waits_for_a_silent_server(tmp_path: Path, verb: str) -> None:
    with RawServer(silent) as server:
        settings = NetworkSettings(endpoint=f"http://{server.address}", stall_s=1000)
        manager = DownloadManager(tmp_path / "models", tmp_path / "downloads.db", settings)
        manager.start()
        download = manager.add(WAITING)
        assert server.reached.wait(20)
        if verb == "pause":
            manager.pause(download)
            assert manager.wait(download, 20).state == "paused"
        elif verb == "cancel":
            manager.cancel(download)
            assert manager.status() == []
        assert manager.close(timeout=20)
    store = DownloadStore(tmp_path / "downloads.db")
    assert [each.state for each in store.all()] == {"pause": ["paused"], "cancel": [], "close": ["downloading"]}[verb]
    store.close()


def test_what_hangs_on_the_disk_is_not_waited_for(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, over = threading.Event(), threading.Event()

    def hang(*_: object) -> bool:
        hangs.set()
        return not over.wait(60)

    monkeypatch.setattr("engine.hub.download_job.verify", hang)
    monkeypatch.setattr("engine.hub.downloads._STOP_S", 0.1)
    manager = DownloadManager(tmp_path / "models", tmp_path / "downloads.db", NetworkSettings(endpoint=hub.url))
    manager.start()
    download = manager.add(model(hub))
    assert hangs.wait(20)
    for verb in (manager.pause, manager.cancel):
        with pytest.raises(GreenroomError, match="does not stop"):
            verb(download)
    (job,) = manager._jobs.values()
    assert job.daemon
    assert not manager.close(timeout=0.1)
    over.set()
    job.join(20)
    assert manager.close()
