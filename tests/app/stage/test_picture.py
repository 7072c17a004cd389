"""The picture of the stage: every expert has its pixels, and its place can be told by every eye."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtGui import QColor

from app.stage.activity import Activity
from app.stage.picture import LEVELS, Grid, Picture, colours
from app.theme.tokens import DARK, LIGHT, Tokens

THEMES = pytest.mark.parametrize("tokens", [LIGHT, DARK], ids=lambda tokens: tokens.name)
#: How colours look without red, green and blue cones (Machado, Oliveira and Fernandes 2009, severity 1), linear sRGB.
BLIND = {
    "none": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def lab(colour: int, eye: np.ndarray) -> np.ndarray:
    """CIE L*a*b* (D65) of 0xRRGGBB as that eye sees it."""
    channels = np.array([colour >> 16 & 255, colour >> 8 & 255, colour & 255]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(eye @ linear, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@THEMES
@pytest.mark.parametrize("eye", BLIND.values(), ids=BLIND)
def test_places_and_light_can_be_told_apart_by_every_eye(tokens: Tokens, eye: np.ndarray) -> None:
    table = [lab(int(colour), eye) for colour in colours(tokens)]
    ram, vram = table[:LEVELS], table[LEVELS : 2 * LEVELS]
    assert np.linalg.norm(ram[-1] - vram[-1]) > 20, "at work"
    assert np.linalg.norm(ram[0] - vram[0]) > 8, "at rest"
    for place in (ram, vram):
        assert np.linalg.norm(place[0] - place[-1]) > 25, "at work or at rest"


@given(st.integers(1, 70), st.integers(1, 400), st.integers(1, 500), st.integers(1, 400))
def test_every_expert_has_pixels_and_hover_finds_what_is_painted(
    layers: int, experts: int, width: int, height: int
) -> None:
    grid = Grid(layers, experts, width, height)
    for row, expert in ((0, 0), (layers - 1, experts - 1), (layers // 2, experts // 2)):
        x, y, w, h = grid.rectangle(row, expert)
        assert x >= 0
        assert y >= 0
        assert x + w <= width + 1e-6
        assert y + h <= height + 1e-6
        assert grid.cell_at(x + w / 2, y + h / 2) == (row, expert)
    assert grid.cell_at(-1, 0) is None
    assert grid.cell_at(0, height) is None


@THEMES
@pytest.mark.parametrize("shape", [(48, 128, 302, 430), (61, 384, 302, 430), (4, 8, 300, 200)])
def test_a_call_is_seen_where_its_expert_is(shape: tuple[int, int, int, int], tokens: Tokens) -> None:
    layers, experts, width, height = shape
    activity = Activity(tuple(range(layers)), experts)
    activity.in_vram[0, 1] = True
    activity.lately[layers - 1, experts - 1] = activity.lately[0, 1] = 2.0
    picture = Picture(Grid(*shape), tokens)
    image = picture.paint(activity)
    assert (image.width(), image.height()) == (width, height)

    def colour_of(row: int, expert: int) -> str:
        x, y, w, h = picture.grid.rectangle(row, expert)
        return image.pixelColor(int(x + w / 2), int(y + h / 2)).name().upper()

    assert colour_of(0, 1) == tokens.vram
    assert colour_of(layers - 1, experts - 1) == tokens.ram
    assert colour_of(0, 0) == QColor(int(colours(tokens)[0])).name().upper()


@given(st.integers(1, 40), st.integers(1, 200), st.integers(1, 300), st.integers(1, 200), st.integers(0, 99))
def test_each_pixel_shows_the_expert_under_it_or_what_lies_between(
    layers: int, experts: int, width: int, height: int, seed: int
) -> None:
    chance = np.random.default_rng(seed)
    activity = Activity(tuple(range(layers)), experts)
    activity.lately[:] = 2 * chance.random(activity.lately.shape)
    activity.in_vram[:] = chance.random(activity.lately.shape) < 0.5
    grid, table = Grid(layers, experts, width, height), colours(DARK)
    image = Picture(grid, DARK).paint(activity)
    between = int(table[2 * LEVELS])
    for x, y in zip(chance.integers(width, size=20).tolist(), chance.integers(height, size=20).tolist(), strict=True):
        cell, shown = grid.cell_at(x, y), image.pixel(x, y)
        if cell is None:
            assert shown == between
        elif shown != between:
            level = int(activity.glow[cell] * np.float32(LEVELS - 1)) + LEVELS * int(activity.in_vram[cell])
            assert shown == table[level]
        else:
            # A gap stands where the next pixel belongs to another line or column.
            assert cell != grid.cell_at(x + 1, y) or grid.cell_at(x, y + 1) != cell


def test_many_experts_take_several_lines_rather_than_none() -> None:
    assert Grid(61, 384, 302, 430).lines == 2
    assert Grid(61, 384, 604, 860).lines == 1
    assert Grid(48, 128, 302, 430).lines == 1
    assert Grid(48, 128, 40, 48).lines == 1, "no line without a pixel"
