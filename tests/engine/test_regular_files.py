"""Nothing but regular files is opened: no test here may wait, and nothing of the user's is written to."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.checkpoints.opening import open_checkpoint
from engine.errors import GreenroomError
from engine.hub.library import installed
from engine.regular_files import check_place, open_own, open_to_read, read_bounded

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes in folders")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.mkdir()


def listening(path: Path) -> None:
    # A path longer than a socket's may be is bound from its folder.
    before = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.chdir(before)


def link(path: Path) -> None:
    target = path.with_name("of the user")
    target.write_bytes(b"precious")
    path.symlink_to(target)


def dangling(path: Path) -> None:
    path.symlink_to(path.with_name("of the user"))


def hard_link(path: Path) -> None:
    target = path.with_name("of the user")
    target.write_bytes(b"precious")
    path.hardlink_to(target)


@pytest.mark.parametrize("kind", [pipe, folder, listening, link, dangling, hard_link])
def test_what_is_no_file_of_ours_is_never_written_to(kind: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "a.part"
    kind(path)
    before = {entry: entry.read_bytes() for entry in tmp_path.iterdir() if entry.is_file()}
    for act in (open_own, check_place):
        with pytest.raises(GreenroomError, match="cannot be written"):
            act(path)
    assert {entry: entry.read_bytes() for entry in tmp_path.iterdir() if entry.is_file()} == before


def test_a_file_of_ours_is_made_and_opened_again(tmp_path: Path) -> None:
    for text in (b"one", b"two"):
        check_place(tmp_path / "a.part")
        descriptor = open_own(tmp_path / "a.part")
        os.write(descriptor, text)
        os.close(descriptor)
        assert (tmp_path / "a.part").read_bytes() == text


def test_what_is_exchanged_after_the_look_is_found_when_it_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.part"
    for kind in (hard_link, link, pipe):
        monkeypatch.setattr("engine.regular_files.check_place", lambda path, kind=kind: kind(path))
        with pytest.raises((GreenroomError, OSError)):
            open_own(path)
        path.unlink()
    assert (tmp_path / "of the user").read_bytes() == b"precious"


@pytest.mark.parametrize("kind", [pipe, folder, listening])
def test_nothing_else_is_read(kind: Callable[[Path], None], tmp_path: Path) -> None:
    kind(tmp_path / "a.gguf")
    with pytest.raises(OSError, match="not a regular file"):
        open_to_read(tmp_path / "a.gguf")


def test_a_device_is_not_read() -> None:
    with pytest.raises(OSError, match="not a regular file"):
        open_to_read(Path("/dev/zero"))


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    link(tmp_path / "a")
    with open_to_read(tmp_path / "a") as file:
        assert file.read() == b"precious"


def test_pipes_in_the_models_folder_hold_up_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    os.mkfifo(tmp_path / "half-00001-of-00002.gguf")
    soft = tmp_path / "soft"
    soft.mkdir()
    (soft / "config.json").write_text('{"model_type": "llama"}')
    os.mkfifo(soft / "model.safetensors")
    assert installed(tmp_path) == []
    (soft / "other.safetensors").write_bytes(b"x")
    (found,) = installed(tmp_path)
    assert "not a regular file" in (found.error or "")


@pytest.mark.parametrize("name", ["model.safetensors", "model.safetensors.index.json", "config.json", "a.gguf"])
def test_a_checkpoint_with_a_pipe_in_it_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(GreenroomError):
            open_checkpoint(path)


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/stdin", "/dev/tty"])
def test_a_device_is_no_model(path: str) -> None:
    with pytest.raises(GreenroomError):
        open_checkpoint(Path(path))


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
