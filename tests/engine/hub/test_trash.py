from __future__ import annotations

from pathlib import Path

import pytest

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
    leftover.mkdir()
    (leftover / "x.gguf").write_bytes(b"x")
    trash.close()
    assert not (models / ".trash").exists()
    assert names(models) == ["maker/big/Big", "maker/soft"]


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
