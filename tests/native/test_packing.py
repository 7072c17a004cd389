"""Stored bytes survive packing; recoding loses as little as its codes allow."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_reference import BLOCKS, FORMATS, MULTIPLES, SCALES, dequantised, scale_bytes, stored

from engine import _native


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("recode", [None, "float32"])
@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 50), blocks=st.integers(1, 4), seed=st.integers(0, 999))
def test_dequantise_is_bit_for_bit(
    pool: _native.ThreadPool, fmt: str, recode: str | None, rows: int, blocks: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    columns = blocks * MULTIPLES[fmt]
    raw = stored(rng, rows, columns, fmt)
    matrix = _native.Matrix(rows, columns, fmt, recode)
    matrix.load(pool, raw)
    expected = dequantised(raw, fmt)
    assert matrix.dequantise().shape == expected.shape
    assert np.array_equal(matrix.dequantise().view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("fmt", sorted(SCALES))
def test_any_scale_survives(pool: _native.ThreadPool, fmt: str) -> None:
    """Every finite f16, subnormal and negative ones too."""
    scales = np.arange(1 << 16, dtype=np.uint16)
    scales = scales[np.isfinite(scales.view(np.float16))]
    block, nbytes = BLOCKS[fmt]
    raw = np.random.default_rng(1).integers(0, 256, (len(scales), nbytes), dtype=np.uint8)
    for at in SCALES[fmt]:
        raw[:, at : at + 2] = scales[:, None].view(np.uint8)
    if fmt == "MXFP4":
        raw[:, 0] = np.arange(len(raw)) % 256
    if fmt == "NVFP4":
        raw[:, :4] = np.arange(4 * len(raw)).reshape(-1, 4) % 256
    matrix = _native.Matrix(len(scales), block, fmt)
    matrix.load(pool, raw)
    assert np.array_equal(matrix.dequantise(), dequantised(raw, fmt))


@pytest.mark.parametrize("fmt", ["I4_G32_F16", "I8_G64_BF16_Z", "E4M3_G32_BF16", "I4_G16_BF16", "E4M3_G64_F16"])
def test_any_sixteen_bit_scale_of_a_block_survives(pool: _native.ThreadPool, fmt: str) -> None:
    scales = np.arange(1 << 16, dtype=np.uint16)
    exponent = 0x7F80 if "BF16" in fmt else 0x7C00
    scales = scales[(scales & exponent) != exponent][: 1 << 15]
    raw = stored(np.random.default_rng(1), len(scales), MULTIPLES[fmt], fmt)
    raw[:, :2] = scales[:, None].view(np.uint8)
    matrix = _native.Matrix(len(scales), MULTIPLES[fmt], fmt)
    matrix.load(pool, raw)
    assert np.array_equal(matrix.dequantise().view(np.uint32), dequantised(raw, fmt).view(np.uint32))


@pytest.mark.parametrize("isa", _native.tiers())
def test_every_e4m3_is_multiplied_with(pool: _native.ThreadPool, isa: str) -> None:
    """All codes, subnormal ones too; a NaN spoils its row and no other."""
    raw = np.empty((256, 34), np.uint8)
    raw[:, :2] = scale_bytes(np.full(256, 0.5), "BF16")
    raw[:, 2:] = np.arange(256)[:, None]
    matrix = _native.Matrix(256, 32, "E4M3_G32_BF16", isa=isa)
    matrix.load(pool, raw)
    expected = dequantised(raw, "E4M3_G32_BF16")
    assert np.array_equal(matrix.dequantise(), expected, equal_nan=True)
    for column in (0, 1, 2, 3, 30):
        x, y = np.zeros((1, 32), np.float32), np.zeros((1, 256), np.float32)
        x[0, column] = 1
        matrix.forward(pool, x.ctypes.data, 1, y.ctypes.data)
        assert np.array_equal(y[0], expected[:, column], equal_nan=True)
        assert np.isnan(y[0]).sum() == 2


@pytest.mark.parametrize("isa", _native.tiers())
def test_every_nvfp4_scale_is_multiplied_with(pool: _native.ThreadPool, isa: str) -> None:
    raw = np.random.default_rng(1).integers(0, 256, (256, 36), dtype=np.uint8)
    raw[:, :4] = np.arange(256)[:, None]
    matrix = _native.Matrix(256, 64, "NVFP4", isa=isa)
    matrix.load(pool, raw)
    for column in (3, 12, 17, 40, 63):
        x, y = np.zeros((1, 64), np.float32), np.zeros((1, 256), np.float32)
        x[0, column] = 1
        matrix.forward(pool, x.ctypes.data, 1, y.ctypes.data)
        assert np.allclose(y[0], dequantised(raw, "NVFP4")[:, column], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("isa", _native.tiers())
def test_every_power_of_two_is_multiplied_with(pool: _native.ThreadPool, isa: str) -> None:
    """MXFP4's scales, of which the smallest are subnormal, inside the kernels."""
    raw = np.random.default_rng(1).integers(0, 256, (255, 17), dtype=np.uint8)
    raw[:, 0] = np.arange(255)
    matrix = _native.Matrix(255, 32, "MXFP4", isa=isa)
    matrix.load(pool, raw)
    x, y = np.zeros((1, 32), np.float32), np.zeros((1, 255), np.float32)
    x[0, 3] = 1
    matrix.forward(pool, x.ctypes.data, 1, y.ctypes.data)
    assert np.allclose(y[0], dequantised(raw, "MXFP4")[:, 3], rtol=1e-6, atol=2e-45)


