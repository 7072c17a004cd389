"""Tokenizers that are missing, damaged, or made to bring a program down."""

from __future__ import annotations

import contextlib
import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import write_folder, write_gguf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vocabularies import ByteLevelVocabulary, PieceVocabulary

from engine.checkpoints.opening import open_checkpoint
from engine.errors import GreenroomError


def test_a_gguf_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(GreenroomError, match="carries no tokenizer"):
        open_checkpoint(write_gguf(tmp_path / "m.gguf")).tokenizer()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"model": "rwkv", "tokens": ["a"]}, 'of the kind "rwkv"'),
        ({"model": "\0lama" * 1000, "tokens": ["a"]}, r"of the kind '(\\x00lama)+"),
        ({"model": "gpt2", "tokens": ["a"]}, "no merges"),
        ({"model": "gpt2", "tokens": ["a"], "merges": ["ab"]}, "merge of one part"),
        ({"model": "gpt2", "tokens": ["a"], "merges": ["a b"]}, "damaged"),
        ({"model": "llama", "tokens": ["a", "b"], "scores": [1.0]}, "its tokenizer.ggml.scores has 1"),
        ({"model": "llama", "tokens": ["a", "b"], "token_type": [1, 1, 1]}, "its tokenizer.ggml.token_type has 3"),
        ({"model": "llama", "tokens": [1, 2]}, "does not hold strings"),
        ({"model": "llama", "tokens": ["a"], "scores": ["x"]}, "does not hold numbers"),
    ],
)
def test_a_damaged_gguf_tokenizer_is_refused(settings: dict[str, Any], reason: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", **{f"tokenizer__ggml__{key}": value for key, value in settings.items()})
    with pytest.raises(GreenroomError, match=reason) as refused:
        open_checkpoint(path).tokenizer()
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 1000


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(GreenroomError, match=r"no tokenizer\.json"):
        open_checkpoint(write_folder(tmp_path / "m", {})).tokenizer()


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b'{"model": {"type": "BPE"}}', b"[" * 10_000])
def test_a_damaged_tokenizer_json_is_refused(content: bytes, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", {})
    (folder / "tokenizer.json").write_bytes(content)
    with pytest.raises(GreenroomError, match="is damaged"):
        open_checkpoint(folder).tokenizer()


def folder_with(folder: Path, **parts: Any) -> Path:
    """A folder whose tokenizer.json knows the letters a and b."""
    write_folder(folder, {})
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
    record = {"version": "1.0", "added_tokens": [], "model": model, "decoder": {"type": "Fuse"}, **parts}
    (folder / "tokenizer.json").write_text(json.dumps(record))
    return folder


def replacing(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


@pytest.mark.parametrize(
    "normalizer",
    [
        {"type": "Sequence", "normalizers": [replacing({"String": "a"}, "a" * 10)] * 5},
        {"type": "Sequence", "normalizers": [replacing({"Regex": ""}, "a" * 10)] * 4},
        {
            "type": "Sequence",
            "normalizers": [{"type": "Sequence", "normalizers": [replacing({"Regex": "."}, "aa")] * 9}] * 2,
        },
        replacing({"String": "a"}, "a" * 10_001),
        {"type": "Prepend", "prepend": "a" * 10_001},
    ],
)
def test_a_tokenizer_that_makes_texts_far_longer_is_refused(normalizer: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(GreenroomError, match=r"makes texts far longer|has an impossible (content|prepend)"):
        open_checkpoint(folder_with(tmp_path / "m", normalizer=normalizer)).tokenizer()


def test_usual_steps_before_a_text_is_cut_are_taken(tmp_path: Path) -> None:
    steps = [{"type": "NFKC"}, {"type": "Prepend", "prepend": "a"}, *[replacing({"String": "x"}, "ab")] * 3]
    folder = folder_with(tmp_path / "m", normalizer={"type": "Sequence", "normalizers": steps})
    assert open_checkpoint(folder).tokenizer().encode("bx") == [0, 1, 0, 1]


def test_an_expression_that_might_never_end_is_refused(tmp_path: Path) -> None:
    split = {"type": "Split", "pattern": {"Regex": "(a|aa)+$"}, "behavior": "Isolated", "invert": False}
    with pytest.raises(GreenroomError, match="might search for hours"):
        open_checkpoint(folder_with(tmp_path / "m", pre_tokenizer=split)).tokenizer()


def rules(trie: bytes, replacements: bytes) -> list[int]:
    """A charsmap of SentencePiece: the length of its table, the table, and what characters are replaced with."""
    return list(struct.pack("<I", len(trie)) + trie + replacements)


def test_rules_that_lead_out_of_their_table_are_an_error_and_no_crash(pieces: PieceVocabulary, tmp_path: Path) -> None:
    unit = struct.pack("<I", 1 << 10)
    settings = {"model": "t5", "precompiled_charsmap": rules(unit, b"")}
    path = pieces.gguf(tmp_path / "m.gguf", **{f"tokenizer__ggml__{key}": value for key, value in settings.items()})
    with pytest.raises(GreenroomError, match="cannot cut this text"):
        open_checkpoint(path).tokenizer().encode("Hello")


def test_rules_that_make_texts_far_longer_are_refused(pieces: PieceVocabulary, tmp_path: Path) -> None:
    settings = {"model": "t5", "precompiled_charsmap": rules(bytes(4), b"a" * 20_000 + b"\0")}
    path = pieces.gguf(tmp_path / "m.gguf", **{f"tokenizer__ggml__{key}": value for key, value in settings.items()})
    with pytest.raises(GreenroomError, match="makes texts far longer"):
        open_checkpoint(path).tokenizer()


NUMBERS = [f"{i:0512d}" for i in range(17_000)]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"model": "t5", "tokens": ["<unk>", "a" * 300]}, "longer than those of any vocabulary"),
        ({"model": "t5", "tokens": ["<unk>", *(f"{i:0256d}" for i in range(25_000))]}, "longer than those of any"),
        ({"model": "t5", "tokens": ["<unk>", "a"], "scores": [0.0, math.nan]}, "has no score"),
        ({"model": "t5", "tokens": ["<unk>"], "precompiled_charsmap": rules(b"", b"")[:2]}, "is no such table"),
        ({"model": "t5", "tokens": ["<unk>"], "precompiled_charsmap": [255] * 8}, "is no such table"),
        ({"model": "llama", "tokens": NUMBERS}, "merged in more ways"),
        ({"model": "llama", "tokens": ["a", "b" * 9000]}, "tokens longer than"),
        ({"model": "llama", "tokens": ["a", "b" * 600], "token_type": [1, 3]}, "more or longer tokens"),
        ({"model": "gpt2", "tokens": ["a" * 9000], "merges": ["a b"]}, "damaged"),
    ],
)
def test_a_gguf_tokenizer_that_asks_for_too_much_is_refused(
    settings: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "m.gguf", **{f"tokenizer__ggml__{key}": value for key, value in settings.items()})
    with pytest.raises(GreenroomError, match=reason):
        open_checkpoint(path).tokenizer()


