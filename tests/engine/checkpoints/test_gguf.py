from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from checkpoint_files import QUANTISABLE, random_blocks, write_gguf
from gguf.constants import GGMLQuantizationType

from engine.checkpoints.formats import FORMATS, GGUF_FORMATS
from engine.checkpoints.opening import open_checkpoint
from engine.checkpoints.widened import WIDENED
from engine.errors import GreenroomError

Make = Callable[..., Path]


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("form", GGUF_FORMATS)
def test_every_format_is_read_as_an_independent_decoder_reads_it(form: str, gguf_file: Make) -> None:
    stored = values(3, 4, 512) if form in QUANTISABLE else random_blocks((3, 4, 512), form)
    checkpoint = open_checkpoint(gguf_file({"a": (values(7), "F32"), "w": (stored, form)}))
    reference = {t.name: t for t in gguf.GGUFReader(checkpoint.path).tensors}["w"]
    expected = gguf.quants.dequantize(np.asarray(reference.data), GGMLQuantizationType[form]).reshape(3, 4, 512)

    assert checkpoint.tensors["w"].shape == (3, 4, 512)
    assert checkpoint.tensors["w"].format == form
    np.testing.assert_array_equal(checkpoint.read_float32("w"), expected)
    np.testing.assert_array_equal(checkpoint.read_float32("w", index=2), expected[2])
    np.testing.assert_array_equal(checkpoint.read_float32("w", index=1, rows=(1, 3)), expected[1, 1:3])
    np.testing.assert_array_equal(checkpoint.read_float32("w", rows=(0, 3)), expected[:, 0:3])
    np.testing.assert_array_equal(checkpoint.read("w"), np.asarray(reference.data).view(np.uint8).reshape(-1))


