"""Tokenizers from GGUF and tokenizer.json, against transformers and against a plain rewriting of the rules."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import regex
import tokenizers
import transformers
from checkpoint_files import write_folder, write_gguf
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers
from vocabularies import CONTROL, CORPUS, NORMAL, USER_DEFINED, ByteLevelVocabulary, PieceVocabulary

from engine.checkpoints.opening import open_checkpoint
from engine.checkpoints.pretokenizers import PRE_TOKENIZERS
from engine.checkpoints.tokenizer import Tokenizer

TEXTS = [
    "",
    " ",
    "a",
    "Hello, world!  Two spaces   three.",
    "don't DON'T we'LL I'M they've",
    "1 12 123 1234 12345 ½ ²",
    "line\n\n\nbreaks\r\n  and \t tabs \n",
    "日本語 テキスト 中文 한국어",
    "🎉👩‍👩‍👧 emoji\u200d",
    "नमस्ते e\u0301 é",
    "snake_case camelCase HTTPServer $100.00 (a) [b] {c}",
    "trailing   ",
    "    leading",
    "<|im_start|>user\nhi<|im_end|>",
]
ALPHABET = "aAbBsSdlLtT'’ \n\t\r.,!?0123456789²ßéÉǅʰ日本한글 нЖ�🎉e\u0301न\u094d_-/(\u00a0"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CASELESS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_LLAMA3 = _CASELESS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2 = _CASELESS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CASELESS}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CASELESS}?"
_REST = r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_NO_HAN = r"(?:(?!\p{{Han}}){})"
RULES = {
    "gpt-2": [_GPT2],
    "smollm": [r"\p{N}", _GPT2],
    "llama-bpe": [_LLAMA3],
    "glm4": [_LLAMA3],
    "qwen2": [_QWEN2],
    "stablelm2": [_QWEN2],
    "qwen35": [
        _CASELESS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "deepseek-v3": [
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
    # The family's own list of letters is longer to write; on this file's texts it is those with case.
    "deepseek-llm": [
        r"[\r\n]",
        r"\s?[\p{Lu}\p{Ll}\p{Lt}]+",
        "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
        r"\s+$",
        "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
        r"\p{N}",
    ],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}"],
    "gpt-4o": [_CASED + _REST],
    "tekken": [
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "bailingmoe2": [
        r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", _CASED + _REST],
    "kimi-k2": [
        r"\p{Han}+|"
        + _CASED.replace(_UPPER, _NO_HAN.format(_UPPER)).replace(_LOWER, _NO_HAN.format(_LOWER))
        + _REST.replace("/", "")
    ],
    "youtu": [
        "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
        _CASED + _REST.replace("{1,3}", ""),
    ],
}


def byte_letters() -> dict[int, str]:
    """GPT-2's spelling of bytes, from its own description: unprintable bytes move up to U+0100."""
    letters, moved = {}, 0
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174:
            letters[byte] = chr(byte)
        else:
            letters[byte] = chr(256 + moved)
            moved += 1
    return letters


LETTERS = byte_letters()


def plain_bpe(
    text: str, patterns: Sequence[str], vocabulary: dict[str, int], ranks: dict[tuple[str, str], int], whole: bool
) -> list[int]:
    words = [text]
    for pattern in patterns:
        words = [part for word in words for part in cut(pattern, word)]
    ids = []
    for word in words:
        parts = [LETTERS[byte] for byte in word.encode()]
        if whole and "".join(parts) in vocabulary:
            parts = ["".join(parts)]
        while True:
            pairs = [(ranks.get(pair, 1 << 30), i) for i, pair in enumerate(pairwise(parts))]
            if not pairs or min(pairs)[0] == 1 << 30:
                break
            at = min(pairs)[1]
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        ids += [vocabulary[part] for part in parts]
    return ids


def cut(pattern: str, text: str) -> Iterable[str]:
    at = 0
    for match in regex.finditer(pattern, text):
        yield from (part for part in (text[at : match.start()], match.group()) if part)
        at = match.end()
    if text[at:]:
        yield text[at:]


