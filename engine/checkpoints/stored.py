"""Reading tensor bytes: what both file forms share."""

from __future__ import annotations

import math
import os
import stat
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.checkpoints.blocks import Bytes, Floats
from engine.checkpoints.checkpoint import Checkpoint, FileRange, TensorInfo
from engine.checkpoints.formats import FORMATS
from engine.clean_text import clean_text
from engine.errors import GreenroomError
from engine.regular_files import open_to_read
from engine.units import size_text
from engine.words import say

if TYPE_CHECKING:
    import numpy.typing as npt

    from engine.checkpoints.assembly import Assembly
    from engine.checkpoints.chat_template import ChatTemplate

DOWNLOAD_AGAIN = say("Download the file again.")


def cut_short(size: int, needed: int) -> str:
    """Why a file of `size` bytes cannot be read; in bytes when rounding would make both the same."""
    have, want = size_text(size), size_text(needed)
    if have == want:
        have, want = f"{size:,}", f"{needed:,} bytes"
    return say("the file ends after {have} of {want}", have=have, want=want)


def file_size(path: Path) -> int:
    """Bytes of a regular file. Raises GreenroomError when there is none or it may not be read."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    if not stat.S_ISREG(status.st_mode):
        raise GreenroomError(
            say("{path} cannot be opened", path=path),
            say("it is not a regular file"),
            say("Choose a model file or folder."),
        )
    return status.st_size


def unreadable(path: Path, error: OSError | ValueError) -> GreenroomError:
    what = say("{path} cannot be opened", path=path)
    if isinstance(error, FileNotFoundError):
        return GreenroomError(what, say("there is no such file"), say("Check the path."))
    if isinstance(error, PermissionError):
        return GreenroomError(what, say("you may not read it"), say("Change its permissions or choose another file."))
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return GreenroomError(what, reason, say("Check the path and the disk."))


def read_bytes(path: Path, offset: int, nbytes: int) -> Bytes:
    """Copy uint8 [nbytes] from a file.

    Each call opens the file for itself: no shared position, so any number of threads may read at once,
    and no handle stays open that would keep Windows from moving or deleting the file.
    """
    buffer = np.empty(nbytes, np.uint8)
    view, done = buffer.data, 0
    try:
        with open_to_read(path) as file:
            file.seek(offset)
            while done < nbytes:
                count = file.readinto(view[done:])
                if not count:
                    break
                done += count
    except OSError as error:
        raise unreadable(path, error) from error
    if done < nbytes:
        raise ends_early(path, size_text(nbytes - done))
    return buffer


def ends_early(path: Path, missing: str) -> GreenroomError:
    why = say("it ends {missing} too early, although it was long enough when opened", missing=missing)
    return GreenroomError(say("{name} cannot be read", name=path.name), why, DOWNLOAD_AGAIN)


def check_overlap(tensors: Mapping[str, TensorInfo]) -> None:
    """Refuse a file in which two tensors claim the same bytes."""
    end, previous = 0, ""
    # Nearly every header lists its tensors as they lie, which is sorted faster than anything else.
    for tensor in sorted(tensors.values(), key=_place):
        if tensor.nbytes and tensor.offset < end:
            why = say(
                "tensors {previous} and {name} claim the same bytes", previous=shown(previous), name=shown(tensor.name)
            )
            raise GreenroomError(say("{name} cannot be read", name=tensor.path.name), why, DOWNLOAD_AGAIN)
        end, previous = max(end, tensor.offset + tensor.nbytes), tensor.name


_place = attrgetter("offset", "nbytes")


def shown(name: str, limit: int = 80) -> str:
    """A name out of a file, safe and short enough for a sentence."""
    text = name if len(name) <= limit else name[: limit - 1] + "…"
    return ascii(text) if not text.isprintable() else f'"{text}"'


@dataclass(frozen=True)
class _Piece:
    """What index and rows cut out: `count` runs of `nbytes`, `stride` bytes apart, together of `shape`."""

    offset: int
    nbytes: int
    count: int
    stride: int
    shape: tuple[int, ...]


def _cut(tensor: TensorInfo, index: int | None, rows: tuple[int, int] | None) -> _Piece:
    """Raises IndexError for a cut the tensor does not have: a fault of the caller, not of the file."""
    form = FORMATS[tensor.format]
    shape, offset, nbytes = tensor.shape, tensor.offset, tensor.nbytes
    if index is not None:
        if not shape or not 0 <= index < shape[0]:
            raise IndexError(f"index {index} of tensor {tensor.name} with shape {tensor.shape}")
        nbytes //= shape[0]
        offset += index * nbytes
        shape = shape[1:]
        if math.prod(shape) % form.block_values:
            raise IndexError(f"index {index} of tensor {tensor.name} would cut a block of {form.name}")
    if rows is None:
        return _Piece(offset, nbytes, 1, nbytes, shape)
    start, stop = rows
    if len(shape) < 2 or not 0 <= start <= stop <= shape[-2]:
        raise IndexError(f"rows {rows} of tensor {tensor.name} with shape {tensor.shape}, index {index}")
    row_bytes = shape[-1] // form.block_values * form.block_bytes
    count = math.prod(shape[:-2])
    shape_left = (*shape[:-2], stop - start, shape[-1])
    return _Piece(offset + start * row_bytes, (stop - start) * row_bytes, count, shape[-2] * row_bytes, shape_left)


class StoredCheckpoint(Checkpoint):
    """Tensor reading for checkpoints whose headers are parsed. Safe to use from several threads.

    assemblies: how to read the tensors that are not simply stored, by name
    """

    def __init__(
        self,
        path: Path,
        form: str,
        architecture: str,
        name: str,
        config: Mapping[str, Any],
        tensors: Mapping[str, TensorInfo],
        assemblies: Mapping[str, Assembly],
    ) -> None:
        self.path = path
        self.form = form
        self.architecture = clean_text(architecture)
        self.name = clean_text(name)
        self.config = config
        self.tensors = tensors
        self._assemblies = assemblies
        self._chat_template: ChatTemplate | None = None

    def read(self, name: str, index: int | None = None, rows: tuple[int, int] | None = None) -> Bytes:
        tensor = self._tensor(name)
        return self._read(tensor, _cut(tensor, index, rows), index, rows)

    def location(self, name: str, index: int | None = None, rows: tuple[int, int] | None = None) -> FileRange | None:
        tensor = self._tensor(name)
        piece = _cut(tensor, index, rows)
        if name in self._assemblies or piece.count != 1:
            return None
        return FileRange(tensor.path, piece.offset, piece.nbytes)

    def read_float32(self, name: str, index: int | None = None, rows: tuple[int, int] | None = None) -> Floats:
        tensor = self._tensor(name)
        piece = _cut(tensor, index, rows)
        values = FORMATS[tensor.format].dequantise(self._read(tensor, piece, index, rows)).reshape(piece.shape)
        factors = self._factors(name)
        if factors is not None:
            if len(factors) > 1:
                factors = factors[:, None, None] if index is None else factors[index]
            with np.errstate(over="ignore"):
                values = values * factors
        order = self.column_order(name)
        if order is None:
            return values
        ordered = np.empty_like(values)
        ordered[..., order] = values
        return ordered

    def factor(self, name: str, index: int | None = None) -> float:
        factors = self._factors(name)
        if factors is None:
            return 1.0
        if len(factors) == 1:
            return float(factors[0])
        if index is None:
            raise IndexError(f"tensor {name} has a factor for each of its {len(factors)} matrices")
        return float(factors[index])

    def column_order(self, name: str) -> npt.NDArray[np.int32] | None:
        assembly = self._assemblies.get(name)
        return assembly.column_order() if assembly else None

    def _factors(self, name: str) -> Floats | None:
        """float32 [1], or [n] of a stack; None for 1."""
        assembly = self._assemblies.get(name)
        return assembly.factors() if assembly else None

    def chat_template(self) -> ChatTemplate:
        # Asked for with every message, so compiled once.
        if self._chat_template is None:
            self._chat_template = self._load_chat_template()
        return self._chat_template

    @abstractmethod
    def _load_chat_template(self) -> ChatTemplate: ...

    def close(self) -> None:
        """Nothing stays open between reads."""

    def _tensor(self, name: str) -> TensorInfo:
        tensor = self.tensors.get(name)
        if tensor is None:
            why = say("it holds no tensor {name}", name=shown(name))
            raise GreenroomError(
                say("{name} cannot be used", name=self.path.name), why, say("The file is incomplete; choose another.")
            )
        return tensor

    def _read(self, tensor: TensorInfo, piece: _Piece, index: int | None, rows: tuple[int, int] | None) -> Bytes:
        assembly = self._assemblies.get(tensor.name)
        if assembly is not None:
            return assembly.read(index, rows)
        if piece.count == 1:
            return read_bytes(tensor.path, piece.offset, piece.nbytes)
        parts = [read_bytes(tensor.path, piece.offset + i * piece.stride, piece.nbytes) for i in range(piece.count)]
        return np.concatenate(parts) if parts else np.empty(0, np.uint8)


def absolute(path: Path) -> Path:
    """Absolute without resolving links: a download cache's links carry the file names that matter."""
    return Path(os.path.abspath(path))
