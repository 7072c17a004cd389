"""Bringing stored tensors into memory: reading by role, packing, progress, cancellation, room in RAM."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine import _native
from engine.checkpoints.checkpoint import Checkpoint, FileRange
from engine.checkpoints.file_bytes import ends_early, unreadable
from engine.checkpoints.formats import FORMATS
from engine.errors import GreenroomError
from engine.hardware.memory import read_memory
from engine.hardware.sources import Sources
from engine.models.spec import ModelSpec, TensorRef
from engine.progress import Progress, ProgressCallback
from engine.units import size_text
from engine.words import say

#: Seconds between two reports: often enough for a smooth bar, rare enough to cost nothing.
REPORT_INTERVAL = 0.05

#: Seconds of reading before a speed is worth telling.
SETTLED = 0.5

#: Bytes packed between two looks at the callback: 0.16 s of reading from a disk of 100 MB/s.
PIECE = 16 << 20

#: Kept free while loading, so that the rest of the system is not pushed to swap.
RAM_RESERVE = 256 << 20


class Loader:
    """Reads a model's tensors by role and tells how far it is.

    Reading is safe from several threads; `report` belongs to the thread that loads.
    """

    def __init__(self, checkpoint: Checkpoint, spec: ModelSpec, progress: ProgressCallback) -> None:
        self.checkpoint = checkpoint
        self.spec = spec
        self._progress = progress
        self._total = sum(self.nbytes(role) for role in spec.weights)
        if "lm_head" not in spec.weights:
            self._total += self.nbytes("embed")  # wanted again as the output head
        self._done = 0
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._reported = 0.0
        self._message = ""

    def again(self) -> Loader:
        """For another try from the beginning."""
        return Loader(self.checkpoint, self.spec, self._progress)

    def has(self, role: str) -> bool:
        return role in self.spec.weights

    def format(self, role: str) -> str:
        """Key of FORMATS."""
        return self.checkpoint.tensors[self.spec.weights[role].name].format

    def shape(self, role: str) -> tuple[int, ...]:
        """Shape of the role, after its index and rows are cut out of the tensor."""
        ref = self.spec.weights[role]
        return ref.shape(self.checkpoint.tensors[ref.name].shape)

    def nbytes(self, role: str) -> int:
        """Stored bytes of the role."""
        form = FORMATS[self.format(role)]
        return math.prod(self.shape(role)) // form.block_values * form.block_bytes

    def dense_nbytes(self, width: int | None) -> int:
        """Bytes of everything but routed experts: as stored, or at `width` bytes a value."""
        roles = [role for role in self.spec.weights if ".moe.experts." not in role]
        return sum(self.nbytes(role) if width is None else math.prod(self.shape(role)) * width for role in roles)

    def stored(self, role: str) -> npt.NDArray[np.uint8]:
        """Stored bytes, uint8 [nbytes]. The weights are their values times `factor`, columns in `column_order`."""
        ref = self.spec.weights[role]
        if _whole_rows(ref, self.shape(role)):
            data = self.checkpoint.read(ref.name, ref.index, ref.rows)
        else:
            form, shape = FORMATS[self.format(role)], self.checkpoint.tensors[ref.name].shape
            if form.block_values > 1 and ref.transposed:
                raise self.refuse(role, ValueError("its blocks run along the wrong axis"))
            data = self.checkpoint.read(ref.name, ref.index)
            blocks = (*shape[1 if ref.index is not None else 0 : -1], shape[-1] // form.block_values, form.block_bytes)
            data = np.ascontiguousarray(_part(ref, data.reshape(blocks), 1)).reshape(-1)
        self._add(data.nbytes)
        return data

    def factor(self, role: str) -> float:
        """What the stored values are to be multiplied with."""
        ref = self.spec.weights[role]
        return self.checkpoint.factor(ref.name, ref.index)

    def column_order(self, role: str) -> npt.NDArray[np.int32] | None:
        """Which column each stored one is, int32 [in]; None when they are stored as usual."""
        return self.checkpoint.column_order(self.spec.weights[role].name)

    def float32(self, role: str) -> npt.NDArray[np.float32]:
        """Dequantised, in the role's shape."""
        ref = self.spec.weights[role]
        if _whole_rows(ref, self.shape(role)):
            data = self.checkpoint.read_float32(ref.name, ref.index, ref.rows)
        else:
            data = np.ascontiguousarray(_part(ref, self.checkpoint.read_float32(ref.name, ref.index), 0))
        self._add(self.nbytes(role))
        return data

    def float32_rows(
        self, role: str, order: npt.NDArray[np.int64] | None = None
    ) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """(first row, float32 [n, columns]) in pieces, reporting in between, where the file allows; else in one.

        order: which stored row comes where; rows stay near their places, so that a piece of them is read as a whole
        """
        ref, shape = self.spec.weights[role], self.shape(role)
        if len(shape) != 2 or not _whole_rows(ref, shape):
            values = self.float32(role).reshape(-1, shape[-1])
            yield 0, values if order is None else np.ascontiguousarray(values[order])
            return
        rows, columns = shape
        start = ref.rows[0] if ref.rows is not None else 0
        step = max(1, PIECE // 4 // columns)
        for first in range(0, rows, step):
            last = min(first + step, rows)
            wanted = np.arange(first, last) if order is None else order[first:last]
            low, high = int(wanted.min()), int(wanted.max()) + 1
            values = self.checkpoint.read_float32(ref.name, ref.index, (start + low, start + high))
            self._add(self.nbytes(role) // rows * (last - first))
            self.report_again()
            if order is not None:
                values = values[wanted - low]
            yield first, values
            del values  # while the next ones are read

    def pack(
        self,
        role: str,
        pool: _native.ThreadPool,
        matrix: _native.Matrix,
        first_row: int,
        order: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Pack a matrix into rows from first_row on, reporting in between. order: which stored row comes where.

        Raises what the callback raises, GreenroomError when the file cannot be read, ValueError when the kernels
        refuse it.
        """
        place = self._location(role) if order is None else None
        rows = math.prod(self.shape(role)[:-1])
        if place is None:
            data = self.stored(role)
            if order is not None:
                data = np.ascontiguousarray(data.reshape(rows, -1)[order]).reshape(-1)
            matrix.load(pool, data, first_row)
            matrix.set_factor(first_row, rows, self.factor(role))
            return
        row_bytes = place.nbytes // rows
        piece = max(1, PIECE // row_bytes)
        for start in range(0, rows, piece):
            count = min(piece, rows - start) * row_bytes
            with _reading(place.path):
                matrix.load_file(pool, place.path, place.offset + start * row_bytes, count, first_row + start)
            self._add(count)
            self.report_again()
        matrix.set_factor(first_row, rows, self.factor(role))

    def pack_expert(
        self, block: str, pool: _native.ThreadPool, experts: _native.Experts, expert: int, part: str, *, bias: bool
    ) -> None:
        """Pack one matrix, and bias, of a gated MLP ("layers.3.ffn") as an expert.

        Safe from several threads; raises as `pack` does, without the callback.
        """
        role = f"{block}.{part}"
        # Rows of gate and up follow the columns of down, and those the order they are stored in.
        order = None if part == "down" else self.column_order(f"{block}.down")
        place = self._location(role) if order is None else None
        if place is None:
            data = self.stored(role)
            if order is not None:
                data = np.ascontiguousarray(data.reshape(len(order), -1)[order]).reshape(-1)
            experts.load(pool, expert, part, data)
        else:
            with _reading(place.path):
                experts.load_file(pool, expert, part, place.path, place.offset, place.nbytes)
            self._add(place.nbytes)
        experts.set_factor(expert, part, self.factor(role))
        columns = self.column_order(role)
        if columns is not None and part != "down":
            experts.set_columns(expert, part, np.ascontiguousarray(columns, np.int32))
        if bias:
            values = self.float32(f"{role}_bias").reshape(-1)
            experts.load_bias(expert, part, values if order is None else np.ascontiguousarray(values[order]))

    def skip(self, role: str) -> None:
        """Count a tensor as read that is in memory already."""
        self._add(self.nbytes(role))

    def report(self, message: str, *, always: bool = False) -> None:
        """Tell the callback, unless it was told a moment ago. Raises what the callback raises (Cancelled)."""
        self._message = message
        now = time.monotonic()
        if not always and now - self._reported < REPORT_INTERVAL:
            return
        self._reported = now
        with self._lock:
            done = self._done
        seconds = now - self._started
        if 0 < done < self._total and seconds > SETTLED:
            rate = done / seconds
            speed = f"{size_text(rate)}/s"
            message = say(
                "{message}, {speed}, {left:.0f} s left", message=message, speed=speed, left=(self._total - done) / rate
            )
        self._progress(Progress(done, self._total, message))

    def refuse(self, role: str, error: ValueError) -> GreenroomError:
        """The user's words for a tensor the kernels would not take."""
        return GreenroomError(
            say("{name} cannot be loaded", name=self.checkpoint.name),
            say(
                'its tensor "{name}" ({role}) is not accepted: {error}',
                name=self.spec.weights[role].name,
                role=self.format(role),
                error=error,
            ),
            say("Choose a file of this model in another format."),
        )

    def report_again(self) -> None:
        """The same message as last time."""
        self.report(self._message)

    def _location(self, role: str) -> FileRange | None:
        """Where the role's rows lie as they are; None when `stored` must put them together."""
        ref = self.spec.weights[role]
        whole = _whole_rows(ref, self.shape(role))
        return self.checkpoint.location(ref.name, ref.index, ref.rows) if whole else None

    def _add(self, nbytes: int) -> None:
        with self._lock:
            self._done += nbytes


def _whole_rows(ref: TensorRef, shape: tuple[int, ...]) -> bool:
    """Whether the checkpoint can cut the part out by itself."""
    return not ref.transposed and ref.step == 1 and (ref.rows is None or len(shape) > 1)


def _part(ref: TensorRef, values: npt.NDArray[Any], inner: int) -> npt.NDArray[Any]:
    """The ref's transposition and rows, of an array whose last `inner` axes belong to one value."""
    axes = values.ndim - inner
    if ref.transposed:
        values = values.swapaxes(axes - 1, axes - 2)
    if ref.rows is None:
        return values
    start, stop = ref.rows
    return values[(slice(None),) * max(0, axes - 2) + (slice(start, stop, ref.step),)]


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except _native.EndOfFile as error:
        missing, _, _ = str(error).partition(" ")  # "340 bytes are missing"
        raise ends_early(path, size_text(int(missing))) from error
    except OSError as error:
        raise unreadable(path, error) from error


def check_ram(needed: int, name: str, part: str) -> None:
    """Raises GreenroomError when `needed` bytes more would not fit in free RAM with the reserve."""
    free = available_ram()
    if needed + RAM_RESERVE > free:
        raise GreenroomError(
            say("{name} does not fit in memory", name=name),
            say(
                "{part} need {needed:.1f} GB of RAM and {value:.1f} GB is free",
                part=part,
                needed=needed / 1e9,
                value=max(0, free - RAM_RESERVE) / 1e9,
            ),
            say("Close other programs, or choose a smaller file of this model."),
        )


def available_ram() -> int:
    """Bytes free now for this process, within a container's limit."""
    return read_memory(Sources())[0].available_bytes


def thread_words(threads: int) -> str:
    """ "8 threads", for what tells which kernel computes."""
    return say("%n threads", n=threads, one="%n thread")
