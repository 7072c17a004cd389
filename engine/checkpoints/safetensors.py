"""Checkpoints in safetensors form: a folder with config.json and one or more files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from engine.checkpoints.checkpoint import TensorInfo
from engine.checkpoints.file_bytes import absolute, shown
from engine.checkpoints.json_file import read_object
from engine.checkpoints.quantised import recognise
from engine.checkpoints.safetensors_header import MAX_HEADER, damaged, read_header
from engine.checkpoints.stored import StoredCheckpoint
from engine.errors import GreenroomError
from engine.safe_paths import is_safe_name
from engine.words import say

if TYPE_CHECKING:
    from engine.checkpoints.chat_template import ChatTemplate
    from engine.checkpoints.tokenizer import Tokenizer

INDEX = "model.safetensors.index.json"


class SafetensorsCheckpoint(StoredCheckpoint):
    """folder: holds config.json. Raises GreenroomError when a file is missing, damaged or of a dtype not read."""

    def __init__(self, folder: Path) -> None:
        folder = absolute(folder)
        config = read_object(folder / "config.json")
        architecture = config.get("model_type")
        if not isinstance(architecture, str) or not architecture:
            why = say("its config.json does not name a model_type")
            raise GreenroomError(
                say("{name} cannot be used", name=folder.name), why, say("Choose a folder that holds a language model.")
            )
        tensors, assemblies = recognise(_folder_tensors(folder), config, folder)
        super().__init__(folder, "safetensors", architecture, folder.name, config, tensors, assemblies)

    def tokenizer(self) -> Tokenizer:
        from engine.checkpoints.tokenizer_files import tokenizer_from_folder

        return tokenizer_from_folder(self.path)

    def _load_chat_template(self) -> ChatTemplate:
        from engine.checkpoints.tokenizer_files import chat_template_from_folder

        return chat_template_from_folder(self.path)


def _folder_tensors(folder: Path) -> dict[str, TensorInfo]:
    """Every stored tensor of a folder."""
    # As transformers chooses where a folder has both: the one file, then the index.
    single = folder / "model.safetensors"
    if single.exists():
        return read_header(single)
    if (folder / INDEX).exists():
        return _indexed_tensors(folder)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        why = say("it holds no .safetensors file")
        raise GreenroomError(
            say("{name} cannot be opened", name=folder.name), why, say("Download the model again in safetensors form.")
        )
    tensors: dict[str, TensorInfo] = {}
    for file in files:
        for name, tensor in read_header(file).items():
            if name in tensors:
                damaged(file, say("tensor {name} is also in {name2}", name=shown(name), name2=tensors[name].path.name))
            tensors[name] = tensor
    return tensors


def _indexed_tensors(folder: Path) -> dict[str, TensorInfo]:
    index = folder / INDEX
    weight_map = read_object(index, limit=MAX_HEADER).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(v, str) for v in weight_map.values()):
        damaged(index, say("it has no weight_map from tensor names to files"))
    headers: dict[str, dict[str, TensorInfo]] = {}
    for file in sorted(set(weight_map.values())):
        if not is_safe_name(file) or not file.endswith(".safetensors"):
            why = say("it names the file {file}, which would lie outside the model's folder", file=shown(file))
            raise GreenroomError(
                say("{name} cannot be trusted", name=index.name), why, say("Do not use this model; choose another.")
            )
        if not (folder / file).is_file():
            why = say("{file}, one of its weight files, is missing", file=shown(file))
            raise GreenroomError(
                say("{name} cannot be opened", name=folder.name), why, say("Download the missing file.")
            )
        headers[file] = read_header(folder / file)
    tensors: dict[str, TensorInfo] = {}
    for name, file in weight_map.items():
        tensor = headers[file].get(name)
        if tensor is None:
            damaged(folder / file, say("it lacks tensor {name} that the index promises", name=shown(name)))
        tensors[name] = tensor
    return tensors