@pytest.fixture(scope="module")
def rebuilt(vocabulary: ByteLevelVocabulary, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    """A tokenizer from GGUF for every rule."""
    folder = tmp_path_factory.mktemp("pre")
    return {
        pre: open_checkpoint(vocabulary.gguf(folder / f"{pre}.gguf", tokenizer__ggml__pre=pre)).tokenizer()
        for pre in PRE_TOKENIZERS
    }


@pytest.mark.parametrize("pre", RULES)
@settings(deadline=None)
@given(text=st.one_of(st.sampled_from(TEXTS[:-1]), st.text(ALPHABET, max_size=40)))
def test_words_are_cut_and_merged_as_the_rule_says(
    pre: str, text: str, vocabulary: ByteLevelVocabulary, rebuilt: dict[str, Tokenizer]
) -> None:
    normal = unicodedata.normalize("NFC", text) if pre in ("qwen2", "qwen35") else text
    whole = pre in ("llama-bpe", "tekken", "glm4", "youtu")
    expected = plain_bpe(normal, RULES[pre], vocabulary.ids, vocabulary.ranks, whole)
    assert rebuilt[pre].encode(text, special=False) == expected
    assert rebuilt[pre].decode(expected) == normal
    assert b"".join(map(rebuilt[pre].token_bytes, expected)) == normal.encode()


@pytest.mark.parametrize("text", TEXTS)
def test_qwen2_equals_transformers(text: str, vocabulary: ByteLevelVocabulary, rebuilt: dict[str, Tokenizer]) -> None:
    theirs = transformers.Qwen2Tokenizer(vocab=vocabulary.ids, merges=vocabulary.merges)
    theirs.add_special_tokens({"additional_special_tokens": list(vocabulary.special)})
    ids = theirs.encode(text, add_special_tokens=False)
    assert rebuilt["qwen2"].encode(text) == ids
    assert rebuilt["qwen2"].decode(ids) == theirs.decode(ids)


def test_gemma4_equals_transformers() -> None:
    path = Path(__file__).parents[1] / "llama_cpp" / "gemma4.gguf"
    fields = gguf.GGUFReader(path).fields
    vocabulary = {token: number for number, token in enumerate(fields["tokenizer.ggml.tokens"].contents())}
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    theirs = transformers.GemmaTokenizer(
        vocab=vocabulary, merges=merges, eos_token="<|im_end|>", bos_token="<|endoftext|>"
    )
    ours = open_checkpoint(path).tokenizer()
    assert ours.add_bos
    for text in [*TEXTS[:-1], "the an in then  the\n\n\nthan"]:
        ids = theirs.encode(text, add_special_tokens=False)
        assert ours.encode(text, special=False) == ids
        assert ours.decode(ids) == theirs.decode(ids) == text


def test_special_tokens_of_a_gguf(rebuilt: dict[str, Tokenizer]) -> None:
    tokenizer = rebuilt["qwen2"]
    assert tokenizer.special_ids == {0, 1, 2}
    assert tokenizer.eos_ids == {0, 2}
    assert tokenizer.bos_id == 0
    assert not tokenizer.add_bos
    assert not tokenizer.adds_space
    ids = tokenizer.encode("a<|im_end|>")
    assert ids[-1] == 2
    assert tokenizer.decode(ids) == "a<|im_end|>"
    assert tokenizer.decode(ids, skip_special=True) == "a"


def test_bos_is_put_first_where_the_model_wants_it(
    vocabulary: ByteLevelVocabulary, rebuilt: dict[str, Tokenizer], tmp_path: Path
) -> None:
    llama = rebuilt["llama-bpe"]
    assert llama.add_bos
    assert llama.encode("a")[0] == 0
    assert llama.encode("a", special=False) == llama.encode("a")[1:]
    assert llama.encode("<|endoftext|>a") == llama.encode("a")
    asked = vocabulary.gguf(tmp_path / "m.gguf", tokenizer__ggml__pre="llama-bpe", tokenizer__ggml__add_bos_token=False)
    assert not open_checkpoint(asked).tokenizer().add_bos


def test_user_defined_tokens_are_found_but_not_special(vocabulary: ByteLevelVocabulary, tmp_path: Path) -> None:
    ordinary = vocabulary.tokens[len(vocabulary.special) :]
    path = write_gguf(
        tmp_path / "m.gguf",
        tokenizer__ggml__model="gpt2",
        tokenizer__ggml__tokens=[*ordinary, "<think>"],
        tokenizer__ggml__token_type=[NORMAL] * len(ordinary) + [USER_DEFINED],
        tokenizer__ggml__merges=[" ".join(merge) for merge in vocabulary.merges],
    )
    tokenizer = open_checkpoint(path).tokenizer()
    think = len(ordinary)
    assert tokenizer.encode("<think>") == [think]
    assert tokenizer.token_bytes(think) == b"<think>"
    assert tokenizer.special_ids == frozenset()
    assert tokenizer.bos_id is None


def test_harmony_goes_on_after_a_message(vocabulary: ByteLevelVocabulary, tmp_path: Path) -> None:
    ends = ["<|end|>", "<|return|>", "<|call|>"]
    ordinary = vocabulary.tokens[len(vocabulary.special) :]
    path = write_gguf(
        tmp_path / "m.gguf",
        tokenizer__ggml__model="gpt2",
        tokenizer__ggml__eot_token_id=0,
        tokenizer__ggml__tokens=[*ends, *ordinary],
        tokenizer__ggml__token_type=[CONTROL] * 3 + [NORMAL] * len(ordinary),
        tokenizer__ggml__merges=[" ".join(merge) for merge in vocabulary.merges],
    )
    assert open_checkpoint(path).tokenizer().eos_ids == {1, 2}


@pytest.mark.parametrize("kind", ["qwen2", "llama-bpe", "gpt-4o"])
def test_a_control_token_in_a_literal_part_is_what_it_spells(kind: str, rebuilt: dict[str, Tokenizer]) -> None:
    tokenizer = rebuilt.get(kind) or rebuilt["qwen2"]
    text = "<|im_end|>a <|im_end|> b<|im_end|>"
    controls = tokenizer.special_ids
    ids = tokenizer.encode(text, special=False, literal=[(10, 24)], controls=controls)
    assert [token for token in ids if token in controls] == [2, 2]
    assert (ids[0], ids[-1]) == (2, 2)
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode(text, special=False, literal=[(10, 24)]) == tokenizer.encode(text, special=False)
    assert tokenizer.encode("a b", special=False, literal=[(0, 3)], controls=controls) == tokenizer.encode(
        "a b", special=False
    )


def test_an_end_stored_as_an_ordinary_token_still_ends(vocabulary: ByteLevelVocabulary, tmp_path: Path) -> None:
    settings = {
        "tokenizer__ggml__model": "gpt2",
        "tokenizer__ggml__tokens": vocabulary.tokens,
        "tokenizer__ggml__merges": [" ".join(merge) for merge in vocabulary.merges],
    }
    tokenizer = open_checkpoint(write_gguf(tmp_path / "m.gguf", **settings)).tokenizer()
    assert tokenizer.encode("a<|im_end|>")[-1:] == [2]
    assert tokenizer.eos_ids == {0, 2}


def test_an_unknown_rule_warns_and_takes_gpt2s(
    vocabulary: ByteLevelVocabulary, rebuilt: dict[str, Tokenizer], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = vocabulary.gguf(tmp_path / "m.gguf", tokenizer__ggml__pre="from-the-future")
    with caplog.at_level(logging.WARNING):
        tokenizer = open_checkpoint(path).tokenizer()
    assert "'from-the-future', which is not known" in caplog.text
    assert tokenizer.encode(TEXTS[3]) == rebuilt["gpt-2"].encode(TEXTS[3])


@pytest.mark.parametrize("rule", ["tiny_aya", "afmoe"])
def test_digits_are_counted_from_the_right_but_not_over_thousands(rule: str) -> None:
    """The rule's own expression looks at all that follow for each three: a million digits took minutes."""
    cutter = PRE_TOKENIZERS[rule].build()

    def words(text: str) -> list[str]:
        return [word for word, _ in cutter.pre_tokenize_str(text)]

    assert words("1234567") == ["1", "234", "567"]
    assert words("7" * 2999) == ["77", *["777"] * 999]
    assert words("7" * 3001) == [*["777"] * 1000, "7"]


def test_smollm2_equals_the_rule(smollm: Path) -> None:
    checkpoint = open_checkpoint(smollm)
    tokenizer = checkpoint.tokenizer()
    reader = checkpoint._first  # type: ignore[attr-defined]
    tokens = reader.strings("tokenizer.ggml.tokens")
    ranks = {}
    for number, merge in enumerate(reader.strings("tokenizer.ggml.merges")):
        left, right = merge.split(" ")
        ranks[left, right] = number
    ids = {token: number for number, token in enumerate(tokens)}
    for text in [*TEXTS[:-1], *CORPUS]:
        expected = plain_bpe(text, RULES["smollm"], ids, ranks, whole=False)
        assert tokenizer.encode(text) == expected
        assert tokenizer.decode(expected) == text
    assert tokenizer.eos_ids == {0, 2}
    assert tokenizer.vocab_size == 49152


# SentencePiece


@pytest.fixture(scope="module")
def piece_tokenizer(pieces: PieceVocabulary, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return open_checkpoint(pieces.gguf(tmp_path_factory.mktemp("spm") / "m.gguf")).tokenizer()


@settings(deadline=None)
@given(text=st.one_of(st.sampled_from(TEXTS), st.text(ALPHABET + "qujmpxvrhe", max_size=40)))
def test_pieces_are_merged_by_score(text: str, pieces: PieceVocabulary, piece_tokenizer: Tokenizer) -> None:
    ids = piece_tokenizer.encode(text, special=False)
    assert ids == pieces.plain(text)
    assert piece_tokenizer.decode(ids) == text
    assert b"".join(map(piece_tokenizer.token_bytes, ids)) == (b" " + text.encode() if text else b"")


# A text that begins with a space gets another one from SentencePiece; transformers 5 leaves that one out.
@pytest.mark.parametrize("text", [text for text in TEXTS if not text.startswith(" ")])
def test_pieces_equal_transformers(text: str, pieces: PieceVocabulary, piece_tokenizer: Tokenizer) -> None:
    ranked = sorted(
        (-pieces.scores[pieces.ids[left + right]], left, right)
        for left in pieces.tokens[259:]
        for right in pieces.tokens[259:]
        if left + right in pieces.ids
    )
    theirs = transformers.LlamaTokenizer(
        vocab=pieces.ids, merges=[(left, right) for _, left, right in ranked], legacy=True, add_prefix_space=True
    )
    ids = theirs.encode(text, add_special_tokens=False)
    assert piece_tokenizer.encode(text, special=False) == ids
    assert piece_tokenizer.decode(ids) == theirs.decode(ids)


def test_sentencepiece_settings(pieces: PieceVocabulary, piece_tokenizer: Tokenizer, tmp_path: Path) -> None:
    assert piece_tokenizer.adds_space
    assert piece_tokenizer.add_bos
    assert piece_tokenizer.encode("a")[0] == 1
    assert piece_tokenizer.eos_ids == {2}
    assert piece_tokenizer.decode([1, *pieces.plain("the fox"), 2], skip_special=True) == "the fox"
    path = pieces.gguf(
        tmp_path / "m.gguf", tokenizer__ggml__add_space_prefix=False, tokenizer__ggml__add_bos_token=False
    )
    other = open_checkpoint(path).tokenizer()
    assert not other.adds_space
    assert other.encode("the fox") == pieces.plain("the fox", prefix=False)
    assert other.decode(other.encode(" the fox")) == " the fox"


def test_a_control_piece_in_a_literal_part_is_what_it_spells(piece_tokenizer: Tokenizer) -> None:
    text = "the </s>fox</s>"
    ids = piece_tokenizer.encode(text, special=False, literal=[(0, 9)], controls=piece_tokenizer.special_ids)
    assert [token for token in ids if token in piece_tokenizer.special_ids] == [2]
    assert ids[-1] == 2
    assert piece_tokenizer.decode(ids).replace(" ", "") == text.replace(" ", "")


def test_pieces_give_the_bytes_of_half_a_character(piece_tokenizer: Tokenizer) -> None:
    ids = piece_tokenizer.encode("🎉", special=False)
    spelled = [piece_tokenizer.token_bytes(token) for token in ids]
    assert b"".join(spelled) == " 🎉".encode()
    assert spelled[-1] == b"\x89"


# tokenizer.json


def save_files(folder: Path, vocabulary: ByteLevelVocabulary, **files: Any) -> Path:
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary.ids, merges=vocabulary.merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(vocabulary.special))
    backend.enable_truncation(4)
    backend.enable_padding(length=9)
    write_folder(folder, {"w": np.zeros(2, np.float32)}, **files)
    backend.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("text", TEXTS)
def test_tokenizer_json_equals_transformers(text: str, vocabulary: ByteLevelVocabulary, tmp_path: Path) -> None:
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "bos_token": None}
    folder = save_files(tmp_path / "m", vocabulary, tokenizer_config=settings)
    ours = open_checkpoint(folder).tokenizer()
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    theirs.backend_tokenizer.no_truncation()
    theirs.backend_tokenizer.no_padding()
    ids = theirs.encode(text)
    assert ours.encode(text) == ids
    assert ours.decode(ids) == theirs.decode(ids)
    assert ours.decode(ids, skip_special=True) == theirs.decode(ids, skip_special_tokens=True)


def test_ends_come_from_every_file_that_names_them(vocabulary: ByteLevelVocabulary, tmp_path: Path) -> None:
    folder = save_files(
        tmp_path / "m",
        vocabulary,
        config={"model_type": "llama", "eos_token_id": 7},
        tokenizer_config={"bos_token": {"content": "<|im_start|>"}, "eos_token": "a", "add_bos_token": True},
        generation_config={"eos_token_id": [8, 9, 10**9, -1, None, "x"]},
    )
    tokenizer = open_checkpoint(folder).tokenizer()
    assert tokenizer.eos_ids == {0, 2, 7, 8, 9, vocabulary.ids["a"]}
    assert tokenizer.bos_id == 1
    assert tokenizer.encode("b") == [1, vocabulary.ids["b"]]


def test_a_post_processor_says_whether_bos_is_wanted(vocabulary: ByteLevelVocabulary, tmp_path: Path) -> None:
    folder = save_files(tmp_path / "m", vocabulary, special_tokens_map={"bos_token": "<|im_start|>"})
    assert not open_checkpoint(folder).tokenizer().add_bos
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.no_padding()
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
    )
    backend.save(str(folder / "tokenizer.json"))
    assert open_checkpoint(folder).tokenizer().add_bos


