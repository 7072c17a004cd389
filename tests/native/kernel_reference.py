"""Slow, obvious float64 models of what the kernels compute, and stored weights to feed them."""

from __future__ import annotations

from dataclasses import dataclass

import gguf
import numpy as np
import numpy.typing as npt
from gguf.quants import dequantize, quantize

GROUP = 32
FORMATS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "MXFP4", "Q4_K", "Q5_K", "Q6_K")
CODES = {
    "F32": "f32",
    "F16": "f16",
    "BF16": "bf16",
    "Q8_0": "int8",
    "Q4_0": "int4",
    "Q4_1": "int4",
    "Q5_0": "int8",
    "Q5_1": "int8",
    "Q5_K": "int8",
    "IQ4_NL": "int4",
    "MXFP4": "int4",
    "Q4_K": "int4",
    "Q6_K": "int8",
}
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
    "Q5_K": (256, 176),
    "IQ4_NL": (32, 18),
    "MXFP4": (32, 17),
    "Q4_K": (256, 144),
    "Q6_K": (256, 210),
}
#: Bytes per block where f16 scales stand: any other byte may be anything (MXFP4's first is a power of two).
SCALES = {
    "IQ4_NL": (0,),
    "MXFP4": (),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q5_K": (0, 2),
    "Q8_0": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q4_K": (0, 2),
    "Q6_K": (208,),
}

Float = npt.NDArray[np.float64]


def stored(rng: np.random.Generator, rows: int, columns: int, fmt: str) -> npt.NDArray[np.uint8]:
    """Random weights as stored, uint8 [rows, row bytes]: every code occurs, scales are sane numbers of both signs."""
    kind = gguf.GGMLQuantizationType[fmt]
    if fmt not in SCALES:
        return quantize(rng.standard_normal((rows, columns)).astype(np.float32), kind).view(np.uint8).reshape(rows, -1)
    block, nbytes = BLOCKS[fmt]
    raw = rng.integers(0, 256, (rows, columns // block, nbytes), dtype=np.uint8)
    for at in SCALES[fmt]:
        scale = rng.uniform(0.01, 0.1, raw.shape[:2]) * rng.choice([-1, 1], raw.shape[:2])
        raw[:, :, at : at + 2] = scale.astype(np.float16)[..., None].view(np.uint8)
    if fmt == "MXFP4":
        raw[:, :, 0] = rng.integers(120, 125, raw.shape[:2])
    return raw.reshape(rows, -1)


def dequantised(raw: npt.NDArray[np.uint8], fmt: str) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore"):  # the largest scales of MXFP4
        return dequantize(raw, gguf.GGMLQuantizationType[fmt]).astype(np.float32)


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
    if code == "bf16" and tier in ("amx", "avx512bf16"):
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


def linear(w: npt.NDArray[np.float32], x: Activations) -> tuple[Float, Float]:
    """x [T, K] times w [N, K]: the product with the activations as seen, and a bound for float32 arithmetic."""
    exact = x.seen @ w.T.astype(np.float64)
    terms = np.abs(x.seen) @ np.abs(w.T.astype(np.float64))
    return exact, rounding_bound(terms, w.shape[1])
