from __future__ import annotations

from pathlib import Path

import pytest

from engine import own_folders
from engine.errors import GreenroomError
from engine.hub.library import installed
from engine.hub.trash import Trash, move_models
from tests.engine.hub.test_library import write_folder, write_gguf


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    write_gguf(folder / "maker/big/Big.gguf", parts=3)
    write_gguf(folder / "maker/big/Other.gguf")
    write_folder(folder / "maker/soft")
    return folder


def names(models: Path) -> list[str]:
    return [model.name for model in installed(models)]


def test_all_parts_go_and_come_back(models: Path) -> None:
    trash = Trash(models)
    first = models / "maker/big/Big-00001-of-00003.gguf"
    size = sum(part.stat().st_size for part in first.parent.glob("Big*"))
    deleted = trash.delete("Big", first)
    assert deleted.nbytes == size
    folder = trash.delete("soft", models / "maker/soft")
    assert names(models) == ["maker/big/Other"]
    trash.restore(deleted)
    trash.restore(folder)
    assert names(models) == ["maker/big/Big", "maker/big/Other", "maker/soft"]


def test_closing_empties_it(models: Path) -> None:
    trash = Trash(models)
    trash.delete("Other", models / "maker/big/Other.gguf")
    leftover = models / ".trash/999999999-1"
    own_folders.make(leftover)
    (leftover / "x.gguf").write_bytes(b"x")
    trash.close()
    assert not (models / ".trash").exists()
    assert names(models) == ["maker/big/Big", "maker/soft"]


def test_another_programs_trash_is_left_alone(models: Path) -> None:
    notes = models / ".trash/notes"
    alike = models / ".trash/999999999-1"
    for folder in (notes, alike):
        folder.mkdir(parents=True)
        (folder / "x.md").write_bytes(b"x")
    trash = Trash(models)
    trash.delete("Other", models / "maker/big/Other.gguf")
    trash.close()
    assert sorted(path.name for path in (models / ".trash").iterdir()) == ["999999999-1", "notes"]
    assert all((folder / "x.md").exists() for folder in (notes, alike))


def test_a_trash_that_is_a_link_is_refused(models: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (models / ".trash").symlink_to(elsewhere)
    trash = Trash(models)
    with pytest.raises(GreenroomError, match="is a link"):
        trash.delete("Other", models / "maker/big/Other.gguf")
    trash.close()
    assert list(elsewhere.iterdir()) == []
    assert "maker/big/Other" in names(models)


def test_only_the_models_own_files_go(models: Path) -> None:
    soft = models / "maker/soft"
    (soft / "notes.txt").write_text("mine")
    write_gguf(soft / "inner/Another.gguf")
    write_gguf(soft / "Beside.gguf")
    trash = Trash(models)
    deleted = trash.delete("soft", soft)
    assert sorted(path.name for path in soft.iterdir()) == ["Beside.gguf", "inner", "notes.txt"]
    assert sorted(source.name for source, _ in deleted.moved) == ["config.json", "model.safetensors"]
    trash.restore(deleted)
    assert {"maker/soft", "maker/soft/Beside", "maker/soft/inner/Another"} <= set(names(models))


def test_of_two_splits_with_one_name_and_the_whole_file_only_one_goes(models: Path) -> None:
    folder = models / "maker/big"
    for name in ("Big.gguf", "Big-00001-of-00002.gguf", "Big-00002-of-00002.gguf"):
        (folder / name).write_bytes(b"x")
    Trash(models).delete("Big", folder / "Big-00001-of-00003.gguf")
    assert sorted(path.name for path in folder.iterdir()) == [
        "Big-00001-of-00002.gguf",
        "Big-00002-of-00002.gguf",
        "Big.gguf",
        "Other.gguf",
    ]


def test_of_a_link_to_a_folder_only_the_link_goes(models: Path, tmp_path: Path) -> None:
    write_folder(tmp_path / "outside")
    (models / "linked").symlink_to(tmp_path / "outside")
    trash = Trash(models)
    trash.delete("linked", models / "linked")
    trash.close()
    assert not (models / "linked").is_symlink()
    assert sorted(path.name for path in (tmp_path / "outside").iterdir()) == ["config.json", "model.safetensors"]


def test_what_lies_elsewhere_is_not_ours_to_delete(models: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path / "elsewhere/x.gguf")
    for path in (tmp_path / "elsewhere/x.gguf", models):
        with pytest.raises(GreenroomError, match="is not deleted"):
            Trash(models).delete("x", path)
    assert (tmp_path / "elsewhere/x.gguf").exists()


def test_restoring_never_overwrites(models: Path) -> None:
    trash = Trash(models)
    path = models / "maker/big/Other.gguf"
    deleted = trash.delete("Other", path)
    path.write_bytes(b"new")
    with pytest.raises(GreenroomError, match="is there again"):
        trash.restore(deleted)
    assert path.read_bytes() == b"new"


def test_moving_the_models_folder(models: Path, tmp_path: Path) -> None:
    before = names(models)
    target = tmp_path / "a/new"
    move_models(models, target)
    assert names(target) == before
    assert not models.exists()


@pytest.mark.parametrize("where", ["inside", "full"])
def test_moving_into_itself_or_over_something_is_refused(models: Path, tmp_path: Path, where: str) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "x").touch()
    with pytest.raises(GreenroomError, match="The models were not moved"):
        move_models(models, models / "deeper" if where == "inside" else full)
    assert len(names(models)) == 3