def test_lone_surrogates_do_not_crash(rebuilt: dict[str, Tokenizer]) -> None:
    assert rebuilt["gpt-2"].decode(rebuilt["gpt-2"].encode("a\ud800b")) == "a?b"


def test_ids_without_a_token_have_no_text(rebuilt: dict[str, Tokenizer]) -> None:
    for token in (-1, 10**6, 1 << 70):
        assert rebuilt["gpt-2"].token_bytes(token) == b""


def test_a_merge_that_leads_to_no_token_is_left_out(vocabulary: ByteLevelVocabulary, tmp_path: Path) -> None:
    plain = vocabulary.gguf(tmp_path / "plain.gguf")
    merges = [" ".join(merge) for merge in vocabulary.merges]
    letters = [token for token in vocabulary.tokens if len(token) == 1]
    made = set(vocabulary.tokens)
    useless = next(f"{a} {b}" for a in letters for b in letters if a + b not in made)
    more = vocabulary.gguf(tmp_path / "more.gguf", tokenizer__ggml__merges=[useless, *merges])
    text = f"Hello, {useless.replace(' ', '')} and hello {useless.replace(' ', '')}"
    assert open_checkpoint(more).tokenizer().encode(text) == open_checkpoint(plain).tokenizer().encode(text)


@pytest.mark.parametrize(("architecture", "swallows"), [("phi3", True), ("phimoe", True), ("llama", False)])
def test_phis_special_tokens_take_the_space_behind_them(
    architecture: str, swallows: bool, pieces: PieceVocabulary, tmp_path: Path
) -> None:
    tokenizer = open_checkpoint(pieces.gguf(tmp_path / "m.gguf", architecture=architecture)).tokenizer()
    plain, spaced = (tokenizer.encode(text, special=False) for text in ("</s>fox", "</s> \nfox"))
    assert (plain == spaced) == swallows
    assert tokenizer.encode("<s> fox", special=False) != tokenizer.encode("<s>fox", special=False)


# Bad input
