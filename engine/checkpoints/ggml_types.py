"""Values of the quantised GGML types, written from the layouts of their blocks.

Every decoder takes stored blocks uint8 [n, block bytes] and gives float32 [n, block values]. Products are made in an
order that leaves them exact as far as a float32 can hold them, so there is one right result for each bit pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from engine.checkpoints.blocks import E4M3_VALUES, Bytes, Floats

Array = npt.NDArray[Any]
Decoder = Callable[[Bytes], Floats]

#: Four-bit codes of IQ4_NL and IQ4_XS: finer around zero, where most weights lie.
IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
#: Twice the values of e2m1, so that all are whole; the scales below are halved for it.
FP4_VALUES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


def _half(data: Bytes) -> Floats:
    """A float16 in each block: uint8 [n, 2] -> float32 [n, 1]."""
    return np.ascontiguousarray(data).view("<f2").astype(np.float32)


def _fields(data: Array, shifts: tuple[int, ...], mask: int) -> Array:
    """[n, m] -> [n, len(shifts), m]: the same field of all bytes, one field after the other."""
    steps = np.array(shifts, data.dtype)[:, None]
    return cast(Array, data[:, None, :] >> steps & data.dtype.type(mask))


def _halves(data: Bytes) -> Array:
    """Low halves of all bytes, then the high ones: [n, m] -> [n, 2 m]."""
    return _fields(data, (0, 4), 15).reshape(len(data), -1)


def _runs(data: Bytes, run: int, shifts: tuple[int, ...], mask: int) -> Array:
    """The same in runs of so many bytes: [n, m] -> [n, m * len(shifts)]."""
    return _fields(data.reshape(-1, run), shifts, mask).reshape(len(data), -1)


def _grouped(scales: Array, codes: Array, minima: Array | None = None) -> Floats:
    """scales [n, groups] times codes [n, values], less minima [n, groups]."""
    groups = codes.reshape(len(codes), scales.shape[1], -1)
    values = scales.astype(np.float32)[..., None] * groups
    if minima is not None:
        values -= minima.astype(np.float32)[..., None]
    return cast(Floats, values.reshape(len(codes), -1).astype(np.float32, copy=False))


def _q4_0(b: Bytes) -> Floats:
    return _half(b[:, :2]) * (_halves(b[:, 2:]).astype(np.float32) - 8)


def _q4_1(b: Bytes) -> Floats:
    return _half(b[:, :2]) * _halves(b[:, 4:]).astype(np.float32) + _half(b[:, 2:4])


def _five_bits(low: Bytes, high: Bytes) -> Floats:
    """Nibbles, and a plane of 32 fifth bits."""
    plane = np.ascontiguousarray(high).view("<u4") >> np.arange(32, dtype=np.uint32) & np.uint32(1)
    return cast(Floats, (_halves(low) | plane.astype(np.uint8) << np.uint8(4)).astype(np.float32))


def _q5_0(b: Bytes) -> Floats:
    return _half(b[:, :2]) * (_five_bits(b[:, 6:], b[:, 2:6]) - 16)


def _q5_1(b: Bytes) -> Floats:
    return _half(b[:, :2]) * _five_bits(b[:, 8:], b[:, 4:8]) + _half(b[:, 2:4])


def _q8_0(b: Bytes) -> Floats:
    return _half(b[:, :2]) * b[:, 2:].view(np.int8).astype(np.float32)


def _q2_k(b: Bytes) -> Floats:
    codes = _runs(b[:, 16:80], 32, (0, 2, 4, 6), 3).astype(np.float32)
    return _grouped(_half(b[:, 80:82]) * (b[:, :16] & 15), codes, _half(b[:, 82:84]) * (b[:, :16] >> 4))


def _q3_k(b: Bytes) -> Floats:
    low = _runs(b[:, 32:96], 32, (0, 2, 4, 6), 3).view(np.int8)
    high = _fields(b[:, :32], tuple(range(8)), 1).reshape(len(b), -1)
    codes = low - ((high ^ np.uint8(1)) << np.uint8(2)).view(np.int8)
    six = _halves(b[:, 96:104]) | _fields(b[:, 104:108], (0, 2, 4, 6), 3).reshape(len(b), -1) << np.uint8(4)
    return _grouped(_half(b[:, 108:110]) * (six.view(np.int8) - np.int8(32)), codes.astype(np.float32))


def _six_bit_pairs(b: Bytes) -> tuple[Floats, Floats]:
    """Scales and minima [n, 8] of Q4_K and Q5_K: the second four of each have their top bits with the first four."""
    first, second, both = b[:, 4:8], b[:, 8:12], b[:, 12:16]
    scales = np.concatenate((first & 63, both & 15 | first >> 2 & 48), axis=1)
    minima = np.concatenate((second & 63, both >> 4 | second >> 2 & 48), axis=1)
    return _half(b[:, :2]) * scales, _half(b[:, 2:4]) * minima


def _q4_k(b: Bytes) -> Floats:
    scales, minima = _six_bit_pairs(b)
    return _grouped(scales, _runs(b[:, 16:], 32, (0, 4), 15).astype(np.float32), minima)


def _q5_k(b: Bytes) -> Floats:
    scales, minima = _six_bit_pairs(b)
    high = _fields(b[:, 16:48], tuple(range(8)), 1).reshape(len(b), -1)
    codes = _runs(b[:, 48:], 32, (0, 4), 15) | high << np.uint8(4)
    return _grouped(scales, codes.astype(np.float32), minima)


def _q6_k(b: Bytes) -> Floats:
    high = _runs(b[:, 128:192], 32, (0, 2, 4, 6), 3)
    codes = (_runs(b[:, :128], 64, (0, 4), 15) | high << np.uint8(4)).astype(np.float32) - 32
    return _grouped(_half(b[:, 208:]) * b[:, 192:208].view(np.int8), codes)


def _iq4_nl(b: Bytes) -> Floats:
    return _half(b[:, :2]) * IQ4_VALUES[_halves(b[:, 2:])]


def _iq4_xs(b: Bytes) -> Floats:
    top = np.ascontiguousarray(b[:, 2:4]).view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & np.uint16(3)
    low = (b[:, 4:8, None] >> np.array([0, 4], np.uint8) & 15).reshape(len(b), -1)
    six = (low | top.astype(np.uint8) << np.uint8(4)).view(np.int8) - np.int8(32)
    return _grouped(_half(b[:, :2]) * six, IQ4_VALUES[_runs(b[:, 8:], 16, (0, 4), 15)])


def _mxfp4(b: Bytes) -> Floats:
    """Half of 2 ** (e - 127), which for the two smallest is no normal float32."""
    exponents = b[:, :1].astype(np.uint32)
    bits = np.where(exponents < 2, np.uint32(1 << 21) << exponents, (exponents - np.uint32(1)) << np.uint32(23))
    return bits.astype(np.uint32).view(np.float32) * FP4_VALUES[_halves(b[:, 1:])]


def _half_ue4m3() -> Floats:
    """Halves of unsigned e4m3 numbers: the sign does not count, 0x7f is no number and stands for 0."""
    values = (np.abs(E4M3_VALUES) / 2).astype(np.float32)
    values[[0x7F, 0xFF]] = 0, 240
    return values


UE4M3_HALVES = _half_ue4m3()


def _nvfp4(b: Bytes) -> Floats:
    return _grouped(UE4M3_HALVES[b[:, :4]], FP4_VALUES[_runs(b[:, 4:], 8, (0, 4), 15)])


DECODERS: Mapping[str, Decoder] = {
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "IQ4_NL": _iq4_nl,
    "MXFP4": _mxfp4,
    "NVFP4": _nvfp4,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_XS": _iq4_xs,
}
