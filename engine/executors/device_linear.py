"""Linear layers on a torch device: as floats, or re-coded to int8 or int4 where VRAM is short.

torch has operators for both codes, on some devices and for some shapes. Each is tried on a small matrix before it is
relied on; where it is missing or wrong, matrices are dequantised in pieces as they are used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from engine.executors.devices import DenseDevice, Device
from engine.executors.linear import Linear, RowOrder, rows_of_role
from engine.executors.loading import Loader
from engine.placement.sizes import DENSE_AT_ONCE, INT4_GROUP

log = logging.getLogger(__name__)

#: Tokens up to which torch's operators on codes are used; they are made for few rows.
FEW_TOKENS = 16
#: What a group's range is narrowed by in search of the least squared error: outliers cost the others precision.
_NARROWER = (1.0, 0.95, 0.9, 0.85, 0.8)


def device_linear(
    on: DenseDevice, loader: Loader, roles: Sequence[str], orders: Sequence[RowOrder] | None = None
) -> Linear:
    """The roles' matrices stacked in rows, in the precision of the plan."""
    if on.code == "int8":
        return Int8Linear(on.device, on.dtype, loader, roles, orders)
    if on.code == "int4" and loader.shape(roles[0])[-1] % INT4_GROUP == 0:
        return Int4Linear(on.device, on.dtype, loader, roles, orders)
    return TorchLinear(on.device, on.dtype, loader, roles, orders)


def _rows(
    loader: Loader, roles: Sequence[str], orders: Sequence[RowOrder] | None
) -> Iterator[tuple[int, torch.Tensor]]:
    """(first row, float32 [n, columns] in RAM) of the stacked matrix, in pieces."""
    first = 0
    for role, order in zip(roles, orders or [None] * len(roles), strict=True):
        if order is None:
            for at, values in loader.float32_rows(role):
                yield first + at, torch.from_numpy(values)
        else:
            values = loader.float32(role).reshape(len(order), -1)
            yield first, torch.from_numpy(np.ascontiguousarray(values[order]))
        first += rows_of_role(loader, role)


class TorchLinear:
    """A float matrix [rows, columns]; arithmetic in the matrix's dtype."""

    def __init__(
        self,
        device: Device,
        dtype: torch.dtype,
        loader: Loader,
        roles: Sequence[str],
        orders: Sequence[RowOrder] | None = None,
    ) -> None:
        self.rows = sum(rows_of_role(loader, role) for role in roles)
        self._weight = device.empty(self.rows, loader.shape(roles[0])[-1], dtype=dtype)
        for first, values in _rows(loader, roles, orders):
            device.upload(values.to(dtype), self._weight[first : first + len(values)])

    @property
    def nbytes(self) -> int:
        return self._weight.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x.to(self._weight.dtype), self._weight).float()


class Int8Linear:
    """int8 codes [rows, columns] with a scale per row; arithmetic in dtype."""

    def __init__(
        self,
        device: Device,
        dtype: torch.dtype,
        loader: Loader,
        roles: Sequence[str],
        orders: Sequence[RowOrder] | None = None,
    ) -> None:
        self.rows, columns = sum(rows_of_role(loader, role) for role in roles), loader.shape(roles[0])[-1]
        self._codes = device.empty(self.rows, columns, dtype=torch.int8)
        self._scales = device.empty(self.rows, dtype=dtype)
        # torch's operator reads whole vectors of rows and columns, and beyond the end of others.
        self._operator = self.rows % 32 == columns % 32 == 0 and int8_works(device, dtype)
        for first, values in _rows(loader, roles, orders):
            codes, scales = int8_codes(values, dtype)
            device.upload(codes, self._codes[first : first + len(codes)])
            device.upload(scales, self._scales[first : first + len(scales)])

    @property
    def nbytes(self) -> int:
        return self._codes.nbytes + self._scales.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        x = x.to(self._scales.dtype)
        if self._operator and len(x) <= FEW_TOKENS:
            return torch._weight_int8pack_mm(x, self._codes, self._scales).float()
        y = x.new_empty((len(x), self.rows), dtype=torch.float32)
        for part in _pieces(*self._codes.shape):
            # Codes are whole numbers that bfloat16 holds exactly.
            y[:, part] = (x @ self._codes[part].to(x.dtype).T).float().mul_(self._scales[part].float())
        return y


def int8_codes(values: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """float32 [n, columns] -> int8 [n, columns] and scales of dtype [n]."""
    scales = (values.abs().amax(1) / 127).to(dtype)
    codes = (values / scales.float().clamp(min=1e-30)[:, None]).round_().clamp_(-127, 127)
    return codes.to(torch.int8), scales


class Int4Linear:
    """Codes of four bits with a scale and a zero point for INT4_GROUP columns: (code - 8) * scale + zero.

    Two codes in a byte, the even column's in the upper half, as torch's operator takes them.
    """

    def __init__(
        self,
        device: Device,
        dtype: torch.dtype,
        loader: Loader,
        roles: Sequence[str],
        orders: Sequence[RowOrder] | None = None,
    ) -> None:
        self.rows, self._columns = sum(rows_of_role(loader, role) for role in roles), loader.shape(roles[0])[-1]
        self._dtype = dtype
        groups = self._columns // INT4_GROUP
        self._codes = device.empty(self.rows, self._columns // 2, dtype=torch.uint8)
        self._scales = device.empty(self.rows, groups, 2, dtype=dtype)
        for first, values in _rows(loader, roles, orders):
            codes, scales = int4_codes(values, dtype)
            device.upload(codes, self._codes[first : first + len(codes)])
            device.upload(scales, self._scales[first : first + len(scales)])
        self._tiles = int4_tiles(device, dtype, self.rows, self._columns)
        if self._tiles:
            self._codes = torch._convert_weight_to_int4pack(self._codes, self._tiles)
            self._scales = self._scales.transpose(0, 1).contiguous()

    @property
    def nbytes(self) -> int:
        return self._codes.nbytes + self._scales.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        x = x.to(self._dtype)
        if self._tiles:
            return torch._weight_int4pack_mm(x, self._codes, INT4_GROUP, self._scales).float()
        y = x.new_empty((len(x), self.rows), dtype=torch.float32)
        for part in _pieces(self.rows, self._columns):
            y[:, part] = x @ int4_values(self._codes[part], self._scales[part]).to(self._dtype).T
        return y


def int4_codes(values: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """float32 [n, columns] -> uint8 [n, columns / 2], and scale and zero point of dtype [n, groups, 2]."""
    rows, columns = values.shape
    groups = values.view(rows, -1, INT4_GROUP)
    middle = (groups.amax(-1) + groups.amin(-1)) / 2
    half = (groups.amax(-1) - groups.amin(-1)) / 2
    best = torch.full_like(middle, torch.inf)
    codes = groups.new_zeros(groups.shape, dtype=torch.uint8)
    scales = groups.new_zeros((*middle.shape, 2), dtype=dtype)
    for share in _NARROWER:
        scale = (half * share / 7.5).to(dtype)
        zero = (middle + 0.5 * scale.float()).to(dtype)
        step = scale.float().clamp(min=1e-30)[..., None]
        tried = ((groups - zero.float()[..., None]) / step + 8).round_().clamp_(0, 15)
        error = ((tried - 8) * step + zero.float()[..., None] - groups).square_().sum(-1)
        better = error < best
        best = torch.where(better, error, best)
        codes = torch.where(better[..., None], tried.to(torch.uint8), codes)
        scales = torch.where(better[..., None], torch.stack((scale, zero), -1), scales)
    codes = codes.view(rows, columns)
    return codes[:, 0::2] << 4 | codes[:, 1::2], scales


def int4_values(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """What `int4_codes` gives -> float32 [n, columns]."""
    values = torch.stack((codes >> 4, codes & 15), -1).view(*scales.shape[:2], INT4_GROUP).float().sub_(8)
    return values.mul_(scales[..., :1]).add_(scales[..., 1:]).flatten(1)


def _pieces(rows: int, columns: int) -> Iterator[slice]:
    """Of so many rows that no more than DENSE_AT_ONCE weights are dequantised at a time."""
    step = max(1, DENSE_AT_ONCE // columns)
    return (slice(first, min(first + step, rows)) for first in range(0, rows, step))


def int8_works(device: Device, dtype: torch.dtype) -> bool:
    """Whether torch's operator for int8 is there and right."""
    return _tried(device, "int8", dtype, 0)


def int4_tiles(device: Device, dtype: torch.dtype, rows: int, columns: int) -> int:
    """Tiles of columns that torch's operator for int4 can take, 0 where it cannot or is not right."""
    if dtype != torch.bfloat16 or rows % 8:
        return 0
    tiles = next((tiles for tiles in (8, 4, 2) if columns % (16 * tiles) == 0), 0)
    return tiles if tiles and _tried(device, "int4", dtype, tiles) else 0


def _tried(device: Device, code: str, dtype: torch.dtype, tiles: int) -> bool:
    key = f"{code} {dtype} {tiles}"
    if key not in device.operators:
        device.operators[key] = _try(device, code, dtype, tiles)
    return device.operators[key]


def _try(device: Device, code: str, dtype: torch.dtype, tiles: int) -> bool:
    numbers = np.arange(64 * 256, dtype=np.float32)
    values = torch.from_numpy(np.sin(numbers)).view(64, 256)
    x = torch.from_numpy(np.cos(numbers[:256])).view(1, 256).to(dtype)
    try:
        if code == "int8":
            codes, scales = int8_codes(values, dtype)
            parts = [device.upload(part) for part in (x, codes, scales)]
            got = device.download(torch._weight_int8pack_mm(*parts))
            exact = codes.float() * scales.float()[:, None]
        else:
            codes, scales = int4_codes(values, dtype)
            packed = torch._convert_weight_to_int4pack(device.upload(codes), tiles)
            there = device.upload(scales.transpose(0, 1).contiguous())
            got = device.download(torch._weight_int4pack_mm(device.upload(x), packed, INT4_GROUP, there))
            exact = int4_values(codes, scales)
    except (torch.OutOfMemoryError, torch.AcceleratorError):
        raise
    except (RuntimeError, NotImplementedError) as error:
        log.info("no operator for %s on %s: %s", code, device.name, str(error).partition("\n")[0])
        return False
    expected = x.float() @ exact.T
    right = bool((got.float() - expected).abs().max() < 0.02 * expected.abs().max())
    if not right:
        log.warning("torch's operator for %s on %s is wrong and not used", code, device.name)
    return right
