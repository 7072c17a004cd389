"""How stored bytes become numbers: one record per weight format.

Adding a format is adding a record here. GGUF types have the block layouts of the GGML specification; the blocks of
quantised safetensors are described in `engine.checkpoints.blocks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from engine.checkpoints.blocks import LAYOUTS, BlockLayout, Bytes, Floats, bfloat16_values


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
    with np.errstate(invalid="ignore"):  # of a signalling NaN
        return data.view("<f2").astype(np.float32)


def _ggml(name: str) -> Format:
    kind = GGMLQuantizationType[name]
    values, size = GGML_QUANT_SIZES[kind]

    def dequantise(data: Bytes) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):  # a damaged scale may be infinite or no number
            return cast(Floats, dequantize(data.reshape(-1, size), kind)).reshape(-1)

    return Format(name, values, size, dequantise)


def _blocks(layout: BlockLayout) -> Format:
    return Format(layout.name, layout.group, layout.nbytes, layout.dequantise)


_PLAIN = (
    Format("F32", 1, 4, _float32),
    Format("F16", 1, 2, _float16),
    Format("BF16", 1, 2, bfloat16_values),
)
_GGML = (
    "Q8_0",
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "IQ4_NL",
    "MXFP4",
    "NVFP4",
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "IQ4_XS",
)

#: What tensors of a GGUF file may be stored as, by the names of the specification.
GGUF_FORMATS: Mapping[str, Format] = {record.name: record for record in (*_PLAIN, *map(_ggml, _GGML))}
FORMATS: Mapping[str, Format] = {**GGUF_FORMATS, **{record.name: record for record in map(_blocks, LAYOUTS)}}
