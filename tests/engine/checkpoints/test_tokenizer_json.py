"""tokenizer.json: what is kept of it cuts texts just as the tokenizers library does with all of it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from checkpoint_files import write_folder
from sentencepiece_files import FOLDER
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from vocabularies import CORPUS, ByteLevelVocabulary, PieceVocabulary

from engine.checkpoints import sentencepiece
from engine.checkpoints.opening import open_checkpoint
from engine.checkpoints.pretokenizers import PRE_TOKENIZERS
from engine.checkpoints.sentencepiece import longest_of
from engine.checkpoints.tokenizer import MAX_TEXT, Tokenizer
from engine.errors import GreenroomError

LETTERS = "aAbBsStT'’ \n\t\r.,!?0129²ßÉ日本한글нЖ🎉_-/(▁`\u3000。，ﬁ™\u0301"
SPECIAL = ("<s>", "</s>", "<unk>")


def texts() -> list[str]:
    rng = random.Random(1)
    short = ["".join(rng.choices(LETTERS, k=rng.randint(0, 40))) for _ in range(60)]
    long = [
        "".join(rng.choices(LETTERS, k=3000)),
        "".join(CORPUS) * 4,
        "日本語のテキスト。" * 300,
        " a" * 2000,
        "a" * 2000,
    ]
    return [*short, *long, "<s>a</s> <think> b <wide> c  <wide>d word words"]


TEXTS = texts()


def written(folder: Path, backend: tokenizers.Tokenizer, **changes: Any) -> Path:
    write_folder(folder, {}, None, tokenizer_config={"bos_token": "<s>", "eos_token": "</s>"})
    record = json.loads(backend.to_str()) | changes
    (folder / "tokenizer.json").write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")
    return folder


def opened(folder: Path, backend: tokenizers.Tokenizer, **changes: Any) -> Tokenizer:
    return open_checkpoint(written(folder, backend, **changes)).tokenizer()


def check(backend: tokenizers.Tokenizer, folder: Path) -> Tokenizer:
    ours = opened(folder, backend)
    for text in TEXTS:
        assert ours.encode(text, special=False) == backend.encode(text, add_special_tokens=False).ids
    assert ours.vocab_size == max(backend.get_vocab().values()) + 1
    return ours


def bytes_backend(vocabulary: ByteLevelVocabulary, **options: bool) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE(vocabulary.ids, vocabulary.merges, **options))
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([*SPECIAL, *vocabulary.special])
    return backend


CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UNKNOWN = {
    "cl100k": (
        rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}",
    ),
    "o200k": (PRE_TOKENIZERS["gpt-4o"].splits[0].replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", f"{CONTRACTIONS}?"),),
    "cohere": (r"\d{1,3}(?=(?:\d{3})*\b)", *PRE_TOKENIZERS["gpt-4o"].splits),
    "deepseek": ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"\s+$", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"),
    "llama 3 in other words": (r"(?:\p{L}|\p{N})+|[^\s\p{L}\p{N}]{1,8}|" + SPACES,),
}


@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.parametrize("invert", [False, True])
def test_patterns_that_nobody_knows_cut_long_texts_alike(
    name: str, invert: bool, vocabulary: ByteLevelVocabulary, tmp_path: Path
) -> None:
    backend = bytes_backend(vocabulary)
    steps: list[Any] = [pre_tokenizers.Split(Regex(pattern), "isolated", invert=invert) for pattern in UNKNOWN[name]]
    backend.pre_tokenizer = pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(False, use_regex=False)])
    check(backend, tmp_path / "m")


@pytest.mark.parametrize("rule", sorted({rule: name for name, rule in PRE_TOKENIZERS.items()}.values()))
def test_published_patterns_cut_alike(rule: str, vocabulary: ByteLevelVocabulary, tmp_path: Path) -> None:
    known = PRE_TOKENIZERS[rule]
    backend = bytes_backend(vocabulary, ignore_merges=known.ignore_merges)
    backend.pre_tokenizer = known.build()
    if known.nfc:
        backend.normalizer = normalizers.NFC()
    check(backend, tmp_path / "m")


B = pre_tokenizers.ByteLevel
BYTES: dict[str, Any] = {
    "gpt-2": B(add_prefix_space=False),
    "a space first": B(add_prefix_space=True),
    "digits": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), B(add_prefix_space=False)]),
    "nested": pre_tokenizers.Sequence(
        [pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.UnicodeScripts()]), B(False)]
    ),
    "white space": pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), B(False, use_regex=False)]),
    "at a letter": pre_tokenizers.Sequence([pre_tokenizers.CharDelimiterSplit("a"), B(False)]),
    "at a text": pre_tokenizers.Sequence([pre_tokenizers.Split("a.", "merged_with_next"), B(False)]),
}


@pytest.mark.parametrize("name", BYTES)
def test_byte_level_forms_cut_alike(name: str, vocabulary: ByteLevelVocabulary, tmp_path: Path) -> None:
    backend = bytes_backend(vocabulary)
    backend.pre_tokenizer = BYTES[name]
    ours = check(backend, tmp_path / "m")
    assert ours.decode(ours.encode("ä b")).strip() == "ä b" or name in ("white space", "at a letter")


def pieces_backend(pieces: PieceVocabulary) -> tokenizers.Tokenizer:
    merges = list(sentencepiece.merges_by_rank(pieces.tokens[259:], pieces.ids))
    model = models.BPE(pieces.ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    backend = tokenizers.Tokenizer(model)
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens(list(SPECIAL))
    return backend


def metaspace(scheme: str, split: bool) -> Any:
    return pre_tokenizers.Metaspace("▁", scheme, split)


CHARACTERS: dict[str, tuple[Any, Any]] = {
    "llama 2": (normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None),
    "gemma": (normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous")),
    "mistral": (None, metaspace("first", False)),
    "metaspace": (normalizers.NFKC(), metaspace("always", True)),
    "no space": (normalizers.Replace(Regex(r"[\n\t]"), " "), metaspace("never", True)),
    "t5": (
        normalizers.Sequence([normalizers.Nmt(), normalizers.Replace(Regex(" {2,}"), " ")]),
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace("always", True)]),
    ),
    "albert": (
        normalizers.Sequence(
            [
                normalizers.Replace("``", '"'),
                normalizers.NFKD(),
                normalizers.StripAccents(),
                normalizers.Sequence([normalizers.Lowercase(), normalizers.Strip()]),
            ]
        ),
        metaspace("always", True),
    ),
}


@pytest.mark.parametrize("name", CHARACTERS)
@pytest.mark.parametrize("unigram", [False, True])
def test_forms_with_spaces_spelled_out_cut_alike(
    name: str, unigram: bool, pieces: PieceVocabulary, tmp_path: Path
) -> None:
    backend = pieces_backend(pieces)
    if unigram:
        stored = sentencepiece.read_model((FOLDER / "unigram.model").read_bytes())
        scored = list(zip(stored.tokens, map(float, stored.scores), strict=True))
        backend = tokenizers.Tokenizer(models.Unigram(scored, stored.unknown, False))
        backend.decoder = decoders.Metaspace()
    normalizer, pre_tokenizer = CHARACTERS[name]
    if normalizer is not None:
        backend.normalizer = normalizer
    if pre_tokenizer is not None:
        backend.pre_tokenizer = pre_tokenizer
    backend.add_tokens(
        [
            AddedToken("<think>", normalized=False),
            AddedToken("<wide>", lstrip=True, rstrip=True, normalized=False),
            AddedToken("word", single_word=True, normalized=True),
        ]
    )
    check(backend, tmp_path / "m")


@pytest.mark.parametrize("name", ["unigram-nfkc"])
def test_a_charsmap_cuts_alike(name: str, tmp_path: Path) -> None:
    stored = sentencepiece.read_model((FOLDER / f"{name}.model").read_bytes())
    assert stored.charsmap
    scored = list(zip(stored.tokens, map(float, stored.scores), strict=True))
    backend = tokenizers.Tokenizer(models.Unigram(scored, stored.unknown, False))
    backend.normalizer = normalizers.Precompiled(stored.charsmap)
    backend.pre_tokenizer = metaspace("always", True)
    check(backend, tmp_path / "m")


def test_words_cut_alike(tmp_path: Path) -> None:
    vocabulary = {word: i for i, word in enumerate(["[UNK]", "a", "##a", "##b", "b", "the", "quick", "##s", ",", "!"])}
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    check(backend, tmp_path / "a")
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    check(backend, tmp_path / "b")


def test_the_form_of_gpt2s_time(vocabulary: ByteLevelVocabulary, tmp_path: Path) -> None:
    backend = bytes_backend(vocabulary)
    backend.pre_tokenizer = B(add_prefix_space=False)
    model = json.loads(backend.to_str())["model"]
    del model["type"]
    model["merges"] = ["#version: 0.2", *(" ".join(pair) for pair in model["merges"])]
    ours = opened(tmp_path / "m", backend, model=model)
    assert [ours.encode(text) for text in TEXTS] == [backend.encode(text).ids for text in TEXTS]


def template(single: str) -> processors.TemplateProcessing:
    return processors.TemplateProcessing(single, special_tokens=[("<s>", 0), ("</s>", 1)])


@pytest.mark.parametrize(
    ("processor", "wanted"),
    [
        (None, False),
        (processors.ByteLevel(), False),
        (template("<s> $A"), True),
        (template("<s> $A </s>"), True),
        (template("$A <s>"), False),
        (template("</s> $A"), False),
        (processors.RobertaProcessing(("</s>", 1), ("<s>", 0)), True),
        (processors.BertProcessing(("<s>", 0), ("</s>", 1)), False),
        (processors.Sequence([processors.ByteLevel(), template("<s> $A")]), True),
        (processors.Sequence([template("<s> $A"), template("</s> $A")]), False),
        (processors.Sequence([]), False),
    ],
)
def test_what_is_put_before_a_text(processor: Any, wanted: bool, tmp_path: Path) -> None:
    backend = tokenizers.Tokenizer(models.BPE({"<s>": 0, "</s>": 1, "a": 2}, []))
    backend.add_special_tokens(["<s>", "</s>"])
    if processor is not None:
        backend.post_processor = processor
    # Padding is for texts that are computed side by side; its token is no beginning.
    backend.enable_padding(length=9, pad_id=0, pad_token="<s>")
    assert opened(tmp_path / "m", backend).encode("a") == [0, 2][1 - wanted :]


def test_a_control_token_that_takes_endless_spaces_is_what_it_spells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = tokenizers.Tokenizer(models.BPE({"<c>": 0, "▁": 1, "c": 2}, []))
    backend.add_tokens([AddedToken("<c>", rstrip=True, special=True), AddedToken("▁", special=True)])
    tokenizer = opened(tmp_path / "m", backend)
    cut: list[int] = []
    words = tokenizer._words
    monkeypatch.setattr(tokenizer, "_words", lambda text: cut.append(len(text)) or words(text))
    text = "<c>" + " " * 10_000
    assert tokenizer.encode(text, special=False) == [0]
    controls = tokenizer.special_ids
    assert tokenizer.encode(text, special=False, literal=[(0, len(text))], controls=controls) == [2] + [1] * 10_000
    # Halves of halves: each letter is looked at some times, not once for each letter before it.
    assert sum(cut) < 20 * len(text)


def test_a_text_is_bounded_once_it_is_normalized(tmp_path: Path) -> None:
    backend = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    plain = opened(tmp_path / "plain", backend)
    backend.normalizer = normalizers.Replace("b", "a" * 100)
    growing = opened(tmp_path / "growing", backend)
    assert growing.encode("a" * 200_000) == [0] * 200_000
    for tokenizer, text in ((plain, "c" * (MAX_TEXT + 1)), (growing, "b" * (MAX_TEXT // 100 + 1))):
        with pytest.raises(GreenroomError, match="too long"):
            tokenizer.encode(text)


def test_the_longest_of_some_texts_is_found() -> None:
    rng = random.Random(2)
    for _ in range(300):
        known = {"".join(rng.choices("ab.\n|▁", k=rng.randint(1, 5))) for _ in range(rng.randint(1, 12))}
        cutter = pre_tokenizers.Split(Regex(longest_of(known)), "isolated")
        text = "".join(rng.choices("ab.\n|▁c", k=30))
        found, at = [], 0
        while at < len(text):
            longest = max((word for word in known if text.startswith(word, at)), key=len, default="")
            found += [longest or text[at]]
            at += len(found[-1])
        # Letters in none of them stay together.
        words = [word for word, _ in cutter.pre_tokenize_str(text)]
        assert [part for word in words for part in ([word] if word in known else word)] == found