@pytest.mark.parametrize("fmt", FORMATS)
def test_rows_may_come_in_pieces(pool: _native.ThreadPool, fmt: str) -> None:
    rng = np.random.default_rng(2)
    raw = stored(rng, 45, 256, fmt)
    whole, pieces = _native.Matrix(45, 256, fmt), _native.Matrix(45, 256, fmt)
    whole.load(pool, raw)
    for first, last in ((20, 45), (0, 3), (3, 20)):
        pieces.load(pool, raw[first:last], first)
    assert np.array_equal(whole.dequantise(), pieces.dequantise())


def test_wrong_sizes_are_refused(pool: _native.ThreadPool) -> None:
    matrix = _native.Matrix(20, 64, "Q8_0")
    row = np.zeros(68, np.uint8)
    for data, first, words in (
        (np.zeros(67, np.uint8), 0, "whole number"),
        (np.zeros(0, np.uint8), 0, "whole number"),
        (row, 20, "do not fit"),
        (row, -1, "do not fit"),
        (np.zeros(68 * 21, np.uint8), 0, "do not fit"),
    ):
        with pytest.raises(ValueError, match=words):
            matrix.load(pool, data, first)
    with pytest.raises(TypeError):
        matrix.load(pool, row.view(np.int8))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        matrix.load(pool, np.zeros((2, 136), np.uint8)[:, ::2])


#: IQ4_NL's table, which int4 in groups of 32 takes.
TABLE = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float64)


def table_error(w: np.ndarray, extreme_on: float) -> np.ndarray:
    """Squared error per group of 32 when the scale (in f16) puts the largest value on `extreme_on`."""
    groups = w.reshape(-1, 32).astype(np.float64)
    extreme = np.take_along_axis(groups, np.abs(groups).argmax(1)[:, None], 1)
    scale = (extreme / extreme_on).astype(np.float16).astype(np.float64)
    codes = np.searchsorted((TABLE[1:] + TABLE[:-1]) / 2, groups / np.where(scale == 0, 1, scale))
    return ((groups - TABLE[codes] * scale) ** 2).sum(1)


def weights_of(kind: str, columns: int = 512) -> np.ndarray:
    """float32 [64, columns]: rows of any size; "heavy" has a few values far outside, as trained models do."""
    rng = np.random.default_rng(3)
    w = rng.standard_normal((64, columns)) if kind == "normal" else rng.standard_t(4, (64, columns))
    return (w * rng.uniform(0.001, 2, (64, 1))).astype(np.float32)


