"""An activity as one image: a cell for each expert, its place by hue, how lately it was called by brightness."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PySide6.QtGui import QImage

from app.stage.activity import Activity
from app.theme.tokens import Tokens

#: Steps from dark to full glow.
LEVELS = 64
#: How much of the place's colour a cell has that is at rest. VRAM rests brighter: a difference for every eye.
REST_RAM, REST_VRAM = 0.20, 0.38
#: Narrower cells (in pixels of the screen) cannot be told apart: the layer takes further lines instead.
NARROWEST = 1.5
#: Cells at least this wide, and lines at least this high, are set apart by a gap of one pixel.
GAP_FROM_WIDTH, GAP_FROM_HEIGHT = 4, 4


@dataclass(frozen=True)
class Grid:
    """Cells on a rectangle of pixels. lines: text lines of a layer; columns: experts on each of them."""

    layers: int
    experts: int
    width: int
    height: int

    @property
    def lines(self) -> int:
        wanted = -(-round(self.experts * NARROWEST) // max(self.width, 1))
        # Never so many that a line has no pixel.
        return max(1, min(wanted, self.height // max(self.layers, 1)))

    @property
    def columns(self) -> int:
        return -(-self.experts // self.lines)

    def cell_at(self, x: float, y: float) -> tuple[int, int] | None:
        """(row, expert) under a pixel, None outside."""
        if not (0 <= x < self.width and 0 <= y < self.height):
            return None
        line = int(y * self.layers * self.lines / self.height)
        expert = (line % self.lines) * self.columns + int(x * self.columns / self.width)
        return (line // self.lines, expert) if expert < self.experts else None

    def rectangle(self, row: int, expert: int) -> tuple[float, float, float, float]:
        """x, y, width, height of a cell in pixels."""
        line, column = row * self.lines + expert // self.columns, expert % self.columns
        width, height = self.width / self.columns, self.height / (self.layers * self.lines)
        return column * width, line * height, width, height


def colours(tokens: Tokens) -> npt.NDArray[np.uint32]:
    """0xFFRRGGBB [2 * LEVELS + 1]: RAM from rest to full glow, VRAM likewise, and what shows between cells."""
    steps = np.linspace(0.0, 1.0, LEVELS)
    table = [
        _mixed(tokens.bg, place, rest + (1 - rest) * steps)
        for place, rest in ((tokens.ram, REST_RAM), (tokens.vram, REST_VRAM))
    ]
    return np.concatenate([*table, _mixed(tokens.bg, tokens.bg, np.ones(1))])


def _mixed(ground: str, ink: str, share: npt.NDArray[np.float64]) -> npt.NDArray[np.uint32]:
    low, high = (np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) for colour in (ground, ink))
    mixed = np.rint(low + (high - low) * share[:, None]).astype(np.uint32)
    packed: npt.NDArray[np.uint32] = (0xFF000000 | mixed[:, 0] << 16 | mixed[:, 1] << 8 | mixed[:, 2]).astype(np.uint32)
    return packed


class Picture:
    """Paints one activity after another onto the same pixels.

    A text line of cells is widened to pixels once and then copied for each line of pixels: a gather of every pixel
    took the greater part of a frame.
    """

    def __init__(self, grid: Grid, tokens: Tokens) -> None:
        self.grid = grid
        self._colours = colours(tokens)
        lines = grid.layers * grid.lines
        # A line and a column more than there are, and what the last line of a layer has left: what lies between cells.
        self._levels = np.full((grid.layers, grid.lines * grid.columns), 2 * LEVELS, np.uint8)
        self._cells = np.full((lines + 1, grid.columns + 1), self._colours[2 * LEVELS], np.uint32)
        self._of_lines = np.empty((lines, grid.columns), np.uint32)
        self._stripes = np.empty((lines + 1, grid.width), np.uint32)
        self._line_of_pixel, self._column_of_pixel = _cells(grid)
        self._pixels = np.empty((grid.height, grid.width), np.uint32)
        self._image = QImage(self._pixels.data, grid.width, grid.height, grid.width * 4, QImage.Format.Format_RGB32)

    def paint(self, activity: Activity) -> QImage:
        """The image shares its pixels with the next call."""
        levels = self._levels[:, : self.grid.experts]
        np.multiply(activity.glow, LEVELS - 1, out=levels, casting="unsafe")
        levels += activity.in_vram.view(np.uint8) * np.uint8(LEVELS)
        np.take(self._colours, self._levels.reshape(self._of_lines.shape), out=self._of_lines, mode="clip")
        self._cells[:-1, :-1] = self._of_lines
        np.take(self._cells, self._column_of_pixel, axis=1, out=self._stripes, mode="clip")
        np.take(self._stripes, self._line_of_pixel, axis=0, out=self._pixels, mode="clip")
        return self._image


def _cells(grid: Grid) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The text line of each line of pixels, [height], and the column of each column of them, [width].

    Between cells they are the number of text lines, and of columns.
    """
    lines = grid.layers * grid.lines
    line = np.arange(grid.height) * lines // max(grid.height, 1)
    column = np.arange(grid.width) * grid.columns // max(grid.width, 1)
    if grid.height >= GAP_FROM_HEIGHT * lines:
        line[_last_of_each(line)] = lines
    elif grid.height >= GAP_FROM_HEIGHT * grid.layers:
        line[_last_of_each(line // grid.lines)] = lines
    if grid.width >= GAP_FROM_WIDTH * grid.columns:
        column[_last_of_each(column)] = grid.columns
    return line.astype(np.intp), column.astype(np.intp)


def _last_of_each(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Where the next number is another one."""
    return np.append(numbers[1:] != numbers[:-1], False)