@pytest.mark.parametrize("form", WIDENED)
def test_codebook_types_are_shown_in_wider_blocks_with_the_same_values(form: str, gguf_file: Make) -> None:
    stored = random_blocks((3, 5, 512), form, seed=7)
    checkpoint = open_checkpoint(gguf_file({"blk.0.a.weight": (values(7), "F32"), "w": (stored, form)}))
    with np.errstate(over="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the reference
        expected = gguf.quants.dequantize(stored, GGMLQuantizationType[form])
    info = checkpoint.tensors["w"]
    assert (info.shape, info.nbytes, info.origin) == ((3, 5, 512), stored.nbytes, form)
    assert info.format == WIDENED[form].layout.name
    np.testing.assert_array_equal(checkpoint.read_float32("w"), expected)
    np.testing.assert_array_equal(checkpoint.read_float32("w", index=2, rows=(1, 4)), expected[2, 1:4])
    values_read = FORMATS[info.format].dequantise(checkpoint.read("w", index=1)).reshape(5, 512)
    np.testing.assert_array_equal(values_read, expected[1])
    assert len(np.unique(expected)) > 50


def test_what_is_widened_is_told_in_the_log(gguf_file: Make, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        open_checkpoint(gguf_file({"w": (random_blocks((4, 256), "IQ3_XXS"), "IQ3_XXS")}))
    assert "1 tensors of type IQ3_XXS are held as I8_G32_F32: the same values" in caplog.text


def test_types_mix_within_one_model(gguf_file: Make) -> None:
    forms = ("Q4_K", "IQ2_XS", "Q6_K", "Q8_0", "F32")
    tensors = {f"{form}.weight": (random_blocks((2, 256), form), form) for form in forms[:3]}
    tensors |= {"Q8_0.weight": (values(2, 256), "Q8_0"), "F32.weight": (values(2, 256), "F32")}
    checkpoint = open_checkpoint(gguf_file(tensors))
    assert [
        checkpoint.tensors[f"{form}.weight"].origin or checkpoint.tensors[f"{form}.weight"].format for form in forms
    ] == list(forms)
    for form in forms:
        assert np.isfinite(checkpoint.read_float32(f"{form}.weight")).all()


def test_nvfp4_matrices_have_a_factor_in_a_tensor_of_its_own(gguf_file: Make) -> None:
    """As llama.cpp names and reads them: .scale of one number, or of one per expert."""
    experts, plain = random_blocks((3, 2, 64), "NVFP4"), random_blocks((2, 64), "NVFP4", seed=1)
    factors = np.array([0.5, 0.003, 7.0], np.float32)
    path = gguf_file(
        {
            "blk.0.ffn_up_exps.weight": (experts, "NVFP4"),
            "blk.0.ffn_up_exps.scale": (factors, "F32"),
            "blk.0.attn_q.weight": (plain, "NVFP4"),
            "blk.0.attn_q.scale": (factors[1:2], "F32"),
            "blk.0.attn_k.weight": (plain, "NVFP4"),
        }
    )
    checkpoint = open_checkpoint(path)
    bare = gguf.quants.dequantize(experts, GGMLQuantizationType.NVFP4)
    np.testing.assert_array_equal(checkpoint.read_float32("blk.0.ffn_up_exps.weight"), bare * factors[:, None, None])
    np.testing.assert_array_equal(
        checkpoint.read_float32("blk.0.ffn_up_exps.weight", 2, (1, 2)), bare[2, 1:2] * factors[2]
    )
    np.testing.assert_array_equal(checkpoint.read("blk.0.ffn_up_exps.weight", 1), experts[1].reshape(-1))
    assert checkpoint.factor("blk.0.ffn_up_exps.weight", 1) == factors[1]
    assert checkpoint.factor("blk.0.attn_q.weight") == factors[1]
    assert checkpoint.factor("blk.0.attn_k.weight") == 1.0
    with pytest.raises(IndexError):
        checkpoint.factor("blk.0.ffn_up_exps.weight")


def test_a_factor_that_does_not_fit_is_refused(gguf_file: Make) -> None:
    stored = random_blocks((3, 2, 64), "NVFP4")
    checkpoint = open_checkpoint(gguf_file({"a.weight": (stored, "NVFP4"), "a.scale": (values(2), "F32")}))
    with pytest.raises(GreenroomError, match=r'"a\.scale" does not fit'):
        checkpoint.read_float32("a.weight")


def test_settings_are_kept_without_the_vocabulary(gguf_file: Make) -> None:
    path = gguf_file(
        llama__block_count=7,
        llama__rope__freq_base=10000.0,
        llama__attention__head_count_kv=[2, 4, 8],
        general__tags=["moe", "tiny"],
        general__name="Tiny with a story",
        tokenizer__ggml__model="gpt2",
        tokenizer__ggml__tokens=["a", "b"],
    )
    checkpoint = open_checkpoint(path)
    assert (checkpoint.form, checkpoint.architecture, checkpoint.name) == ("gguf", "llama", "Tiny with a story")
    assert checkpoint.config["llama.block_count"] == 7
    assert checkpoint.config["llama.rope.freq_base"] == 10000.0
    assert checkpoint.config["llama.attention.head_count_kv"] == [2, 4, 8]
    assert checkpoint.config["general.tags"] == ["moe", "tiny"]
    assert "tokenizer.ggml.tokens" not in checkpoint.config


def test_a_model_without_a_name_is_called_like_its_file(gguf_file: Make) -> None:
    assert open_checkpoint(gguf_file(name="tiny-moe.gguf")).name == "tiny-moe"


@pytest.mark.parametrize("made", ["Smollm2 135M 8k Lc100K Mix1 Ep2", "Qwen3 30B A3B", "hub", " ", ".", 7])
def test_a_name_that_a_converter_made_gives_way_to_the_files(made: Any, gguf_file: Make) -> None:
    assert open_checkpoint(gguf_file(name="tiny-Q4_K_M.gguf", general__name=made)).name == "tiny-Q4_K_M"


def test_nbytes_adds_up_what_is_stored(gguf_file: Make) -> None:
    checkpoint = open_checkpoint(gguf_file({"a": (values(2, 32), "Q8_0"), "b": (values(5), "F32")}))
    assert checkpoint.nbytes == 2 * 34 + 5 * 4


def test_threads_may_read_at_once(gguf_file: Make) -> None:
    stored = values(64, 8, 32)
    checkpoint = open_checkpoint(gguf_file({"w": (stored, "F32")}))
    with ThreadPoolExecutor(4) as pool:
        slices = list(pool.map(lambda i: checkpoint.read_float32("w", index=i), list(range(64)) * 4))
    for number, piece in enumerate(slices):
        np.testing.assert_array_equal(piece, stored[number % 64])


@pytest.mark.parametrize(
    "cut", [{"index": 3}, {"index": -1}, {"rows": (2, 1)}, {"rows": (0, 5)}, {"index": 0, "rows": (-1, 2)}]
)
def test_a_cut_outside_the_tensor_is_a_fault_of_the_caller(cut: dict[str, object], gguf_file: Make) -> None:
    checkpoint = open_checkpoint(gguf_file({"w": (values(3, 4, 32), "Q8_0")}))
    with pytest.raises(IndexError):
        checkpoint.read("w", **cut)  # type: ignore[arg-type]


def test_a_tensor_that_is_not_there_is_named(gguf_file: Make) -> None:
    with pytest.raises(GreenroomError, match=r"holds no tensor \"output\.weight\""):
        open_checkpoint(gguf_file({"w": (values(4), "F32")})).read("output.weight")


def test_a_file_cut_short_after_opening_is_noticed(gguf_file: Make) -> None:
    checkpoint = open_checkpoint(gguf_file({"w": (values(64), "F32")}))
    with checkpoint.path.open("r+b") as file:
        file.truncate(checkpoint.tensors["w"].offset + 10)
    with pytest.raises(GreenroomError, match="too early"):
        checkpoint.read("w")
    checkpoint.path.unlink()
    with pytest.raises(GreenroomError, match="no such file"):
        checkpoint.read("w")


def write_split(folder: Path) -> list[Path]:
    writer = gguf.GGUFWriter(folder / "tiny.gguf", "llama", split_max_tensors=2)
    for number in range(5):
        writer.add_tensor(f"t{number}", np.full((2, 32), number, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob("tiny-*.gguf"))


def test_a_split_is_opened_whole_from_any_part(tmp_path: Path) -> None:
    parts = write_split(tmp_path)
    assert len(parts) == 3
    for part in (parts[0], parts[2]):
        checkpoint = open_checkpoint(part)
        assert checkpoint.path == parts[0]
        assert checkpoint.name == "tiny"
        assert len(checkpoint.tensors) == 5
        assert checkpoint.read_float32("t4")[0, 0] == 4


def test_a_split_with_a_missing_part_says_which(tmp_path: Path) -> None:
    parts = write_split(tmp_path)
    parts[1].unlink()
    with pytest.raises(GreenroomError, match=r"tiny-00002-of-00003\.gguf"):
        open_checkpoint(parts[0])


def test_parts_of_another_split_are_refused(tmp_path: Path) -> None:
    parts = write_split(tmp_path)
    parts[1].write_bytes(parts[2].read_bytes())
    with pytest.raises(GreenroomError, match="is not part 2 of this split"):
        open_checkpoint(parts[0])


def test_a_renamed_first_part_is_refused(tmp_path: Path) -> None:
    parts = write_split(tmp_path)
    with pytest.raises(GreenroomError, match="first of 3 parts"):
        open_checkpoint(parts[0].rename(tmp_path / "model.gguf"))


def test_a_format_that_is_not_read_is_named_on_opening(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("w", np.zeros((2, 292), np.uint8), raw_dtype=GGMLQuantizationType.Q8_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(GreenroomError, match=r'"w" is stored as Q8_K.*Q4_K'):
        open_checkpoint(tmp_path / "m.gguf")


def test_the_reference_reader_agrees_on_a_real_model(smollm: Path) -> None:
    checkpoint = open_checkpoint(smollm)
    assert checkpoint.architecture == "llama"
    assert checkpoint.config["llama.block_count"] == 30
    reader = gguf.GGUFReader(smollm)
    assert {t.name: (t.data_offset, t.n_bytes, tuple(reversed(t.shape.tolist()))) for t in reader.tensors} == {
        t.name: (t.offset, t.nbytes, t.shape) for t in checkpoint.tensors.values()
    }
    down = next(t for t in reader.tensors if t.name == "blk.3.ffn_down.weight")
    np.testing.assert_array_equal(
        checkpoint.read_float32(down.name, rows=(10, 20)), gguf.quants.dequantize(down.data[10:20], down.tensor_type)
    )


def test_a_missing_architecture_is_said(tmp_path: Path) -> None:
    data = write_gguf(tmp_path / "m.gguf").read_bytes()
    (tmp_path / "m.gguf").write_bytes(data.replace(b"general.architecture", b"general.architektur_"))
    with pytest.raises(GreenroomError, match="does not name an architecture"):
        open_checkpoint(tmp_path / "m.gguf")
