"""The header of one GGUF file: key-values and tensor records, nothing else.

Written from the GGUF specification (versions 2 and 3, little-endian). Every count and length is checked against
what the file can hold before anything is allocated, and arrays are stepped over, not parsed: a vocabulary of
150,000 strings is read only when a tokenizer is asked for.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGUF_DEFAULT_ALIGNMENT, GGMLQuantizationType, GGUFValueType

from engine.checkpoints.checkpoint import TensorInfo
from engine.checkpoints.file_bytes import DOWNLOAD_AGAIN, cut_short, file_size, read_bytes, shown, unreadable
from engine.checkpoints.formats import GGUF_FORMATS, Format
from engine.checkpoints.stored import check_overlap
from engine.checkpoints.widened import WIDENED, Widened
from engine.errors import GreenroomError
from engine.regular_files import open_to_read
from engine.units import size_text
from engine.words import say

MAGIC = b"GGUF"
_VERSIONS = (2, 3)

# Limits far above any real file, so that a damaged one cannot make us loop or allocate for long.
_MAX_HEADER_BYTES = 256 << 20  # a vocabulary of 260,000 takes about 10 MB
_MAX_KEYS = 65_536
_MAX_TENSORS = 131_072
_MAX_KEY_BYTES = 65_535  # the specification's own
_MAX_NAME_BYTES = 1_024
_MAX_STRING_BYTES = 16 << 20
_MAX_STRINGS = 1 << 22  # elements of all string arrays together; Gemma has 800,000 tokens and merges
_MAX_CONFIG_ARRAY = 4_096
_MAX_CONFIG_ELEMENTS = 1 << 18  # of all those arrays together; models have some for each block
_MAX_DIMENSIONS = 4
_MAX_ALIGNMENT = 1 << 20
_WINDOW = 1 << 18

_SCALARS: Mapping[int, struct.Struct] = {
    int(GGUFValueType.UINT8): struct.Struct("<B"),
    int(GGUFValueType.INT8): struct.Struct("<b"),
    int(GGUFValueType.UINT16): struct.Struct("<H"),
    int(GGUFValueType.INT16): struct.Struct("<h"),
    int(GGUFValueType.UINT32): struct.Struct("<I"),
    int(GGUFValueType.INT32): struct.Struct("<i"),
    int(GGUFValueType.FLOAT32): struct.Struct("<f"),
    int(GGUFValueType.BOOL): struct.Struct("<?"),
    int(GGUFValueType.UINT64): struct.Struct("<Q"),
    int(GGUFValueType.INT64): struct.Struct("<q"),
    int(GGUFValueType.FLOAT64): struct.Struct("<d"),
}
_STRING = int(GGUFValueType.STRING)
_ARRAY = int(GGUFValueType.ARRAY)
#: What a tensor may be stored as.
_STORED: Mapping[str, Format | Widened] = {**GGUF_FORMATS, **WIDENED}
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class StoredArray:
    """Where an array's elements lie: bytes [offset, offset + nbytes) of the file."""

    kind: int
    count: int
    offset: int
    nbytes: int


@dataclass(frozen=True)
class GgufHeader:
    """config: scalars, strings and short arrays by key; arrays: every array, the tokenizer's among them;
    tensors: as stored, their format a key of GGUF_FORMATS or WIDENED.
    """

    path: Path
    config: Mapping[str, Any]
    arrays: Mapping[str, StoredArray]
    tensors: Mapping[str, TensorInfo]

    def strings(self, key: str) -> list[str]:
        """An array of strings. Bytes that are no UTF-8 become U+FFFD. Raises KeyError when there is none."""
        array = self.arrays[key]
        if array.kind != _STRING:
            _damaged(self.path, say("{key} does not hold strings", key=shown(key)))
        data, unpack = self._bytes(array), _LENGTH.unpack_from
        texts, at = [], 0
        for _ in range(array.count):
            start = at + 8
            at = start + unpack(data, at)[0]
            texts.append(str(data[start:at], "utf-8", "replace"))
        return texts

    def numbers(self, key: str) -> npt.NDArray[Any]:
        """An array of numbers. Raises KeyError when there is none."""
        array = self.arrays[key]
        if array.kind not in _SCALARS:
            _damaged(self.path, say("{key} does not hold numbers", key=shown(key)))
        return np.frombuffer(self._bytes(array), np.dtype(_SCALARS[array.kind].format), count=array.count)

    def _bytes(self, array: StoredArray) -> bytes:
        return read_bytes(self.path, array.offset, array.nbytes).tobytes()


def read_header(path: Path, source: BinaryIO | None = None) -> GgufHeader:
    """Raises GreenroomError when the file is missing, no GGUF, damaged, or holds a format that is not read.

    source: where its bytes are read from instead, for a file that is not wholly there yet
    """
    size = file_size(path)
    try:
        with open_to_read(path) as file:
            return _Parser(path, file if source is None else source, size).parse()
    except OSError as error:
        raise unreadable(path, error) from error


