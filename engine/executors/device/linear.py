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
    kind = TorchLinear
    if on.code == "int8":
        kind = Int8Linear
    elif on.code == "int4" and loader.shape(roles[0])[-1] % INT4_GROUP == 0:
        kind = Int4Linear
    return kind(on.device, on.dtype, loader, roles, orders)


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
        """The roles' matrices stacked in rows."""
        self._dtype = dtype
        self.rows, self.columns = sum(rows_of_role(loader, role) for role in roles), loader.shape(roles[0])[-1]
        self._parts = self._room(device)
        first = 0
        for role, order in zip(roles, orders or [None] * len(roles), strict=True):
            for at, values in loader.float32_rows(role, order):
                for coded, part in zip(self._coded(torch.from_numpy(values)), self._parts, strict=True):
                    device.upload(coded, part[first + at : first + at + len(coded)])
            first += rows_of_role(loader, role)
        self._loaded(device)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self._parts)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        (weight,) = self._parts
        return torch.nn.functional.linear(x.to(weight.dtype), weight).float()

    def _room(self, device: Device) -> tuple[torch.Tensor, ...]:
        """Empty tensors on the device for what `_coded` gives, of all rows."""
        return (device.empty(self.rows, self.columns, dtype=self._dtype),)

    def _coded(self, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """float32 [n, columns] in RAM -> tensors of n rows."""
        return (values.to(self._dtype),)

    def _loaded(self, device: Device) -> None:
        """All rows are there."""


class Int8Linear(TorchLinear):
    """int8 codes [rows, columns] with a scale per row; arithmetic in dtype."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        codes, scales = self._parts
        x = x.to(self._dtype)
        if self._operator and len(x) <= FEW_TOKENS:
            return torch._weight_int8pack_mm(x, codes, scales).float()
        y = x.new_empty((len(x), self.rows), dtype=torch.float32)
        for some in _pieces(self.rows, self.columns):
            # Codes are whole numbers that bfloat16 holds exactly.
            y[:, some] = (x @ codes[some].to(x.dtype).T).float().mul_(scales[some].float())
        return y

    def _room(self, device: Device) -> tuple[torch.Tensor, ...]:
        codes = device.empty(self.rows, self.columns, dtype=torch.int8)
        return codes, device.empty(self.rows, dtype=self._dtype)

    def _coded(self, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return int8_codes(values, self._dtype)

    def _loaded(self, device: Device) -> None:
        # torch's operator reads whole vectors of rows and columns, and beyond the end of others.
        self._operator = self.rows % 32 == self.columns % 32 == 0 and int8_works(device, self._dtype)


class Int4Linear(TorchLinear):
    """Codes of four bits with a scale and a zero point for INT4_GROUP columns: (code - 8) * scale + zero.

    Two codes in a byte, the even column's in the upper half, as torch's operator takes them.
    """

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        codes, scales = self._parts
        x = x.to(self._dtype)
        if self._tiles:
            return torch._weight_int4pack_mm(x, codes, INT4_GROUP, scales).float()
        y = x.new_empty((len(x), self.rows), dtype=torch.float32)
        for some in _pieces(self.rows, self.columns):
            y[:, some] = x @ int4_values(codes[some], scales[some]).to(self._dtype).T
        return y

    def _room(self, device: Device) -> tuple[torch.Tensor, ...]:
        codes = device.empty(self.rows, self.columns // 2, dtype=torch.uint8)
        return codes, device.empty(self.rows, self.columns // INT4_GROUP, 2, dtype=self._dtype)

    def _coded(self, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return int4_codes(values, self._dtype)

    def _loaded(self, device: Device) -> None:
        self._tiles = int4_tiles(device, self._dtype, self.rows, self.columns)
        if self._tiles:
            codes, scales = self._parts
            packed = torch._convert_weight_to_int4pack(codes, self._tiles)
            self._parts = packed, scales.transpose(0, 1).contiguous()


def int8_codes(values: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """float32 [n, columns] -> int8 [n, columns] and scales of dtype [n]."""
    scales = (values.abs().amax(1) / 127).to(dtype)
    codes = (values / scales.float().clamp(min=1e-30)[:, None]).round_().clamp_(-127, 127)
    return codes.to(torch.int8), scales


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