def piece(text: bytes, kind: int = 1) -> bytes:
    """One piece of a tokenizer.model."""
    inner = b"\x0a" + varint(len(text)) + text + b"\x18" + varint(kind)
    return b"\x0a" + varint(len(inner)) + inner


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (piece(b"<unk>", 2) + piece(b"a" * 300, 4), "keeps more or longer pieces whole"),
        (piece(b"<unk>", 2) + b"".join(piece(b"%0200d" % i, 4) for i in range(3000)), "keeps more or longer pieces"),
        (piece(b"<unk>", 2) + b"\x1a\x00" * 10_000, "more than any vocabulary does"),
    ],
)
def test_a_sentencepiece_model_that_asks_for_too_much_is_refused(
    data: bytes, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.checkpoints.sentencepiece._MAX_FIELDS", 10_000)
    folder = write_folder(tmp_path / "m", {})
    (folder / "tokenizer.model").write_bytes(data + b"\x12\x02\x18\x02")
    with pytest.raises(GreenroomError, match=reason):
        open_checkpoint(folder).tokenizer()


@pytest.fixture(scope="module")
def sound(
    vocabulary: ByteLevelVocabulary, pieces: PieceVocabulary, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("sound")
    template = "{% for m in messages %}{{ m.role ~ m['content'] }}{% endfor %}{{ bos_token }}"
    return {
        "gpt2": vocabulary.gguf(folder / "b.gguf", tokenizer__chat_template=template).read_bytes(),
        "llama": pieces.gguf(folder / "p.gguf", tokenizer__chat_template=template).read_bytes(),
    }


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    model=st.sampled_from(["gpt2", "llama"]),
    changes=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=20),
)
def test_a_vocabulary_with_flipped_bytes_never_crashes(
    model: str, changes: list[tuple[int, int]], sound: dict[str, bytes], tmp_path: Path
) -> None:
    data = bytearray(sound[model])
    for at, value in changes:
        data[at % len(data)] = value
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    for use in (use_tokenizer, use_template):
        with contextlib.suppress(GreenroomError):
            use(path)


def use_tokenizer(path: Path) -> None:
    tokenizer = open_checkpoint(path).tokenizer()
    ids = tokenizer.encode("Hello 日本 <|im_end|> 123")
    assert all(0 <= token < tokenizer.vocab_size for token in ids)
    assert isinstance(tokenizer.decode(ids), str)


def use_template(path: Path) -> None:
    assert isinstance(open_checkpoint(path).chat_template().render([{"role": "user", "content": "Hi"}]), str)
