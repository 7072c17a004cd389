"""What a matrix takes in RAM once packed for our kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

#: Output rows that lie interleaved; the last strip of a matrix is filled up.
STRIP_ROWS = 16
CACHE_LINE = 64


@dataclass(frozen=True)
class Code:
    """One row's share of one step: group_bytes hold `group` columns, scales and minima included."""

    group: int
    group_bytes: int
    #: Family of kernels it runs on, as `_native.kernel_tier` knows it.
    name: str


#: Stored format -> packed code. Every one keeps the stored values, in as many bytes as the file takes.
CODES = {
    "Q4_0": Code(32, 16 + 2, "int4"),
    "Q4_1": Code(32, 16 + 2 + 2, "int4"),
    "Q5_0": Code(32, 16 + 4 + 2, "int8"),
    "Q5_1": Code(32, 16 + 4 + 2 + 2, "int8"),
    "IQ4_NL": Code(32, 16 + 2, "int4"),
    "MXFP4": Code(32, 16 + 1, "int4"),
    "Q4_K": Code(256, 144, "int4"),
    "Q8_0": Code(32, 32 + 2, "int8"),
    "Q5_K": Code(256, 176, "int8"),
    "Q6_K": Code(256, 210, "int8"),
    "BF16": Code(2, 4, "bf16"),
    "F16": Code(1, 2, "f16"),
    "F32": Code(1, 4, "f32"),
}
#: What `recode` turns a matrix into.
RECODES = {"int8": CODES["Q8_0"], "int4": CODES["Q4_0"], "float32": CODES["F32"]}


def code_of(format: str, recode: str | None = None) -> Code:
    """Weights that already have the asked-for code keep their stored bits."""
    stored = CODES[format]
    return stored if recode in (None, stored.name) else RECODES[recode]


def packed_nbytes_rule(rows: int, columns: int, format: str, recode: str | None = None) -> int:
    """The arithmetic of `_native.packed_nbytes`, for plans made where the compiled kernels are not installed."""
    code = code_of(format, recode)
    strips = -(-rows // STRIP_ROWS)
    steps = -(-columns // code.group)
    strip = STRIP_ROWS * steps * code.group_bytes
    return strips * (-(-strip // CACHE_LINE) * CACHE_LINE)


@cache
def _native_rule() -> Callable[..., int] | None:
    try:
        from engine import _native
    except ImportError:
        return None
    return _native.packed_nbytes


def packed_nbytes(rows: int, columns: int, format: str, recode: str | None = None, isa: str | None = None) -> int:
    """Bytes of one packed matrix [rows, columns]."""
    native = _native_rule()
    if native is None:
        return packed_nbytes_rule(rows, columns, format, recode)
    try:
        return native(rows, columns, format, recode, isa)
    except ValueError:
        # A shape the kernels refuse. `load` says so by name; the plan still tells the size.
        return packed_nbytes_rule(rows, columns, format, recode)
