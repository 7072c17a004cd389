"""Tokenizers from tokenizer.model, from vocab.json with merges.txt, and from tiktoken files."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import transformers
from checkpoint_files import write_folder, write_gguf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sentencepiece_files import FOLDER, KINDS, TEXTS
from tokenizers import models, pre_tokenizers, trainers

from engine.checkpoints.opening import open_checkpoint
from engine.checkpoints.sentencepiece import CONTROL, USER_DEFINED, read_model
from engine.checkpoints.tokenizer import Tokenizer
from engine.errors import GreenroomError

EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
SETTINGS: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>"}


def folder_with(folder: Path, model: Path | None = None, config: Any = None, **files: Any) -> Path:
    write_folder(folder, {"w": np.zeros(2, np.float32)}, config, **files)
    if model is not None:
        shutil.copy(model, folder / "tokenizer.model")
    return folder


def tokenizer(folder: Path) -> Tokenizer:
    return open_checkpoint(folder).tokenizer()


# tokenizer.model


@pytest.mark.parametrize("name", KINDS)
def test_a_sentencepiece_model_cuts_as_sentencepiece_does(name: str, tmp_path: Path) -> None:
    ours = tokenizer(folder_with(tmp_path / "m", FOLDER / f"{name}.model", tokenizer_config=SETTINGS))
    assert [ours.encode(text, special=False) for text in TEXTS] == EXPECTED[name]
    if name == "bpe":  # the only one that keeps every space and knows every byte
        assert [ours.decode(ids) for ids in EXPECTED[name]] == [text.replace("▁", " ") for text in TEXTS]


@pytest.mark.parametrize("name", KINDS)
def test_the_same_pieces_from_gguf(name: str, tmp_path: Path) -> None:
    pieces = read_model((FOLDER / f"{name}.model").read_bytes())
    values: dict[str, Any] = {
        "model": "t5" if pieces.unigram else "llama",
        "tokens": list(pieces.tokens),
        "scores": [float(score) for score in pieces.scores],
        "token_type": list(pieces.kinds),
        "unknown_token_id": pieces.unknown,
        "add_space_prefix": pieces.space_first,
        "remove_extra_whitespaces": pieces.squeeze,
    }
    if pieces.charsmap:
        values["precompiled_charsmap"] = list(pieces.charsmap)
    path = write_gguf(tmp_path / "m.gguf", **{f"tokenizer__ggml__{key}": value for key, value in values.items()})
    ours = tokenizer(path)
    # llama.cpp looks for user-defined tokens before a text is cut, and puts a space behind them; it squeezes no BPE.
    for text, ids in zip(TEXTS, EXPECTED[name], strict=True):
        if "<sep>" not in text and (pieces.unigram or not pieces.squeeze):
            assert ours.encode(text, special=False) == ids


def test_special_tokens_of_a_sentencepiece_model(tmp_path: Path) -> None:
    more = {"480": {"content": "<|im_end|>"}, "482": {"content": "<think>", "special": False}}
    config = {**SETTINGS, "added_tokens_decoder": more}
    ours = tokenizer(folder_with(tmp_path / "m", FOLDER / "bpe.model", tokenizer_config=config))
    assert (ours.bos_id, ours.add_bos, ours.vocab_size) == (1, True, 483)
    assert ours.eos_ids == {2, 480}
    assert ours.special_ids == {1, 2, 480}
    assert ours.encode("<s>a</s>")[:: len(ours.encode("<s>a"))] == [1, 2]
    assert ours.encode("a<|im_end|><think>", special=False)[-2:] == [480, 482]
    assert ours.decode([480, 482], skip_special=True) == "<think>"
    assert not tokenizer(
        folder_with(tmp_path / "n", FOLDER / "bpe.model", tokenizer_config={**config, "add_bos_token": False})
    ).add_bos


def test_a_folder_may_take_the_space_away(tmp_path: Path) -> None:
    usual = tokenizer(folder_with(tmp_path / "a", FOLDER / "bpe.model", tokenizer_config=SETTINGS))
    config = {**SETTINGS, "add_prefix_space": False}
    without = tokenizer(folder_with(tmp_path / "b", FOLDER / "bpe.model", tokenizer_config=config))
    assert without.encode(" fox", special=False) == usual.encode("fox", special=False)
    assert (usual.adds_space, without.adds_space) == (True, False)


def test_what_a_sentencepiece_model_says_about_itself() -> None:
    pieces = read_model((FOLDER / "bpe.model").read_bytes())
    assert (pieces.unknown, pieces.bos, pieces.eos, pieces.unigram) == (0, 1, 2, False)
    assert pieces.tokens[:3] == ["<unk>", "<s>", "</s>"]
    assert [pieces.kind(token) for token in (1, 3)] == [CONTROL, USER_DEFINED]
    assert (pieces.space_first, pieces.squeeze, pieces.charsmap, pieces.isolated) == (True, False, b"", ("<sep>",))


def test_an_added_token_far_away_is_refused(tmp_path: Path) -> None:
    config = {**SETTINGS, "added_tokens_decoder": {"16000000": {"content": "<far>"}, "x": {}, "7": 3}}
    with pytest.raises(GreenroomError, match="has the id 16,000,000, far beyond its 480 pieces"):
        tokenizer(folder_with(tmp_path / "m", FOLDER / "bpe.model", tokenizer_config=config))


def test_a_damaged_table_of_replacements_is_refused(tmp_path: Path) -> None:
    rules = b"\x12\x04\xff\xff\xff\xff"
    folder = folder_with(tmp_path / "m", tokenizer_config=SETTINGS)
    data = (FOLDER / "unigram.model").read_bytes() + b"\x1a" + bytes([len(rules)]) + rules
    (folder / "tokenizer.model").write_bytes(data)
    with pytest.raises(GreenroomError, match=r"tokenizer\.model cannot be read: it is damaged"):
        tokenizer(folder)


@pytest.mark.parametrize("data", [b"", b"{}", b"\x0a\x05ab", b"\x08\x01", b"\xff" * 40, b"\x0a\x02\x10\x01"])
def test_a_damaged_sentencepiece_model_is_refused(data: bytes, tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "m")
    (folder / "tokenizer.model").write_bytes(data)
    with pytest.raises(GreenroomError, match=r"tokenizer\.model cannot be read: it is damaged"):
        tokenizer(folder)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["bpe", "unigram"]),
    changes=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=12),
    length=st.one_of(st.none(), st.integers(0, 8000)),
)
def test_a_sentencepiece_model_with_flipped_bytes_never_crashes(
    name: str, changes: list[tuple[int, int]], length: int | None, tmp_path: Path
) -> None:
    data = bytearray((FOLDER / f"{name}.model").read_bytes()[:length])
    for at, value in changes:
        if data:
            data[at % len(data)] = value
    folder = folder_with(tmp_path / "m", tokenizer_config=SETTINGS)
    (folder / "tokenizer.model").write_bytes(data)
    with contextlib.suppress(GreenroomError):
        ours = tokenizer(folder)
        assert isinstance(ours.decode(ours.encode("Hello 日本 </s>")), str)


# vocab.json and merges.txt, tiktoken


@pytest.fixture(scope="module")
def trained() -> tuple[dict[str, int], list[tuple[str, str]]]:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, show_progress=False, initial_alphabet=alphabet)
    backend.train_from_iterator(TEXTS * 4 + ["the quick brown fox, the lazy dog 2024"] * 4, trainer)
    model = json.loads(backend.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


END = {"added_tokens_decoder": {"500": {"content": "<|im_end|>"}}, "eos_token": "<|im_end|>"}


@pytest.mark.parametrize("names", [{"tokenizer_class": "Qwen2TokenizerFast"}, {}])
def test_vocab_and_merges_equal_transformers(names: dict[str, str], trained: Any, tmp_path: Path) -> None:
    vocabulary, merges = trained
    config = {"model_type": "qwen3_moe"}
    folder = folder_with(tmp_path / "m", config=config, vocab=vocabulary, tokenizer_config={**END, **names})
    lines = ["#version: 0.2", *(" ".join(merge) for merge in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    theirs = transformers.Qwen2Tokenizer(vocab=vocabulary, merges=merges)
    ours = tokenizer(folder)
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False)
    assert ours.encode("a<|im_end|>")[-1] == 500
    assert ours.eos_ids == {500}
    assert not ours.add_bos


def letters() -> dict[str, int]:
    alphabet = {byte: chr(byte) for byte in (*range(33, 127), *range(161, 173), *range(174, 256))}
    rest = (byte for byte in range(256) if byte not in alphabet)
    return {letter: byte for byte, letter in (alphabet | {b: chr(256 + i) for i, b in enumerate(rest)}).items()}


def by_rank(data: bytes, ranks: dict[bytes, int]) -> list[int]:
    """tiktoken's rule: of all neighbours that make a token, join those that make the first of all tokens."""
    parts = [data[i : i + 1] for i in range(len(data))]
    while True:
        joined = [(ranks.get(parts[i] + parts[i + 1], 1 << 30), i) for i in range(len(parts) - 1)]
        if not joined or min(joined)[0] == 1 << 30:
            return [ranks[part] for part in parts]
        at = min(joined)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def test_a_tiktoken_file(trained: Any, tmp_path: Path) -> None:
    spelled = letters()
    ranks = {bytes(spelled[letter] for letter in text): token for text, token in trained[0].items()}
    config = {"model_type": "hunyuan_v1_moe"}
    folder = folder_with(tmp_path / "m", config=config, tokenizer_config=END)
    lines = [f"{base64.b64encode(data).decode()} {rank}" for data, rank in ranks.items()]
    (folder / "hy.tiktoken").write_text("\n".join(lines), encoding="ascii")
    ours = tokenizer(folder)
    for word in ("the", " fox", "日本語", "ﬁne", "\n\n", "naïve"):
        assert ours.encode(word) == by_rank(word.encode(), ranks)
    assert [ours.decode(ours.encode(text)) for text in TEXTS] == TEXTS
    assert ours.encode("a<|im_end|>")[-1] == 500
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(GreenroomError, match="only in program code"):
        tokenizer(folder)