def recoded(pool: _native.ThreadPool, w: np.ndarray, recode: str) -> np.ndarray:
    matrix = _native.Matrix(*w.shape, "F32", recode)
    matrix.load(pool, w.view(np.uint8))
    assert matrix.code == recode.split("_")[0]
    return matrix.dequantise()


def relative_error(got: np.ndarray, w: np.ndarray) -> float:
    """Root of the squared errors' sum over that of the squares, both taken over the whole matrix."""
    return float(np.linalg.norm((got - w.astype(np.float64)) / w.std(1, keepdims=True)) / np.sqrt(w.size))


@pytest.mark.parametrize("kind", ["normal", "heavy"])
def test_int4_is_searched(pool: _native.ThreadPool, kind: str) -> None:
    """Far less is lost than by Q4_0, which has as many bits, and by symmetric codes -7 .. 7. A scan of 80 scales of
    both signs finds little better, and in no group much better than what stands for its weights."""
    w = weights_of(kind)
    got = recoded(pool, w, "int4")
    groups = w.reshape(-1, 32)
    scale = np.abs(groups).max(1, keepdims=True) / 7
    absmax = relative_error((np.rint(groups / scale) * scale).reshape(w.shape), w)
    q4_0 = relative_error(dequantize(quantize(w, GGMLQuantizationType.Q4_0), GGMLQuantizationType.Q4_0), w)
    assert relative_error(got, w) < 0.8 * absmax
    assert relative_error(got, w) < (0.88 if kind == "normal" else 0.8) * q4_0
    error = ((got - w.astype(np.float64)).reshape(-1, 32) ** 2).sum(1)
    scanned = np.min([table_error(w, sign * c) for c in np.linspace(85, 145, 40) for sign in (-1, 1)], 0)
    assert np.sqrt(error.sum() / scanned.sum()) < 1.03
    assert np.all(error <= table_error(w, -127) * 1.15)


@pytest.mark.parametrize("kind", ["normal", "heavy"])
def test_int4_takes_the_nearest_value_of_its_table(pool: _native.ThreadPool, kind: str) -> None:
    w = weights_of(kind)
    got = recoded(pool, w, "int4").reshape(-1, 32).astype(np.float64)
    groups = w.reshape(-1, 32).astype(np.float64)
    # Scales are searched near the largest value; the one in use is that under which all values are of the table.
    for value, weight in zip(got[:200], groups[:200], strict=True):
        largest = np.abs(value).argmax()
        scales = [value[largest] / t for t in TABLE]
        fits = [s for s in scales if np.abs(value[:, None] / s - TABLE).min(1).max() < 1e-3]
        assert fits
        distances = [np.abs(weight[:, None] - s * TABLE).min(1) + np.abs(s) * 1e-3 for s in fits]
        assert any(np.all(np.abs(weight - value) <= d) for d in distances)


@pytest.mark.parametrize("kind", ["normal", "heavy"])
def test_groups_of_128_lose_a_little_more(pool: _native.ThreadPool, kind: str) -> None:
    w = weights_of(kind)
    wide, narrow = (relative_error(recoded(pool, w, recode), w) for recode in ("int4_g128", "int4"))
    assert narrow < wide < 1.8 * narrow
    assert _native.packed_nbytes(64, 512, "F32", "int4_g128") * 8 == 4.125 * w.size


def test_int8_rounds_to_nearest_under_the_largest_value(pool: _native.ThreadPool) -> None:
    w = weights_of("heavy")
    got = recoded(pool, w, "int8")
    groups = w.reshape(-1, 32).astype(np.float64)
    # Half a step, and what rounding the scale to f16 can move.
    step = np.abs(groups).max(1, keepdims=True) / 127
    assert np.all(np.abs(groups - got.reshape(-1, 32)) <= step * (0.5 + 127 * 2.0**-11))
    assert relative_error(got, w) < 0.008


