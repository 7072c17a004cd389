"""Linear layers y = x W^T, on stored codes in our kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from engine import _native
from engine.executors.loading import Loader

if TYPE_CHECKING:
    import torch

#: Which stored row becomes which row of the loaded layer; None keeps the order.
RowOrder = npt.NDArray[np.int64] | None


class Linear(Protocol):
    """x float32 [T, columns] -> float32 [T, rows]."""

    rows: int

    @property
    def nbytes(self) -> int: ...

    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...


class NativeLinear:
    """Packed matrices of our kernels, stacked in rows; neighbours of one format share one matrix and one call."""

    def __init__(
        self,
        pool: _native.ThreadPool,
        loader: Loader,
        roles: Sequence[str],
        orders: Sequence[RowOrder] | None = None,
        recode: str | None = None,
        isa: str | None = None,
    ) -> None:
        self._pool = pool
        orders = orders or [None] * len(roles)
        self.parts: list[_native.Matrix] = []
        self._rows: list[int] = []
        columns = [loader.column_order(role) for role in roles]
        at = 0
        while at < len(roles):
            end = at + 1
            while end < len(roles) and _alike(loader, roles, columns, at, end):
                end += 1
            self._add_part(loader, roles[at:end], orders[at:end], recode, isa)
            at = end
        self.rows = sum(self._rows)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    def rows_of(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Rows of a single matrix, dequantised: float32 [len(rows), columns]."""
        (part,) = self.parts
        return part.dequantise_rows(np.ascontiguousarray(rows, np.int64))

    @property
    def code(self) -> str:
        return self.parts[0].code

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.shape[0]
        y = x.new_empty((tokens, self.rows))
        if len(self.parts) == 1:
            self.parts[0].forward(self._pool, x.data_ptr(), tokens, y.data_ptr())
            return y
        # One token's results lie side by side already; several tokens' must be brought together.
        first = 0
        for part, rows in zip(self.parts, self._rows, strict=True):
            piece = y[:, first : first + rows]
            first += rows
            room = piece if tokens == 1 else x.new_empty(piece.shape)
            part.forward(self._pool, x.data_ptr(), tokens, room.data_ptr())
            if tokens > 1:
                piece.copy_(room)
        return y

    def _add_part(
        self,
        loader: Loader,
        roles: Sequence[str],
        orders: Sequence[RowOrder],
        recode: str | None,
        isa: str | None,
    ) -> None:
        rows = [rows_of_role(loader, role) for role in roles]
        columns = loader.shape(roles[0])[-1]
        try:
            matrix = _native.Matrix(sum(rows), columns, loader.format(roles[0]), recode, isa)
            first = 0
            for role, count, order in zip(roles, rows, orders, strict=True):
                loader.pack(role, self._pool, matrix, first, order)
                first += count
            column_order = loader.column_order(roles[0])
            if column_order is not None:
                matrix.set_columns(np.ascontiguousarray(column_order, np.int32))
        except ValueError as error:
            raise loader.refuse(roles[0], error) from error
        self.parts.append(matrix)
        self._rows.append(sum(rows))


def _alike(
    loader: Loader, roles: Sequence[str], columns: Sequence[npt.NDArray[np.int32] | None], one: int, other: int
) -> bool:
    """Same format, and columns in the same order."""
    mine, theirs = columns[one], columns[other]
    same = mine is theirs if mine is None or theirs is None else np.array_equal(mine, theirs)
    return same and loader.format(roles[one]) == loader.format(roles[other])


def rows_of_role(loader: Loader, role: str) -> int:
    """GGUF stores a matrix of one row as a vector."""
    shape = loader.shape(role)
    return shape[0] if len(shape) == 2 else 1
