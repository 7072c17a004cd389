"""What is in this file?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.checkpoints.checkpoint import Checkpoint


def open_checkpoint(path: str | Path) -> Checkpoint:
    """A model's headers.

    path: a .gguf file (any part of a split opens the whole), a folder with config.json and *.safetensors,
    a .safetensors file in such a folder, or a folder that holds exactly one GGUF model.
    Raises GreenroomError when it is missing, broken or of an unknown kind.
    """
    from engine.checkpoints.opening import open_path

    return open_path(Path(path))