@pytest.mark.parametrize("recode", ["int8", "int4", "int4_g128"])
def test_recoding_gives_the_same_bits_on_every_tier(
    pool: _native.ThreadPool, recode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = weights_of("heavy", 640)
    w[3] = 0
    w[4, 5:] = 0
    results = []
    for tier in ("portable", "avx2", "avx512vnni"):
        monkeypatch.setenv("GREENROOM_ISA", tier)
        results.append(recoded(pool, w, recode).view(np.uint32))
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


def test_recoding_keeps_what_is_exact(pool: _native.ThreadPool) -> None:
    rng = np.random.default_rng(4)
    for recode, values in (("int4", TABLE), ("int4_g128", np.arange(-8, 8)), ("int8", np.arange(-127, 128))):
        codes = rng.choice(values, (16, 256))
        codes[:, ::32] = values[0]
        w = (codes * 0.125).astype(np.float32)
        w[3] = 0
        matrix = _native.Matrix(16, 256, "F32", recode)
        matrix.load(pool, w.view(np.uint8))
        assert np.array_equal(matrix.dequantise(), w)


def test_codes_of_the_asked_width_are_kept(pool: _native.ThreadPool) -> None:
    raw = stored(np.random.default_rng(5), 16, 256, "Q4_K")
    matrix = _native.Matrix(16, 256, "Q4_K", "int4")
    matrix.load(pool, raw)
    assert np.array_equal(matrix.dequantise(), dequantised(raw, "Q4_K"))


@pytest.mark.parametrize("recode", ["int8", "int4", "int4_g128"])
def test_recoding_survives_weights_of_any_size(
    pool: _native.ThreadPool, recode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too small for an f16 scale they are 0, too large they are the largest that codes and scale can say."""
    rng = np.random.default_rng(6)
    sizes = np.array([1e-45, 1e-38, 1e-30, 1e-9, 1e30, 3e38])[:, None]
    w = (rng.uniform(-1, 1, (6, 256)) * sizes).astype(np.float32)
    results = []
    for tier in ("portable", "avx2", "avx512vnni"):
        monkeypatch.setenv("GREENROOM_ISA", tier)
        results.append(recoded(pool, w, recode))
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])
    assert np.all(results[0][:4] == 0)
    assert np.all(np.abs(results[0][4:]).max(1) > 65504 * 6)
    assert np.all(np.isfinite(results[0]))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_recoding_refuses_what_no_code_can_hold(pool: _native.ThreadPool, bad: float) -> None:
    w = np.zeros((40, 64), np.float32)
    w[33, 5] = bad
    with pytest.raises(ValueError, match="NaN or infinite"):
        _native.Matrix(40, 64, "F32", "int8").load(pool, w.view(np.uint8))


def test_a_factor_multiplies_its_rows(pool: _native.ThreadPool) -> None:
    rng = np.random.default_rng(6)
    raw = stored(rng, 40, 128, "NVFP4")
    plain, scaled = _native.Matrix(40, 128, "NVFP4"), _native.Matrix(40, 128, "NVFP4")
    plain.load(pool, raw)
    scaled.load(pool, raw)
    scaled.set_factor(17, 23, 0.3)
    factors = np.where(np.arange(40) < 17, np.float32(1), np.float32(0.3))
    assert np.array_equal(scaled.dequantise(), plain.dequantise() * factors[:, None])
    x = rng.standard_normal((11, 128)).astype(np.float32)
    y = np.zeros((2, 11, 40), np.float32)
    for matrix, out in zip((plain, scaled), y, strict=True):
        matrix.forward(pool, x.ctypes.data, 11, out.ctypes.data)
    assert np.array_equal(y[1], y[0] * factors)
    for arguments, words in (((0, 40, np.nan), "finite"), ((0, 1, np.inf), "finite"), ((30, 11, 1), "40 rows")):
        with pytest.raises(ValueError, match=words):
            scaled.set_factor(*arguments)
