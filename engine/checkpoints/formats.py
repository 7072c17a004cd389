"""How stored bytes become numbers: one record per weight format.

Adding a format is adding a record here. GGUF types have the block layouts of the GGML specification; the blocks of
quantised safetensors are described in `engine.checkpoints.blocks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from engine.checkpoints.blocks import LAYOUTS, BlockLayout, Bytes, Floats, bfloat16_values
from engine.checkpoints.ggml_types import DECODERS, Decoder

#: Decoded at a time: what is in work then stays in a core's cache.
_VALUES_AT_ONCE = 1 << 16


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


def _ggml(name: str, decode: Decoder) -> Format:
    values, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]

    def dequantise(data: Bytes) -> Floats:
        blocks = data.reshape(-1, size)
        out = np.empty((len(blocks), values), np.float32)
        step = max(1, _VALUES_AT_ONCE // values)
        with np.errstate(over="ignore", invalid="ignore"):  # a damaged scale may be infinite or no number
            for at in range(0, len(blocks), step):
                out[at : at + step] = decode(blocks[at : at + step])
        return out.reshape(-1)

    return Format(name, values, size, dequantise)


def _blocks(layout: BlockLayout) -> Format:
    return Format(layout.name, layout.group, layout.nbytes, layout.dequantise)


_PLAIN = (
    Format("F32", 1, 4, _float32),
    Format("F16", 1, 2, _float16),
    Format("BF16", 1, 2, bfloat16_values),
)

#: What tensors of a GGUF file may be stored as, by the names of the specification.
GGUF_FORMATS: Mapping[str, Format] = {
    record.name: record for record in (*_PLAIN, *(_ggml(name, decode) for name, decode in DECODERS.items()))
}
FORMATS: Mapping[str, Format] = {**GGUF_FORMATS, **{record.name: record for record in map(_blocks, LAYOUTS)}}
