"""Blocks of codes and scales against their definition, read value by value."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.checkpoints.blocks import LAYOUTS, BlockLayout
from engine.checkpoints.formats import FORMATS


def scale_of(data: bytes, kind: str) -> float:
    if kind == "BF16":
        return struct.unpack("<f", b"\0\0" + data)[0]
    return struct.unpack("<e" if kind == "F16" else "<f", data)[0]


def e4m3(byte: int) -> float:
    return torch.tensor([byte], dtype=torch.uint8).view(torch.float8_e4m3fn).float().item()


def by_definition(name: str, block: bytes) -> list[float]:
    """Decode one block by what its name says."""
    code, group_text, scale_kind, *zero_text = name.split("_")
    group, width = int(group_text[1:]), {"F16": 2, "BF16": 2, "F32": 4}[scale_kind]
    scale, rest = scale_of(block[:width], scale_kind), block[width:]
    zero = rest[0] if zero_text else None
    codes = rest[1:] if zero_text else rest
    values: list[float] = []
    for j in range(group):
        if code == "I4":
            q = codes[j // 2] >> 4 * (j % 2) & 15
            values.append(scale * (q - (8 if zero is None else zero)))
        elif code == "I8":
            values.append(scale * (codes[j] - zero if zero is not None else struct.unpack("b", codes[j : j + 1])[0]))
        else:
            values.append(scale * e4m3(codes[j]))
    return values


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_every_layout_is_decoded_as_its_name_defines(layout: BlockLayout) -> None:
    random = np.random.default_rng(layout.group)
    blocks = random.integers(0, 256, (3, layout.nbytes), dtype=np.uint8)
    for block, scale in zip(blocks, (0.03, -1.75, 1e-4), strict=True):
        bits = {"F16": np.float16(scale).tobytes(), "F32": np.float32(scale).tobytes()}
        stored = bits.get(layout.scale, np.float32(scale).tobytes()[2:])
        block[: len(stored)] = np.frombuffer(stored, np.uint8)
    expected = [value for block in blocks for value in by_definition(layout.name, block.tobytes())]
    # Rounded once: the product of a code (8 bits or fewer) and a float32 is exact in float64.
    np.testing.assert_array_equal(FORMATS[layout.name].dequantise(blocks.reshape(-1)), np.float32(expected))


def test_a_layouts_name_size_and_rate_agree() -> None:
    assert FORMATS["I4_G128_F16"].block_bytes == 66
    assert FORMATS["I4_G32_BF16"].bits_per_weight == 4.5
    assert FORMATS["I8_G16_F32_Z"].block_bytes == 4 + 1 + 16
    assert FORMATS["E4M3_G128_F32"].block_bytes == 132
    assert "E4M3_G128_F32_Z" not in FORMATS


@settings(deadline=None, max_examples=20)
@given(st.binary(min_size=66, max_size=66))
def test_no_bytes_make_decoding_fail(data: bytes) -> None:
    values = FORMATS["I4_G128_F16"].dequantise(np.frombuffer(data, np.uint8))
    assert (values.dtype, values.shape) == (np.float32, (128,))
