"""Which stored tensors of a safetensors folder make up one matrix, told by their names, dtypes and shapes.

What a tensor shows is believed before what config.json says, so modules that were excluded from quantisation, layers
with other bits, and experts stored one by one or stacked need no lists. config.json is asked only for what no tensor
shows: whether the method is known at all, how GPTQ stored zero points, and how wide packed integers are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from engine.checkpoints.assembly import (
    Assembly,
    Fp4,
    PackedZeros,
    Quantised,
    Scales,
    SignedZeros,
    Transposed,
)
from engine.checkpoints.blocks import GROUPS, BlockLayout
from engine.checkpoints.checkpoint import TensorInfo
from engine.checkpoints.file_bytes import DOWNLOAD_AGAIN, read_bytes, shown
from engine.checkpoints.quantisation_config import QuantisationConfig, read_config
from engine.errors import GreenroomError
from engine.words import say

_PLAIN = ("F32", "F16", "BF16")
#: Of leftover buffers (positions, masks, shapes), never of weights.
_BUFFERS = ("I64", "BOOL")
_EXPONENTS = ("F8_E8M0", "U8")


def recognise(
    stored: Mapping[str, TensorInfo], config: Mapping[str, Any], folder: Path
) -> tuple[dict[str, TensorInfo], dict[str, Assembly]]:
    """The tensors as they are shown, and how to put those together that are not simply stored.

    Raises GreenroomError when the method is not known, or tensors do not fit together.
    """
    recogniser = _Recogniser(stored, read_config(config, folder))
    recogniser.run()
    return recogniser.tensors, recogniser.assemblies


class _Recogniser:
    def __init__(self, stored: Mapping[str, TensorInfo], config: QuantisationConfig) -> None:
        self._stored = stored
        self._config = config
        self._parts: set[str] = set()
        self.tensors: dict[str, TensorInfo] = {}
        self.assemblies: dict[str, Assembly] = {}

    def run(self) -> None:
        for name, part in self._stored.items():
            last = name.rpartition(".")[2]
            if part.format in _PLAIN:
                continue
            if last == "qweight":
                self._transposed(name.removesuffix("qweight") + "weight", part)
            elif last == "weight_packed":
                self._packed(name.removesuffix("_packed"), part)
            elif last.endswith("_blocks") and part.format == "U8":
                self._mxfp4_stack(name.removesuffix("_blocks"), part)
            elif last == "weight" and part.format == "U8":
                self._nvfp4(name, part, name + "_scale_2", reciprocal=False)
            elif part.format == "F8_E4M3" and not last.endswith(("_scale", "_scale_inv")):
                self._rows(name, part, "E4M3")
            elif last == "weight" and part.format == "I8":
                self._rows(name, part, "I8")
        self._keep_the_rest()

    def _keep_the_rest(self) -> None:
        for name, part in self._stored.items():
            if name in self._parts or part.format in _BUFFERS:
                continue
            if part.format not in _PLAIN:
                why = say(
                    "tensor {name} is stored as {format}, which is not supported there",
                    name=shown(name),
                    format=part.format,
                )
                remedy = say("Choose a model that uses only {plain}, or another quantisation.", plain=", ".join(_PLAIN))
                raise GreenroomError(say("{name} cannot be used", name=part.path.name), why, remedy)
            if name in self.tensors:
                _fail(part, say("is stored twice, plain and quantised"))
            self.tensors[name] = part

    # One method for each form a matrix may have. `name` is what it is shown as.

    def _transposed(self, name: str, codes: TensorInfo) -> None:
        """GPTQ and AWQ: qweight, scales, qzeros, g_idx."""
        base, config = name.removesuffix("weight"), self._config
        awq = config.awq
        if not awq and config.zero_offset is None:
            _fail(codes, say("is GPTQ's or AWQ's, but config.json does not say which"))
        scales = self._part(base + "scales", _PLAIN)
        zeros = self._optional(base + "qzeros", ("I32",))
        index = self._optional(base + "g_idx", ("I32",))
        _expect(codes, codes.format == "I32" and len(codes.shape) == 2 and math.prod(codes.shape) > 0)
        _expect(scales, len(scales.shape) == 2 and math.prod(scales.shape) > 0)
        groups, rows = scales.shape
        if awq:
            bits, columns = 32 * codes.shape[1] // rows, codes.shape[0]
        else:
            bits = 32 * zeros.shape[-1] // rows if zeros and zeros.shape else config.bits
            columns = 32 * codes.shape[0] // max(bits, 1)
        if bits not in ((4,) if awq else (4, 8)):
            _fail(codes, say("has {bits}-bit codes, which are not supported", bits=bits))
        group = min(config.group_size or columns, columns)
        if groups != -(-columns // group) and columns % groups == 0:
            group = columns // groups  # other groups than the model's usual ones
        _expect(codes, codes.shape == ((columns, rows * bits // 32) if awq else (columns * bits // 32, rows)))
        _expect(scales, groups == -(-columns // group))
        _expect(zeros, zeros is None or zeros.shape == (groups, rows * bits // 32))
        _expect(index, index is None or index.shape == (columns,))
        middle = zeros is None or (config.symmetric and not awq)
        layout = _layout(codes, "I4" if bits == 4 else "I8", columns, group, scales.format, zero=not middle)
        info = self._info(name, (rows, columns), layout.name, "AWQ" if awq else "GPTQ", codes, scales, zeros, index)
        self._show(
            Transposed(info, layout, codes, scales, group, zeros, config.zero_offset or 0, awq, None if awq else index)
        )

    def _packed(self, name: str, codes: TensorInfo) -> None:
        """compressed-tensors: integers packed into int32, or four-bit floats into uint8."""
        if codes.format == "U8":
            scale = self._part(name + "_scale", ("F8_E4M3", *_EXPONENTS))
            if scale.format in _EXPONENTS:
                self._mxfp4(name, codes, scale)
            else:
                self._nvfp4(name, codes, name + "_global_scale", reciprocal=True)
            return
        scales = self._part(name + "_scale", _PLAIN)
        zeros = self._optional(name + "_zero_point", ("I32",))
        index = self._optional(name + "_g_idx", ("I32",))
        logical = self._optional(name + "_shape", ("I64", "I32"))
        _expect(codes, codes.format == "I32" and len(codes.shape) == 2 and math.prod(codes.shape) > 0)
        _expect(scales, len(scales.shape) == 2 and scales.shape[0] == codes.shape[0] and scales.shape[1] > 0)
        rows, groups = scales.shape
        bits, group = self._width(codes, groups, logical)
        columns = codes.shape[1] * 32 // bits
        _expect(zeros, zeros is None or zeros.shape == (-(-rows * bits // 32), groups))
        _expect(index, index is None or index.shape == (columns,))
        layout = _layout(codes, "I4" if bits == 4 else "I8", columns, group, scales.format, zero=zeros is not None)
        info = self._info(name, (rows, columns), layout.name, "compressed-tensors", codes, scales, zeros, index)
        self._show(
            Quantised(
                info,
                layout,
                codes,
                Scales(scales, (rows, groups), 1, group),
                PackedZeros(zeros, bits) if zeros else None,
                # Codes are stored 128 up: I8 without a zero is signed, with one it is not.
                flip=bits == 8 and zeros is None,
                order=(index, group) if index else None,
            )
        )

    def _width(self, codes: TensorInfo, groups: int, logical: TensorInfo | None) -> tuple[int, int]:
        """Bits of a packed code and columns per scale: what config.json allows and the shapes agree with."""
        words = codes.shape[1]
        found = set()
        for bits, size in self._config.packed:
            columns = 32 * words // bits
            if (bits in (4, 8)) and (size * groups == columns or (not size and groups == 1)):
                found.add((bits, columns // groups))
        if len(found) > 1 and logical is not None and logical.nbytes >= 16:
            columns = int(read_bytes(logical.path, logical.offset, 16).view("<i8")[1])
            found = {(bits, size) for bits, size in found if 32 * words // bits == columns}
        if len(found) != 1:
            _fail(
                codes,
                say(
                    "has no width that config.json gives (4 or 8 bits; words in a row: {words}, groups: {groups})",
                    words=words,
                    groups=groups,
                ),
            )
        return found.pop()

    def _rows(self, name: str, codes: TensorInfo, code: str) -> None:
        """FP8 and int8: a byte a value, scales by tensor, row, group of columns, or square."""
        scales = self._optional(name + "_scale_inv", (*_PLAIN, *_EXPONENTS))
        scales = scales if scales is not None else self._part(name + "_scale", (*_PLAIN, *_EXPONENTS))
        zeros = self._optional(name + "_zero_point", ("I8",)) if code == "I8" else None
        _expect(codes, len(codes.shape) in (2, 3) and math.prod(codes.shape) > 0)
        grid, per_rows, per_columns = self._grid(codes, scales)
        _expect(zeros, zeros is None or (zeros.shape == grid and per_rows == 1))
        scale = "BF16" if scales.format in _EXPONENTS else scales.format
        layout = _layout(codes, code, codes.shape[-1], per_columns, scale, zero=zeros is not None)
        info = self._info(name, codes.shape, layout.name, "FP8" if code == "E4M3" else "int8", codes, scales, zeros)
        spread = Scales(scales, grid, per_rows, per_columns)
        shifted = SignedZeros(zeros) if zeros else None
        self._show(Quantised(info, layout, codes, spread, shifted, flip=zeros is not None))

    def _grid(self, codes: TensorInfo, scales: TensorInfo) -> tuple[tuple[int, int], int, int]:
        """(R, G) of the scales of a matrix, and how many rows and columns of codes share one."""
        *stack, rows, columns = codes.shape
        grid = scales.shape
        if stack:
            _expect(scales, len(grid) == 3 and grid[0] == stack[0])
            grid = grid[1:]
        if math.prod(grid) == 1:
            return (1, 1), rows, columns
        if grid in ((rows,), (rows, 1)):
            return (rows, 1), 1, columns
        per_rows, per_columns = self._config.block
        if grid == (-(-rows // per_rows), -(-columns // per_columns)):
            return (grid[0], grid[1]), per_rows, per_columns
        _expect(scales, len(grid) == 2 and grid[0] == rows and grid[1] > 0 and columns % grid[1] == 0)
        return (rows, grid[1]), 1, columns // grid[1]

    def _nvfp4(self, name: str, codes: TensorInfo, factor: str, *, reciprocal: bool) -> None:
        """Blocks of 16 four-bit floats with an e4m3 scale each, and one float32 for the matrix."""
        scales = self._part(name + "_scale", ("F8_E4M3",))
        factors = self._part(factor, ("F32",))
        _expect(codes, len(codes.shape) in (2, 3) and math.prod(codes.shape) > 0)
        if codes.shape[-1] % 32:
            _fail(codes, say("has rows that are no whole blocks of 64 values"))
        _expect(scales, scales.shape == (*codes.shape[:-1], codes.shape[-1] // 8))
        matrices = codes.shape[0] if len(codes.shape) == 3 else 1
        _expect(factors, math.prod(factors.shape) in (1, matrices))
        shape = (*codes.shape[:-1], 2 * codes.shape[-1])
        info = self._info(name, shape, "NVFP4", "NVFP4", codes, scales, factors)
        self._show(Fp4(info, codes, scales, factor=factors, reciprocal=reciprocal))

    def _mxfp4(self, name: str, codes: TensorInfo, scales: TensorInfo) -> None:
        """Blocks of 32 four-bit floats with a power of two each."""
        _expect(codes, len(codes.shape) in (2, 3) and math.prod(codes.shape) > 0)
        if codes.shape[-1] % 16:
            _fail(codes, say("has rows that are no whole blocks of 32 values"))
        _expect(scales, scales.shape == (*codes.shape[:-1], codes.shape[-1] // 16))
        info = self._info(name, (*codes.shape[:-1], 2 * codes.shape[-1]), "MXFP4", "MXFP4", codes, scales)
        self._show(Fp4(info, codes, scales))

    def _mxfp4_stack(self, name: str, codes: TensorInfo) -> None:
        """The same for all experts of a layer: blocks [experts, rows, groups, 16], scales [experts, rows, groups]."""
        scales = self._part(name + "_scales", _EXPONENTS)
        _expect(codes, len(codes.shape) == 4 and codes.shape[3] == 16 and math.prod(codes.shape) > 0)
        _expect(scales, scales.shape == codes.shape[:3])
        info = self._info(name, (*scales.shape[:2], 32 * scales.shape[2]), "MXFP4", "MXFP4", codes, scales)
        self._show(Fp4(info, codes, scales))

    # Parts

    def _optional(self, name: str, formats: Iterable[str]) -> TensorInfo | None:
        part = self._stored.get(name)
        if part is not None:
            if part.format not in formats:
                _fail(part, say("is stored as {format}", format=part.format))
            self._parts.add(name)
        return part

    def _part(self, name: str, formats: Iterable[str]) -> TensorInfo:
        part = self._optional(name, formats)
        if part is None:
            file = next(iter(self._stored.values())).path
            why = say("tensor {name}, which another one needs, is missing", name=shown(name))
            raise GreenroomError(say("{name} cannot be used", name=file.parent.name), why, DOWNLOAD_AGAIN)
        return part

    def _info(
        self, name: str, shape: tuple[int, ...], format: str, origin: str, first: TensorInfo, *parts: TensorInfo | None
    ) -> TensorInfo:
        self._parts.add(first.name)
        nbytes = 0
        for part in parts:
            if part is not None:
                self._parts.add(part.name)
                nbytes += part.nbytes
        return TensorInfo(name, shape, format, first.path, first.offset, first.nbytes + nbytes, origin)

    def _show(self, assembly: Assembly) -> None:
        name = assembly.info.name
        if name in self.tensors:
            _fail(assembly.info, say("is stored twice"))
        self.tensors[name] = assembly.info
        self.assemblies[name] = assembly


def _layout(codes: TensorInfo, code: str, columns: int, group: int, scale: str, *, zero: bool) -> BlockLayout:
    layout = _blocks(code, columns, group, scale, zero)
    if layout is None:
        _fail(
            codes,
            say(
                "has %n columns in groups of {group}, which are no multiples of {value}",
                n=columns,
                one="has %n column in groups of {group}, which is no multiple of {value}",
                group=group,
                value=GROUPS[-1],
            ),
        )
    return layout


@lru_cache(maxsize=256)
def _blocks(code: str, columns: int, group: int, scale: str, zero: bool) -> BlockLayout | None:
    """The widest blocks that neither a row nor a group of the file cuts."""
    for size in GROUPS:
        if columns % size == 0 and (group % size == 0 or group >= columns):
            return BlockLayout(code, size, scale, zero)
    return None


def _expect(part: TensorInfo | None, holds: bool) -> None:
    if not holds and part is not None:
        _fail(part, say("has shape {shape}, which does not fit the tensors it belongs to", shape=list(part.shape)))


def _fail(part: TensorInfo, why: str) -> NoReturn:
    raise GreenroomError(
        say("{name} cannot be used", name=part.path.name),
        say("tensor {name} {why}", name=shown(part.name), why=why),
        DOWNLOAD_AGAIN,
    )
