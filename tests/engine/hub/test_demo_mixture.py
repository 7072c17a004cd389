"""The demo model computes what the dense model computes, rearranged, and keeps its bits."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize
from hypothesis import given
from hypothesis import strategies as st

from engine.hub.demo import parts_path
from engine.hub.demo_mixture import Parts, half_split_rows, load_parts, write_demo
from engine.resources import asset


@pytest.fixture(scope="module")
def made(demo_model: Path) -> gguf.GGUFReader:
    return gguf.GGUFReader(demo_model)


@pytest.fixture(scope="module")
def source(dense: Path) -> gguf.GGUFReader:
    return gguf.GGUFReader(dense)


@pytest.fixture(scope="module")
def tensors(made: gguf.GGUFReader) -> dict[str, gguf.ReaderTensor]:
    return {tensor.name: tensor for tensor in made.tensors}


@pytest.fixture(scope="module")
def dense_tensors(source: gguf.GGUFReader) -> dict[str, gguf.ReaderTensor]:
    return {tensor.name: tensor for tensor in source.tensors}


def test_learned_parts_are_small() -> None:
    assert sum(path.stat().st_size for path in asset("demo").rglob("*") if path.is_file()) < 4_000_000


def test_header_tells_what_readers_need(made: gguf.GGUFReader) -> None:
    parts = load_parts(parts_path())

    def value(key: str) -> object:
        return made.fields[key].contents()

    assert value("general.architecture") == "qwen2moe"
    assert value("general.name") == "Greenroom demo (SmolLM2-135M as a mixture of experts)"
    assert value("general.license") == "apache-2.0"
    assert value("qwen2moe.expert_count") == parts.experts
    assert value("qwen2moe.expert_used_count") == parts.used
    assert value("qwen2moe.expert_feed_forward_length") == parts.width == 64
    assert value("qwen2moe.expert_shared_feed_forward_length") == parts.shared
    assert value("qwen2moe.rope.freq_base") == 100000.0


def test_at_most_four_fifths_of_the_feed_forward_weights_are_active(
    tensors: dict[str, gguf.ReaderTensor], dense_tensors: dict[str, gguf.ReaderTensor]
) -> None:
    def weights(layer: int, kind: str) -> int:
        return sum(tensors[f"blk.{layer}.ffn_{name}_{kind}.weight"].n_elements for name in ("gate", "up", "down"))

    parts = load_parts(parts_path())
    for layer in range(parts.layers):
        active = weights(layer, "shexp") + weights(layer, "exps") * parts.used // parts.experts
        assert active <= 0.8 * 3 * dense_tensors[f"blk.{layer}.ffn_down.weight"].n_elements


@pytest.mark.parametrize("projection", ["gate", "up"])
def test_every_neuron_has_one_place_and_keeps_its_bits(
    projection: str, tensors: dict[str, gguf.ReaderTensor], dense_tensors: dict[str, gguf.ReaderTensor]
) -> None:
    for layer in range(load_parts(parts_path()).layers):
        name = f"blk.{layer}.ffn_{projection}"
        source = dense_tensors[f"{name}.weight"].data
        shared, routed = (tensors[f"{name}_{kind}.weight"].data for kind in ("shexp", "exps"))
        moved = np.concatenate([shared, routed.reshape(-1, source.shape[1])])
        assert sorted(map(bytes, moved)) == sorted(map(bytes, source))


def test_attention_and_embeddings_keep_their_bits(
    tensors: dict[str, gguf.ReaderTensor], dense_tensors: dict[str, gguf.ReaderTensor]
) -> None:
    pairs = [("token_embd.weight", "token_embd.weight"), ("output.weight", "token_embd.weight")]
    for layer in range(load_parts(parts_path()).layers):
        pairs += [(f"blk.{layer}.attn_{name}.weight",) * 2 for name in ("v", "output")]
    for made, source in pairs:
        assert np.array_equal(tensors[made].data, dense_tensors[source].data), made
    for layer in range(load_parts(parts_path()).layers):
        for name in (f"blk.{layer}.attn_{p}" for p in "qk"):
            made_rows, source_rows = tensors[f"{name}.weight"].data, dense_tensors[f"{name}.weight"].data
            assert sorted(map(bytes, made_rows)) == sorted(map(bytes, source_rows))
            assert not tensors[f"{name}.bias"].data.any()


def test_tokenizer_is_copied(made: gguf.GGUFReader, source: gguf.GGUFReader) -> None:
    keys = [key for key in source.fields if key.startswith("tokenizer.")]
    assert "tokenizer.chat_template" in keys
    for key in keys:
        assert made.fields[key].contents() == source.fields[key].contents(), key
        assert made.fields[key].types == source.fields[key].types, key


def test_router_prefers_experts_and_hardly_weighs_them(tensors: dict[str, gguf.ReaderTensor]) -> None:
    """Softmax weights stay near 1/E while float32 still tells the chosen experts from the others."""
    parts = load_parts(parts_path())
    normal = np.random.default_rng(0).standard_normal((256, parts.router.shape[2])).astype(np.float32)
    for layer in range(parts.layers):
        hidden = normal * tensors[f"blk.{layer}.ffn_norm.weight"].data
        logits = hidden @ tensors[f"blk.{layer}.ffn_gate_inp.weight"].data.T
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        ordered = np.sort(weights, axis=1)
        assert np.abs(weights * parts.experts - 1).max() < 0.005
        gaps = ordered[:, -parts.used] - ordered[:, -parts.used - 1]
        assert np.mean(gaps > 0) > 0.99


# A small dense file, to check the arithmetic on.
HIDDEN, NEURONS, EXPERTS, SHARED = 64, 256, 2, 128


def write_small_dense(path: Path) -> Path:
    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_quantization_version(2)
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(NEURONS)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_rope_freq_base(100000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(32)
    writer.add_token_list(["a", "b"])

    def add(name: str, *shape: int) -> None:
        kind = gguf.GGMLQuantizationType.Q4_1
        data = gguf.quants.quantize(random.standard_normal(shape).astype(np.float32), kind)
        writer.add_tensor(name, data, raw_dtype=kind)

    add("token_embd.weight", 32, HIDDEN)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", random.uniform(0.5, 2, HIDDEN).astype(np.float32))
    for name, rows in {"q": HIDDEN, "k": HIDDEN // 2, "v": HIDDEN // 2, "output": HIDDEN}.items():
        add(f"blk.0.attn_{name}.weight", rows, HIDDEN)
    add("blk.0.ffn_gate.weight", NEURONS, HIDDEN)
    add("blk.0.ffn_up.weight", NEURONS, HIDDEN)
    add("blk.0.ffn_down.weight", HIDDEN, NEURONS)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def neutral_parts(used: int) -> Parts:
    """Parts that move neurons and change nothing else."""
    random = np.random.default_rng(2)
    return Parts(
        shared=SHARED,
        experts=EXPERTS,
        used=used,
        order=random.permutation(NEURONS).astype(np.int16)[None],
        router=random.integers(-127, 128, (1, EXPERTS, HIDDEN), dtype=np.int8),
        router_scale=np.full((1, EXPERTS), 0.001, np.float32),
        out=np.zeros((1, HIDDEN, 4), np.int8),
        inn=np.zeros((1, 4, NEURONS), np.int8),
        rank_scale=np.ones((1, 4), np.float32),
        gain=np.ones((1, NEURONS), np.float16),
        norms=np.zeros((3, HIDDEN), np.float16),
    )


def values(path: Path) -> dict[str, np.ndarray]:
    return {tensor.name: dequantize(tensor.data, tensor.tensor_type) for tensor in gguf.GGUFReader(path).tensors}


def feed_forward(x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
    g = x @ gate.T
    return (g / (1 + np.exp(-g)) * (x @ up.T)) @ down.T


def test_with_every_expert_the_mixture_computes_the_dense_layer(tmp_path: Path) -> None:
    source = write_small_dense(tmp_path / "dense.gguf")
    write_demo(source, tmp_path / "moe.gguf", neutral_parts(used=EXPERTS))
    old, new = values(source), values(tmp_path / "moe.gguf")
    x = np.random.default_rng(3).standard_normal((8, HIDDEN)).astype(np.float32)

    expected = feed_forward(x, *(old[f"blk.0.ffn_{p}.weight"] for p in ("gate", "up", "down")))
    shared_gate = 1 / (1 + np.exp(-x @ new["blk.0.ffn_gate_inp_shexp.weight"]))
    result = shared_gate[:, None] * feed_forward(
        x, *(new[f"blk.0.ffn_{p}_shexp.weight"] for p in ("gate", "up", "down"))
    )
    weights = np.exp(x @ new["blk.0.ffn_gate_inp.weight"].T)
    weights /= weights.sum(axis=1, keepdims=True)
    for expert in range(EXPERTS):
        matrices = (new[f"blk.0.ffn_{p}_exps.weight"][expert] for p in ("gate", "up", "down"))
        result += weights[:, expert, None] * feed_forward(x, *matrices)

    # Q8_0 keeps a down weight within 1/254 of its block's largest; gates are within a percent of uniform
    assert np.linalg.norm(result - expected) < 0.01 * np.linalg.norm(expected)


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    source = write_small_dense(tmp_path / "dense.gguf")
    for name in ("one", "two"):
        write_demo(source, tmp_path / name, neutral_parts(used=1))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@given(heads=st.integers(1, 4), half=st.integers(1, 8), position=st.integers(0, 100))
def test_moved_rows_turn_interleaved_rotation_into_half_split(heads: int, half: int, position: int) -> None:
    size = 2 * half
    x = np.random.default_rng(0).standard_normal((heads, size))
    angle = position / 10000 ** (np.arange(half) / half)
    cos, sin = np.cos(angle), np.sin(angle)
    even, odd = x[:, 0::2], x[:, 1::2]
    interleaved = np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(-1)
    rows = half_split_rows(heads * size, heads)
    low, high = np.split(x.reshape(-1)[rows].reshape(heads, size), 2, axis=1)
    half_split = np.concatenate([low * cos - high * sin, low * sin + high * cos], axis=1).reshape(-1)
    np.testing.assert_allclose(half_split, interleaved[rows], atol=1e-12)