@pytest.mark.parametrize(
    ("vocab", "merges", "config", "reason"),
    [
        ({"a": 0, "b": 1}, "a b", {"model_type": "qwen3"}, "vocabulary is damaged"),
        ({"a": 0}, "a", {"model_type": "qwen3"}, "does not hold two parts"),
        ({"a": -1}, "", {"model_type": "qwen3"}, "does not number its tokens"),
        ({"a": "x"}, "", {"model_type": "qwen3"}, "does not number its tokens"),
        ({"a": 0}, "", {"model_type": "llama"}, "does not say how texts are cut"),
    ],
)
def test_damaged_vocabularies_are_refused(
    vocab: dict[str, Any], merges: str, config: dict[str, str], reason: str, tmp_path: Path
) -> None:
    folder = folder_with(tmp_path / "m", config=config, vocab=vocab)
    (folder / "merges.txt").write_text(merges, encoding="utf-8")
    with pytest.raises(GreenroomError, match=reason):
        tokenizer(folder)


@pytest.mark.parametrize("line", ["", "YQ==", "YQ== x", "? 1", "YQ== 1 2"])
def test_a_damaged_tiktoken_file_is_refused(line: str, tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "m", config={"model_type": "kimi_k2"}, tokenizer_config=END)
    (folder / "tiktoken.model").write_text(f"YQ== 0\n{line}\nYg== 1", encoding="ascii")
    with pytest.raises(GreenroomError, match=r"tiktoken\.model cannot be read"):
        tokenizer(folder)
