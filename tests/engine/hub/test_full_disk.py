"""A disk that really fills: a small file system of memory, mounted for the test."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import GreenroomError
from engine.hub import disk_room, downloads
from engine.hub.downloads import DownloadManager
from engine.hub.network import NetworkSettings
from engine.hub.repository import Hub
from tests.fake_hub import FakeHub, Pattern

NBYTES = 3_000_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "greenroom-test", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("only the system's administrator may mount a file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_it_stops_with_a_sentence_and_goes_on_when_there_is_room(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeHub() as hub:
        hub.add("maker/model", {"m-Q4_0.gguf": Pattern(NBYTES, seed=1)})
        settings = NetworkSettings(endpoint=hub.url)
        (model,) = Hub(settings).repository("maker/model").models
        manager = DownloadManager(small_disk, tmp_path / "downloads.db", settings)
        manager.start()
        try:
            with pytest.raises(GreenroomError, match="not enough room on the disk"):
                manager.add(model)
            # Somebody else fills the disk while it comes.
            monkeypatch.setattr(downloads, "check_room", lambda *_: None)
            download = manager.add(model)
            failed = manager.wait(download, 30)
            assert failed.error is not None
            assert failed.error.why == "the disk is full"
            part = small_disk / "maker/model/m-Q4_0.gguf.part"
            assert part.stat().st_size > 1_500_000
            have = part.stat().st_size
            subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
            manager.resume(download)
            assert manager.wait(download, 30).state == "finished"
            assert hub.first_bytes["m-Q4_0.gguf"] == [0, have]
        finally:
            manager.close()


def test_a_fat_file_system_is_recognised(small_disk: Path) -> None:
    assert disk_room._file_system(small_disk / "deeper") == "tmpfs"
