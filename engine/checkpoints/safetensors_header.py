"""The header of one safetensors file.

Written from the format's description: 8 bytes of header length, a JSON header, then the tensors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

from engine.checkpoints.checkpoint import TensorInfo
from engine.checkpoints.file_bytes import DOWNLOAD_AGAIN, cut_short, file_size, read_bytes, shown
from engine.checkpoints.json_file import parse_object
from engine.checkpoints.stored import check_overlap
from engine.errors import GreenroomError
from engine.units import size_text
from engine.words import say

MAX_HEADER = 100_000_000  # the format's own limit
_MAX_DIMENSIONS = 8

#: Bytes of one value, of every dtype that a language model's weights, scales or leftover buffers come in.
DTYPE_BYTES: Mapping[str, int] = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E8M0": 1,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U64": 8,
    "U32": 4,
    "U16": 2,
    "U8": 1,
    "BOOL": 1,
}


def read_header(path: Path) -> dict[str, TensorInfo]:
    """The tensors of one file, checked against its size. Their `format` is the file's dtype, a key of DTYPE_BYTES."""
    size = file_size(path)
    if size < 8:
        damaged(path, say("it is empty") if not size else say("it ends after {size}", size=size_text(size)))
    length = int.from_bytes(read_bytes(path, 0, 8).tobytes(), "little")
    if length > MAX_HEADER:
        damaged(
            path,
            say(
                "its header claims to be {length} long, so it is another kind of file or damaged",
                length=size_text(length),
            ),
        )
    if length > size - 8:
        damaged(
            path,
            say(
                "its header of {length} runs past the end of the file ({size})",
                length=size_text(length),
                size=size_text(size),
            ),
        )
    header = parse_object(read_bytes(path, 8, length).tobytes(), path)
    tensors: dict[str, TensorInfo] = {}
    for name, record in header.items():
        if name == "__metadata__":
            continue
        dtype, shape, start, end = _record(path, name, record)
        width = DTYPE_BYTES.get(dtype)
        if width is None:
            why = say(
                "tensor {name} is stored as {dtype}, which is not supported", name=shown(name), dtype=shown(dtype)
            )
            raise GreenroomError(
                say("{name} cannot be used", name=path.name), why, say("Choose another file of this model.")
            )
        if math.prod(shape) * width != end - start:
            damaged(
                path,
                say(
                    "tensor {name} of shape {shape} does not fill its %n bytes",
                    n=end - start,
                    one="tensor {name} of shape {shape} does not fill its %n byte",
                    name=shown(name),
                    shape=list(shape),
                ),
            )
        tensors[name] = TensorInfo(name, shape, dtype, path, 8 + length + start, end - start)
    needed = max((t.offset + t.nbytes for t in tensors.values()), default=0)
    if needed > size:
        damaged(path, cut_short(size, needed))
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
    damaged(path, say("its header describes tensor {name} in a way that makes no sense", name=shown(name)))


def _sizes(values: Any) -> TypeGuard[list[int]]:
    # No generator: this runs for every tensor, and large models have a hundred thousand.
    return (
        type(values) is list
        and set(map(type, values)) <= {int}
        and min(values, default=0) >= 0
        and max(values, default=0) < 1 << 60
    )


def damaged(path: Path, why: str) -> NoReturn:
    raise GreenroomError(say("{name} cannot be read", name=path.name), why, DOWNLOAD_AGAIN)
