"""Reading roles that are parts of tensors: one expert, some rows, every other row, a transposed matrix."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import quantised_files as files
import torch
from quantised_files import Matrix
from safetensors.torch import save_file

from engine import _native
from engine.checkpoints.opening import open_checkpoint
from engine.errors import GreenroomError
from engine.executors.linear import NativeLinear
from engine.executors.loading import Loader
from engine.models.spec import ModelSpec, TensorRef
from engine.progress import ignore_progress

SHAPES = {"stack": (3, 8, 64), "matrix": (8, 64), "vectors": (3, 8), "embed": (4, 32)}
REFS = {
    "expert": TensorRef("stack", 1),
    "above": TensorRef("stack", 2, rows=(0, 3)),
    "even": TensorRef("stack", 0, rows=(0, 8), step=2),
    "odd": TensorRef("stack", 0, rows=(1, 8), step=2),
    "part": TensorRef("matrix", rows=(5, 8)),
    "third": TensorRef("matrix", rows=(1, 8), step=3),
    "bias": TensorRef("vectors", 1),
    "bias.even": TensorRef("vectors", 1, rows=(0, 8), step=2),
    "bias.half": TensorRef("vectors", 2, rows=(4, 8)),
    "turned": TensorRef("stack", 1, transposed=True),
    "turned.odd": TensorRef("stack", 1, rows=(1, 64), step=2, transposed=True),
    "turned.matrix": TensorRef("matrix", rows=(0, 32), transposed=True),
    "embed": TensorRef("embed"),
}


def make(path: Path, kind: str) -> tuple[Loader, dict[str, np.ndarray]]:
    """A loader of tensors in a GGML type (vectors stay F32), and their values."""
    writer = gguf.GGUFWriter(path, "llama")
    rng = np.random.default_rng(8)
    values = {}
    for name, shape in SHAPES.items():
        stored = gguf.GGMLQuantizationType["F32" if name == "vectors" else kind]
        data = gguf.quants.quantize(rng.standard_normal(shape).astype(np.float32), stored)
        values[name] = gguf.quants.dequantize(data, stored)
        writer.add_tensor(name, data, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    spec = ModelSpec("llama", 64, 4, 1, 1e-5, (), REFS)
    return Loader(open_checkpoint(path), spec, ignore_progress), values


def part(ref: TensorRef, values: np.ndarray) -> np.ndarray:
    values = values if ref.index is None else values[ref.index]
    values = values.T if ref.transposed else values
    return values if ref.rows is None else values[ref.rows[0] : ref.rows[1] : ref.step]


@pytest.mark.parametrize("kind", ["F32", "BF16", "Q8_0"])
def test_parts_of_tensors(tmp_path: Path, kind: str) -> None:
    loader, values = make(tmp_path / "some.gguf", kind)
    for role, ref in REFS.items():
        expected = part(ref, values[ref.name])
        assert loader.shape(role) == expected.shape
        np.testing.assert_array_equal(loader.float32(role), expected)
        if kind == "Q8_0" and ref.transposed:
            with pytest.raises(GreenroomError, match="wrong axis"):
                loader.stored(role)
            continue
        stored = loader.stored(role)
        assert stored.nbytes == loader.nbytes(role)
        form = gguf.GGMLQuantizationType["F32" if ref.name == "vectors" else kind]
        rows = stored.reshape(len(expected), -1)
        unpacked = rows.view(np.float32) if form.name == "F32" else gguf.quants.dequantize(rows, form)
        np.testing.assert_array_equal(unpacked.reshape(expected.shape), expected)


def quantised(folder: Path, quantisation: dict[str, object], matrix: Matrix) -> Loader:
    folder.mkdir()
    save_file(matrix.named("w"), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "quantization_config": quantisation}))
    spec = ModelSpec("llama", 64, 4, 1, 1e-5, (), {"embed": TensorRef("w.weight"), "w": TensorRef("w.weight")})
    return Loader(open_checkpoint(folder), spec, ignore_progress)


def test_a_factor_goes_with_the_packed_matrix(tmp_path: Path) -> None:
    matrix = files.nvfp4(8, 64)
    loader = quantised(tmp_path / "m", {"quant_method": "modelopt"}, matrix)
    np.testing.assert_allclose(loader.float32("w"), matrix.weights, rtol=2**-22)
    packed = _native.Matrix(8, 64, loader.format("w"))
    loader.pack("w", _native.ThreadPool(1), packed, 0)
    np.testing.assert_allclose(packed.dequantise(), matrix.weights, rtol=2**-22)


def test_columns_in_another_order_meet_their_activations(tmp_path: Path) -> None:
    order = np.random.default_rng(2).permutation(np.arange(64) // 32)
    matrix = files.gptq(8, 64, 32, groups_of=order)
    loader = quantised(tmp_path / "m", {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False}, matrix)
    np.testing.assert_array_equal(loader.float32("w"), matrix.weights)
    linear = NativeLinear(_native.ThreadPool(1), loader, ["w"], recode="float32")
    np.testing.assert_allclose(linear(torch.eye(64)).T, matrix.weights, rtol=2**-22, atol=1e-7)
