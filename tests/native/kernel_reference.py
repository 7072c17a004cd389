"""Slow, obvious float64 models of what the kernels compute, and stored weights to feed them."""

from __future__ import annotations

from dataclasses import dataclass

import gguf
import numpy as np
import numpy.typing as npt
import torch
from gguf.quants import dequantize, quantize

GROUP = 32
#: GGUF's names -> family of kernels.
GGUF_CODES = {
    "F32": "f32",
    "F16": "f16",
    "BF16": "bf16",
    "Q8_0": "int8",
    "Q4_0": "int4",
    "Q4_1": "int4",
    "Q5_0": "int8",
    "Q5_1": "int8",
    "IQ4_NL": "int4",
    "MXFP4": "int4",
    "NVFP4": "int4",
    "Q2_K": "int4",
    "Q3_K": "int4",
    "Q4_K": "int4",
    "Q5_K": "int8",
    "Q6_K": "int8",
    "IQ4_XS": "int4",
}


@dataclass(frozen=True)
class Blocks:
    """A generic block: scale, perhaps one byte of zero point, codes."""

    code: str
    group: int
    scale: str
    zero: bool

    @property
    def head(self) -> int:
        return (4 if self.scale == "F32" else 2) + self.zero

    @property
    def nbytes(self) -> int:
        return self.head + self.group // (2 if self.code == "I4" else 1)


ALL_BLOCKS = {
    f"{code}_G{group}_{scale}{'_Z' if zero else ''}": Blocks(code, group, scale, zero)
    for code, zero in (("I4", False), ("I4", True), ("I8", False), ("I8", True), ("E4M3", False))
    for group in (16, 32, 64, 128)
    for scale in ("F16", "BF16", "F32")
}
#: Every kind of kernel, group and scale among them; the others differ in nothing a kernel could get wrong alone.
SOME_BLOCKS = (
    "I4_G16_F16", "I4_G32_BF16", "I4_G64_F32", "I4_G128_F16", "I4_G16_BF16_Z", "I4_G64_BF16_Z", "I4_G128_F16_Z",
    "I8_G16_F32", "I8_G64_F16", "I8_G128_BF16", "I8_G16_F16_Z", "I8_G32_F32_Z", "I8_G128_F16_Z",
    "E4M3_G16_BF16", "E4M3_G32_F16", "E4M3_G128_F32",
)  # fmt: skip
FORMATS = (*GGUF_CODES, *SOME_BLOCKS)
CODES = GGUF_CODES | {n: {"I4": "int4", "I8": "int8", "E4M3": "e4m3"}[b.code] for n, b in ALL_BLOCKS.items()}
#: Columns per stored block and bytes per block.
BLOCKS = {
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "Q8_0": (32, 34),
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "IQ4_NL": (32, 18),
    "MXFP4": (32, 17),
    "NVFP4": (64, 36),
    "Q2_K": (256, 84),
    "Q3_K": (256, 110),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
    "IQ4_XS": (256, 136),
} | {name: (blocks.group, blocks.nbytes) for name, blocks in ALL_BLOCKS.items()}
#: What the columns of a matrix must be a multiple of. Integer codes go in groups of 32.
MULTIPLES = {name: max(block, GROUP) if name[0] == "I" else block for name, (block, _) in BLOCKS.items()}
#: Bytes per block where f16 scales stand: any other byte may be anything (those of MXFP4 and NVFP4 are powers of two
#: and e4m3).
SCALES = {
    "IQ4_NL": (0,),
    "MXFP4": (),
    "NVFP4": (),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q5_K": (0, 2),
    "Q8_0": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q4_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_XS": (0,),
}

Float = npt.NDArray[np.float64]


