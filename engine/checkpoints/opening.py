"""Which kind of checkpoint lies at a path."""

from __future__ import annotations

from pathlib import Path

from engine.checkpoints.checkpoint import Checkpoint
from engine.checkpoints.gguf import GgufCheckpoint, plain_stem
from engine.checkpoints.gguf_header import MAGIC
from engine.checkpoints.safetensors import SafetensorsCheckpoint
from engine.checkpoints.stored import absolute, file_size, read_bytes, unreadable
from engine.errors import GreenroomError

_FORMS = "Choose a .gguf file or a folder with config.json and .safetensors files."


def open_path(path: Path) -> Checkpoint:
    """See `engine.checkpoints.open_checkpoint`."""
    path = absolute(path)
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
    why = "it is neither a GGUF file nor a safetensors file"
    raise GreenroomError(f"{path.name} cannot be opened", why, _FORMS)


def _open_folder(folder: Path) -> Checkpoint:
    if (folder / "config.json").exists():
        return SafetensorsCheckpoint(folder)
    models = {plain_stem(file.name): file for file in sorted(folder.glob("*.gguf"))}
    if len(models) == 1:
        return GgufCheckpoint(next(iter(models.values())))
    if models:
        why = f"it holds {len(models)} GGUF models"
        raise GreenroomError(f"{folder.name} cannot be opened", why, "Choose one of the .gguf files in it.")
    why = "it holds no .safetensors file"
    if any(folder.glob("*.safetensors")):
        why = "it has no config.json beside its .safetensors files"
    elif any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
        why = "it holds only PyTorch pickle files, which can run code and are never opened"
    raise GreenroomError(f"{folder.name} cannot be opened", why, _FORMS)
