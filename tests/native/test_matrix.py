"""One packed matrix against float64, on every tier this CPU has."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_reference import (
    ALL_BLOCKS,
    BLOCKS,
    CODES,
    FORMATS,
    MULTIPLES,
    SCALES,
    activations,
    dequantised,
    linear,
    magnitudes,
    rounding_bound,
    stored,
)

from engine import _native

TIERS = _native.tiers()
Floats = npt.NDArray[np.float32]


def packed(
    pool: _native.ThreadPool, raw: npt.NDArray[np.uint8], columns: int, fmt: str, isa: str, recode: str | None = None
) -> _native.Matrix:
    matrix = _native.Matrix(len(raw), columns, fmt, recode, isa)
    matrix.load(pool, raw)
    return matrix


def forward(pool: _native.ThreadPool, matrix: _native.Matrix, x: Floats, rows: int) -> Floats:
    y = np.full((len(x), rows), 123.0, np.float32)
    matrix.forward(pool, x.ctypes.data, len(x), y.ctypes.data)
    return y


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("isa", TIERS)
@settings(max_examples=12, deadline=None)
@given(
    rows=st.integers(1, 70),
    blocks=st.integers(1, 3),
    tokens=st.integers(1, 40),
    odd=st.integers(0, 7),
    seed=st.integers(0, 99),
)
def test_product_is_exact_for_the_activations_it_sees(
    pool: _native.ThreadPool, isa: str, fmt: str, rows: int, blocks: int, tokens: int, odd: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    multiple = MULTIPLES[fmt]
    columns = blocks * multiple if multiple > 1 else 8 * blocks + odd
    raw = stored(rng, rows, columns, fmt)
    matrix = packed(pool, raw, columns, fmt, isa)
    assert matrix.code == CODES[fmt]
    x = rng.standard_normal((tokens, columns)).astype(np.float32)
    seen = activations(x, _native.kernel_tier(matrix.code, isa), matrix.code)
    exact, bound = linear(raw, fmt, seen)
    y = forward(pool, matrix, x, rows)
    assert np.all(np.abs(y - exact) <= bound)


@pytest.mark.parametrize("fmt", ALL_BLOCKS)
def test_every_block_on_every_tier(pool: _native.ThreadPool, fmt: str) -> None:
    rng = np.random.default_rng(len(fmt))
    raw = stored(rng, 35, 384, fmt)
    x = rng.standard_normal((9, 384)).astype(np.float32)
    for isa in TIERS:
        matrix = packed(pool, raw, 384, fmt, isa)
        assert np.array_equal(matrix.dequantise().view(np.uint32), dequantised(raw, fmt).view(np.uint32))
        exact, bound = linear(raw, fmt, activations(x, _native.kernel_tier(matrix.code, isa), matrix.code))
        assert np.all(np.abs(forward(pool, matrix, x, 35) - exact) <= bound)
        assert np.all(np.abs(forward(pool, matrix, x[:1], 35) - exact[:1]) <= bound[:1])


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("isa", TIERS)
def test_error_against_exact_activations_is_at_most_half_a_step(pool: _native.ThreadPool, isa: str, fmt: str) -> None:
    rng = np.random.default_rng(5)
    raw = stored(rng, 48, 512, fmt)
    matrix = packed(pool, raw, 512, fmt, isa)
    x = rng.standard_normal((20, 512)).astype(np.float32)
    w = dequantised(raw, fmt).astype(np.float64)
    step = activations(x, _native.kernel_tier(matrix.code, isa), matrix.code).step
    bound = 0.5 * step @ np.abs(w.T) + rounding_bound(np.abs(x.astype(np.float64)) @ magnitudes(raw, fmt).T, 512)
    error = np.abs(forward(pool, matrix, x, 48) - x.astype(np.float64) @ w.T)
    assert np.all(error <= bound)
    if matrix.code in ("int4", "int8"):
        # Rounding errors are independent and uniform: their sum deviates by step / sqrt(12) times the norm of w.
        deviation = np.sqrt(((step**2 / 12) @ (w**2).T).mean())
        assert 0.7 * deviation < np.sqrt((error**2).mean()) < 1.3 * deviation


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("isa", TIERS)
def test_bits_depend_on_neither_threads_nor_other_tokens(isa: str, fmt: str) -> None:
    rng = np.random.default_rng(6)
    raw = stored(rng, 83, 1280, fmt)  # 40 groups: blocks of columns of 14, 14 and 12, or of whole steps 16, 16 and 8
    x = rng.standard_normal((75, 1280)).astype(np.float32)
    results = []
    for threads in (1, 2, 3, 4):
        pool = _native.ThreadPool(threads)
        matrix = packed(pool, raw, 1280, fmt, isa)
        results.append(forward(pool, matrix, x, 83))
        # Pieces of 1, 2, ... 11 tokens, then the rest, and one by one: kernels differ by how many come together.
        for cuts in (np.cumsum(range(1, 12)), range(1, 75)):
            pieces = [forward(pool, matrix, piece, 83) for piece in np.split(x, cuts)]
            results.append(np.concatenate(pieces))
        pool.close()
    for result in results[1:]:
        assert np.array_equal(result.view(np.uint32), results[0].view(np.uint32))


@pytest.mark.parametrize("isa", TIERS)
def test_more_tokens_than_one_pass_takes(pool: _native.ThreadPool, isa: str) -> None:
    rng = np.random.default_rng(7)
    raw = stored(rng, 5, 32, "Q8_0")
    matrix = packed(pool, raw, 32, "Q8_0", isa)
    x = rng.standard_normal((1100, 32)).astype(np.float32)
    exact, bound = linear(raw, "Q8_0", activations(x, isa, "int8"))
    assert np.all(np.abs(forward(pool, matrix, x, 5) - exact) <= bound)


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize(
    "fmt", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q2_K", "Q4_K", "Q6_K", "I8_G128_F16_Z", "E4M3_G128_F32"]
)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_value_spoils_its_own_token_only(pool: _native.ThreadPool, isa: str, fmt: str, bad: float) -> None:
    rng = np.random.default_rng(8)
    raw = stored(rng, 20, 256, fmt)
    matrix = packed(pool, raw, 256, fmt, isa)
    x = rng.standard_normal((18, 256)).astype(np.float32)
    clean = forward(pool, matrix, x, 20)
    x[11, 77] = bad
    y = forward(pool, matrix, x, 20)
    assert not np.isfinite(y[11]).any()
    others = np.arange(18) != 11
    assert np.array_equal(y[others].view(np.uint32), clean[others].view(np.uint32))


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("fmt", FORMATS)
def test_tiny_and_huge_activations(pool: _native.ThreadPool, isa: str, fmt: str) -> None:
    rng = np.random.default_rng(9)
    raw = stored(rng, 16, 256, fmt)
    matrix = packed(pool, raw, 256, fmt, isa)
    zero = forward(pool, matrix, np.zeros((1, 256), np.float32), 16)
    assert not zero.any()
    tiny = forward(pool, matrix, np.full((1, 256), 1e-42, np.float32), 16)
    assert np.all(np.abs(tiny) < 1e-35)
    huge = np.full((1, 256), 1e30, np.float32)
    exact, bound = linear(raw, fmt, activations(huge, _native.kernel_tier(matrix.code, isa), matrix.code))
    assert np.all(np.abs(forward(pool, matrix, huge, 16) - exact) <= bound)


def test_extreme_codes_do_not_saturate(pool: _native.ThreadPool) -> None:
    """-128 times 127 in every place: the largest sums the integer kernels can meet."""
    raw = np.full((32, 34), 0x80, np.uint8)
    raw[16:] = 0x7F
    raw[:, :2] = np.float16(1).reshape(1).view(np.uint8)
    x = np.full((4, 32), 127, np.float32)
    x[1] = -127
    x[2, ::2] = -127
    for isa in TIERS:
        matrix = packed(pool, raw, 32, "Q8_0", isa)
        for times in (1, 3):  # few tokens and many
            y = forward(pool, matrix, np.tile(x, (times, 1)), 32)
            for row, code in ((0, -128), (31, 127)):
                assert np.array_equal(
                    y[:, row], np.tile([code * 127 * 32, code * -127 * 32, 0, code * 127 * 32], times)
                )


@pytest.mark.parametrize("fmt", [*sorted(SCALES), "I4_G16_F16_Z", "I4_G128_F16", "I8_G16_F16", "I8_G128_F16_Z"])
@pytest.mark.parametrize("isa", TIERS)
def test_largest_codes_do_not_overflow(pool: _native.ThreadPool, isa: str, fmt: str) -> None:
    """Every bit of every code set, against the largest activations: intermediate sums are 16 bits wide in places."""
    block, nbytes = MULTIPLES[fmt], BLOCKS[fmt][1]
    raw = np.full((32, block // BLOCKS[fmt][0], nbytes), 0xFF, np.uint8)
    for at in SCALES.get(fmt, (0,)):
        raw[:, :, at : at + 2] = np.float16(0.5).reshape(1).view(np.uint8)
    if fmt == "MXFP4":
        raw[:, :, 0] = 127
    raw = raw.reshape(32, -1)
    x = np.full((5, block), 127, np.float32)
    x[1] = -127
    x[2, ::2] = -127
    x[3, 16:] = -127
    x = np.concatenate([x, x])  # enough tokens for two strips at once
    exact, bound = linear(raw, fmt, activations(x, isa, CODES[fmt]))
    assert np.all(np.abs(forward(pool, packed(pool, raw, block, fmt, isa), x, 32) - exact) <= bound)


def test_no_tokens_is_no_work(pool: _native.ThreadPool) -> None:
    _native.Matrix(16, 32, "F32").forward(pool, 0, 0, 0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((16, 100, "Q4_0"), "multiple of 32"),
        ((16, 64, "Q4_K"), "multiple of 256"),
        ((16, 40, "BF16", "int4"), "multiple of 32"),
        ((0, 32, "F32"), "0 x 32"),
        ((16, -32, "F32"), "16 x -32"),
        ((1 << 40, 32, "F32"), "2\\^28"),
        ((16, 32, "Q9_9"), "Q9_9"),
        ((16, 32, "F32", "int2"), "int2"),
    ],
)
def test_impossible_shapes_are_refused(arguments: tuple[int, int, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        _native.Matrix(*arguments)
    with pytest.raises(ValueError, match=words):
        _native.packed_nbytes(*arguments)


def test_wrong_addresses_and_counts_are_refused(pool: _native.ThreadPool) -> None:
    matrix = _native.Matrix(16, 32, "F32")
    x = np.zeros((1, 32), np.float32)
    with pytest.raises(ValueError, match="x is a null address"):
        matrix.forward(pool, 0, 1, x.ctypes.data)
    with pytest.raises(ValueError, match="y is a null address"):
        matrix.forward(pool, x.ctypes.data, 1, 0)
    with pytest.raises(ValueError, match="aligned"):
        matrix.forward(pool, x.ctypes.data + 1, 1, x.ctypes.data)
    with pytest.raises(ValueError, match="tokens"):
        matrix.forward(pool, x.ctypes.data, -1, x.ctypes.data)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("recode", [None, "int8", "int4", "float32"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 256), (16, 512), (17, 768)])
def test_packed_nbytes_is_what_a_matrix_takes(fmt: str, recode: str | None, rows: int, columns: int) -> None:
    assert _native.packed_nbytes(rows, columns, fmt, recode) == _native.Matrix(rows, columns, fmt, recode).nbytes


def test_packed_bits_per_weight() -> None:
    bits = {f: _native.packed_nbytes(1024, 2048, f) * 8 / (1024 * 2048) for f in BLOCKS}
    assert bits == {fmt: 8 * nbytes / block for fmt, (block, nbytes) in BLOCKS.items()}
    assert bits["E4M3_G128_F32"] == 8.25
    assert bits["I4_G128_F16_Z"] == 4.1875


@pytest.mark.parametrize("fmt", ["F32", "Q8_0", "I4_G32_F16_Z", "E4M3_G32_F32"])
@pytest.mark.parametrize("tokens", [1, 20])
def test_columns_may_stand_in_an_order_of_their_own(pool: _native.ThreadPool, fmt: str, tokens: int) -> None:
    rng = np.random.default_rng(11)
    raw, order = stored(rng, 20, 96, fmt), rng.permutation(96).astype(np.int32)
    usual, matrix = packed(pool, raw, 96, fmt, TIERS[0]), packed(pool, raw, 96, fmt, TIERS[0])
    matrix.set_columns(order)
    assert np.array_equal(matrix.dequantise()[:, order], usual.dequantise())
    assert np.array_equal(matrix.dequantise_rows(np.array([7, 2])), matrix.dequantise()[[7, 2]])
    x = rng.standard_normal((tokens, 96)).astype(np.float32)
    assert np.array_equal(forward(pool, matrix, x, 20), forward(pool, usual, np.ascontiguousarray(x[:, order]), 20))
    for bad in (order[:-1], np.zeros(96, np.int32), order + 1):
        with pytest.raises(ValueError, match="each of 96"):
            matrix.set_columns(bad)
