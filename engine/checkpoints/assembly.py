"""Tensors that are put together while they are read: a quantised matrix from the tensors a file spreads it over.

Every stored bit is kept; bytes only change places. Work goes row by row in chunks, so that beside the result there is
never more than a few megabytes, or one stored matrix where a file keeps it transposed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn, cast

import numpy as np
import numpy.typing as npt

from engine.checkpoints.blocks import I4_MIDDLE, BlockLayout, Bytes, Floats
from engine.checkpoints.checkpoint import TensorInfo
from engine.checkpoints.file_bytes import DOWNLOAD_AGAIN, read_bytes, shown
from engine.checkpoints.formats import FORMATS
from engine.errors import GreenroomError
from engine.words import say

Integers = npt.NDArray[np.int32]

#: Bytes of result made at a time: what is in work then stays in a core's cache.
_CHUNK = 1 << 19


@dataclass(frozen=True, slots=True)
class Assembly(ABC):
    """info: the tensor as it is shown, [rows, columns] or a stack [n, rows, columns]."""

    info: TensorInfo

    def read(self, index: int | None, rows: tuple[int, int] | None) -> Bytes:
        """As `Checkpoint.read`, for an index and rows that the tensor has."""
        shape, form = self.info.shape, FORMATS[self.info.format]
        start, stop = rows or (0, shape[-2])
        matrices: Sequence[int] = [index or 0]
        if len(shape) == 2:
            matrices = [0]
            start, stop = (start, stop) if index is None else (index, index + 1)
        elif index is None:
            matrices = range(shape[0])
        row_bytes = shape[-1] // form.block_values * form.block_bytes
        out = np.empty((len(matrices), stop - start, row_bytes), np.uint8)
        for place, matrix in zip(out, matrices, strict=True):
            if place.size:
                self.fill(place, matrix, start)
        return out.reshape(-1)

    @abstractmethod
    def fill(self, out: Bytes, matrix: int, start: int) -> None:
        """out: uint8 [n, row bytes], to hold rows start .. start + n of a matrix of the stack."""

    def factors(self) -> Floats | None:
        """float32 [1], or [n] of a stack: what the values are to be multiplied with. None for 1."""
        return None

    def column_order(self) -> Integers | None:
        """See `Checkpoint.column_order`."""
        return None


def stored_rows(part: TensorInfo, matrix: int, start: int, stop: int) -> Bytes:
    """uint8 [stop - start, row bytes] of a stored tensor [(stack,) rows, ...]."""
    stacked = len(part.shape) > 2
    rows = part.shape[1 if stacked else 0]
    row_bytes = part.nbytes // (rows * (part.shape[0] if stacked else 1))
    return read_bytes(part.path, part.offset + (matrix * rows + start) * row_bytes, (stop - start) * row_bytes).reshape(
        stop - start, row_bytes
    )


def chunks(out: Bytes, start: int) -> Iterator[tuple[Bytes, int, int]]:
    """Rows of out a few at a time: (part of out, its first row in the matrix, the row behind its last)."""
    step = max(8, _CHUNK // out.shape[1] // 8 * 8)  # eight rows of AWQ share their words
    for at in range(0, len(out), step):
        part = out[at : at + step]
        yield part, start + at, start + at + len(part)


def e8m0_to_bfloat16(exponents: Bytes) -> Bytes:
    """uint8 [..., n] -> bytes of bfloat16 [..., 2 n]: 2 ** (e - 127), which is exact; 255 is NaN."""
    bits = exponents.astype("<u2") << np.uint16(7)
    bits[exponents == 0] = 0x0040  # 2 ** -127 lies below bfloat16's smallest normal number
    bits[exponents == 255] = 0x7FC0
    return bits.view(np.uint8)


def nibbles(packed: Bytes) -> Bytes:
    """uint8 [..., n] -> the low and high half of every byte, [..., 2 n]."""
    values = np.empty((*packed.shape, 2), np.uint8)
    np.bitwise_and(packed, 15, out=values[..., 0])
    np.right_shift(packed, 4, out=values[..., 1])
    return values.reshape(*packed.shape[:-1], -1)


def pack_nibbles(values: Bytes) -> Bytes:
    """The inverse: uint8 [..., 2 n] below 16 -> [..., n]."""
    pairs = values.view("<u2")
    return cast(Bytes, (pairs | pairs >> np.uint16(4)).astype(np.uint8))


def refuse(part: TensorInfo, why: str) -> NoReturn:
    raise GreenroomError(
        say("{name} cannot be used", name=part.path.name),
        say("tensor {name} {why}", name=shown(part.name), why=why),
        DOWNLOAD_AGAIN,
    )


@dataclass(frozen=True, slots=True)
class Scales:
    """Where a row's scales come from.

    part:    [(stack,) R, G] of the layout's scale, or of one-byte exponents (e8m0)
    shape:   (R, G)
    rows:    how many rows share one row of scales
    columns: how many columns share one scale
    """

    part: TensorInfo
    shape: tuple[int, int]
    rows: int
    columns: int

    def read(self, layout: BlockLayout, matrix: int, start: int, stop: int, blocks: int) -> Bytes:
        """uint8 [stop - start, blocks, scale bytes]."""
        first, last = start // self.rows, (stop - 1) // self.rows + 1
        row_bytes = self.part.nbytes // (self.part.shape[0] if len(self.part.shape) > 2 else 1) // self.shape[0]
        at = self.part.offset + (matrix * self.shape[0] + first) * row_bytes
        data = read_bytes(self.part.path, at, (last - first) * row_bytes)
        if row_bytes == self.shape[1]:
            data = e8m0_to_bfloat16(data)
        scales = data.reshape(last - first, self.shape[1], layout.scale_bytes)
        if self.columns != layout.group:
            scales = scales[:, np.arange(blocks) * layout.group // self.columns]
        if self.rows > 1:
            scales = scales[np.arange(start, stop) // self.rows - first]
        return scales


@dataclass(frozen=True, slots=True)
class PackedZeros:
    """Zero points [rows, G] of `bits`, packed along the rows into int32 [ceil(rows * bits / 32), G], low bits first."""

    part: TensorInfo
    bits: int

    def read(self, start: int, stop: int) -> Bytes:
        """uint8 [stop - start, G]."""
        each = 32 // self.bits
        first, last = start // each, (stop - 1) // each + 1
        words = stored_rows(self.part, 0, first, last).view("<u4")
        rows = np.arange(start, stop)
        shifts = (rows % each * self.bits).astype(np.uint32)[:, None]
        return (words[rows // each - first] >> shifts & np.uint32((1 << self.bits) - 1)).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class SignedZeros:
    """Zero points int8 [rows, G]; codes and zeros are both shifted by 128, which leaves their difference as it is."""

    part: TensorInfo

    def read(self, start: int, stop: int) -> Bytes:
        return stored_rows(self.part, 0, start, stop) ^ np.uint8(0x80)


def group_order(part: TensorInfo, group: int) -> Integers | None:
    """The order that brings columns of one group together, from a g_idx [columns]; None when they are so already."""
    groups = read_bytes(part.path, part.offset, part.nbytes).view("<i4")
    expected = np.arange(len(groups)) // group
    if np.array_equal(groups, expected):
        return None
    order = np.argsort(groups, kind="stable").astype(np.int32)
    if not np.array_equal(groups[order], expected):
        refuse(
            part,
            say("does not put %n columns into every group", n=group, one="does not put %n column into every group"),
        )
    return order


@dataclass(frozen=True, slots=True)
class Quantised(Assembly):
    """Codes in rows, as FP8 files and compressed-tensors have them.

    codes: [(stack,) rows, code bytes of a row] in the layout's own order
    flip:  whether the top bit of eight-bit codes is turned (128 more or less)
    order: g_idx, and how many columns it puts into a group
    """

    layout: BlockLayout
    codes: TensorInfo
    scales: Scales
    zeros: PackedZeros | SignedZeros | None = None
    flip: bool = False
    order: tuple[TensorInfo, int] | None = None

    def fill(self, out: Bytes, matrix: int, start: int) -> None:
        order = self.column_order()
        blocks = self.info.shape[-1] // self.layout.group
        for part, first, last in chunks(out, start):
            codes = stored_rows(self.codes, matrix, first, last)
            if self.flip:
                codes ^= np.uint8(0x80)
            if order is not None:
                codes = in_order(codes, order, self.layout)
            zeros = None
            if self.zeros is not None:
                zeros = self._spread(self.zeros.read(first, last), blocks)
            self.layout.put_together(part, self.scales.read(self.layout, matrix, first, last, blocks), zeros, codes)

    def _spread(self, zeros: Bytes, blocks: int) -> Bytes:
        if self.scales.columns == self.layout.group:
            return zeros
        return zeros[:, np.arange(blocks) * self.layout.group // self.scales.columns]

    def column_order(self) -> Integers | None:
        return group_order(*self.order) if self.order else None


def in_order(codes: Bytes, order: Integers, layout: BlockLayout) -> Bytes:
    """Codes of rows with their columns in another order."""
    if layout.code != "I4":
        return np.take(codes, order, axis=1)
    return pack_nibbles(np.take(nibbles(codes), order, axis=1))


@dataclass(frozen=True, slots=True)
class Transposed(Assembly):
    """Codes in columns, as GPTQ and AWQ keep them.

    weights: int32 [K * bits / 32, N], packed along K (GPTQ); [K, N * bits / 32] in an order of its own (AWQ)
    scales:  float16 [G, N]
    zeros:   int32 [G, N * bits / 32]; zero_offset is to be added to each. None: the middle, and no zero in blocks.
    group:   columns that share a scale
    order:   GPTQ's g_idx [K]
    Where the layout has no zero, every zero point must be the middle.
    """

    layout: BlockLayout
    weights: TensorInfo
    scales: TensorInfo
    group: int
    zeros: TensorInfo | None = None
    zero_offset: int = 0
    awq: bool = False
    order: TensorInfo | None = None

    def fill(self, out: Bytes, matrix: int, start: int) -> None:
        rows, columns = self.info.shape
        groups = self.scales.shape[0]
        order = self.column_order()
        blocks = columns // self.layout.group
        block_groups = np.arange(blocks) * self.layout.group // self.group
        words = _whole(self.weights).view("<u4").reshape(self.weights.shape)
        scales = _whole(self.scales).view("<u2" if self.layout.scale_bytes == 2 else "<u4").reshape(groups, rows)
        zeros = self._zero_points(groups)
        for part, first, last in chunks(out, start):
            codes = self._codes(words, first, last, order)
            if self.layout.code == "I8" and not self.layout.zero:
                codes = codes ^ np.uint8(0x80)
            part_scales = np.ascontiguousarray(scales[block_groups, first:last].T)
            part_zeros = None if zeros is None else zeros[block_groups, first:last].T
            self.layout.put_together(
                part,
                part_scales.view(np.uint8).reshape(last - first, blocks, self.layout.scale_bytes),
                part_zeros,
                codes,
            )

    def column_order(self) -> Integers | None:
        return group_order(self.order, self.group) if self.order else None

    def _codes(self, words: npt.NDArray[np.uint32], first: int, last: int, order: Integers | None) -> Bytes:
        """uint8 [last - first, code bytes of a row] in the layout's order."""
        if not self.awq:
            if order is None:
                # Eight (or four) consecutive columns of a row are one word: already the layout's order.
                return np.ascontiguousarray(words[:, first:last].T).view(np.uint8)
            # Each stored byte is two columns (or one) of one row. Picking them while rows lie side by side is
            # four times as fast as doing it within each row.
            quads = np.ascontiguousarray(words[:, first:last]).view(np.uint8).reshape(len(words), last - first, 4)
            stored = quads.transpose(0, 2, 1).reshape(-1, last - first)
            if self.layout.code != "I4":
                return np.ascontiguousarray(stored[order].T)
            values = stored[order // 2] >> (order % 2 * 4).astype(np.uint8)[:, None] & np.uint8(15)
            return np.ascontiguousarray((values[0::2] | values[1::2] << np.uint8(4)).T)
        # A word is eight rows of one column; a byte of ours is two columns of one row.
        low, high = first // 8, -(-last // 8)
        pairs = np.ascontiguousarray(words[:, low:high]).view(np.uint8).reshape(-1, 2, high - low, 4)
        even, odd = pairs[:, 0], pairs[:, 1]
        packed = np.empty((high - low, 8, len(even)), np.uint8)
        halves = ((even & 15) | odd << np.uint8(4), even >> np.uint8(4) | (odd & 0xF0))
        for byte in range(4):
            for half in range(2):
                packed[:, _AWQ_ORDER[2 * byte + half]] = halves[half][:, :, byte].T
        return packed.reshape(-1, len(even))[first - 8 * low : last - 8 * low]

    def _zero_points(self, groups: int) -> Bytes | None:
        """uint8 [G, N]; None when the layout has none."""
        middle = I4_MIDDLE if self.layout.code == "I4" else 128
        if self.zeros is None:
            return None
        stored = _whole(self.zeros).reshape(groups, -1)
        if self.layout.code == "I4":
            stored = nibbles(stored)
        if self.awq:
            stored = stored.reshape(groups, -1, 8)[..., np.argsort(_AWQ_ORDER)].reshape(groups, -1)
        values = stored.astype(np.uint16) + np.uint16(self.zero_offset)
        if not self.layout.zero:
            if not (values == middle).all():
                refuse(
                    self.zeros,
                    say("holds zero points other than {middle}, although config.json says symmetric", middle=middle),
                )
            return None
        if values.max(initial=0) > 255:
            refuse(self.zeros, say("holds a zero point of 256, which no eight-bit code can have"))
        return values.astype(np.uint8)


#: Which of eight neighbouring rows the nibbles of an AWQ word belong to, lowest nibble first.
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def _whole(part: TensorInfo) -> Bytes:
    return read_bytes(part.path, part.offset, part.nbytes)


@dataclass(frozen=True, slots=True)
class Fp4(Assembly):
    """Four-bit floats: pairs of neighbours in a byte, put into the blocks of GGUF's MXFP4 or NVFP4.

    codes:  uint8 [(stack,) rows, K / 2]; the last axis may be split
    scales: [(stack,) rows, K / 32] e8m0 exponents (MXFP4), [.., K / 16] e4m3 (NVFP4)
    factor: of NVFP4, float32, one value or one per matrix of the stack; its reciprocal counts where `reciprocal`
    """

    codes: TensorInfo
    scales: TensorInfo
    factor: TensorInfo | None = None
    reciprocal: bool = False

    def fill(self, out: Bytes, matrix: int, start: int) -> None:
        for part, first, last in chunks(out, start):
            codes = stored_rows(self.codes, matrix, first, last)
            scales = stored_rows(self.scales, matrix, first, last)
            if self.info.format == "MXFP4":
                blocks = part.reshape(len(part), -1, 17)
                blocks[..., 0] = scales
                blocks[..., 1:] = _apart(codes.reshape(len(part), -1, 2, 8))
            else:
                if (scales >= 0x7F).any():
                    refuse(self.scales, say("holds a scale that is negative or no number"))
                blocks = part.reshape(len(part), -1, 36)
                blocks[..., :4] = scales.reshape(len(part), -1, 4)
                blocks[..., 4:] = _apart(codes.reshape(len(part), -1, 2, 4)).reshape(len(part), -1, 32)

    def factors(self) -> Floats | None:
        if self.factor is None:
            return None
        values = _whole(self.factor).view("<f4").astype(np.float32)
        with np.errstate(divide="ignore"):
            factors = np.float32(1) / values if self.reciprocal else values
        if not (np.isfinite(factors) & (factors >= 0)).all():
            refuse(self.factor, say("is not a positive number"))
        return factors


def _apart(codes: Bytes) -> Bytes:
    """Neighbours in a byte -> halves of a block in a byte: uint8 [..., 2, n] -> [..., 2 n].

    Of 4 n values, byte j shall hold value j low and value 2 n + j high. Two bytes of the result come from one byte of
    each half, so they are made together as one little-endian number of 16 bits.
    """
    low, high = codes[..., 0, :].astype("<u2"), codes[..., 1, :].astype("<u2")
    apart = low & np.uint16(0x0F) | (high & np.uint16(0x0F)) << np.uint16(4)
    apart |= ((low & np.uint16(0xF0)) | (high & np.uint16(0xF0)) << np.uint16(4)) << np.uint16(4)
    return apart.view(np.uint8)
