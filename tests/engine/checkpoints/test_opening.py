from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checkpoint_files import write_folder, write_gguf

from engine.checkpoints.opening import open_checkpoint
from engine.errors import GreenroomError


def test_a_gguf_is_known_by_its_first_letters(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf").rename(tmp_path / "sha256-0a1b")
    assert open_checkpoint(str(path)).form == "gguf"


def test_a_folder_with_one_gguf_opens_it(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    assert open_checkpoint(tmp_path).path == path


def test_a_folder_with_several_asks_for_one(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        write_gguf(tmp_path / name)
    with pytest.raises(GreenroomError, match="holds 2 GGUF models"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ((), "holds no .safetensors file"),
        (("model.safetensors",), "no config.json"),
        (("pytorch_model.bin",), "pickle"),
    ],
)
def test_a_folder_without_a_model_says_what_is_missing(files: tuple[str, ...], reason: str, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).touch()
    with pytest.raises(GreenroomError, match=reason):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("config", "reason"),
    [("", "JSON is damaged"), ("[]", "not an object"), ("{}", "model_type"), ('{"model_type": 5}', "model_type")],
)
def test_a_damaged_config_is_refused(config: str, reason: str, tmp_path: Path) -> None:
    write_folder(tmp_path, {"w": np.zeros(2, np.float32)})
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(GreenroomError, match=reason):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["missing.gguf", "missing", "nul\0byte.gguf", "x" * 5000])
def test_a_path_to_nothing_is_said(name: str, tmp_path: Path) -> None:
    with pytest.raises(GreenroomError, match="cannot be opened"):
        open_checkpoint(tmp_path / name)


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(GreenroomError, match="neither a GGUF file nor a safetensors file"):
        open_checkpoint(tmp_path / "notes.txt")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.gguf")
    with pytest.raises(GreenroomError, match="not a regular file"):
        open_checkpoint(tmp_path / "m.gguf")


def test_links_of_a_download_cache_are_followed(tmp_path: Path) -> None:
    blob = write_folder(tmp_path / "blobs", {"w": np.ones(2, np.float32)})
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for file in blob.iterdir():
        (snapshot / file.name).symlink_to(file)
    checkpoint = open_checkpoint(snapshot / "model.safetensors")
    assert checkpoint.path == snapshot
    np.testing.assert_array_equal(checkpoint.read_float32("w"), [1, 1])


def test_reading_checkpoints_needs_no_torch() -> None:
    modules = "opening, tokenizer_gguf, tokenizer_files, chat_template"
    code = f"import sys; from engine.checkpoints import {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
