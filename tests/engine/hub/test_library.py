from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from engine.checkpoints.opening import open_checkpoint
from engine.errors import GreenroomError
from engine.hub import library


def write_gguf(path: Path, architecture: str = "llama", parts: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=1 if parts > 1 else 0)
    for number in range(parts):
        writer.add_tensor(f"w{number}", np.zeros((2, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_folder(folder: Path, architecture: str = "qwen2_moe") -> None:
    folder.mkdir(parents=True)
    save_file({"w": np.zeros(3, np.float16)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": architecture}))


@pytest.fixture
def folder(data_folder: Path) -> Path:
    """The default models folder with one of everything."""
    models = data_folder / "models"
    write_gguf(models / "tiny.gguf")
    write_gguf(models / "owner" / "big" / "Big-Q8_0.gguf", "qwen3moe", parts=3)
    write_folder(models / "owner" / "soft")
    (models / "owner" / "notes.txt").write_text("hello")
    (models / "tiny.gguf.part").write_bytes(b"GGUF")
    (models / ".cache").mkdir()
    write_gguf(models / ".cache" / "hidden.gguf")
    return models


def test_the_data_folder_holds_the_models(data_folder: Path) -> None:
    assert library.models_folder() == data_folder / "models"


def test_without_a_models_folder_nothing_is_installed(data_folder: Path) -> None:
    assert library.installed() == []


def test_every_model_is_listed_with_what_its_header_says(folder: Path) -> None:
    first_part = folder / "owner" / "big" / "Big-Q8_0-00001-of-00003.gguf"
    assert library.installed() == [
        library.InstalledModel("owner/big/Big-Q8_0", first_part, "gguf", "qwen3moe", 3 * 256, None),
        library.InstalledModel("owner/soft", folder / "owner" / "soft", "safetensors", "qwen2_moe", 6, None),
        library.InstalledModel("tiny", folder / "tiny.gguf", "gguf", "llama", 256, None),
    ]


def test_another_folder_may_be_searched(folder: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path / "elsewhere" / "m.gguf")
    assert [model.name for model in library.installed(tmp_path / "elsewhere")] == ["m"]


def test_broken_models_are_listed_with_their_reason(folder: Path) -> None:
    (folder / "tiny.gguf").write_bytes((folder / "tiny.gguf").read_bytes()[:50])
    (folder / "owner" / "big" / "Big-Q8_0-00001-of-00003.gguf").unlink()
    (folder / "owner" / "soft" / "model.safetensors").write_bytes(b"\xff" * 20)
    models = {model.name: model for model in library.installed()}
    assert "runs past the end" in str(models["tiny"].error)
    assert str(models["tiny"].error).endswith(str(models["tiny"].reason))
    assert all(asdict(model)["error"] for model in models.values())  # as `greenroom models --json` prints them
    assert "Big-Q8_0-00001-of-00003.gguf" in str(models["owner/big/Big-Q8_0"].error)
    assert "header claims to be" in str(models["owner/soft"].error)
    assert all((m.architecture, m.nbytes) == ("", 0) for m in models.values())


def test_links_in_a_circle_end(folder: Path) -> None:
    (folder / "owner" / "again").symlink_to(folder, target_is_directory=True)
    assert {"tiny", "owner/soft"} <= {model.name for model in library.installed()}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_left_out(folder: Path) -> None:
    (folder / "owner").chmod(0)
    try:
        assert [model.name for model in library.installed()] == ["tiny"]
    finally:
        (folder / "owner").chmod(0o755)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("tiny", "tiny.gguf"),
        ("TINY.gguf", "tiny.gguf"),
        ("owner/soft", "owner/soft"),
        ("soft", "owner/soft"),
        ("big-q8_0", "owner/big/Big-Q8_0-00001-of-00003.gguf"),
    ],
)
def test_names_lead_to_their_model(name: str, path: str, folder: Path) -> None:
    assert library.resolve(name) == folder / path


def test_a_path_is_itself(folder: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf")
    assert library.resolve(str(tmp_path / "m.gguf")) == tmp_path / "m.gguf"
    assert library.resolve(str(folder / "owner" / "soft")) == folder / "owner" / "soft"


def test_an_unclear_name_asks_for_the_longer_one(folder: Path) -> None:
    write_gguf(folder / "other" / "soft.gguf")
    with pytest.raises(GreenroomError, match="other/soft, owner/soft"):
        library.resolve("soft")
    assert library.resolve("other/soft") == folder / "other" / "soft.gguf"


@pytest.mark.parametrize("name", ["nothing", "", "no/such/path.gguf", "~nobody/x", "nul\0byte", "x" * 5000])
def test_an_unknown_name_lists_what_there_is(name: str, folder: Path) -> None:
    with pytest.raises(GreenroomError, match="Installed: demo, owner/big/Big-Q8_0, owner/soft, tiny"):
        library.resolve(name)


def test_demo_is_the_prepared_model_or_says_how_to_prepare_it(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = data_folder / "models" / "demo" / "made.gguf"
    monkeypatch.setattr("engine.hub.demo.demo_path", lambda: path)
    with pytest.raises(GreenroomError, match="demo model is not ready"):
        library.resolve("demo")
    write_gguf(path)
    assert library.resolve("demo") == path


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        ("https://huggingface.co/owner/model/tree/main", "`greenroom download owner/model` brings it here"),
        ("hf.co/owner/model:Q4_K_M", "`greenroom download owner/model` brings it here"),
        ("x" * 5000, 'The model "xxx'),
    ],
)
def test_what_is_no_model_is_refused_briefly(wish: str, told: str, folder: Path) -> None:
    with pytest.raises(GreenroomError) as refused:
        library.resolve(wish)
    assert told in str(refused.value)
    assert len(str(refused.value)) < 600


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_a_link_to_nothing_is_named(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "model.gguf").symlink_to("gone.gguf")
    with pytest.raises(GreenroomError, match=r"it is a link to gone\.gguf, and nothing is there"):
        library.resolve(str(tmp_path / "model.gguf"))


def test_a_folder_that_is_closed_to_us_is_told_from_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert library.unreadable(tmp_path) is None
    assert library.unreadable(tmp_path / "none") is None

    def closed(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    # Whoever runs the tests may be root, who may read everything.
    monkeypatch.setattr(os, "scandir", closed)
    error = library.unreadable(tmp_path)
    assert error is not None
    assert error.why == "you may not read it"
    monkeypatch.setattr(Path, "exists", closed)
    with pytest.raises(GreenroomError, match="you may not read it"):
        library.resolve(str(tmp_path / "model.gguf"))


@pytest.mark.skipif(sys.platform == "win32", reason="no such names there")
def test_names_and_architectures_that_steer_a_terminal_are_cleaned(folder: Path) -> None:
    path = folder / "a\n\x1b[2J\u202eb\udcff.gguf"
    write_gguf(path, "qwen\x1b]0;x\x07moe")
    (model,) = (model for model in library.installed() if model.path == path)
    assert model.name == "a \ufffd[2Jb\ufffd"
    assert model.architecture == "qwen\ufffd]0;x\ufffdmoe"
    assert library.resolve(model.name) == path
    checkpoint = open_checkpoint(path)
    assert checkpoint.name == model.name
    checkpoint.close()
