"""Stored blocks to numbers on a torch device: the values of `engine.checkpoints.formats`, in torch operations.

Decoders mirror those of `engine.checkpoints.ggml_types` and `engine.checkpoints.blocks`, where layouts are explained:
blocks uint8 [n, block bytes] -> float32 [n, block values], bit for bit what those give. Products with small tables take
the place of branches, nothing waits for the device, and no step makes more than `DEQUANTISED_BYTES` per value at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import torch

from engine.checkpoints.blocks import E4M3_VALUES, I4_MIDDLE, LAYOUTS, BlockLayout
from engine.checkpoints.formats import FORMATS
from engine.checkpoints.ggml_types import FP4_VALUES, IQ4_VALUES, UE4M3_HALVES
from engine.executors.devices import Device

Tensor = torch.Tensor


class Tables:
    """Constants on the device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._steps: dict[tuple[int, ...], Tensor] = {}
        self.iq4 = self._place(IQ4_VALUES)
        self.fp4 = self._place(FP4_VALUES)
        self.ue4m3_halves = self._place(UE4M3_HALVES)
        self.e4m3 = self._place(E4M3_VALUES)

    def steps(self, shifts: tuple[int, ...]) -> Tensor:
        """uint8 [len(shifts), 1]"""
        if shifts not in self._steps:
            self._steps[shifts] = self._place(np.array(shifts, np.uint8)[:, None])
        return self._steps[shifts]

    def _place(self, values: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Tensor:
        return self._device.upload(torch.from_numpy(values.copy()))


class BlockDecoder:
    """For one format; not for plain floats, which a device holds as such."""

    def __init__(self, form: str, tables: Tables) -> None:
        self.block_values, self.block_bytes = FORMATS[form].block_values, FORMATS[form].block_bytes
        self._tables = tables
        self._decode = DECODERS[form]

    def __call__(self, blocks: Tensor) -> Tensor:
        """uint8 [n, block bytes] -> float32 [n, block values]."""
        return self._decode(blocks, self._tables)


def _floats(data: Tensor, kind: torch.dtype) -> Tensor:
    """Bytes of floats anywhere in memory, uint8 [n, m] -> float32 [n, m / size]."""
    return data.clone(memory_format=torch.contiguous_format).view(kind).float()


def _half(data: Tensor) -> Tensor:
    """A float16 in each block: uint8 [n, 2] -> float32 [n, 1]."""
    return _floats(data, torch.float16)


def _fields(data: Tensor, t: Tables, shifts: tuple[int, ...], mask: int) -> Tensor:
    """[n, m] -> [n, len(shifts) * m]: the same field of all bytes, one field after the other."""
    return (data[:, None, :] >> t.steps(shifts)).bitwise_and_(mask).flatten(1)


def _halves(data: Tensor, t: Tables) -> Tensor:
    return _fields(data, t, (0, 4), 15)


def _runs(data: Tensor, t: Tables, run: int, shifts: tuple[int, ...], mask: int) -> Tensor:
    """The same in runs of so many bytes."""
    return _fields(data.reshape(-1, run), t, shifts, mask).view(len(data), -1)


def _grouped(scales: Tensor, codes: Tensor, minima: Tensor | None = None) -> Tensor:
    """scales float32 [n, groups] times codes float32 [n, values], in place, less minima [n, groups]."""
    groups = codes.view(len(codes), scales.shape[1], -1)
    groups *= scales[..., None]
    if minima is not None:
        groups -= minima[..., None]
    return codes


def _look_up(table: Tensor, codes: Tensor) -> Tensor:
    return table.index_select(0, codes.flatten().int()).view(codes.shape)


def _q4_0(b: Tensor, t: Tables) -> Tensor:
    return _halves(b[:, 2:], t).float().sub_(8).mul_(_half(b[:, :2]))


def _q4_1(b: Tensor, t: Tables) -> Tensor:
    return _halves(b[:, 4:], t).float().mul_(_half(b[:, :2])).add_(_half(b[:, 2:4]))


def _five_bits(low: Tensor, high: Tensor, t: Tables) -> Tensor:
    """Nibbles, and a plane of 32 fifth bits: bit i of the plane, low bytes first, belongs to value i."""
    plane = (high[..., None] >> t.steps(tuple(range(8)))[:, 0]).bitwise_and_(1).flatten(1)
    return _halves(low, t).bitwise_or_(plane << 4).float()


def _q5_0(b: Tensor, t: Tables) -> Tensor:
    return _five_bits(b[:, 6:], b[:, 2:6], t).sub_(16).mul_(_half(b[:, :2]))


def _q5_1(b: Tensor, t: Tables) -> Tensor:
    return _five_bits(b[:, 8:], b[:, 4:8], t).mul_(_half(b[:, :2])).add_(_half(b[:, 2:4]))


def _q8_0(b: Tensor, t: Tables) -> Tensor:
    return b[:, 2:].view(torch.int8).float().mul_(_half(b[:, :2]))


def _q2_k(b: Tensor, t: Tables) -> Tensor:
    codes = _runs(b[:, 16:80], t, 32, (0, 2, 4, 6), 3).float()
    scales, minima = (b[:, :16] & 15).float() * _half(b[:, 80:82]), (b[:, :16] >> 4).float() * _half(b[:, 82:84])
    return _grouped(scales, codes, minima)


def _q3_k(b: Tensor, t: Tables) -> Tensor:
    high = _fields(b[:, :32], t, tuple(range(8)), 1)
    codes = _runs(b[:, 32:96], t, 32, (0, 2, 4, 6), 3).bitwise_or_(high << 2).float().sub_(4)
    six = _halves(b[:, 96:104], t) | _fields(b[:, 104:108], t, (0, 2, 4, 6), 3) << 4
    return _grouped(six.float().sub_(32).mul_(_half(b[:, 108:110])), codes)


def _six_bit_pairs(b: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and minima [n, 8] of Q4_K and Q5_K."""
    first, second, both = b[:, 4:8], b[:, 8:12], b[:, 12:16]
    scales = torch.cat((first & 63, (both & 15) | ((first >> 2) & 48)), 1)
    minima = torch.cat((second & 63, (both >> 4) | ((second >> 2) & 48)), 1)
    return scales.float().mul_(_half(b[:, :2])), minima.float().mul_(_half(b[:, 2:4]))


def _q4_k(b: Tensor, t: Tables) -> Tensor:
    scales, minima = _six_bit_pairs(b)
    return _grouped(scales, _runs(b[:, 16:], t, 32, (0, 4), 15).float(), minima)


def _q5_k(b: Tensor, t: Tables) -> Tensor:
    scales, minima = _six_bit_pairs(b)
    high = _fields(b[:, 16:48], t, tuple(range(8)), 1)
    return _grouped(scales, _runs(b[:, 48:], t, 32, (0, 4), 15).bitwise_or_(high << 4).float(), minima)


def _q6_k(b: Tensor, t: Tables) -> Tensor:
    high = _runs(b[:, 128:192], t, 32, (0, 2, 4, 6), 3)
    codes = _runs(b[:, :128], t, 64, (0, 4), 15).bitwise_or_(high << 4).float().sub_(32)
    return _grouped(b[:, 192:208].view(torch.int8).float().mul_(_half(b[:, 208:])), codes)


def _iq4_nl(b: Tensor, t: Tables) -> Tensor:
    return _look_up(t.iq4, _halves(b[:, 2:], t)).mul_(_half(b[:, :2]))


def _iq4_xs(b: Tensor, t: Tables) -> Tensor:
    top = (b[:, 2:4, None] >> t.steps((0, 2, 4, 6))[:, 0]).bitwise_and_(3).flatten(1)
    low = (b[:, 4:8, None] >> t.steps((0, 4))[:, 0]).bitwise_and_(15).flatten(1)
    scales = (low | top << 4).float().sub_(32).mul_(_half(b[:, :2]))
    return _grouped(scales, _look_up(t.iq4, _runs(b[:, 8:], t, 16, (0, 4), 15)))


def _mxfp4(b: Tensor, t: Tables) -> Tensor:
    exponents = b[:, :1].int()
    bits = torch.where(exponents < 2, (exponents.clamp(max=1) + 1) << 21, (exponents - 1) << 23)
    return _look_up(t.fp4, _halves(b[:, 1:], t)).mul_(bits.view(torch.float32))


def _nvfp4(b: Tensor, t: Tables) -> Tensor:
    return _grouped(_look_up(t.ue4m3_halves, b[:, :4]), _look_up(t.fp4, _runs(b[:, 4:], t, 8, (0, 4), 15)))


def _layout(layout: BlockLayout, b: Tensor, t: Tables) -> Tensor:
    """Blocks of quantised safetensors."""
    kind = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32}[layout.scale]
    codes = b[:, layout.scale_bytes + layout.zero :]
    if layout.code == "E4M3":
        values = _look_up(t.e4m3, codes)
    elif layout.code == "I8":
        values = codes.float() if layout.zero else codes.view(torch.int8).float()
    else:
        values = (codes[..., None] >> t.steps((0, 4))[:, 0]).bitwise_and_(15).flatten(1).float()
        if not layout.zero:
            values -= I4_MIDDLE
    if layout.zero:
        values -= b[:, layout.scale_bytes, None]
    return values.mul_(_floats(b[:, : layout.scale_bytes], kind))


DECODERS: Mapping[str, Callable[[Tensor, Tables], Tensor]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "MXFP4": _mxfp4,
    "NVFP4": _nvfp4,
    **{layout.name: partial(_layout, layout) for layout in LAYOUTS},
}
