"""Checkpoints in safetensors form: a folder with config.json and one or more files.

Written from the safetensors format description: 8 bytes of header length, a JSON header, then the tensors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

from engine.checkpoints.checkpoint import TensorInfo
from engine.checkpoints.formats import FORMATS
from engine.checkpoints.json_file import parse_object, read_object
from engine.checkpoints.stored import (
    DOWNLOAD_AGAIN,
    StoredCheckpoint,
    absolute,
    check_overlap,
    cut_short,
    file_size,
    read_bytes,
    shown,
    size_text,
)
from engine.errors import GreenroomError

if TYPE_CHECKING:
    from engine.checkpoints.chat_template import ChatTemplate
    from engine.checkpoints.tokenizer import Tokenizer

INDEX = "model.safetensors.index.json"
_MAX_HEADER = 100_000_000  # the format's own limit
_MAX_DIMENSIONS = 8
_DTYPES = ("F32", "F16", "BF16")
#: Of leftover buffers (positions, masks), never of weights.
_IGNORED_DTYPES = ("I64", "BOOL")


class SafetensorsCheckpoint(StoredCheckpoint):
    """folder: holds config.json. Raises GreenroomError when a file is missing, damaged or of a dtype not read."""

    def __init__(self, folder: Path) -> None:
        folder = absolute(folder)
        config = read_object(folder / "config.json")
        architecture = config.get("model_type")
        if not isinstance(architecture, str) or not architecture:
            why = "its config.json does not name a model_type"
            raise GreenroomError(f"{folder.name} cannot be used", why, "Choose a folder that holds a language model.")
        super().__init__(folder, "safetensors", architecture, folder.name, config, _folder_tensors(folder))

    def tokenizer(self) -> Tokenizer:
        from engine.checkpoints.tokenizer_files import tokenizer_from_folder

        return tokenizer_from_folder(self.path)

    def _load_chat_template(self) -> ChatTemplate:
        from engine.checkpoints.tokenizer_files import chat_template_from_folder

        return chat_template_from_folder(self.path)


def _folder_tensors(folder: Path) -> dict[str, TensorInfo]:
    # As transformers chooses where a folder has both: the one file, then the index.
    single = folder / "model.safetensors"
    if single.exists():
        return read_header(single)
    if (folder / INDEX).exists():
        return _indexed_tensors(folder)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        why = "it holds no .safetensors file"
        raise GreenroomError(f"{folder.name} cannot be opened", why, "Download the model again in safetensors form.")
    tensors: dict[str, TensorInfo] = {}
    for file in files:
        for name, tensor in read_header(file).items():
            if name in tensors:
                _damaged(file, f"tensor {shown(name)} is also in {tensors[name].path.name}")
            tensors[name] = tensor
    return tensors


def _indexed_tensors(folder: Path) -> dict[str, TensorInfo]:
    index = folder / INDEX
    weight_map = read_object(index, limit=_MAX_HEADER).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(v, str) for v in weight_map.values()):
        _damaged(index, "it has no weight_map from tensor names to files")
    headers: dict[str, Mapping[str, TensorInfo]] = {}
    for file in sorted(set(weight_map.values())):
        if not _plain_name(file):
            why = f"it names the file {shown(file)}, which would lie outside the model's folder"
            raise GreenroomError(f"{index.name} cannot be trusted", why, "Do not use this model; choose another.")
        if not (folder / file).is_file():
            why = f"{shown(file)}, one of its weight files, is missing"
            raise GreenroomError(f"{folder.name} cannot be opened", why, "Download the missing file.")
        headers[file] = read_header(folder / file)
    tensors: dict[str, TensorInfo] = {}
    for name, file in weight_map.items():
        tensor = headers[file].get(name)
        if tensor is None:
            _damaged(folder / file, f"it lacks tensor {shown(name)} that the index promises")
        tensors[name] = tensor
    return tensors


def _plain_name(file: str) -> bool:
    """A file of the folder itself, on every system: no separators, drives or control characters."""
    return file.isprintable() and file.endswith(".safetensors") and not set(file) & set('/\\:*?"<>|')


def read_header(path: Path) -> dict[str, TensorInfo]:
    """The tensors of one file, checked against its size."""
    size = file_size(path)
    if size < 8:
        _damaged(path, "it is empty" if not size else f"it ends after {size_text(size)}")
    length = int.from_bytes(read_bytes(path, 0, 8).tobytes(), "little")
    if length > _MAX_HEADER:
        _damaged(path, f"its header claims to be {size_text(length)} long, so it is another kind of file or damaged")
    if length > size - 8:
        _damaged(path, f"its header of {size_text(length)} runs past the end of the file ({size_text(size)})")
    header = parse_object(read_bytes(path, 8, length).tobytes(), path)
    tensors: dict[str, TensorInfo] = {}
    foreign: dict[str, str] = {}
    for name, record in header.items():
        if name == "__metadata__":
            continue
        dtype, shape, start, end = _record(path, name, record)
        if dtype in _IGNORED_DTYPES:
            continue
        if dtype not in _DTYPES:
            foreign[name] = dtype
            continue
        if math.prod(shape) * FORMATS[dtype].block_bytes != end - start:
            _damaged(path, f"tensor {shown(name)} of shape {list(shape)} does not fill its {end - start:,} bytes")
        tensors[name] = TensorInfo(name, shape, dtype, path, 8 + length + start, end - start)
    if foreign:
        name, dtype = next(iter(foreign.items()))
        why = f"tensor {shown(name)} is stored as {shown(dtype)}, which is not supported yet"
        raise GreenroomError(f"{path.name} cannot be used", why, f"Choose a model that uses only {', '.join(_DTYPES)}.")
    needed = max((t.offset + t.nbytes for t in tensors.values()), default=0)
    if needed > size:
        _damaged(path, cut_short(size, needed))
    check_overlap(tensors)
    return tensors


def _record(path: Path, name: str, record: Any) -> tuple[str, tuple[int, ...], int, int]:
    """dtype, shape, start, end: of the right types and not negative."""
    if isinstance(record, dict):
        dtype, shape, offsets = record.get("dtype"), record.get("shape"), record.get("data_offsets")
        if (
            isinstance(dtype, str)
            and _sizes(shape)
            and len(shape) <= _MAX_DIMENSIONS
            and math.prod(shape) < 1 << 60
            and _sizes(offsets)
            and len(offsets) == 2
            and offsets[0] <= offsets[1]
        ):
            return dtype, tuple(shape), offsets[0], offsets[1]
    _damaged(path, f"its header describes tensor {shown(name)} in a way that makes no sense")


def _sizes(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 1 << 60 for v in values)


def _damaged(path: Path, why: str) -> NoReturn:
    raise GreenroomError(f"{path.name} cannot be read", why, DOWNLOAD_AGAIN)
