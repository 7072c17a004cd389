"""Blocks for quantised weights of safetensors that no GGUF type describes.

A row of a matrix is a sequence of blocks of `group` values. A block is, in this order:

    scale      float16, bfloat16 or float32, little-endian
    zero       one uint8, only where the name ends in _Z
    codes      I4:   group / 2 bytes, unsigned; value 2j is the low half of byte j, value 2j + 1 the high half
               I8:   group bytes, signed; unsigned where there is a zero
               E4M3: group bytes, each a float8_e4m3fn

and a weight is scale * (code - 8) for I4 without a zero, scale * (code - zero) with one, scale * code otherwise.
The name says it all: I4_G128_F16_Z has blocks of 128 four-bit codes under a float16 scale and a zero point.

Files keep codes, scales and zeros in tensors of their own, each in an order of its own. Put together block by block,
every stored bit is kept, a range of rows is one run of bytes, and a kernel reads one stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

GROUPS = (128, 64, 32, 16)
_SCALE_BYTES = {"F16": 2, "BF16": 2, "F32": 4}
_CODE_BITS = {"I4": 4, "I8": 8, "E4M3": 8}
#: What a four-bit code without a zero point counts from.
I4_MIDDLE = 8


def bfloat16_values(data: Bytes) -> Floats:
    """uint8 [..., 2 n] -> float32 [..., n]: a bfloat16 is the upper half of a float32."""
    widened = data.view("<u2").astype(np.uint32) << np.uint32(16)
    return cast(Floats, widened.view(np.float32))


def _e4m3_values() -> Floats:
    """float32 [256]: the value of every float8_e4m3fn (no infinities; 0x7f and 0xff are NaN), after OCP's FP8 paper."""
    bits = np.arange(256)
    exponent, mantissa = bits >> 3 & 15, bits & 7
    size = np.where(exponent, np.ldexp(8 + mantissa, exponent - 10), np.ldexp(mantissa, -9))
    values = np.where(bits & 0x80, -size, size).astype(np.float32)
    values[[0x7F, 0xFF]] = np.nan
    return cast(Floats, values)


E4M3_VALUES = _e4m3_values()


@dataclass(frozen=True)
class BlockLayout:
    """code: a key of _CODE_BITS; group: one of GROUPS; scale: a key of _SCALE_BYTES; zero: whether there is a zero."""

    code: str
    group: int
    scale: str
    zero: bool = False

    @property
    def name(self) -> str:
        return f"{self.code}_G{self.group}_{self.scale}" + ("_Z" if self.zero else "")

    @property
    def scale_bytes(self) -> int:
        return _SCALE_BYTES[self.scale]

    @property
    def code_bytes(self) -> int:
        return self.group * _CODE_BITS[self.code] // 8

    @property
    def nbytes(self) -> int:
        return self.scale_bytes + self.zero + self.code_bytes

    def put_together(self, out: Bytes, scales: Bytes, zeros: Bytes | None, codes: Bytes) -> None:
        """Fill rows of blocks.

        out: uint8 [rows, blocks * nbytes], contiguous; scales: uint8 [rows, blocks, scale_bytes];
        zeros: uint8 [rows, blocks]; codes: uint8 [rows, blocks * code_bytes]
        """
        blocks = out.reshape(len(out), -1, self.nbytes)
        blocks[..., : self.scale_bytes] = scales
        if zeros is not None:
            blocks[..., self.scale_bytes] = zeros
        blocks[..., -self.code_bytes :] = codes.reshape(len(out), -1, self.code_bytes)

    def dequantise(self, data: Bytes) -> Floats:
        """uint8 [n * nbytes] -> float32 [n * group]; the product is rounded once, to float32."""
        blocks = data.reshape(-1, self.nbytes)
        stored = np.ascontiguousarray(blocks[:, : self.scale_bytes])
        scales = bfloat16_values(stored) if self.scale == "BF16" else stored.view("<f" + str(self.scale_bytes))
        codes = self._values(blocks[:, self.scale_bytes + self.zero :])
        if self.zero:
            codes -= blocks[:, self.scale_bytes, None]
        with np.errstate(invalid="ignore", over="ignore"):  # a damaged scale may be infinite or no number
            codes *= scales.astype(np.float32, copy=False)
        return codes.reshape(-1)

    def _values(self, stored: Bytes) -> Floats:
        """uint8 [n, code_bytes] -> float32 [n, group], before zero and scale."""
        if self.code == "E4M3":
            return E4M3_VALUES[stored]
        if self.code == "I8":
            return stored.astype(np.float32) if self.zero else stored.view(np.int8).astype(np.float32)
        values = np.empty((len(stored), self.group), np.float32)
        values[:, 0::2] = stored & 15
        values[:, 1::2] = stored >> 4
        return values if self.zero else values - np.float32(I4_MIDDLE)


LAYOUTS = tuple(
    BlockLayout(code, group, scale, zero)
    for code in _CODE_BITS
    for group in GROUPS
    for scale in _SCALE_BYTES
    for zero in ((False,) if code == "E4M3" else (False, True))
)
