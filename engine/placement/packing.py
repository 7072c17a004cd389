"""What a matrix takes in RAM once packed for our kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from engine.checkpoints.formats import FORMATS, Format

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


#: GGUF's integer types whose kernels take a byte per code. Those of fewer bits run on the four-bit ones.
_WIDE = frozenset({"Q8_0", "Q5_0", "Q5_1", "Q5_K", "Q6_K"})
_FLOATS = {"BF16": Code(2, 4, "bf16"), "F16": Code(1, 2, "f16"), "F32": Code(1, 4, "f32")}


def _code(form: Format) -> Code:
    if form.name in _FLOATS:
        return _FLOATS[form.name]
    if form.name.startswith("E4M3"):
        return Code(form.block_values, form.block_bytes, "e4m3")
    wide = form.name in _WIDE or form.name.startswith("I8_")
    # Integer codes go in groups of 32 columns: two blocks of 16.
    blocks = max(1, 32 // form.block_values)
    return Code(blocks * form.block_values, blocks * form.block_bytes, "int8" if wide else "int4")


#: Stored format -> packed code. Every one keeps the stored values, in as many bytes as the file takes.
CODES = {form.name: _code(form) for form in FORMATS.values()}
#: What `recode` turns a matrix into.
RECODES = {
    "int8": CODES["Q8_0"],
    "int4": CODES["IQ4_NL"],
    "int4_g128": CODES["I4_G128_F16"],
    "float32": CODES["F32"],
}


def code_of(format: str, recode: str | None = None) -> Code:
    """Weights that already have the asked-for code keep their stored bits."""
    stored = CODES[format]
    return stored if recode is None or recode.startswith(stored.name) else RECODES[recode]


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


@cache
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
