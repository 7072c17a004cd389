"""Which kind of checkpoint lies at a path."""

from __future__ import annotations

from pathlib import Path

from engine.checkpoints.checkpoint import Checkpoint
from engine.checkpoints.file_bytes import absolute, file_size, read_bytes, unreadable
from engine.checkpoints.gguf import GgufCheckpoint, plain_stem
from engine.checkpoints.gguf_header import MAGIC
from engine.checkpoints.safetensors import SafetensorsCheckpoint
from engine.errors import GreenroomError
from engine.words import say

_FORMS = say("Choose a .gguf file or a folder with config.json and .safetensors files.")


def open_checkpoint(path: str | Path) -> Checkpoint:
    """A model's headers.

    path: a .gguf file (any part of a split opens the whole), a folder with config.json and *.safetensors,
    a .safetensors file in such a folder, or a folder that holds exactly one GGUF model.
    Raises GreenroomError when it is missing, broken or of an unknown kind.
    """
    path = absolute(Path(path))
    try:
        return _open_folder(path) if path.is_dir() else _open_file(path)
    except OSError as error:
        raise unreadable(path, error) from error


def _open_file(path: Path) -> Checkpoint:
    size = file_size(path)
    if path.suffix.lower() == ".safetensors":
        return SafetensorsCheckpoint(path.parent)
    if path.suffix.lower() == ".gguf" or (size >= 4 and read_bytes(path, 0, 4).tobytes() == MAGIC):
        return GgufCheckpoint(path)
    why = say("it is neither a GGUF file nor a safetensors file")
    raise GreenroomError(say("{name} cannot be opened", name=path.name), why, _FORMS)


def _open_folder(folder: Path) -> Checkpoint:
    if (folder / "config.json").exists():
        return SafetensorsCheckpoint(folder)
    models = {plain_stem(file.name): file for file in sorted(folder.glob("*.gguf"))}
    if len(models) == 1:
        return GgufCheckpoint(next(iter(models.values())))
    if models:
        why = say("it holds {count} GGUF models", count=len(models))
        raise GreenroomError(
            say("{name} cannot be opened", name=folder.name or folder), why, say("Choose one of the .gguf files in it.")
        )
    why = say("it holds no .safetensors file")
    if any(folder.glob("*.safetensors")):
        why = say("it has no config.json beside its .safetensors files")
    elif any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
        why = say("it holds only PyTorch pickle files, which can run code and are never opened")
    raise GreenroomError(say("{name} cannot be opened", name=folder.name or folder), why, _FORMS)
