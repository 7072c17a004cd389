"""GGUF types that no kernel reads as they are: the one- to three-bit codebooks (IQ1, IQ2, IQ3) and ternary TQ types.

Their weights are a scale times an entry of a small table of whole numbers, so they fit into blocks of eight-bit (TQ:
four-bit) codes without any rounding. The values stay what they were; only the room they take grows, which `origin`
of a tensor and the log tell. The tables are the gguf package's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES, QK_K, GGMLQuantizationType

from engine.checkpoints.assembly import Assembly, chunks, pack_nibbles, stored_rows
from engine.checkpoints.blocks import I4_MIDDLE, BlockLayout, Bytes
from engine.checkpoints.checkpoint import TensorInfo

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Widened:
    """layout: the blocks it is shown in
    decode: stored blocks uint8 [n, block_bytes] -> scales [n, 256 / group] of the layout's dtype, codes int8 [n, 256]
    """

    name: str
    block_bytes: int
    layout: BlockLayout
    decode: Callable[[Bytes], tuple[Array, Array]]
    block_values: int = QK_K


@dataclass(frozen=True, slots=True)
class WidenedTensor(Assembly):
    """part: the stored tensor, its format a key of WIDENED."""

    part: TensorInfo

    def fill(self, out: Bytes, matrix: int, start: int) -> None:
        kind = WIDENED[self.part.format]
        for part, first, last in chunks(out, start):
            rows = len(part)
            with np.errstate(all="ignore"):  # a damaged scale may be infinite or no number
                scales, codes = kind.decode(stored_rows(self.part, matrix, first, last).reshape(-1, kind.block_bytes))
            if kind.layout.code == "I4":
                stored = pack_nibbles((codes + np.int8(I4_MIDDLE)).view(np.uint8))
            else:
                stored = codes.view(np.uint8)
            spread = scales.view(np.uint8).reshape(rows, -1, kind.layout.scale_bytes)
            kind.layout.put_together(part, spread, None, stored.reshape(rows, -1))


def widen(part: TensorInfo) -> WidenedTensor:
    shown = TensorInfo(
        part.name, part.shape, WIDENED[part.format].layout.name, part.path, part.offset, part.nbytes, part.format
    )
    return WidenedTensor(shown, part)


def _halves(data: Bytes) -> Array:
    """Half-precision scales uint8 [n, 2] -> float32 [n, 1]."""
    return np.ascontiguousarray(data).view("<f2").astype(np.float32)


def _fields(data: Array, shifts: tuple[int, ...], mask: int) -> Array:
    """Unsigned [n, m] -> [n, m * len(shifts)]: the bits behind each shift."""
    steps = np.array(shifts, data.dtype)
    return cast(Array, (data[..., None] >> steps & data.dtype.type(mask)).reshape(len(data), -1))


@cache
def _grid(name: str, factor: int = 1) -> Array:
    """A type's table: int8 [entries, values of an entry], times a factor."""
    kind = getattr(quants, name)
    kind.init_grid()
    return cast(Array, (kind.grid.reshape(kind.grid_shape) * factor).astype(np.int8))


@cache
def _sign_masks() -> Array:
    """int8 [256, 8]: -1 where the bit of the index is set."""
    return -(np.arange(256)[:, None] >> np.arange(8) & 1).astype(np.int8)


@cache
def _seven_bit_signs() -> Array:
    """int8 [128, 8]: signs of which the last follows from the others."""
    table = np.frombuffer(quants.IQ2_XXS.ksigns, np.uint8)
    return _sign_masks()[table]


def _signed(codes: Array, masks: Array) -> Array:
    """int8 [n, 256]: codes, negated where the mask is -1."""
    flat, mask = codes.reshape(len(codes), -1), masks.reshape(len(codes), -1)
    return (flat ^ mask) - mask


def _pick(table: Array, entries: Array) -> Array:
    """Rows of a table of small rows, moved as one number each."""
    width = np.dtype(f"u{table.shape[1]}")
    return cast(Array, table.view(width)[:, 0][entries].view(np.int8))


def _iq2_xxs(blocks: Bytes) -> tuple[Array, Array]:
    pairs = np.ascontiguousarray(blocks[:, 2:]).view("<u4")
    packed = np.ascontiguousarray(pairs[:, 1::2])
    entries = np.ascontiguousarray(pairs[:, 0::2]).view(np.uint8)
    scales = (
        _halves(blocks[:, :2]) * (np.float32(0.5) + (packed >> np.uint32(28)).astype(np.float32)) * np.float32(0.25)
    )
    signs = _pick(_seven_bit_signs(), _fields(packed, (0, 7, 14, 21), 0x7F))
    return scales, _signed(_pick(_grid("IQ2_XXS"), entries), signs)


def _iq2_xs(blocks: Bytes) -> tuple[Array, Array]:
    packed = np.ascontiguousarray(blocks[:, 2:66]).view("<u2")
    steps = _fields(blocks[:, 66:], (0, 4), 15).astype(np.float32)
    scales = _halves(blocks[:, :2]) * (np.float32(0.5) + steps) * np.float32(0.25)
    signs = _pick(_seven_bit_signs(), packed >> np.uint16(9))
    return scales, _signed(_pick(_grid("IQ2_XS"), packed & np.uint16(511)), signs)


def _iq2_s(blocks: Bytes) -> tuple[Array, Array]:
    low, signs, high, steps = (blocks[:, a:b] for a, b in ((2, 34), (34, 66), (66, 74), (74, 82)))
    entries = low.astype(np.uint16) | _fields(high, (0, 2, 4, 6), 3).astype(np.uint16) << np.uint16(8)
    scales = _halves(blocks[:, :2]) * (np.float32(0.5) + _fields(steps, (0, 4), 15)) * np.float32(0.25)
    return scales, _signed(_pick(_grid("IQ2_S"), entries), _pick(_sign_masks(), signs))


