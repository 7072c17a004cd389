"""Packed experts back to numbers by torch operations, so that a device can use the very bytes that our kernels use.

The layouts are those of `native/core/kernels.h`; values are those of `_native.Experts.dequantise`, bit by bit. No
operation here waits for the device.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch

from engine import _native
from engine.placement.packing import CODES, STRIP_ROWS

Unpack = Callable[[torch.Tensor], torch.Tensor]

_GROUP = 32
_NL_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_MX_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
_SCALES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32}


#: Strips of a matrix.
ALL = slice(0, None)


@dataclass(frozen=True)
class PackedExpert:
    """How the bytes of one expert of a layer lie, all experts of the layer alike.

    formats:      of gate, up and down, as `_native.Experts.formats`
    strips:       per piece, pairs of a gate and an up strip and strips of down
    strip_nbytes: of gate, up and down
    hidden, intermediate: columns of gate and up, and of down
    tables:       what the codes of formats with a table stand for, float32 [16] on the device, by format
    """

    formats: tuple[str, str, str]
    strips: tuple[tuple[int, int], ...]
    strip_nbytes: tuple[int, int, int]
    hidden: int
    intermediate: int
    tables: Mapping[str, torch.Tensor]

    @classmethod
    def of(
        cls,
        experts: _native.Experts,
        hidden: int,
        intermediate: int,
        place: Callable[[torch.Tensor], torch.Tensor] = lambda table: table,
    ) -> PackedExpert:
        """place: brings a tensor to the device, once, so that unpacking never waits for the host"""
        formats = experts.formats
        tables = {
            form: place(torch.tensor(_TABLES[form], dtype=torch.float32)) for form in {*formats} if form in _TABLES
        }
        return cls(formats, tuple(experts.strips), experts.strip_nbytes, hidden, intermediate, tables)

    @property
    def nbytes(self) -> int:
        return self._edges()[-1]

    def gate_up(self, packed: torch.Tensor, strips: slice = ALL) -> torch.Tensor:
        """uint8 [N, nbytes] of N experts -> float32 [N, 2 I, H], gate above up; or of some strips of 16 rows each."""
        gate, up, _ = self.strip_nbytes
        both = [
            piece[:, : pairs * (gate + up)].reshape(len(packed), pairs, gate + up)
            for piece, (pairs, _) in zip(self._pieces(packed), self.strips, strict=True)
        ]
        joined = (both[0] if len(both) == 1 else torch.cat(both, 1))[:, strips]
        rows, columns = _rows(self.intermediate, strips), self.hidden
        if self.formats[0] == self.formats[1]:
            # Both at once: half the operations.
            values = self._matrix(0, joined.reshape(len(packed), -1, gate), columns)
            pairs = values.reshape(len(packed), -1, 2, STRIP_ROWS, columns).transpose(1, 2)
            return pairs.reshape(len(packed), 2, -1, columns)[:, :, :rows].reshape(len(packed), 2 * rows, columns)
        parts = [self._matrix(0, joined[:, :, :gate], columns), self._matrix(1, joined[:, :, gate:], columns)]
        return torch.cat([part[:, :rows] for part in parts], 1)

    def down(self, packed: torch.Tensor, strips: slice = ALL) -> torch.Tensor:
        """uint8 [N, nbytes] -> float32 [N, H, I], or some strips of its rows."""
        size = self.strip_nbytes[2]
        parts = [
            piece[:, piece.shape[1] - downs * size :].reshape(len(packed), downs, size)
            for piece, (_, downs) in zip(self._pieces(packed), self.strips, strict=True)
        ]
        joined = (parts[0] if len(parts) == 1 else torch.cat(parts, 1))[:, strips]
        return self._matrix(2, joined, self.intermediate)[:, : _rows(self.hidden, strips)]

    def _matrix(self, part: int, strips: torch.Tensor, columns: int) -> torch.Tensor:
        """uint8 [N, strips, bytes of a strip] -> float32 [N, 16 strips, columns]."""
        form = self.formats[part]
        return _matrix(form, _unpacker(form, self.tables), strips, columns)

    def _pieces(self, packed: torch.Tensor) -> list[torch.Tensor]:
        return [packed[:, start:end] for start, end in pairwise(self._edges())]

    def _edges(self) -> list[int]:
        gate, up, down = self.strip_nbytes
        edges = [0]
        for pairs, downs in self.strips:
            edges.append(edges[-1] + pairs * (gate + up) + downs * down)
        return edges


def _rows(rows: int, strips: slice) -> int:
    """How many of a matrix' rows lie in these strips."""
    first: int = strips.start
    last: int = rows if strips.stop is None else min(rows, strips.stop * STRIP_ROWS)
    return last - first * STRIP_ROWS


