"""A run that is kept: which experts were used when, in a small file.

The file: MAGIC, the length of the header (uint32), the header (JSON: model, layers, experts, expert_bytes, full), then
one zlib stream of frames. A frame: seconds (float64), tokens, number of cells used, number moved (uint32 each), then
the cells used as distances from one to the next, their counts, and the cells moved as distances (uint32 each). All
little-endian.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from app.language import tr
from app.stage.activity import Activity, Frame
from engine.clean_text import clean_text
from engine.errors import GreenroomError
from engine.regular_files import read_bounded

MAGIC = b"GRSTAGE\x01"
SUFFIX = ".stage"
MOST_LAYERS, MOST_EXPERTS, MOST_CELLS = 4096, 65536, 1 << 22
MOST_HEADER = 1 << 16
MOST_FILE = 256 << 20
#: Of a whole file unpacked: what is kept, and room for what older versions keep.
MOST_FRAMES_BYTES = 128 << 20
#: Hours of answers.
MOST_FRAMES = 200_000
#: Bytes of a run that are kept in memory; what comes later is not.
MOST_KEPT = 64 << 20
_HEAD = struct.Struct("<dIII")


@dataclass
class Recording:
    """expert_bytes: of one routed expert's weights, 0 when unknown; full: later frames were left out."""

    model: str
    layers: tuple[int, ...]
    experts: int
    expert_bytes: int = 0
    frames: list[Frame] = field(default_factory=list)
    full: bool = False
    _kept: int = 0

    @property
    def seconds(self) -> float:
        return self.frames[-1].seconds if self.frames else 0.0

    def add(self, frame: Frame) -> None:
        self._kept += _HEAD.size + 8 * len(frame.used) + 4 * len(frame.moved)
        if self._kept > MOST_KEPT or len(self.frames) == MOST_FRAMES:
            self.full = True
        if not self.full:
            self.frames.append(frame)

    def activity(self) -> Activity:
        """An empty stage for this run."""
        return Activity(self.layers, self.experts)


def save_recording(recording: Recording, path: Path) -> None:
    """Raises GreenroomError when it cannot be written."""
    header = json.dumps(
        {
            "model": recording.model,
            "layers": list(recording.layers),
            "experts": recording.experts,
            "expert_bytes": recording.expert_bytes,
            "full": recording.full,
        }
    ).encode()
    body = zlib.compress(b"".join(_packed(frame) for frame in recording.frames), 6)
    try:
        path.write_bytes(MAGIC + struct.pack("<I", len(header)) + header + body)
    except OSError as error:
        raise GreenroomError(
            tr("The run could not be saved"), (error.strerror or str(error)).lower(), tr("Choose another folder.")
        ) from error


def _packed(frame: Frame) -> bytes:
    head = _HEAD.pack(frame.seconds, frame.tokens, len(frame.used), len(frame.moved))
    return head + _distances(frame.used) + frame.counts.astype("<u4").tobytes() + _distances(frame.moved)


def _distances(cells: np.ndarray) -> bytes:
    return np.diff(cells.astype("<u4"), prepend=np.uint32(0)).astype("<u4").tobytes()


def open_recording(path: Path) -> Recording:
    """Raises GreenroomError for what is no recording, or a damaged one."""
    try:
        if path.exists() and not path.is_file():
            raise ValueError("it is no file")
        data = read_bounded(path, MOST_FILE)
        if len(data) > MOST_FILE:
            raise ValueError("it is too large")
    except OSError as error:
        raise _not_opened(path, (error.strerror or str(error)).lower()) from error
    except ValueError as error:
        raise _not_opened(path, str(error)) from error
    try:
        return _parsed(data)
    except (ValueError, RecursionError, struct.error, zlib.error) as error:
        raise _not_opened(path, tr("it is not a run saved by Greenroom, or it is damaged")) from error


def _not_opened(path: Path, why: str) -> GreenroomError:
    return GreenroomError(tr("{name} could not be opened", name=path.name), why, tr("Choose a .stage file."))


def _parsed(data: bytes) -> Recording:
    if not data.startswith(MAGIC):
        raise ValueError("another kind of file")
    (length,) = struct.unpack_from("<I", data, len(MAGIC))
    if length > MOST_HEADER:
        raise ValueError("the header is too long")
    start = len(MAGIC) + 4
    recording = _header(json.loads(data[start : start + length]))
    unpacker = zlib.decompressobj()
    body = unpacker.decompress(data[start + length :], MOST_FRAMES_BYTES)
    if not unpacker.eof:
        raise ValueError("the frames are cut off, or there are too many")
    recording.frames = list(_frames(body, len(recording.layers) * recording.experts))
    return recording


def _header(raw: Any) -> Recording:
    if not isinstance(raw, dict):
        raise ValueError("no header")
    layers, experts, size = raw.get("layers"), raw.get("experts"), raw.get("expert_bytes")
    if not isinstance(layers, list) or not 0 < len(layers) <= MOST_LAYERS:
        raise ValueError("layers")
    if not all(type(layer) is int and 0 <= layer < 1 << 20 for layer in layers):
        raise ValueError("layers")
    if type(experts) is not int or not 0 < experts <= MOST_EXPERTS or len(layers) * experts > MOST_CELLS:
        raise ValueError("experts")
    if type(size) is not int or not 0 <= size < 1 << 50:
        raise ValueError("expert_bytes")
    return Recording(clean_text(raw.get("model", ""), 200), tuple(layers), experts, size, full=raw.get("full") is True)


def _frames(body: bytes, cells: int) -> Iterator[Frame]:
    at, before, made = 0, 0.0, 0
    while at < len(body):
        made += 1
        if made > MOST_FRAMES:
            raise ValueError("there are too many frames")
        seconds, tokens, used, moved = _HEAD.unpack_from(body, at)
        at += _HEAD.size
        if not (math.isfinite(seconds) and seconds >= before) or max(used, moved) > cells:
            raise ValueError("a frame makes no sense")
        before = seconds
        numbers = np.frombuffer(body, "<u4", 2 * used + moved, at)
        at += numbers.nbytes
        yield Frame(
            seconds,
            tokens,
            _cells(numbers[:used], cells),
            numbers[used : 2 * used].astype(np.uint32),
            _cells(numbers[2 * used :], cells),
        )


def _cells(distances: np.ndarray, cells: int) -> np.ndarray:
    found = np.cumsum(distances, dtype=np.uint64)
    if len(found) and (int(found[-1]) >= cells or (distances[1:] == 0).any()):
        raise ValueError("a cell that is not there")
    return found.astype(np.uint32)
