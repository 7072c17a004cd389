"""Quantised matrices of every safetensors form, packed value by value from the form's definition.

Nothing here uses the reader: codes are chosen, packed into the tensors a tool would write, and turned into weights by
the formula that defines the form. `Matrix.weights` is what a reader must find, float64 rounded to float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch

#: e2m1: sign, two bits of exponent, one of mantissa.
FP4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]


@dataclass
class Matrix:
    """weights: [out, in] or [experts, out, in]; tensors: by the name's ending behind the module's name."""

    weights: np.ndarray
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)

    def named(self, module: str) -> dict[str, torch.Tensor]:
        return {module + ending: tensor.contiguous() for ending, tensor in self.tensors.items()}


def words(codes: list[int], bits: int) -> list[int]:
    """Signed 32-bit words that hold codes of `bits`, the first in the lowest bits."""
    each = 32 // bits
    packed = []
    for at in range(0, len(codes), each):
        word = sum(code << bits * place for place, code in enumerate(codes[at : at + each]))
        packed.append(word - (1 << 32) if word >= 1 << 31 else word)
    return packed


def packed_rows(codes: np.ndarray, bits: int) -> torch.Tensor:
    """int32 [rows, ceil(columns * bits / 32)]."""
    return torch.tensor([words([int(c) for c in row], bits) for row in codes], dtype=torch.int32)


def random_scales(random: np.random.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(random.uniform(0.001, 0.1, shape)).to(dtype)


def spread(values: np.ndarray, columns: int, group: int) -> np.ndarray:
    """[rows, G] -> [rows, columns]: every value for its `group` columns."""
    return np.stack([values[:, k // group] for k in range(columns)], axis=1)


def gptq(
    rows: int,
    columns: int,
    group: int,
    *,
    bits: int = 4,
    symmetric: bool = False,
    first_version: bool = True,
    groups_of: np.ndarray | None = None,
    seed: int = 0,
) -> Matrix:
    """groups_of: which group each column belongs to (act-order); None for the plain order."""
    random = np.random.default_rng(seed)
    count = math.ceil(columns / group)
    codes = random.integers(0, 1 << bits, (rows, columns))
    zeros = random.integers(1, 1 << bits, (rows, count))
    if symmetric:
        zeros[:] = 1 << bits - 1
    scales = random_scales(random, (rows, count), torch.float16)
    index = np.arange(columns) // group if groups_of is None else groups_of
    weights = np.empty((rows, columns))
    for k in range(columns):
        weights[:, k] = scales[:, index[k]].double().numpy() * (codes[:, k] - zeros[:, index[k]])
    tensors = {
        ".qweight": packed_rows(codes, bits).T,
        ".qzeros": packed_rows(zeros.T - first_version, bits),
        ".scales": scales.T,
        ".g_idx": torch.tensor(index, dtype=torch.int32),
    }
    return Matrix(weights.astype(np.float32), tensors)


def awq(rows: int, columns: int, group: int, seed: int = 0) -> Matrix:
    """Words hold eight neighbouring rows: of rows 0..7 the order is 0, 2, 4, 6, 1, 3, 5, 7."""
    random = np.random.default_rng(seed)
    codes = random.integers(0, 16, (rows, columns))
    zeros = random.integers(0, 16, (rows, columns // group))
    scales = random_scales(random, (rows, columns // group), torch.float16)

    def interleaved(values: np.ndarray) -> torch.Tensor:
        order = [8 * block + place for block in range(rows // 8) for place in (0, 2, 4, 6, 1, 3, 5, 7)]
        return packed_rows(values.T[:, order], 4)

    steps = spread(scales.double().numpy(), columns, group)
    weights = steps * (codes - spread(zeros, columns, group))
    tensors = {".qweight": interleaved(codes), ".qzeros": interleaved(zeros), ".scales": scales.T}
    return Matrix(weights.astype(np.float32), tensors)


def compressed_integers(
    rows: int,
    columns: int,
    group: int,
    *,
    bits: int = 4,
    symmetric: bool = True,
    scale: torch.dtype = torch.bfloat16,
    groups_of: np.ndarray | None = None,
    seed: int = 0,
) -> Matrix:
    """compressed-tensors, pack-quantized: signed codes are stored with half their range added."""
    random = np.random.default_rng(seed)
    half = 1 << bits - 1
    codes = random.integers(-half, half, (rows, columns))
    zeros = random.integers(-half, half, (rows, columns // group)) * (not symmetric)
    scales = random_scales(random, (rows, columns // group), scale)
    index = np.arange(columns) // group if groups_of is None else groups_of
    weights = scales.double().numpy()[:, index] * (codes - zeros[:, index])
    tensors = {
        ".weight_packed": packed_rows(codes + half, bits),
        ".weight_scale": scales,
        ".weight_shape": torch.tensor([rows, columns]),
    }
    if not symmetric:
        tensors[".weight_zero_point"] = packed_rows((zeros + half).T, bits).T
    if groups_of is not None:
        tensors[".weight_g_idx"] = torch.tensor(groups_of, dtype=torch.int32)
    return Matrix(weights.astype(np.float32), tensors)


def plain_int8(rows: int, columns: int, *, symmetric: bool = True, seed: int = 0) -> Matrix:
    """compressed-tensors, int-quantized: int8 with a scale for every row."""
    random = np.random.default_rng(seed)
    codes = random.integers(-128, 128, (rows, columns))
    zeros = random.integers(-128, 128, (rows, 1)) * (not symmetric)
    scales = random_scales(random, (rows, 1), torch.bfloat16)
    tensors = {".weight": torch.tensor(codes, dtype=torch.int8), ".weight_scale": scales}
    if not symmetric:
        tensors[".weight_zero_point"] = torch.tensor(zeros, dtype=torch.int8)
    return Matrix((scales.double().numpy() * (codes - zeros)).astype(np.float32), tensors)


def random_e4m3(random: np.random.Generator, shape: tuple[int, ...]) -> torch.Tensor:
    """Every bit pattern but the two that are no numbers."""
    bits = random.integers(0, 255, shape, dtype=np.uint8)
    bits[bits == 0x7F] = 0xFE
    return torch.from_numpy(bits).view(torch.float8_e4m3fn)


def fp8_squares(
    rows: int, columns: int, *, square: int = 128, scale: torch.dtype = torch.float32, stack: int = 0, seed: int = 0
) -> Matrix:
    """FP8 in squares that are cut off at the lower and right edge. stack: how many matrices; 0 for a single one."""
    random = np.random.default_rng(seed)
    lead = (stack,) if stack else ()
    codes = random_e4m3(random, (*lead, rows, columns))
    grid = (*lead, math.ceil(rows / square), math.ceil(columns / square))
    if scale == torch.float8_e8m0fnu:
        scales = torch.from_numpy(random.integers(110, 130, grid, dtype=np.uint8)).view(scale)
    else:
        scales = random_scales(random, grid, scale)
    weights = codes.double().numpy()
    for n in range(rows):
        for k in range(columns):
            weights[..., n, k] *= scales.double().numpy()[..., n // square, k // square]
    return Matrix(weights.astype(np.float32), {".weight": codes, ".weight_scale_inv": scales})


def fp8_rows(rows: int, columns: int, scale_shape: tuple[int, ...], ending: str, seed: int = 0) -> Matrix:
    """FP8 with a scale for every row, or one for all."""
    random = np.random.default_rng(seed)
    codes = random_e4m3(random, (rows, columns))
    scales = random_scales(random, scale_shape, torch.float32)
    factors = scales.double().numpy().reshape(-1, 1)
    return Matrix((codes.double().numpy() * factors).astype(np.float32), {".weight": codes, ending: scales})


def mxfp8(rows: int, columns: int, seed: int = 0) -> Matrix:
    random = np.random.default_rng(seed)
    codes = random_e4m3(random, (rows, columns))
    exponents = random.integers(115, 130, (rows, columns // 32), dtype=np.uint8)
    weights = codes.double().numpy() * spread(2.0 ** (exponents.astype(float) - 127), columns, 32)
    return Matrix(weights.astype(np.float32), {".weight": codes, ".weight_scale": torch.from_numpy(exponents)})


def neighbours(codes: np.ndarray) -> np.ndarray:
    """uint8 [..., K / 2]: value 2j in the low half of byte j, 2j + 1 in the high half."""
    return (codes[..., 0::2] + 16 * codes[..., 1::2]).astype(np.uint8)


def nvfp4(rows: int, columns: int, *, compressed: bool = False, stack: int = 0, seed: int = 0) -> Matrix:
    """ModelOpt's names and factor; compressed: those of compressed-tensors, which keeps the factor's reciprocal."""
    random = np.random.default_rng(seed)
    lead = (stack,) if stack else ()
    codes = random.integers(0, 16, (*lead, rows, columns))
    scales = torch.from_numpy(random.integers(0, 0x7F, (*lead, rows, columns // 16), dtype=np.uint8))
    scales = scales.view(torch.float8_e4m3fn)
    factor = random.uniform(0.001, 0.01, stack or 1).astype(np.float32)
    if compressed:
        stored, factor = np.float32(1) / factor, np.float32(1) / (np.float32(1) / factor)
    else:
        stored = factor
    weights = np.array(FP4)[codes]
    for k in range(columns):
        weights[..., k] *= scales.double().numpy()[..., k // 16]
    weights *= factor.astype(float).reshape((-1, 1, 1) if stack else (1,))
    packed = torch.from_numpy(neighbours(codes))
    if compressed:
        names = (".weight_packed", ".weight_scale", ".weight_global_scale")
    else:
        names = (".weight", ".weight_scale", ".weight_scale_2")
    tensors = dict(zip(names, (packed, scales, torch.from_numpy(np.atleast_1d(stored))), strict=True))
    if not compressed and not stack:
        tensors[".weight_scale_2"] = tensors[".weight_scale_2"].reshape(())
        tensors[".input_scale"] = torch.tensor(0.5)
    return Matrix(weights.astype(np.float32), tensors)


def mxfp4(lead: tuple[int, ...], columns: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """weights float32 [*lead, columns], blocks uint8 [*lead, G, 16] and exponents uint8 [*lead, G], as gpt-oss has."""
    random = np.random.default_rng(seed)
    codes = random.integers(0, 16, (*lead, columns))
    exponents = random.integers(100, 140, (*lead, columns // 32), dtype=np.uint8)
    weights = np.array(FP4)[codes]
    for k in range(columns):
        weights[..., k] *= 2.0 ** (exponents[..., k // 32].astype(float) - 127)
    blocks = neighbours(codes).reshape(*lead, columns // 32, 16)
    return weights.astype(np.float32), blocks, exponents
