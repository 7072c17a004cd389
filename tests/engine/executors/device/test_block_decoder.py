"""Stored blocks dequantised on a device: the very bits of the formats' own decoders."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from engine.checkpoints.formats import FORMATS
from engine.executors.device.block_decoder import DECODERS, BlockDecoder, Tables
from engine.executors.devices import Device
from engine.executors.opening import open_device
from engine.placement.sizes import DEQUANTISED_BYTES, FLOATS


@pytest.fixture(scope="module")
def sim() -> Iterator[Device]:
    device = open_device("sim:latency=0")
    yield device
    device.close()


def test_every_format_but_plain_floats_has_a_decoder() -> None:
    assert set(DECODERS) == set(FORMATS) - FLOATS


@pytest.mark.parametrize("name", sorted(DECODERS))
def test_blocks_of_random_bits_give_the_same_bits(sim: Device, name: str) -> None:
    """Every bit pattern is a block, damaged scales among them."""
    form = FORMATS[name]
    blocks = np.random.default_rng(1).integers(0, 256, (300, form.block_bytes), np.uint8)
    # All 256 values of the first and last byte, where scales and signs lie.
    blocks[:256, 0] = blocks[:256, -1] = np.arange(256)
    expected = form.dequantise(blocks.reshape(-1)).reshape(300, -1)
    with torch.inference_mode(), sim.working():
        values = sim.download(BlockDecoder(name, Tables(sim))(sim.upload(torch.from_numpy(blocks))))
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(values.numpy()[number].view(np.uint32), expected[number].view(np.uint32))
    assert values.isnan().numpy().sum() == (~number).sum()


@pytest.mark.parametrize("name", sorted(DECODERS))
def test_the_work_space_is_as_planned(sim: Device, name: str) -> None:
    form = FORMATS[name]
    count = (1 << 20) // form.block_values
    with torch.inference_mode(), sim.working():
        decoder, blocks = BlockDecoder(name, Tables(sim)), sim.empty(count, form.block_bytes, dtype=torch.uint8).zero_()
        decoder(blocks[:1])  # constants
        sim.synchronise()
        sim.reset_peak()
        before = sim.memory().held
        decoder(blocks).to(torch.bfloat16)
        assert sim.memory().peak - before <= DEQUANTISED_BYTES * count * form.block_values
