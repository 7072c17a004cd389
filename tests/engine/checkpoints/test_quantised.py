"""Quantised safetensors: each form against weights worked out from its definition, in whole, by rows, by expert."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import quantised_files as files
import torch
from quantised_files import Matrix
from safetensors.torch import save_file

from engine.checkpoints.assembly import e8m0_to_bfloat16
from engine.checkpoints.checkpoint import Checkpoint
from engine.checkpoints.formats import FORMATS
from engine.checkpoints.opening import open_checkpoint
from engine.errors import GreenroomError

Tensors = dict[str, torch.Tensor]

COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 32}}},
}


def folder(path: Path, tensors: Tensors, quantisation: Any = None, model_type: str = "llama", **config: Any) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path / "model.safetensors")
    content = {"model_type": model_type, **config}
    if quantisation is not None:
        content["quantization_config"] = quantisation
    (path / "config.json").write_text(json.dumps(content), encoding="utf-8")
    return path


def opened(path: Path, matrix: Matrix, quantisation: Any = None, **config: Any) -> Checkpoint:
    """A checkpoint that holds the matrix as w.weight, besides a plain tensor."""
    return open_checkpoint(folder(path, {**matrix.named("w"), "norm.weight": torch.ones(3)}, quantisation, **config))


def groups(bits: int, size: int | None, **more: Any) -> dict[str, Any]:
    """compressed-tensors' config with one scheme."""
    weights = {"num_bits": bits, "type": "int", "group_size": size, **more}
    return {**COMPRESSED, "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


def shuffled(columns: int, group: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).permutation(np.arange(columns) // group)


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
AUTO_ROUND = {"quant_method": "auto-round", "bits": 4, "group_size": 32, "sym": True}
FLOAT_GROUP = {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}

#: name -> (matrix, quantization_config, format it is shown in)
FORMS: dict[str, tuple[Matrix, Any, str]] = {
    "gptq": (files.gptq(24, 64, 32), GPTQ, "I4_G32_F16_Z"),
    "gptq v2": (
        files.gptq(24, 128, 64, first_version=False),
        {**GPTQ, "checkpoint_format": "gptq_v2", "group_size": 64},
        "I4_G64_F16_Z",
    ),
    "gptq symmetric": (
        files.gptq(16, 256, 128, symmetric=True),
        {**GPTQ, "group_size": 128, "sym": True},
        "I4_G128_F16",
    ),
    "gptq by row": (files.gptq(16, 96, 96), {**GPTQ, "group_size": -1}, "I4_G32_F16_Z"),
    "gptq last group cut": (files.gptq(16, 96, 64), {**GPTQ, "group_size": 64}, "I4_G32_F16_Z"),
    "gptq act-order": (
        files.gptq(16, 96, 32, groups_of=shuffled(96, 32)),
        {**GPTQ, "desc_act": True},
        "I4_G32_F16_Z",
    ),
    "gptq eight bits": (
        files.gptq(16, 64, 32, bits=8, first_version=False),
        {**GPTQ, "bits": 8, "checkpoint_format": "gptq_v2"},
        "I8_G32_F16_Z",
    ),
    "gptq eight bits symmetric": (
        files.gptq(16, 64, 32, bits=8, symmetric=True),
        {**GPTQ, "bits": 8, "sym": True},
        "I8_G32_F16",
    ),
    "gptq eight bits act-order": (
        files.gptq(16, 64, 32, bits=8, symmetric=True, groups_of=shuffled(64, 32)),
        {**GPTQ, "bits": 8, "sym": True},
        "I8_G32_F16",
    ),
    "gptq of other groups than usual": (files.gptq(16, 256, 64), {**GPTQ, "group_size": 128}, "I4_G64_F16_Z"),
    "auto-round": (
        files.gptq(16, 64, 32, symmetric=True),
        {**AUTO_ROUND, "packing_format": "auto_round:auto_gptq"},
        "I4_G32_F16",
    ),
    "auto-round awq": (
        files.awq(16, 64, 32),
        {**AUTO_ROUND, "packing_format": "auto_round:auto_awq"},
        "I4_G32_F16_Z",
    ),
    "awq": (files.awq(24, 128, 32), AWQ, "I4_G32_F16_Z"),
    "awq g128": (files.awq(16, 256, 128), {**AWQ, "group_size": 128}, "I4_G128_F16_Z"),
    "compressed int4 g32": (files.compressed_integers(5, 96, 32), COMPRESSED, "I4_G32_BF16"),
    "compressed int4 g128": (files.compressed_integers(5, 256, 128), groups(4, 128), "I4_G128_BF16"),
    "compressed int4 channel": (files.compressed_integers(5, 96, 96), groups(4, None), "I4_G32_BF16"),
    "compressed int4 asymmetric": (
        files.compressed_integers(13, 96, 32, symmetric=False, scale=torch.float16),
        groups(4, 32),
        "I4_G32_F16_Z",
    ),
    "compressed int4 asymmetric channel": (
        files.compressed_integers(13, 160, 160, symmetric=False),
        groups(4, -1),
        "I4_G32_BF16_Z",
    ),
    "compressed int4 act-order": (
        files.compressed_integers(7, 96, 32, groups_of=shuffled(96, 32)),
        groups(4, 32, actorder="group"),
        "I4_G32_BF16",
    ),
    "compressed int8 g32": (files.compressed_integers(5, 96, 32, bits=8), groups(8, 32), "I8_G32_BF16"),
    "compressed int8 asymmetric": (
        files.compressed_integers(6, 64, 32, bits=8, symmetric=False, scale=torch.float32),
        groups(8, 32),
        "I8_G32_F32_Z",
    ),
    "compressed int8 plain": (files.plain_int8(5, 96), {**COMPRESSED, "format": "int-quantized"}, "I8_G32_BF16"),
    "compressed int8 plain asymmetric": (
        files.plain_int8(5, 64, symmetric=False),
        {**COMPRESSED, "format": "int-quantized"},
        "I8_G64_BF16_Z",
    ),
    "fp8 squares": (files.fp8_squares(256, 256), FP8, "E4M3_G128_F32"),
    "fp8 squares with edges": (files.fp8_squares(150, 176), FP8, "E4M3_G16_F32"),
    "fp8 squares smaller than one": (files.fp8_squares(20, 96), FP8, "E4M3_G32_F32"),
    "fp8 squares of bfloat16": (files.fp8_squares(130, 256, scale=torch.bfloat16), FP8, "E4M3_G128_BF16"),
    "fp8 squares of exponents": (files.fp8_squares(130, 128, scale=torch.float8_e8m0fnu), FP8, "E4M3_G128_BF16"),
    "fp8 stacked": (files.fp8_squares(40, 192, stack=3), FP8, "E4M3_G64_F32"),
    "fp8 other squares": (
        files.fp8_squares(64, 128, square=32),
        {**FP8, "weight_block_size": [32, 32]},
        "E4M3_G32_F32",
    ),
    "fp8 by row": (
        files.fp8_rows(10, 192, (10, 1), ".weight_scale"),
        {**COMPRESSED, "format": "float-quantized", "config_groups": {"g": FLOAT_GROUP}},
        "E4M3_G64_F32",
    ),
    "fp8 by row, flat": (
        files.fp8_rows(10, 128, (10,), ".weight_scale"),
        {"quant_method": "fbgemm_fp8"},
        "E4M3_G128_F32",
    ),
    "fp8 one scale": (
        files.fp8_rows(10, 128, (), ".weight_scale_inv"),
        {**FP8, "weight_block_size": None},
        "E4M3_G128_F32",
    ),
    "fp8 of ModelOpt": (files.fp8_rows(10, 80, (1,), ".weight_scale"), {"quant_algo": "FP8"}, "E4M3_G16_F32"),
    "mxfp8": (files.mxfp8(10, 96), {"quant_method": "mxfp8"}, "E4M3_G32_BF16"),
    "nvfp4 of ModelOpt": (files.nvfp4(10, 192), {"quant_method": "modelopt", "quant_algo": "NVFP4"}, "NVFP4"),
    "nvfp4 of ModelOpt without config": (files.nvfp4(10, 128), None, "NVFP4"),
    "nvfp4 stacked": (files.nvfp4(6, 64, stack=3), {"quant_method": "modelopt"}, "NVFP4"),
    "nvfp4 compressed": (
        files.nvfp4(10, 128, compressed=True),
        {**COMPRESSED, "format": "nvfp4-pack-quantized", "config_groups": {}},
        "NVFP4",
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_weights_are_those_that_the_form_defines(form: str, tmp_path: Path) -> None:
    matrix, quantisation, shown_as = FORMS[form]
    checkpoint = opened(tmp_path, matrix, quantisation)
    info = checkpoint.tensors["w.weight"]
    weights = checkpoint.read_float32("w.weight")
    assert (info.shape, info.format) == (matrix.weights.shape, shown_as)
    # Rounded once, to float32; twice where the matrix has a factor of its own.
    np.testing.assert_allclose(weights, matrix.weights, rtol=2**-22 if shown_as == "NVFP4" else 0, atol=0)
    assert weights.dtype == np.float32

    rows = matrix.weights.shape[-2]
    for start, stop in ((0, rows), (1, rows - 1), (rows // 2, rows // 2 + 1), (3, 3)):
        np.testing.assert_array_equal(
            checkpoint.read_float32("w.weight", rows=(start, stop)), weights[..., start:stop, :]
        )
    for index in range(2):
        np.testing.assert_array_equal(checkpoint.read_float32("w.weight", index=index), weights[index])


@pytest.mark.parametrize("form", FORMS)
def test_blocks_factor_and_order_together_make_the_weights(form: str, tmp_path: Path) -> None:
    matrix, quantisation, shown_as = FORMS[form]
    checkpoint = opened(tmp_path, matrix, quantisation)
    index = 1 if matrix.weights.ndim == 3 else None
    expected = matrix.weights if index is None else matrix.weights[index]
    stored = checkpoint.read("w.weight", index)
    values = FORMATS[shown_as].dequantise(stored).reshape(expected.shape) * np.float32(
        checkpoint.factor("w.weight", index)
    )
    order = checkpoint.column_order("w.weight")
    assert (order is not None) == ("act-order" in form)
    if order is not None:
        assert order.dtype == np.int32
        expected = expected[:, order]
    np.testing.assert_allclose(values, expected, rtol=2**-22, atol=0)


@pytest.mark.parametrize("form", FORMS)
def test_only_the_matrix_is_listed_and_counts_what_its_parts_take(form: str, tmp_path: Path) -> None:
    matrix, quantisation, _ = FORMS[form]
    checkpoint = opened(tmp_path, matrix, quantisation)
    used = [tensor for ending, tensor in matrix.tensors.items() if ending not in (".weight_shape", ".input_scale")]
    assert set(checkpoint.tensors) - {"w.input_scale"} == {"w.weight", "norm.weight"}
    assert checkpoint.tensors["w.weight"].nbytes == sum(tensor.nbytes for tensor in used)
    assert checkpoint.tensors["w.weight"].origin
    assert checkpoint.tensors["norm.weight"].origin == ""


def test_plain_modules_stay_plain_beside_quantised_ones(tmp_path: Path) -> None:
    plain = torch.randn(4, 64, dtype=torch.bfloat16)
    tensors = {**files.gptq(16, 64, 32).named("a.mlp"), "a.gate.weight": plain, "lm_head.weight": plain.clone()}
    checkpoint = open_checkpoint(folder(tmp_path, tensors, {**GPTQ, "modules_to_not_convert": ["gate"]}))
    assert checkpoint.tensors["a.gate.weight"].format == "BF16"
    np.testing.assert_array_equal(checkpoint.read_float32("lm_head.weight"), plain.float().numpy())


def test_one_model_may_mix_widths_groups_and_forms(tmp_path: Path) -> None:
    """Each matrix is recognised by itself: four bits, eight bits, other groups, FP8."""
    schemes = {
        "small": {"targets": ["re:.*experts.*"], "weights": {"num_bits": 4, "type": "int", "group_size": 32}},
        "large": {"targets": ["re:.*attn.*"], "weights": {"num_bits": 8, "type": "int", "group_size": 64}},
        "rows": {"targets": ["re:.*down.*"], "weights": {"num_bits": 4, "type": "int", "group_size": None}},
        "float": {
            "targets": ["re:.*shared.*"],
            "format": "float-quantized",
            "weights": {"num_bits": 8, "type": "float"},
        },
    }
    matrices = {
        "experts.0": files.compressed_integers(4, 128, 32),
        "attn": files.compressed_integers(4, 128, 64, bits=8),
        "down": files.compressed_integers(4, 64, 64),
        "shared": files.fp8_rows(4, 64, (4, 1), ".weight_scale"),
    }
    tensors: Tensors = {}
    for name, matrix in matrices.items():
        tensors.update(matrix.named(name))
    config = {**COMPRESSED, "format": "mixed-precision", "config_groups": schemes, "ignore": ["lm_head"]}
    checkpoint = open_checkpoint(folder(tmp_path, tensors, config))
    for name, matrix in matrices.items():
        np.testing.assert_array_equal(checkpoint.read_float32(f"{name}.weight"), matrix.weights)


def test_widths_that_shapes_leave_open_are_told_by_the_stored_shape(tmp_path: Path) -> None:
    """32 words in 4 groups: 256 columns of four bits in groups of 64, or 128 of eight bits in groups of 32."""
    config = {
        **COMPRESSED,
        "config_groups": {**groups(4, 64)["config_groups"], "b": groups(8, 32)["config_groups"]["group_0"]},
    }
    for number, matrix in enumerate(
        (files.compressed_integers(3, 256, 64), files.compressed_integers(3, 128, 32, bits=8))
    ):
        checkpoint = opened(tmp_path / str(number), matrix, config)
        np.testing.assert_array_equal(checkpoint.read_float32("w.weight"), matrix.weights)


def test_the_section_may_lie_with_the_language_model(tmp_path: Path) -> None:
    matrix = files.compressed_integers(4, 64, 32)
    checkpoint = opened(tmp_path, matrix, text_config={"quantization_config": COMPRESSED})
    np.testing.assert_array_equal(checkpoint.read_float32("w.weight"), matrix.weights)


def test_mxfp4_of_compressed_tensors(tmp_path: Path) -> None:
    weights, blocks, exponents = files.mxfp4((6,), 96)
    packed = torch.from_numpy(blocks.reshape(6, -1))
    matrix = Matrix(weights, {".weight_packed": packed, ".weight_scale": torch.from_numpy(exponents)})
    checkpoint = opened(tmp_path, matrix, {**COMPRESSED, "format": "mxfp4-pack-quantized", "config_groups": {}})
    assert checkpoint.tensors["w.weight"].format == "MXFP4"
    np.testing.assert_array_equal(checkpoint.read_float32("w.weight"), weights)


GPT_OSS = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}


def gpt_oss(experts: int = 3, hidden: int = 64, inner: int = 32) -> tuple[Tensors, np.ndarray, np.ndarray]:
    """A layer's experts as gpt-oss stores them; gate and up in turns [E, 2I, H], and down [E, H, I]."""
    both, both_blocks, both_scales = files.mxfp4((experts, 2 * inner), hidden, seed=1)
    down, down_blocks, down_scales = files.mxfp4((experts, hidden), inner, seed=2)
    stored = {
        "gate_up_proj_blocks": both_blocks,
        "gate_up_proj_scales": both_scales,
        "down_proj_blocks": down_blocks,
        "down_proj_scales": down_scales,
    }
    return {f"mlp.experts.{name}": torch.from_numpy(values) for name, values in stored.items()}, both, down


def test_gpt_oss_experts_are_shown_as_the_plain_tensor_is_called(tmp_path: Path) -> None:
    """[experts, rows, columns]: unlike the plain stacks of this family, they do not lie transposed."""
    tensors, both, down = gpt_oss()
    biases = torch.randn(3, 64, dtype=torch.bfloat16)
    tensors["mlp.experts.gate_up_proj_bias"] = biases
    checkpoint = open_checkpoint(folder(tmp_path, tensors, GPT_OSS, "gpt_oss"))
    expected = {"mlp.experts.gate_up_proj": both, "mlp.experts.down_proj": down}
    assert set(checkpoint.tensors) == {*expected, "mlp.experts.gate_up_proj_bias"}
    for name, values in expected.items():
        assert (checkpoint.tensors[name].shape, checkpoint.tensors[name].format) == (values.shape, "MXFP4")
        np.testing.assert_array_equal(checkpoint.read_float32(name), values)
        np.testing.assert_array_equal(checkpoint.read_float32(name, index=2), values[2])
        np.testing.assert_array_equal(checkpoint.read_float32(name, 1, (5, 9)), values[1, 5:9])
    assert checkpoint.nbytes == sum(tensor.nbytes for tensor in tensors.values())


def test_a_matrix_of_many_chunks_is_read_whole(tmp_path: Path) -> None:
    """Larger than what is made at a time, in every order of storage."""
    random = np.random.default_rng(5)
    rows, columns = 1104, 1024
    codes = random.integers(0, 256, (rows, columns // 2), dtype=np.uint8)
    scales = random.uniform(0.01, 0.02, (rows, columns // 128)).astype(np.float16)
    nibbles = np.stack([codes & 15, codes >> 4], -1).reshape(rows, columns)
    expected = (np.repeat(scales.astype(np.float32), 128, 1) * (nibbles.astype(np.float32) - 8)).astype(np.float32)
    upright = {"w.weight_packed": torch.from_numpy(codes.view("<i4")), "w.weight_scale": torch.from_numpy(scales)}
    zeros = np.full((columns // 128, rows // 2), 0x77, np.uint8).view("<i4")
    lying = {
        "w.qweight": torch.from_numpy(codes.view("<i4").T.copy()),
        "w.scales": torch.from_numpy(scales.T.copy()),
        "w.qzeros": torch.from_numpy(np.ascontiguousarray(zeros)),
    }
    for tensors, config in ((upright, groups(4, 128)), (lying, {**GPTQ, "group_size": 128, "sym": True})):
        checkpoint = open_checkpoint(folder(tmp_path / config["quant_method"], tensors, config))
        np.testing.assert_array_equal(checkpoint.read_float32("w.weight"), expected)
        np.testing.assert_array_equal(checkpoint.read_float32("w.weight", rows=(3, 1099)), expected[3:1099])


# What cannot be read is named

UNKNOWN: dict[str, tuple[Any, str]] = {
    "bitsandbytes": ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
    "hqq": ({"quant_method": "hqq"}, "hqq"),
    "exl2": ({"quant_method": "exl2", "bits": 4.25}, "exl2"),
    "mlx": ({"group_size": 64, "bits": 4}, "MLX"),
    "awq gemv": ({**AWQ, "version": "gemv"}, "gemv"),
    "gptq marlin": ({**GPTQ, "checkpoint_format": "marlin"}, "marlin"),
    "compressed marlin": ({**COMPRESSED, "format": "marlin-24"}, "marlin-24"),
    "unprintable": ({"quant_method": "\x1b[2J"}, r"\\x1b"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_an_unknown_method_is_named_with_what_is_supported(case: str, tmp_path: Path) -> None:
    section, name = UNKNOWN[case]
    with pytest.raises(GreenroomError, match="not supported") as caught:
        opened(tmp_path, Matrix(np.ones(1), {".weight": torch.ones(4, 4)}), section)
    text = str(caught.value)
    assert name.replace("\\\\", "\\") in text
    for alternative in ("GGUF", "AWQ", "compressed-tensors"):
        assert alternative in text
    assert "\n" not in text


def test_mlx_is_known_by_its_own_section(tmp_path: Path) -> None:
    with pytest.raises(GreenroomError, match="MLX"):
        opened(tmp_path, Matrix(np.ones(1), {".weight": torch.ones(4, 4)}), quantization={"group_size": 64, "bits": 4})


BROKEN: list[Any] = [
    [],
    "fp8",
    {},
    {"quant_method": 7},
    {**FP8, "weight_block_size": [128]},
    {**FP8, "weight_block_size": [0, 128]},
    {**FP8, "weight_block_size": [128, 1 << 40]},
    {**FP8, "weight_block_size": "128"},
    {**GPTQ, "group_size": "32"},
    {**GPTQ, "group_size": -7},
    {**GPTQ, "group_size": True},
    {**GPTQ, "bits": 0},
    {**GPTQ, "checkpoint_format": 3},
    {**AWQ, "version": []},
    {**COMPRESSED, "config_groups": {"a": {"weights": 4}}},
    {**COMPRESSED, "config_groups": {"a": {"weights": {"num_bits": 4.0}}}},
]


@pytest.mark.parametrize("section", BROKEN, ids=lambda section: json.dumps(section)[:60])
def test_a_senseless_section_is_refused(section: Any, tmp_path: Path) -> None:
    with pytest.raises(GreenroomError, match="makes no sense"):
        opened(tmp_path, files.fp8_squares(16, 16), section)


def without(matrix: Matrix, ending: str) -> Matrix:
    return Matrix(matrix.weights, {key: value for key, value in matrix.tensors.items() if key != ending})


def changed(matrix: Matrix, ending: str, tensor: torch.Tensor) -> Matrix:
    return Matrix(matrix.weights, {**matrix.tensors, ending: tensor})


MISFITS: dict[str, tuple[Matrix, Any, str]] = {
    "no scales": (without(files.gptq(16, 64, 32), ".scales"), GPTQ, 'tensor "w.scales"'),
    "no config": (files.gptq(16, 64, 32), None, "does not say which"),
    "three bits": (
        changed(files.gptq(32, 64, 32), ".qzeros", torch.ones(2, 3, dtype=torch.int32)),
        GPTQ,
        "3-bit codes",
    ),
    "too few scales": (changed(files.gptq(16, 96, 32), ".scales", torch.ones(5, 16).half()), GPTQ, "w.scales"),
    "few zeros": (changed(files.gptq(16, 64, 32), ".qzeros", torch.ones(1, 2, dtype=torch.int32)), GPTQ, "w.qzeros"),
    "short g_idx": (changed(files.gptq(16, 64, 32), ".g_idx", torch.zeros(63, dtype=torch.int32)), GPTQ, "w.g_idx"),
    "float g_idx": (changed(files.gptq(16, 64, 32), ".g_idx", torch.zeros(64)), GPTQ, "stored as F32"),
    "odd columns": (files.compressed_integers(4, 40, 40), groups(4, None), "multiples of 16"),
    "undeclared width": (files.compressed_integers(4, 64, 64), groups(8, 16), "no width"),
    "fp8 without scales": (without(files.fp8_squares(32, 32), ".weight_scale_inv"), FP8, 'tensor "w.weight_scale"'),
    "fp8 odd grid": (changed(files.fp8_squares(32, 48), ".weight_scale_inv", torch.ones(2, 2)), FP8, "does not fit"),
    "nvfp4 of 32 columns": (files.nvfp4(4, 32), None, "blocks of 64"),
    "nvfp4 scales": (
        changed(files.nvfp4(4, 64), ".weight_scale", torch.ones(4, 3).to(torch.float8_e4m3fn)),
        None,
        "does not fit",
    ),
    "nvfp4 without a factor": (without(files.nvfp4(4, 64), ".weight_scale_2"), None, 'tensor "w.weight_scale_2"'),
    "e5m2": (Matrix(np.ones(1), {".weight": torch.ones(4, 32).to(torch.float8_e5m2)}), FP8, "F8_E5M2"),
    "twice": (changed(files.gptq(16, 64, 32), ".weight", torch.ones(16, 64)), GPTQ, "twice"),
    "twice quantised": (
        changed(files.fp8_squares(16, 64), ".qweight", files.gptq(16, 64, 32).tensors[".qweight"]),
        GPTQ,
        "w.scales",
    ),
    "twice, both whole": (
        Matrix(np.ones(1), {**files.gptq(16, 64, 32).tensors, **files.fp8_squares(16, 64).tensors}),
        GPTQ,
        "twice",
    ),
    "int8 zeros": (
        changed(files.plain_int8(5, 64, symmetric=False), ".weight_zero_point", torch.zeros(4, 1, dtype=torch.int8)),
        {**COMPRESSED, "format": "int-quantized"},
        "w.weight_zero_point",
    ),
}


@pytest.mark.parametrize("case", MISFITS)
def test_tensors_that_do_not_fit_together_are_refused_on_opening(case: str, tmp_path: Path) -> None:
    matrix, section, reason = MISFITS[case]
    with pytest.raises(GreenroomError) as caught:
        opened(tmp_path, matrix, section)
    assert reason in str(caught.value)


def test_a_file_that_is_not_symmetric_as_it_says_is_refused_when_read(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path, files.gptq(16, 64, 32), {**GPTQ, "sym": True})
    with pytest.raises(GreenroomError, match="zero points other than 8"):
        checkpoint.read("w.weight")


def test_an_eight_bit_zero_point_beyond_its_codes_is_refused_when_read(tmp_path: Path) -> None:
    """GPTQ's first version stores one less: 255 means 256."""
    matrix = files.gptq(16, 64, 32, bits=8)
    highest = changed(matrix, ".qzeros", torch.full_like(matrix.tensors[".qzeros"], -1))
    with pytest.raises(GreenroomError, match="zero point of 256"):
        opened(tmp_path, highest, {**GPTQ, "bits": 8}).read("w.weight")


@pytest.mark.parametrize("bits", [0x7F, 0x80, 0xB8, 0xFF])
def test_an_nvfp4_scale_that_is_negative_or_no_number_is_refused_when_read(bits: int, tmp_path: Path) -> None:
    matrix = files.nvfp4(4, 64)
    scales = matrix.tensors[".weight_scale"].view(torch.uint8).clone()
    scales[2, 1] = bits
    wrong = changed(matrix, ".weight_scale", scales.view(torch.float8_e4m3fn))
    with pytest.raises(GreenroomError, match="negative or no number"):
        opened(tmp_path, wrong, {"quant_method": "modelopt"}).read("w.weight")


def test_powers_of_two_keep_their_value_in_bfloat16() -> None:
    exponents = torch.arange(256, dtype=torch.uint8)
    found = torch.from_numpy(e8m0_to_bfloat16(exponents.numpy())).view(torch.bfloat16).double()
    expected = torch.ldexp(torch.ones(256).double(), exponents.double() - 127)
    torch.testing.assert_close(found[:255], expected[:255], rtol=0, atol=0)
    assert found[255].isnan()


@pytest.mark.parametrize("index", [np.zeros(64), np.arange(64), np.full(64, -1), np.full(64, 1 << 30)])
def test_groups_of_uneven_size_are_refused_when_read(index: np.ndarray, tmp_path: Path) -> None:
    matrix = changed(files.gptq(16, 64, 32), ".g_idx", torch.tensor(index, dtype=torch.int32))
    checkpoint = opened(tmp_path, matrix, GPTQ)
    with pytest.raises(GreenroomError, match="32 columns into every group"):
        checkpoint.read("w.weight")


@pytest.mark.parametrize("factor", [float("nan"), float("inf"), -1.0])
def test_a_factor_that_is_no_positive_number_is_refused(factor: float, tmp_path: Path) -> None:
    matrix = changed(files.nvfp4(4, 64), ".weight_scale_2", torch.tensor(factor))
    checkpoint = opened(tmp_path, matrix, {"quant_method": "modelopt"})
    with pytest.raises(GreenroomError, match="not a positive number"):
        checkpoint.read_float32("w.weight")


def test_a_stack_has_a_factor_for_each_matrix(tmp_path: Path) -> None:
    matrix = files.nvfp4(6, 64, stack=3)
    checkpoint = opened(tmp_path, matrix, {"quant_method": "modelopt"})
    assert [checkpoint.factor("w.weight", i) for i in range(3)] == matrix.tensors[".weight_scale_2"].tolist()
    with pytest.raises(IndexError):
        checkpoint.factor("w.weight")
    assert checkpoint.factor("norm.weight") == 1.0