def _matrix(form: str, unpack: Unpack, strips: torch.Tensor, columns: int) -> torch.Tensor:
    code = CODES[form]
    steps, step = -(-columns // code.group), STRIP_ROWS * code.group_bytes
    experts, count = strips.shape[:2]
    values = unpack(strips[:, :, : steps * step].reshape(experts, count, steps, step))
    return values.permute(0, 1, 3, 2, 4).reshape(experts, count * STRIP_ROWS, steps * code.group)[:, :, :columns]


def _unpacker(form: str, tables: Mapping[str, torch.Tensor]) -> Unpack:
    """Turns steps, uint8 [N, strips, steps, bytes], into float32 [N, strips, steps, 16 rows, columns of a step]."""
    if form in _UNPACKERS:
        return _UNPACKERS[form]
    if form in _WITH_TABLE:
        return partial(_WITH_TABLE[form], tables[form])
    match = re.fullmatch(r"(I4|I8|E4M3)_G(\d+)_(F16|BF16|F32)(_Z)?", form)
    if match is None:
        raise ValueError(f"no way to unpack {form} on a device")
    kind, columns, scale, zero = match.groups()
    if kind == "E4M3":
        return partial(_e4m3, int(columns), _SCALES[scale])
    return partial(_blocks, kind == "I4", int(columns), _SCALES[scale], zero is not None)


def _lanes(steps: torch.Tensor, at: int, loads: int) -> torch.Tensor:
    """uint8 [..., 16 rows, loads, 4]: each row's bytes of some loads."""
    part = steps[..., at : at + 64 * loads]
    return part.reshape(*part.shape[:-1], loads, STRIP_ROWS, 4).transpose(-3, -2)


def _nibbles(steps: torch.Tensor, at: int = 0) -> torch.Tensor:
    """uint8 [..., 16 rows, 32]"""
    codes = _lanes(steps, at, 4).flatten(-2)
    return torch.cat([codes & 15, codes >> 4], -1)


def _bytes(steps: torch.Tensor, at: int = 0, columns: int = _GROUP) -> torch.Tensor:
    """uint8 [..., 16 rows, columns]"""
    return _lanes(steps, at, columns // 4).flatten(-2)


def _bits(steps: torch.Tensor, at: int) -> torch.Tensor:
    """The fifth bits, uint8 [..., 16 rows, 32]."""
    lanes = _lanes(steps, at, 1)
    shifts = torch.arange(8, dtype=torch.uint8, device=steps.device)[:, None]
    return ((lanes >> shifts) & 1).flatten(-2)


def _pairs(steps: torch.Tensor, at: int) -> torch.Tensor:
    """Codes of two bits, uint8 [..., 16 rows, 32]."""
    lanes = _lanes(steps, at, 2)[..., :, None, :]
    shifts = torch.arange(0, 8, 2, dtype=torch.uint8, device=steps.device)[:, None]
    return ((lanes >> shifts) & 3).flatten(-3)


def _scales(steps: torch.Tensor, at: int, kind: torch.dtype = torch.float16, halves: int = 1) -> torch.Tensor:
    """float32 [..., 16 rows, halves]"""
    part = steps[..., at : at + STRIP_ROWS * kind.itemsize * halves].contiguous()
    values = part.view(kind).float()
    return values.reshape(*values.shape[:-1], halves, STRIP_ROWS).transpose(-2, -1)


def _spread(scales: torch.Tensor, columns: int = 16) -> torch.Tensor:
    """Each scale for so many columns: [..., n] -> [..., n * columns]."""
    return scales[..., None].expand(*scales.shape, columns).flatten(-2)


def _look_up(table: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    return table[codes.int()]


def _words(steps: torch.Tensor, at: int, loads: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The lower 24 bits, int32 [..., 16 rows, loads], and the upper bytes, uint8 of that shape."""
    lanes = _lanes(steps, at, loads)
    low = lanes.int()
    return low[..., 0] | low[..., 1] << 8 | low[..., 2] << 16, lanes[..., 3]


def _half(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """float32 of the two bytes of f16 numbers."""
    return torch.stack([low, high], -1).view(torch.float16)[..., 0].float()


def _groups(steps: torch.Tensor, at: int, nbytes: int, count: int = 8) -> torch.Tensor:
    """The groups behind a head: [..., bytes] -> [..., groups, bytes of one]."""
    part = steps[..., at : at + count * nbytes]
    return part.reshape(*part.shape[:-1], count, nbytes)


def _joined(values: torch.Tensor) -> torch.Tensor:
    """[..., groups, 16 rows, 32] -> [..., 16 rows, all columns]."""
    return values.transpose(-3, -2).flatten(-2)


def _int4(offset: int, steps: torch.Tensor) -> torch.Tensor:
    return _scales(steps, 256) * (_nibbles(steps).float() - offset)


def _int4_min(steps: torch.Tensor) -> torch.Tensor:
    return _scales(steps, 256) * _nibbles(steps).float() + _scales(steps, 288)


def _int4_nl(table: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    return _scales(steps, 256) * _look_up(table, _nibbles(steps))


def _int4_mx(table: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    exponents = steps[..., 256 : 256 + STRIP_ROWS].int()
    # Half of the scale, whose two smallest are subnormal: built from bits, so that none is flushed to zero.
    bits = torch.where(exponents < 2, 0x00200000 << exponents.clamp(max=1), (exponents - 1).clamp(min=0) << 23)
    return bits.view(torch.float32)[..., None] * _look_up(table, _nibbles(steps))


def _int4_nv(table: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    # A stored block of 64 columns makes two steps.
    groups = _groups(steps, 0, 288, steps.shape[-1] // 288)
    scales = (_scales_bytes(groups, 256).short() << 7).view(torch.float16).float() * 128.0
    return _joined(_look_up(table, _nibbles(groups)).mul_(_spread(scales)))


def _int4_xs(table: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    words, top = _words(steps, 0, 2)
    d = _half(top[..., 0], top[..., 1])[..., None, :, None]
    codes = _nibbles(_groups(steps, 128, 256))
    return _joined(d * (_six(words, 4)[..., None] - 32.0) * _look_up(table, codes))


def _six(words: torch.Tensor, each: int) -> torch.Tensor:
    """Fields of six bits, so many of each word: int32 [..., 16 rows, words] -> float32 [..., fields, 16 rows]."""
    shifts = torch.arange(0, 6 * each, 6, dtype=torch.int32, device=words.device)
    return ((words[..., None] >> shifts) & 63).flatten(-2).transpose(-2, -1).float()


def _int_k(five: bool, steps: torch.Tensor) -> torch.Tensor:
    words, top = _words(steps, 0, 4)
    d, negated_min = _half(top[..., 0], top[..., 1]), _half(top[..., 2], top[..., 3])
    fields = _six(words, 4)  # scale, minimum, scale, minimum of each word
    scales, mins = fields[..., 0::2, :], fields[..., 1::2, :]
    groups = _groups(steps, 256, 320 if five else 256)
    codes = _nibbles(groups)
    if five:
        codes = codes | _bits(groups, 256) << 4
    scaled = (d[..., None, :] * scales)[..., None] * codes.float()
    return _joined(scaled + (negated_min[..., None, :] * mins)[..., None])


def _int5(offset: int, steps: torch.Tensor) -> torch.Tensor:
    return _scales(steps, 320) * ((_nibbles(steps) | _bits(steps, 256) << 4).float() - offset)


def _int5_min(steps: torch.Tensor) -> torch.Tensor:
    return _scales(steps, 320) * (_nibbles(steps) | _bits(steps, 256) << 4).float() + _scales(steps, 352)


def _int8(steps: torch.Tensor) -> torch.Tensor:
    return _scales(steps, 512) * _bytes(steps).view(torch.int8).float()


def _int6_k(steps: torch.Tensor) -> torch.Tensor:
    d = _scales(steps, 0)[..., None, :, :]
    groups = _groups(steps, 32, 416)
    codes = (_nibbles(groups) | _pairs(groups, 256) << 4).float().sub_(32.0)
    return _joined(codes.mul_(_spread(d * _scales(groups, 384, torch.int8, 2))))


def _int2_k(steps: torch.Tensor) -> torch.Tensor:
    d, negated_min = _scales(steps, 0)[..., None, :, :], _scales(steps, 32)[..., None, :, :]
    groups = _groups(steps, 64, 160)
    both = _scales_bytes(groups, 128)
    scales, mins = d * (both & 15).float(), negated_min * (both >> 4).float()
    return _joined(_pairs(groups, 0).float().mul_(_spread(scales)).add_(_spread(mins)))


def _scales_bytes(groups: torch.Tensor, at: int) -> torch.Tensor:
    """uint8 [..., 16 rows, 2]"""
    part = groups[..., at : at + 2 * STRIP_ROWS]
    return part.reshape(*part.shape[:-1], 2, STRIP_ROWS).transpose(-2, -1)


def _int3_k(steps: torch.Tensor) -> torch.Tensor:
    d = _scales(steps, 0)
    words, top = _words(steps, 32, 3)
    high = top.int()
    last = high[..., 0] | high[..., 1] << 8 | high[..., 2] << 16
    fields = _six(torch.cat([words, last[..., None]], -1), 4).transpose(-2, -1) - 32.0  # [..., 16 rows, 16]
    groups = _groups(steps, 224, 192)
    codes = _joined((_pairs(groups, 0) | _bits(groups, 128) << 2).float().sub_(4.0))
    return codes.mul_(_spread(d * fields))


def _blocks(four: bool, columns: int, scale: torch.dtype, zero: bool, steps: torch.Tensor) -> torch.Tensor:
    halves = 2 if columns == 16 else 1
    total = _GROUP if halves == 2 else columns
    if four:
        codes = _joined(_nibbles(_groups(steps, 0, 256, total // _GROUP))).float()
    else:
        codes = _bytes(steps, 0, total).view(torch.int8).float()
    at = total * (8 if four else 16)
    scales = _scales(steps, at, scale, halves)
    if four and not zero:
        codes -= 8.0
    if zero:
        zeros = steps[..., at + halves * STRIP_ROWS * scale.itemsize :][..., : halves * STRIP_ROWS]
        offsets = zeros.reshape(*zeros.shape[:-1], halves, STRIP_ROWS).transpose(-2, -1).float()
        if not four:
            offsets = offsets - 128.0
        codes -= _spread(offsets) if halves == 2 else offsets
    return codes.mul_(_spread(scales) if halves == 2 else scales)


def _e4m3(columns: int, scale: torch.dtype, steps: torch.Tensor) -> torch.Tensor:
    codes = _lanes(steps, 0, columns // 4)
    ordered = torch.stack([codes[..., place] for place in (0, 2, 1, 3)], -1).flatten(-2)
    # An e4m3 number's bits, moved up, are an f16 number 2^8 times smaller; its sign comes along in the two upper bits.
    bits = ordered.view(torch.int8).short().bitwise_left_shift_(7).bitwise_and_(~0x4000)
    return bits.view(torch.float16).float().mul_(256.0).mul_(_scales(steps, 16 * columns, scale))


def _floats(kind: torch.dtype, columns: int, steps: torch.Tensor) -> torch.Tensor:
    values = steps.contiguous().view(kind).float()
    return values.reshape(*steps.shape[:-1], STRIP_ROWS, columns)


_UNPACKERS: dict[str, Unpack] = {
    "Q4_0": partial(_int4, 8),
    "Q4_1": _int4_min,
    "Q4_K": partial(_int_k, False),
    "Q5_0": partial(_int5, 16),
    "Q5_1": _int5_min,
    "Q5_K": partial(_int_k, True),
    "Q8_0": _int8,
    "Q2_K": _int2_k,
    "Q3_K": _int3_k,
    "Q6_K": _int6_k,
    "BF16": partial(_floats, torch.bfloat16, 2),
    "F16": partial(_floats, torch.float16, 1),
    "F32": partial(_floats, torch.float32, 1),
}
_WITH_TABLE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "IQ4_NL": _int4_nl,
    "IQ4_XS": _int4_xs,
    "MXFP4": _int4_mx,
    "NVFP4": _int4_nv,
}
_TABLES = {"IQ4_NL": _NL_VALUES, "IQ4_XS": _NL_VALUES, "MXFP4": _MX_VALUES, "NVFP4": _MX_VALUES}
