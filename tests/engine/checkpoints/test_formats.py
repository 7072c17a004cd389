from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from checkpoint_files import QUANTISABLE, random_blocks
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from engine.checkpoints.formats import FORMATS, GGUF_FORMATS
from engine.checkpoints.ggml_types import DECODERS


def test_every_record_has_the_block_size_of_the_ggml_specification() -> None:
    for form in GGUF_FORMATS.values():
        assert (form.block_values, form.block_bytes) == GGML_QUANT_SIZES[GGMLQuantizationType[form.name]]


def test_bits_per_weight_counts_scales() -> None:
    assert FORMATS["Q4_1"].bits_per_weight == 5.0
    assert FORMATS["Q6_K"].bits_per_weight == 6.5625


@settings(deadline=None)
@given(arrays.arrays(np.uint16, 64))
def test_bfloat16_and_float16_equal_torch_for_every_bit_pattern(bits: np.ndarray) -> None:
    for name, dtype in (("BF16", torch.bfloat16), ("F16", torch.float16)):
        expected = torch.from_numpy(bits.copy()).view(dtype).float().numpy()
        np.testing.assert_array_equal(FORMATS[name].dequantise(bits.view(np.uint8)), expected)


@pytest.mark.parametrize("name", DECODERS)
def test_any_bits_are_decoded_as_the_reference_decodes_them(name: str) -> None:
    """Bit for bit, infinities and denormals included; all that is not a number is alike."""
    form = FORMATS[name]
    data = np.random.default_rng(11).integers(0, 256, (700, form.block_bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(data, GGMLQuantizationType[name]).reshape(-1)
    values = form.dequantise(data.reshape(-1))
    assert values.dtype == np.float32
    same = (values.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(values) & np.isnan(expected))
    assert same.all()


@pytest.mark.parametrize("name", [name for name in FORMATS if name.startswith("Q") and name in QUANTISABLE])
@settings(deadline=None)
@given(seed=st.integers(0, 1000))
def test_quantised_values_come_back_within_the_rounding_of_the_format(name: str, seed: int) -> None:
    values = np.random.default_rng(seed).uniform(-1, 1, (4, 64)).astype(np.float32)
    data = gguf.quants.quantize(values, GGMLQuantizationType[name])
    back = FORMATS[name].dequantise(np.ascontiguousarray(data).reshape(-1)).reshape(4, 64)
    # Half of the widest step over [-1, 1]; a whole one for Q4_0 and Q5_0, which cannot hold both extremes.
    # Scale and minimum are rounded to half precision (2**-11 of a value) each.
    error = {"Q8_0": 1 / 254, "Q4_1": 1 / 15, "Q4_0": 1 / 8, "Q5_1": 1 / 31, "Q5_0": 1 / 16}[name] + 2 * 2**-11
    assert np.abs(back - values).max() <= error


def test_q4_k_follows_its_definition() -> None:
    """value = d * scale * q - dmin * minimum, with 6-bit scales packed as the format describes."""
    block = random_blocks((1, 256), "Q4_K", seed=3).reshape(-1)
    d, dmin = block[:4].copy().view("<f2").astype(np.float64)
    packed, quants = block[4:16].astype(int), block[16:].astype(int)
    expected = []
    for group in range(8):
        if group < 4:
            scale, minimum = packed[group] & 63, packed[group + 4] & 63
        else:
            scale = packed[group + 4] & 15 | packed[group - 4] >> 6 << 4
            minimum = packed[group + 4] >> 4 | packed[group] >> 6 << 4
        nibbles = quants[group // 2 * 32 : group // 2 * 32 + 32] >> 4 * (group % 2) & 15
        expected.append(d * scale * nibbles - dmin * minimum)
    np.testing.assert_allclose(FORMATS["Q4_K"].dequantise(block), np.concatenate(expected), rtol=1e-6, atol=1e-6)


def test_q6_k_follows_its_definition() -> None:
    """value = d * scale * (q - 32), 16 groups of 16 with int8 scales."""
    block = random_blocks((1, 256), "Q6_K", seed=5).reshape(-1)
    low, high = block[:128].astype(int), block[128:192].astype(int)
    scales, d = block[192:208].view(np.int8).astype(int), float(block[208:].copy().view("<f2")[0])
    expected = np.empty(256)
    for half in range(2):
        for i in range(32):
            bits = high[half * 32 + i]
            left, right = low[half * 64 + i], low[half * 64 + 32 + i]
            codes = (left & 15, right & 15, left >> 4, right >> 4)
            for quarter, code in enumerate(codes):
                at = half * 128 + quarter * 32 + i
                expected[at] = d * scales[at // 16] * ((code | (bits >> 2 * quarter & 3) << 4) - 32)
    np.testing.assert_allclose(FORMATS["Q6_K"].dequantise(block), expected, rtol=1e-6)
