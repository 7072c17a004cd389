"""How stored bytes become numbers: one record per weight format.

Adding a format is adding a record here. Block layouts are those of the GGML and safetensors specifications.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Format:
    """block_values numbers are stored together in block_bytes bytes.

    dequantise: stored bytes uint8 [n * block_bytes] -> float32 [n * block_values]
    """

    name: str
    block_values: int
    block_bytes: int
    dequantise: Callable[[Bytes], Floats]

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.block_bytes / self.block_values


def _float32(data: Bytes) -> Floats:
    return data.view("<f4").astype(np.float32, copy=False)


def _float16(data: Bytes) -> Floats:
    return data.view("<f2").astype(np.float32)


def _bfloat16(data: Bytes) -> Floats:
    # bfloat16 is the upper half of a float32.
    return (data.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)


def _ggml(name: str) -> Format:
    kind = GGMLQuantizationType[name]
    values, size = GGML_QUANT_SIZES[kind]

    def dequantise(data: Bytes) -> Floats:
        return cast(Floats, dequantize(data.reshape(-1, size), kind)).reshape(-1)

    return Format(name, values, size, dequantise)


FORMATS: Mapping[str, Format] = {
    record.name: record
    for record in (
        Format("F32", 1, 4, _float32),
        Format("F16", 1, 2, _float16),
        Format("BF16", 1, 2, _bfloat16),
        _ggml("Q8_0"),
        _ggml("Q4_0"),
        _ggml("Q4_1"),
        _ggml("Q5_0"),
        _ggml("Q5_1"),
        _ggml("IQ4_NL"),
        _ggml("MXFP4"),
        _ggml("Q4_K"),
        _ggml("Q5_K"),
        _ggml("Q6_K"),
    )
}
