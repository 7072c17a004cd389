"""How fast checkpoints open and quantised tensors are put together. Prints CPU seconds and GB/s of one thread.

Run by hand: `python tests/benchmarks/checkpoints.py [FOLDER]`. FOLDER (a temporary one unless given) should lie in
memory or on a disk whose cache is warm: only our own work is measured, not the disk.
"""

from __future__ import annotations

import json
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from engine.checkpoints.opening import open_checkpoint
from engine.checkpoints.safetensors_header import DTYPE_BYTES
from engine.checkpoints.widened import WIDENED

REPEATS = 3
ROWS = COLUMNS = 4096
GROUP = 128

Shapes = Mapping[str, tuple[str, tuple[int, ...]]]


def best(work: Callable[[], Any]) -> float:
    """CPU seconds of the fastest repetition."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def write_gguf_header(path: Path, tensors: int, vocabulary: int) -> Path:
    writer = gguf.GGUFWriter(path, "qwen3moe")
    writer.add_array("tokenizer.ggml.tokens", [f"token {i}" for i in range(vocabulary)])
    writer.add_array("tokenizer.ggml.merges", [f"to ken{i}" for i in range(vocabulary)])
    writer.add_array("tokenizer.ggml.token_type", [1] * vocabulary)
    for i in range(tensors):
        writer.add_tensor(f"blk.{i}.weight", np.zeros((2, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_file(path: Path, shapes: Shapes, random: np.random.Generator | None = None) -> None:
    """A safetensors file; without random numbers a hole that takes no room."""
    header, end = {}, 0
    for name, (dtype, shape) in shapes.items():
        start, end = end, end + int(np.prod(shape)) * DTYPE_BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        if random is None:
            file.truncate(8 + len(text) + end)
        else:
            file.write(random.integers(0, 0x70, end, dtype=np.uint8).tobytes())


def write_folder(folder: Path, shapes: Shapes, shards: int, quantisation: Any = None) -> Path:
    folder.mkdir()
    names, weight_map = list(shapes), {}
    each = -(-len(names) // shards)
    for number in range(shards):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: shapes[name] for name in names[number * each : (number + 1) * each]}
        write_file(folder / file, part)
        weight_map |= dict.fromkeys(part, file)
    write_config(folder, quantisation)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def write_config(folder: Path, quantisation: Any) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_moe", "quantization_config": quantisation}))


def experts(layers: int, count: int) -> Iterable[str]:
    for layer in range(layers):
        for expert in range(count):
            for part in ("gate", "up", "down"):
                yield f"model.layers.{layer}.mlp.experts.{expert}.{part}_proj."


def measure_opening(folder: Path) -> None:
    plain = {name + "weight": ("BF16", (64, 128)) for name in experts(61, 256)}
    fp8: dict[str, tuple[str, tuple[int, ...]]] = {}
    gptq: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name in experts(61, 256):
        fp8 |= {name + "weight": ("F8_E4M3", (128, 128)), name + "weight_scale_inv": ("F32", (1, 1))}
    for name in experts(48, 128):
        gptq |= {name + "qweight": ("I32", (16, 64)), name + "qzeros": ("I32", (1, 8))}
        gptq |= {name + "scales": ("F16", (1, 64)), name + "g_idx": ("I32", (128,))}
    cases = {
        "GGUF, 1,000 tensors, vocabulary of 150,000": write_gguf_header(folder / "m.gguf", 1000, 150_000),
        "safetensors, 60 files, 46,848 tensors": write_folder(folder / "plain", plain, 60),
        "FP8, 163 files, 93,696 tensors": write_folder(folder / "fp8", fp8, 163, {"quant_method": "fp8"}),
        "GPTQ, 8 files, 73,728 tensors": write_folder(folder / "gptq", gptq, 8, {"quant_method": "gptq"}),
    }
    for name, path in cases.items():
        print(f"{name:45s} {best(lambda path=path: open_checkpoint(path)):6.2f} s")


def quantised_forms() -> dict[str, tuple[Shapes, Any]]:
    """One matrix of ROWS x COLUMNS in each form."""
    n, k, groups = ROWS, COLUMNS, COLUMNS // GROUP
    packed = {"weights": {"num_bits": 4, "type": "int", "group_size": GROUP}}
    compressed = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"g": packed}}
    gptq = {
        "w.qweight": ("I32", (k // 8, n)),
        "w.qzeros": ("I32", (groups, n // 8)),
        "w.scales": ("F16", (groups, n)),
    }
    return {
        "compressed-tensors int4": (
            {"w.weight_packed": ("I32", (n, k // 8)), "w.weight_scale": ("BF16", (n, groups))},
            compressed,
        ),
        "FP8 in squares": (
            {"w.weight": ("F8_E4M3", (n, k)), "w.weight_scale_inv": ("F32", (n // 128, k // 128))},
            {"quant_method": "fp8"},
        ),
        "GPTQ": (gptq, {"quant_method": "gptq", "sym": False}),
        "AWQ": ({**gptq, "w.qweight": ("I32", (k, n // 8))}, {"quant_method": "awq"}),
        "MXFP4": (
            {"e.w_blocks": ("U8", (1, n, k // 32, 16)), "e.w_scales": ("U8", (1, n, k // 32))},
            {"quant_method": "mxfp4"},
        ),
        "NVFP4": (
            {
                "w.weight": ("U8", (n, k // 2)),
                "w.weight_scale": ("F8_E4M3", (n, k // 16)),
                "w.weight_scale_2": ("F32", ()),
            },
            {"quant_method": "modelopt"},
        ),
    }


def measure_reading(folder: Path) -> None:
    random = np.random.default_rng(0)
    for name, (shapes, quantisation) in quantised_forms().items():
        place = folder / name
        place.mkdir()
        write_file(place / "model.safetensors", shapes, random)
        write_config(place, quantisation)
        report(name, place)
    for name in WIDENED:
        values, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
        writer = gguf.GGUFWriter(folder / f"{name}.gguf", "llama")
        blocks = random.integers(0, 0x70, (ROWS // 4, COLUMNS // values * size), dtype=np.uint8)
        writer.add_tensor("w", blocks, raw_dtype=GGMLQuantizationType[name])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        report(name, folder / f"{name}.gguf")


def report(name: str, path: Path) -> None:
    checkpoint = open_checkpoint(path)
    (tensor,) = checkpoint.tensors.values()
    seconds = best(lambda: checkpoint.read(tensor.name))
    print(f"{name:25s} {tensor.format:15s} {tensor.nbytes / seconds / 1e9:6.2f} GB/s as stored")


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        measure_opening(Path(folder))
        measure_reading(Path(folder))


if __name__ == "__main__":
    main()