def _damaged(path: Path, why: str) -> NoReturn:
    raise GreenroomError(say("{name} cannot be read", name=path.name), why, DOWNLOAD_AGAIN)


class _Parser:
    """Walks one file front to back, never past its end."""

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self._path = path
        self._file = file
        self._size = size
        self._at = 0
        self._window = b""
        self._window_start = 0
        self._strings_left = _MAX_STRINGS
        self._elements_left = _MAX_CONFIG_ELEMENTS

    def parse(self) -> GgufHeader:
        self._check_start()
        tensor_count, key_count = self._u64(), self._u64()
        if tensor_count > _MAX_TENSORS or key_count > _MAX_KEYS:
            self._refuse(
                say(
                    "its header claims more than any model has (tensors: {tensor_count:,}, settings: {key_count:,})",
                    tensor_count=tensor_count,
                    key_count=key_count,
                )
            )
        config: dict[str, Any] = {}
        arrays: dict[str, StoredArray] = {}
        for _ in range(key_count):
            key = self._name(_MAX_KEY_BYTES)
            if key in config or key in arrays:
                self._refuse(say("its header sets {key} twice", key=shown(key)))
            kind = self._u32()
            if kind == _ARRAY:
                array = self._array(key)
                arrays[key] = array
                if array.count <= _MAX_CONFIG_ARRAY and not key.startswith("tokenizer."):
                    config[key] = list(self._elements(array))
            else:
                config[key] = self._value(key, kind)
        return GgufHeader(self._path, config, arrays, self._tensors(tensor_count, config))

    def _check_start(self) -> None:
        start = bytes(self._peek(32))
        if start[:4] != MAGIC:
            if not self._size:
                why = say("it is empty")
            elif start.startswith(b"version https://git-lfs"):
                why = say("it is only a Git LFS pointer to the real file")
            else:
                why = say("it does not start with the letters GGUF, so it is another kind of file")
            self._refuse(why)
        self._at = 4
        version = self._u32()
        if version not in _VERSIONS:
            if version & 0xFFFF == 0 and version:
                why = say("it is a big-endian GGUF, made for another kind of processor")
            else:
                why = say("it is GGUF version {version}, and versions 2 and 3 are read", version=version)
            remedy = say("Choose a little-endian file of version 2 or 3.")
            raise GreenroomError(say("{name} cannot be read", name=self._path.name), why, remedy)

    # Key-values

    def _value(self, key: str, kind: int) -> Any:
        if kind == _STRING:
            return self._text(_MAX_STRING_BYTES).decode("utf-8", "replace")
        scalar = _SCALARS.get(kind)
        if scalar is None:
            self._refuse(say("setting {key} is of unknown type {kind}", key=shown(key), kind=kind))
        return scalar.unpack(self._take(scalar.size))[0]

    def _array(self, key: str) -> StoredArray:
        """Step over an array's elements."""
        kind, count = self._u32(), self._u64()
        start = self._at
        if kind in _SCALARS:
            self._skip(count * _SCALARS[kind].size)
        elif kind == _STRING:
            self._skip_strings(count)
        else:
            self._refuse(say("setting {key} is an array of unknown type {kind}", key=shown(key), kind=kind))
        return StoredArray(kind, count, start, self._at - start)

    def _elements(self, array: StoredArray) -> Iterator[Any]:
        """Elements of an array that was just stepped over."""
        self._elements_left -= array.count
        if self._elements_left < 0:
            self._refuse(say("its header has longer lists than any model"))
        end, self._at = self._at, array.offset
        for _ in range(array.count):
            yield self._value("", array.kind)
        self._at = end

    def _skip_strings(self, count: int) -> None:
        self._strings_left -= count
        if self._strings_left < 0:
            self._refuse(say("its header claims more strings than any model has, {count:,} in a list", count=count))
        if count * 8 > self._size - self._at:
            self._ends()
        unpack = _LENGTH.unpack_from
        while count:
            window = self._peek(min(_WINDOW, self._size - self._at))
            at, last = 0, len(window) - 8
            while count and at <= last:
                at += 8 + unpack(window, at)[0]
                count -= 1
            self._skip(at or 8)

    # Tensor records

    def _tensors(self, count: int, config: Mapping[str, Any]) -> dict[str, TensorInfo]:
        alignment = config.get("general.alignment", GGUF_DEFAULT_ALIGNMENT)
        if type(alignment) is not int or not 0 < alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
            told = alignment[:40] if isinstance(alignment, str) else alignment
            self._refuse(say("its data alignment is {alignment!r}, not a power of two", alignment=told))
        records = [self._record() for _ in range(count)]
        data_start = -(-self._at // alignment) * alignment
        tensors: dict[str, TensorInfo] = {}
        foreign: dict[str, str] = {}
        for name, shape, kind, offset in records:
            if name in tensors or name in foreign:
                self._refuse(say("it holds tensor {name} twice", name=shown(name)))
            form = _STORED.get(kind)
            if form is None:
                foreign[name] = kind
                continue
            if (shape and shape[-1] % form.block_values) or (not shape and form.block_values > 1):
                self._refuse(
                    say("tensor {name} has rows that are no whole blocks of {kind}", name=shown(name), kind=kind)
                )
            if kind in WIDENED and len(shape) not in (2, 3):
                self._refuse(
                    say(
                        "tensor {name} of type {kind} has the impossible shape {shape}",
                        name=shown(name),
                        kind=kind,
                        shape=list(shape),
                    )
                )
            if offset % alignment:
                self._refuse(
                    say(
                        "tensor {name} does not start at a multiple of {alignment} bytes",
                        name=shown(name),
                        alignment=alignment,
                    )
                )
            nbytes = math.prod(shape) // form.block_values * form.block_bytes
            tensors[name] = TensorInfo(name, shape, kind, self._path, data_start + offset, nbytes)
        if foreign:
            self._refuse_formats(foreign)
        end = max((t.offset + t.nbytes for t in tensors.values()), default=0)
        if end > self._size:
            self._refuse(cut_short(self._size, end))
        check_overlap(tensors)
        return tensors

    def _record(self) -> tuple[str, tuple[int, ...], str, int]:
        """name, shape (row-major), format, offset into the data section."""
        name = self._name(_MAX_NAME_BYTES)
        dimensions = self._u32()
        if dimensions > _MAX_DIMENSIONS:
            self._refuse(say("tensor {name} claims {dimensions:,} dimensions", name=shown(name), dimensions=dimensions))
        shape = tuple(reversed([self._u64() for _ in range(dimensions)]))
        # 2**60 values can be neither stored nor addressed; the bound also keeps every product within 64 bits.
        if not all(shape) or math.prod(shape) >= 1 << 60:
            self._refuse(say("tensor {name} has the impossible shape {shape}", name=shown(name), shape=list(shape)))
        kind, offset = self._u32(), self._u64()
        known = kind in GGMLQuantizationType._value2member_map_ and GGMLQuantizationType(kind) in GGML_QUANT_SIZES
        return name, shape, GGMLQuantizationType(kind).name if known else f"type {kind}", offset

    def _refuse_formats(self, foreign: Mapping[str, str]) -> NoReturn:
        name, kind = next(iter(foreign.items()))
        others = sorted(set(foreign.values()) - {kind})
        also = say(" (others as {types})", types=", ".join(others[:5])) if others else ""
        why = say(
            "tensor {name} is stored as {kind}{also}, which is not supported yet",
            name=shown(name),
            kind=kind,
            also=also,
        )
        remedy = say("Choose a file that uses only {stored}.", stored=", ".join(_STORED))
        raise GreenroomError(say("{name} cannot be used", name=self._path.name), why, remedy)

    # Primitives

    def _refuse(self, why: str) -> NoReturn:
        _damaged(self._path, why)

    def _ends(self) -> NoReturn:
        self._refuse(
            say(
                "its header runs past the end of the file ({size}): it is cut short or damaged",
                size=size_text(self._size),
            )
        )

    def _skip(self, count: int) -> None:
        if count > self._size - self._at:
            self._ends()
        self._at += count
        if self._at > _MAX_HEADER_BYTES:
            self._refuse(
                say(
                    "its header goes on for more than {max_header_bytes}", max_header_bytes=size_text(_MAX_HEADER_BYTES)
                )
            )

    def _peek(self, count: int) -> memoryview:
        """Up to count bytes from here on, fewer only at the end of the file."""
        start = self._at - self._window_start
        if start < 0 or start + count > len(self._window):
            self._file.seek(self._at)
            self._window = self._file.read(max(count, _WINDOW))
            self._window_start, start = self._at, 0
        return memoryview(self._window)[start : start + count]

    def _take(self, count: int) -> memoryview:
        if count > self._size - self._at:
            self._ends()
        data = self._peek(count)
        if len(data) < count:
            self._ends()
        self._skip(count)
        return data

    def _u32(self) -> int:
        return int.from_bytes(self._take(4), "little")

    def _u64(self) -> int:
        return int.from_bytes(self._take(8), "little")

    def _text(self, limit: int) -> bytes:
        length = self._u64()
        if length > self._size - self._at:
            self._ends()
        if length > limit:
            self._refuse(say("its header holds a text of {length}", length=size_text(length)))
        return bytes(self._take(length))

    def _name(self, limit: int) -> str:
        data = self._text(limit)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            self._refuse(say("the name {value!a} in its header is no UTF-8 text", value=data[:40]))
