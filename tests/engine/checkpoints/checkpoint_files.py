"""Small checkpoints made on the spot, by the reference writers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from safetensors.numpy import save_file

Tensors = Mapping[str, tuple[np.ndarray, str]]

#: Formats whose writer is in the gguf package; the others are written as random blocks.
QUANTISABLE = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4")

#: Where a block's half-precision scales lie, where that is not at its start alone.
_HALF_SCALES = {
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "NVFP4": (),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
    "IQ1_M": (),
}


def random_blocks(shape: tuple[int, ...], name: str, seed: int = 0) -> np.ndarray:
    """uint8 [..., row bytes] of any format, with every half-precision scale finite."""
    values, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (*shape[:-1], shape[-1] // values, size), dtype=np.uint8)
    for at in _HALF_SCALES.get(name, (0,)):
        blocks[..., at : at + 2] = random.normal(0, 0.01, (*blocks.shape[:-1], 1)).astype("<f2").view(np.uint8)
    if name == "IQ1_M":
        blocks[..., -1] &= 0xBF  # the top bits of its scale: below infinity
    return blocks.reshape(*shape[:-1], -1)


def write_gguf(path: Path, tensors: Tensors | None = None, architecture: str = "llama", **settings: Any) -> Path:
    """tensors: values float32 and their format; settings: key-values, "__" standing for a dot."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in settings.items():
        _add_setting(writer, key.replace("__", "."), value)
    for name, (values, form) in (tensors or {}).items():
        kind = GGMLQuantizationType[form]
        if form == "F32":
            writer.add_tensor(name, values.astype(np.float32))
        elif form in QUANTISABLE:
            writer.add_tensor(name, gguf.quants.quantize(values.astype(np.float32), kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_setting(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, list(value))


def write_folder(
    folder: Path, tensors: Mapping[str, np.ndarray], config: Mapping[str, Any] | None = None, **files: Any
) -> Path:
    """A safetensors model; files: more JSON files by name without ".json"."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(dict(tensors), folder / "model.safetensors")
    for name, content in {"config": config or {"model_type": "llama"}, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder
