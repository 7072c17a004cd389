"""Damaged and hostile models of every form: read, or refused with one sentence, in memory that the files justify.

Each example takes a sound model, changes a few places of one file and does everything with what opens: reads every
tensor, dequantises it, makes its tokenizer and its chat template. GREENROOM_FUZZ=200 runs 200 times as many examples.
"""

from __future__ import annotations

import copy
import json
import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import quantised_files as files
import tokenizers
import torch
from checkpoint_files import random_blocks, write_gguf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from tokenizers import decoders, models, pre_tokenizers

from engine.checkpoints.opening import open_checkpoint
from engine.errors import GreenroomError

TIMES = int(os.environ.get("GREENROOM_FUZZ", "1"))

#: Allowed above the sizes of the files: parsing a small header and decoding a small tensor take this much.
SPARE, PER_BYTE = 6 << 20, 64

HOSTILE_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 7, 1 << 31, 1 << 63, -(1 << 63), 10**40, 0.5, 1e308, float("nan"), "", "x" * 5000,
    "\x00\ud800", "../../etc/passwd", "re:(a+)+$", [], [[]], [0], [-1, 1 << 62], {}, {"": {}}, {"a": [None]},
)  # fmt: skip
HOSTILE_WORDS = (
    0,
    1,
    2,
    3,
    8,
    9,
    13,
    255,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 60,
    1 << 63,
    (1 << 64) - 1,
)

Change = tuple[int, int, int, int]
changes = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 1 << 24), st.integers(0, 1 << 16), st.integers(0, 255)),
    min_size=1,
    max_size=4,
)


def fuzz(examples: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    quiet = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    limits = settings(max_examples=examples * TIMES, deadline=None, suppress_health_check=quiet)
    return lambda test: limits(given(changes=changes)(test))


def changed_bytes(data: bytes, changes: list[Change]) -> bytes:
    """A byte set, a word set to an absurd number, a piece cut out, a piece doubled, or the end cut off."""
    buffer = bytearray(data)
    for kind, at, length, value in changes:
        if not buffer:
            break
        at, length = at % len(buffer), length % 64
        if kind == 0:
            buffer[at] = value
        elif kind == 1:
            width = 4 if value % 2 else 8
            buffer[at : at + width] = (HOSTILE_WORDS[value % len(HOSTILE_WORDS)] % (1 << 8 * width)).to_bytes(
                width, "little"
            )
        elif kind == 2:
            del buffer[at : at + length]
        elif kind == 3:
            buffer[at:at] = buffer[at : at + length]
        else:
            del buffer[at:]
    return bytes(buffer)


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of every value within a JSON document."""
    pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in list(pairs):
        yield node, key
        yield from places(value)


def changed_json(data: bytes, changes: list[Change]) -> bytes:
    """Values replaced by hostile ones, by other values of the document, or taken out; or bytes changed."""
    document = json.loads(data)
    for kind, at, other, value in changes:
        found = list(places(document))
        if not found:
            break
        container, key = found[at % len(found)]
        source, source_key = found[other % len(found)]
        if kind <= 1:
            container[key] = copy.deepcopy(HOSTILE_VALUES[value % len(HOSTILE_VALUES)])
        elif kind == 2:
            container[key] = copy.deepcopy(source[source_key])
        elif kind == 3:
            del container[key]
        else:
            return changed_bytes(data, changes)
    return json.dumps(document).encode("utf-8", "surrogatepass")


def try_everything(path: Path, size: int) -> None:
    """Only GreenroomError may come out, and memory must stay within what the files justify."""
    tracemalloc.start()
    try:
        _use(path)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < SPARE + PER_BYTE * size


def _use(path: Path) -> None:
    try:
        checkpoint = open_checkpoint(path)
    except GreenroomError as error:
        sentence(error)
        return
    for name, info in checkpoint.tensors.items():
        try:
            values = checkpoint.read_float32(name)
            assert values.shape == info.shape
            if len(info.shape) > 2:
                checkpoint.factor(name, info.shape[0] - 1)
                checkpoint.read(name, info.shape[0] - 1)
            checkpoint.column_order(name)
        except GreenroomError as error:
            sentence(error)
    for use in (
        lambda: checkpoint.tokenizer().encode("Hello world \u00fc"),
        lambda: checkpoint.chat_template().render([{"role": "user", "content": "Hello"}]),
    ):
        try:
            use()
        except GreenroomError as error:
            sentence(error)


def sentence(error: GreenroomError) -> None:
    text = str(error)
    assert text
    assert "\n" not in text
    assert text.isprintable()
    assert len(text) < 1000


# Sound models


def quantised_folder(folder: Path, quantisation: Any, tensors: dict[str, torch.Tensor]) -> Path:
    folder.mkdir()
    plain = {"model.norm.weight": torch.ones(64), "lm_head.weight": torch.ones(4, 64, dtype=torch.bfloat16)}
    save_file({name: tensor.contiguous() for name, tensor in (tensors | plain).items()}, folder / "model-1.safetensors")
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(tensors | plain, "model-1.safetensors")}
    config = {"model_type": "qwen3_moe", "eos_token_id": [1, 2], "bos_token_id": 0, "quantization_config": quantisation}
    template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% endfor %}"
    special = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": template, "add_bos_token": True}
    for name, content in (
        ("model.safetensors.index", index),
        ("config", config),
        ("tokenizer_config", special),
        ("generation_config", {"eos_token_id": 2}),
    ):
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    backend = tokenizers.Tokenizer(models.BPE({"<s>": 0, "</s>": 1, "H": 2, "e": 3, "He": 4}, [("H", "e")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel()
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<s>", "</s>", "<|im_start|>"])
    backend.save(str(folder / "tokenizer.json"))
    return folder


def mx_stack() -> dict[str, torch.Tensor]:
    _, blocks, scales = files.mxfp4((2, 8), 64)
    return {"e.gate_up_proj_blocks": torch.from_numpy(blocks), "e.gate_up_proj_scales": torch.from_numpy(scales)}


COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 32}}},
    "ignore": ["lm_head"],
}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False, "desc_act": True}
order = np.random.default_rng(0).permutation(np.arange(64) // 32)

MODELS: dict[str, tuple[Any, dict[str, torch.Tensor]]] = {
    "gptq": (GPTQ, files.gptq(8, 64, 32, groups_of=order).named("a")),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}, files.awq(8, 64, 32).named("a")),
    "compressed": (COMPRESSED, files.compressed_integers(8, 64, 32, symmetric=False).named("a")),
    "fp8": ({"quant_method": "fp8", "weight_block_size": [16, 16]}, files.fp8_squares(24, 64, square=16).named("a")),
    "nvfp4": ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, files.nvfp4(4, 64, stack=2).named("a")),
    "mxfp4": ({"quant_method": "mxfp4"}, mx_stack()),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quantised_folder(tmp_path_factory.mktemp("sound") / request.param, *MODELS[request.param])


def with_change(folder: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """Try everything with one file of a sound folder changed, and put it back."""
    file = folder / name
    sound = file.read_bytes()
    try:
        file.write_bytes(change(sound))
        try_everything(folder, sum(part.stat().st_size for part in folder.iterdir()))
    finally:
        file.write_bytes(sound)


def test_the_models_are_sound(model: Path) -> None:
    checkpoint = open_checkpoint(model)
    assert len(checkpoint.tensors) == 3
    for name in checkpoint.tensors:
        assert np.isfinite(checkpoint.read_float32(name)).all()
    assert checkpoint.tokenizer().encode("He")
    assert "Hello" in checkpoint.chat_template().render([{"role": "user", "content": "Hello"}])


@fuzz(25)
def test_weights_of_quantised_models(changes: list[Change], model: Path) -> None:
    with_change(model, "model-1.safetensors", lambda data: changed_bytes(data, changes))


@fuzz(25)
def test_headers_of_quantised_models(changes: list[Change], model: Path) -> None:
    """The same, but only the JSON header, which stays a JSON document of the right length."""

    def change(data: bytes) -> bytes:
        length = int.from_bytes(data[:8], "little")
        header = changed_json(data[8 : 8 + length], changes)
        return len(header).to_bytes(8, "little") + header + data[8 + length :]

    with_change(model, "model-1.safetensors", change)


@fuzz(25)
def test_configs_of_quantised_models(changes: list[Change], model: Path) -> None:
    with_change(model, "config.json", lambda data: changed_json(data, changes))


@pytest.mark.parametrize(
    "name", ["model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"]
)
@fuzz(40)
def test_files_beside_the_weights(changes: list[Change], name: str, folder: Path) -> None:
    with_change(folder, name, lambda data: changed_json(data, changes))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quantised_folder(tmp_path_factory.mktemp("sound") / "model", *MODELS["compressed"])


@pytest.fixture(scope="module")
def gguf_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pieces = ["<unk>", "<s>", "</s>", "▁H", "e", "llo", "▁"]
    return write_gguf(
        tmp_path_factory.mktemp("sound") / "m.gguf",
        {
            "blk.0.up_exps.weight": (random_blocks((2, 2, 64), "NVFP4"), "NVFP4"),
            "blk.0.up_exps.scale": (np.array([0.5, 2.0]), "F32"),
            "a.weight": (random_blocks((2, 256), "IQ3_XXS"), "IQ3_XXS"),
            "b.weight": (random_blocks((2, 256), "IQ1_M"), "IQ1_M"),
            "c.weight": (random_blocks((2, 256), "Q6_K"), "Q6_K"),
            "d.weight": (np.ones((2, 64)), "MXFP4"),
            "norm.weight": (np.ones(8), "F32"),
        },
        llama__block_count=1,
        llama__rope__freq_base=1e4,
        split__count=1,
        tokenizer__ggml__model="llama",
        tokenizer__ggml__tokens=pieces,
        tokenizer__ggml__scores=[0.0, -1.0, -2.0, -3.0, -4.0, -5.0, -6.0],
        tokenizer__ggml__token_type=[2, 3, 3, 1, 1, 1, 1],
        tokenizer__ggml__bos_token_id=1,
        tokenizer__ggml__eos_token_id=2,
        tokenizer__ggml__add_bos_token=True,
        tokenizer__chat_template="{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}",
    )


@fuzz(150)
def test_gguf(changes: list[Change], gguf_model: Path, tmp_path: Path) -> None:
    data = changed_bytes(gguf_model.read_bytes(), changes)
    (tmp_path / "m.gguf").write_bytes(data)
    try_everything(tmp_path / "m.gguf", len(data))