def _iq3_xxs(blocks: Bytes) -> tuple[Array, Array]:
    packed = np.ascontiguousarray(blocks[:, 66:]).view("<u4")
    scales = _halves(blocks[:, :2]) * (np.float32(0.5) + (packed >> np.uint32(28)).astype(np.float32)) * np.float32(0.5)
    signs = _pick(_seven_bit_signs(), _fields(packed, (0, 7, 14, 21), 0x7F))
    return scales, _signed(_pick(_grid("IQ3_XXS"), blocks[:, 2:66]), signs)


def _iq3_s(blocks: Bytes) -> tuple[Array, Array]:
    low, high, signs, steps = (blocks[:, a:b] for a, b in ((2, 66), (66, 74), (74, 106), (106, 110)))
    entries = low.astype(np.uint16) | _fields(high, tuple(range(8)), 1).astype(np.uint16) << np.uint16(8)
    scales = _halves(blocks[:, :2]) * (1 + 2 * _fields(steps, (0, 4), 15)).astype(np.float32)
    return scales, _signed(_pick(_grid("IQ3_S"), entries), _pick(_sign_masks(), signs))


def _iq1_s(blocks: Bytes) -> tuple[Array, Array]:
    """Entries of -1, 0, 1 plus or minus an eighth: in eighths they are whole."""
    packed = np.ascontiguousarray(blocks[:, 34:]).view("<u2")
    high = _fields(packed, (0, 3, 6, 9), 7)
    scales = _halves(blocks[:, :2]) * (2 * _fields(packed, (12,), 7) + 1).astype(np.float32) / np.float32(8)
    codes = _pick(_grid("IQ1_S", 8), blocks[:, 2:34] | high << np.uint16(8)).reshape(len(blocks), 8, 32)
    codes += np.where(packed & np.uint16(0x8000), np.int8(-1), np.int8(1))[..., None]
    return scales, codes.reshape(len(blocks), -1)


def _iq1_m(blocks: Bytes) -> tuple[Array, Array]:
    """As IQ1_S, with the block's scale in the top bits of four words."""
    packed = np.ascontiguousarray(blocks[:, 48:]).view("<u2")
    top = packed >> np.uint16(12)
    bits = top[:, 0] | top[:, 1] << np.uint16(4) | top[:, 2] << np.uint16(8) | top[:, 3] << np.uint16(12)
    whole = bits.astype("<u2").view("<f2").astype(np.float32)[:, None]
    scales = whole * (2 * _fields(packed, (0, 3, 6, 9), 7) + 1).astype(np.float32) / np.float32(8)
    high = _fields(blocks[:, 32:48], (0, 4), 15)
    entries = blocks[:, :32] | (high & np.uint8(7)).astype(np.uint16) << np.uint16(8)
    codes = _pick(_grid("IQ1_M", 8), entries).reshape(len(blocks), 32, 8)
    codes += np.where(high & np.uint8(8), np.int8(-1), np.int8(1))[..., None]
    return scales, codes.reshape(len(blocks), -1)


def _tq1_0(blocks: Bytes) -> tuple[Array, Array]:
    """Five digits of base three in a byte, as a fraction of 256: times a power of three, the top digit is next."""
    parts = []
    for start, stop, digits in ((0, 32, 5), (32, 48, 5), (48, 52, 4)):
        powers = np.array([1, 3, 9, 27, 81][:digits], np.uint8)[:, None]
        parts.append((blocks[:, None, start:stop] * powers).reshape(len(blocks), -1))
    fractions = np.concatenate(parts, axis=1)
    codes = (fractions.astype(np.uint16) * np.uint16(3) >> np.uint16(8)).astype(np.int8) - np.int8(1)
    return _both_halves(blocks[:, 52:]), codes


def _tq2_0(blocks: Bytes) -> tuple[Array, Array]:
    quads = blocks[:, :64].reshape(len(blocks), 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None]
    codes = (quads & np.uint8(3)).astype(np.int8) - np.int8(1)
    return _both_halves(blocks[:, 64:]), codes.reshape(len(blocks), -1)


def _both_halves(scale: Bytes) -> Array:
    """One half-precision scale for two groups of 128: float16 [n, 2]."""
    return np.repeat(np.ascontiguousarray(scale).view("<f2"), 2, axis=1)


def _widened(name: str, layout: BlockLayout, decode: Callable[[Bytes], tuple[Array, Array]]) -> Widened:
    return Widened(name, GGML_QUANT_SIZES[GGMLQuantizationType[name]][1], layout, decode)


_BY_16, _BY_32 = BlockLayout("I8", 16, "F32"), BlockLayout("I8", 32, "F32")
_TERNARY = BlockLayout("I4", 128, "F16")

WIDENED: Mapping[str, Widened] = {
    record.name: record
    for record in (
        _widened("IQ1_S", _BY_32, _iq1_s),
        _widened("IQ1_M", _BY_16, _iq1_m),
        _widened("IQ2_XXS", _BY_32, _iq2_xxs),
        _widened("IQ2_XS", _BY_16, _iq2_xs),
        _widened("IQ2_S", _BY_16, _iq2_s),
        _widened("IQ3_XXS", _BY_32, _iq3_xxs),
        _widened("IQ3_S", _BY_32, _iq3_s),
        _widened("TQ1_0", _TERNARY, _tq1_0),
        _widened("TQ2_0", _TERNARY, _tq2_0),
    )
}