def stored(rng: np.random.Generator, rows: int, columns: int, fmt: str) -> npt.NDArray[np.uint8]:
    """Random weights as stored, uint8 [rows, row bytes]: every code occurs, scales are sane numbers of both signs."""
    if fmt in ("F32", "F16", "BF16"):
        kind = gguf.GGMLQuantizationType[fmt]
        return quantize(rng.standard_normal((rows, columns)).astype(np.float32), kind).view(np.uint8).reshape(rows, -1)
    block, nbytes = BLOCKS[fmt]
    raw = rng.integers(0, 256, (rows, columns // block, nbytes), dtype=np.uint8)
    scale = rng.uniform(0.01, 0.1, raw.shape[:2]) * rng.choice([-1, 1], raw.shape[:2])
    if fmt in ALL_BLOCKS:
        blocks = ALL_BLOCKS[fmt]
        width = blocks.head - blocks.zero
        raw[:, :, :width] = scale_bytes(scale, blocks.scale)
        if blocks.code == "I4" and blocks.zero:
            raw[:, :, width] &= 15
        if blocks.code == "E4M3":
            raw[(raw & 0x7F) == 0x7F] ^= 1
            raw[:, :, :width] = scale_bytes(scale, blocks.scale)
        return raw.reshape(rows, -1)
    for at in SCALES[fmt]:
        scale = rng.uniform(0.01, 0.1, raw.shape[:2]) * rng.choice([-1, 1], raw.shape[:2])
        raw[:, :, at : at + 2] = scale_bytes(scale, "F16")
    if fmt == "MXFP4":
        raw[:, :, 0] = rng.integers(120, 125, raw.shape[:2])
    if fmt == "NVFP4":
        raw[:, :, :4] = rng.integers(0, 64, (*raw.shape[:2], 4))
    return raw.reshape(rows, -1)


def scale_bytes(scale: Float, kind: str) -> npt.NDArray[np.uint8]:
    """float64 [...] -> uint8 [..., 2 or 4], little-endian."""
    if kind == "BF16":
        upper = np.ascontiguousarray(scale.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return upper[..., None].view(np.uint8)
    return scale.astype(np.float16 if kind == "F16" else np.float32)[..., None].view(np.uint8)


def block_parts(raw: npt.NDArray[np.uint8], fmt: str) -> tuple[npt.NDArray[np.float32], Float, Float]:
    """Scale [rows, blocks, 1], codes [rows, blocks, group] and zero points [rows, blocks, 1] as numbers."""
    blocks = ALL_BLOCKS[fmt]
    pieces = raw.reshape(len(raw), -1, blocks.nbytes)
    width = blocks.head - blocks.zero
    first = np.ascontiguousarray(pieces[:, :, :width])
    if blocks.scale == "BF16":
        scale = (first.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        scale = first.view(np.float16 if blocks.scale == "F16" else np.float32).astype(np.float32)
    codes = pieces[:, :, blocks.head :]
    zero = pieces[:, :, width : width + 1].astype(np.float64) if blocks.zero else np.zeros(scale.shape)
    if blocks.code == "I4":
        values = np.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:2], -1).astype(np.float64)
        return scale, values, zero if blocks.zero else zero + 8
    if blocks.code == "I8":
        return scale, codes.astype(np.float64) if blocks.zero else codes.view(np.int8).astype(np.float64), zero
    return scale, torch.from_numpy(codes.copy()).view(torch.float8_e4m3fn).double().numpy(), zero


def dequantised(raw: npt.NDArray[np.uint8], fmt: str) -> npt.NDArray[np.float32]:
    """float32 [rows, columns]: by the gguf package, or block by block after the definition."""
    with np.errstate(over="ignore", invalid="ignore"):  # the largest scales of MXFP4, NaN of e4m3
        if fmt in ALL_BLOCKS:
            scale, codes, zero = block_parts(raw, fmt)
            return (scale * (codes - zero).astype(np.float32)).reshape(len(raw), -1)
        return dequantize(raw, gguf.GGMLQuantizationType[fmt]).astype(np.float32)


def magnitudes(raw: npt.NDArray[np.uint8], fmt: str) -> Float:
    """What the rounding of a product grows with, float64 [rows, columns]: |w|, or what it is the difference of."""
    if fmt in ALL_BLOCKS and ALL_BLOCKS[fmt].zero:
        scale, codes, zero = block_parts(raw, fmt)
        middle = 8 if ALL_BLOCKS[fmt].code == "I4" else 128
        return (np.abs(scale) * (np.abs(codes - middle) + np.abs(zero - middle))).reshape(len(raw), -1)
    return np.abs(dequantised(raw, fmt).astype(np.float64))


@dataclass(frozen=True)
class Activations:
    """What a kernel sees of x, and how far that is from x.

    seen:  float64 [T, K], the values after rounding
    step:  float64 [T, K], the distance between two neighbouring representable values
    """

    seen: Float
    step: Float


def int8_activations(x: npt.NDArray[np.float32]) -> Activations:
    """int8 per group of 32, symmetric; the arithmetic of the kernels in float32."""
    grouped = x.reshape(len(x), -1, GROUP)
    largest = np.abs(grouped).max(axis=2, keepdims=True)
    safe = np.where(largest > 0, largest, np.float32(1))
    codes = np.rint(grouped * (np.float32(127) / safe))
    scale = np.where(largest > 0, largest / np.float32(127), np.float32(0))
    seen = codes.astype(np.float64) * scale.astype(np.float64)
    return Activations(seen.reshape(x.shape), np.repeat(scale.astype(np.float64), GROUP, axis=2).reshape(x.shape))


def float_activations(x: npt.NDArray[np.float32], tier: str, code: str) -> Activations:
    """float32, or bfloat16 where the kernel multiplies bfloat16 pairs."""
    if code in ("bf16", "e4m3") and tier in ("amx", "avx512bf16"):
        bits = x.view(np.uint32)
        rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
        return Activations(rounded.astype(np.float64), np.abs(x) * 2.0**-7)
    return Activations(x.astype(np.float64), np.abs(x) * 2.0**-23)


def activations(x: npt.NDArray[np.float32], tier: str, code: str) -> Activations:
    return int8_activations(x) if code in ("int4", "int8") else float_activations(x, tier, code)


def rounding_bound(terms: Float, count: int) -> Float:
    """Bound on float32 rounding in a sum of `count` terms whose magnitudes add up to `terms`.

    Every product and every addition is off by half a unit in the last place at most; chains are shorter than `count`.
    """
    return (count + 8) * 2.0**-24 * terms + 1e-30


def linear(raw: npt.NDArray[np.uint8], fmt: str, x: Activations) -> tuple[Float, Float]:
    """x [T, K] times stored w [N, K]: the product with the activations as seen, and a bound for float32 arithmetic."""
    w = dequantised(raw, fmt)
    exact = x.seen @ w.T.astype(np.float64)
    return exact, rounding_bound(np.abs(x.seen) @ magnitudes(raw, fmt).T, w.shape[1])
