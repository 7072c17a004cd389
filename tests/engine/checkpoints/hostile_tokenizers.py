"""tokenizer.json files made to bring a program down, each by one part of it.

Run as a program, it is the one that they are to bring down.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.checkpoints.tokenizer_files import tokenizer_from_folder
from engine.errors import GreenroomError

#: Bytes that the program may take, where the system holds it to that.
MEMORY = 2 << 30
HUGE = 10**9
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}
#: Texts that waste the most time in careless patterns, take the most room normalized, or are control tokens.
TEXTS = (
    "Hello 日本 <|im_end|> 123",
    "▁",
    "a" * 5_000,
    " " * 5_000 + "x",
    "ﷺ" * 1_000,
    "a" + "\u0301" * 2_500,
    "1" * 5_000 + "x",
    "<s>" * 1_250,
    "aA" * 2_500 + "!",
)


def bpe(**settings: Any) -> dict[str, Any]:
    letters = ["<s>", "</s>", "a", "b", " ", "▁", "aa", "<|im_end|>"]
    model = {"type": "BPE", "vocab": {letter: i for i, letter in enumerate(letters)}, "merges": [["a", "a"]]}
    return model | settings


def added(content: str, token: int = 0, **flags: Any) -> dict[str, Any]:
    usual = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token, "content": content, **usual, "special": True, **flags}


def whole(**parts: Any) -> dict[str, Any]:
    """A sound file but for these parts."""
    return {"version": "1.0", "added_tokens": [added("<s>")], "decoder": BYTE_LEVEL, "model": bpe(), **parts}


def normalizers(*steps: Any) -> dict[str, Any]:
    return whole(normalizer={"type": "Sequence", "normalizers": list(steps)})


def words(*steps: Any) -> dict[str, Any]:
    return whole(pre_tokenizer={"type": "Sequence", "pretokenizers": list(steps)})


def replace(pattern: str, content: str, kind: str = "String") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def split(pattern: str, **settings: Any) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False, **settings}


def charsmap(length: int, table: bytes, texts: bytes) -> dict[str, Any]:
    rules = base64.b64encode(struct.pack("<I", length) + table + texts).decode()
    return normalizers({"type": "Precompiled", "precompiled_charsmap": rules})


def nested(key: str, inner: Any, depth: int) -> Any:
    for _ in range(depth):
        inner = {"type": "Sequence", key: [inner]}
    return inner


def template(count: int) -> dict[str, Any]:
    special = {"id": "<s>", "ids": [0] * count, "tokens": ["<s>"] * count}
    piece = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    single = [piece] * count + [{"Sequence": {"id": "A", "type_id": 0}}]
    return {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": {"<s>": special}}


def padding(**settings: Any) -> dict[str, Any]:
    usual = {"strategy": {"Fixed": HUGE}, "direction": "Right", "pad_to_multiple_of": None}
    return whole(padding=usual | {"pad_id": 0, "pad_type_id": 0, "pad_token": "<s>"} | settings)


METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}


def metaspace(letter: str) -> dict[str, Any]:
    return METASPACE | {"replacement": letter}


def unigram(pieces: list[Any], **settings: Any) -> dict[str, Any]:
    return whole(model={"type": "Unigram", "vocab": [["<unk>", 0.0], *pieces], "unk_id": 0, **settings})


def word_piece(**settings: Any) -> dict[str, Any]:
    vocabulary = {"[UNK]": 0, "a": 1, "##a": 2}
    usual = {"unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    return whole(model={"type": "WordPiece", "vocab": vocabulary, **usual, **settings})


PATTERNS = {
    "nested repeats": "(a+)+$",
    "repeated choice": "(a|aa)+$",
    "optional letters": "(?:a?){30}a{30}[b]",
    "a run looked through from each place": "[a]*[b]",
    "two runs": "[a]*[a]*[b]",
    "three runs": "[a]*[a]*[a]*[b]",
    "last spaces": r"\s+$",
    "spaces before a letter": r"\s+[b]",
    "lazy": "[^x]*?[x]",
    "looking ahead": "(?=[^x]*[x])a",
    "looking ahead in vain": "(?![^x]*[x])b|c",
    "thousands": r"\d{1,3}(?=(?:\d{3})*[b])",
    "capitals": r"[a-z]*[A-Z]+[a-z]*[!?]",
    "back reference": r"(a*)\1[b]",
    "recursion": r"(?<r>a\g<r>?[b]?)$",
    "absent": "(?~abc)[b]",
    "conditional": "(a)?(?(1)[a]*[b]|c)",
    "callout": "(*MAX{100000000})[a]*[b]",
    "huge once written out": "(?:(?:(?:(?:a{100}){100}){100}){100}){100}",
    "huge count": "(?:[a]{0,100000}){0,100000}[b]",
    "many branches": "|".join(f"[a]*[{chr(0x4E00 + i)}]" for i in range(2000)),
    "deep groups": "(" * 5000 + "a" + ")" * 5000,
    "half a class": "[a",
    "half a group": "(a",
    "look behind": "(?<=[a]{0,5000})[b]",
    "case folding": "(?i:ﬃ*)*[b]",
    "a text segment": r"\X*[b]",
}

STRANGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    1 << 40,
    10**30,
    0.5,
    "",
    "x" * 5000,
    [],
    [[]],
    {},
    {"type": "Sequence"},
    "NFC",
)

#: name -> what makes it
ATTACKS: Mapping[str, Callable[[], Any]] = {
    # What comes after a text is cut
    "padding to a huge length": padding,
    "padding to a huge multiple": lambda: padding(strategy="BatchLongest", pad_to_multiple_of=HUGE),
    "padding with a long text": lambda: padding(strategy={"Fixed": 100_000}, pad_token="x" * 100_000),
    "padding on the left": lambda: padding(direction="Left"),
    "truncation with overlap": lambda: whole(
        truncation={"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 1}
    ),
    "truncation by nothing": lambda: whole(
        truncation={"direction": "Left", "max_length": 0, "strategy": "OnlySecond", "stride": 5}
    ),
    "a template of many tokens": lambda: whole(post_processor=template(3000)),
    "templates in a row": lambda: whole(
        post_processor={"type": "Sequence", "processors": [template(400), *[template(400)] * 9]}
    ),
    "many processors": lambda: whole(post_processor={"type": "Sequence", "processors": [BYTE_LEVEL] * 100_000}),
    "processors in processors": lambda: whole(post_processor=nested("processors", BYTE_LEVEL, 450)),
    "a processor of numbers": lambda: whole(post_processor={"type": "BertProcessing", "sep": 1, "cls": [1, "x", 2]}),
    "decoders that make texts longer": lambda: whole(
        decoder={"type": "Sequence", "decoders": [replace("a", "a" * 50)] * 30}
    ),
    "decoders in decoders": lambda: whole(decoder=nested("decoders", {"type": "Fuse"}, 100)),
    # Charsmaps
    "a table that asks for gigabytes": lambda: charsmap(0xFFFFFFFC, b"", b""),
    "a table longer than the file": lambda: charsmap(1 << 20, bytes(64), b"a\0"),
    "a table that leads out of itself": lambda: charsmap(4, struct.pack("<I", 1 << 10), b""),
    "replacements that are long": lambda: charsmap(4096, struct.pack("<I", 1 << 10) * 1024, b"a" * 100_000),
    "a charsmap that is no base64": lambda: normalizers({"type": "Precompiled", "precompiled_charsmap": "?"}),
    "a charsmap of nothing": lambda: normalizers({"type": "Precompiled", "precompiled_charsmap": ""}),
    "a charsmap without texts": lambda: normalizers({"type": "Precompiled", "precompiled_charsmap": None}),
    # Steps before a text is cut
    "100,000 steps": lambda: normalizers(*[{"type": "NFC"}] * 100_000),
    "growth by replacing": lambda: normalizers(*[replace("a", "a" * 20)] * 8),
    "growth by nothing": lambda: normalizers(*[replace("", "a" * 20)] * 8),
    "growth by patterns": lambda: normalizers(*[replace(".", "aaaaaaaaaa", "Regex")] * 10),
    "growth by empty matches": lambda: normalizers(*[replace("b*", "aaaaaaaaaa", "Regex")] * 10),
    "growth by putting before": lambda: normalizers(*[{"type": "Prepend", "prepend": "a" * 1000}] * 4000),
    "growth by spelling bytes": lambda: normalizers(*[{"type": "ByteLevel"}] * 40),
    "growth within bounds": lambda: normalizers(*[replace("a", "aa")] * 13),
    "compatibility forms": lambda: normalizers(*[{"type": "NFKD"}, {"type": "NFKC"}] * 15),
    "a long text put in": lambda: normalizers(replace("a", "a" * 50_000_000)),
    "sequences in sequences": lambda: whole(normalizer=nested("normalizers", {"type": "NFC"}, 100)),
    "a sequence of nothing": lambda: whole(normalizer={"type": "Sequence", "normalizers": None}),
    "an unknown step": lambda: normalizers({"type": "Shell"}),
    "a step without a kind": lambda: normalizers({"prepend": "a"}),
    "a step that is a list": lambda: normalizers([[]]),
    "100,000 cuts": lambda: words(*[{"type": "WhitespaceSplit"}] * 100_000),
    "cuts that spell bytes": lambda: words(*[BYTE_LEVEL] * 40),
    "cuts that put before": lambda: words(*[metaspace("a"), metaspace("b")] * 20),
    "cuts in cuts": lambda: whole(pre_tokenizer=nested("pretokenizers", {"type": "Whitespace"}, 100)),
    "parts of no length": lambda: words({"type": "FixedLength", "length": 0}),
    "parts of a huge length": lambda: words({"type": "FixedLength", "length": (1 << 64) - 1}),
    "parts of one letter": lambda: words(*[{"type": "FixedLength", "length": 1}] * 30),
    "cuts at nothing": lambda: words(*[split("")] * 30),
    "a mark of two letters": lambda: words(metaspace("ab")),
    "a long text to cut at": lambda: words(split("") | {"pattern": {"String": "a" * 9_999 + "b"}}),
    **{f"pattern: {name}": lambda pattern=pattern: words(split(pattern)) for name, pattern in PATTERNS.items()},
    **{
        f"replaced pattern: {name}": lambda pattern=pattern: normalizers(replace(pattern, "", "Regex"))
        for name, pattern in PATTERNS.items()
    },
    "thirty patterns": lambda: words(*[split(r"\s+(?!\S)|[a]*[!]")] * 30),
    # Added tokens
    "empty added tokens": lambda: whole(added_tokens=[added("")] * 1000),
    "the same token often": lambda: whole(added_tokens=[added("x", i) for i in range(100_000)]),
    "300,000 added tokens": lambda: whole(added_tokens=[added(f"<{i}>", i) for i in range(300_000)]),
    "a long added token": lambda: whole(added_tokens=[added("a" * 10_000_000)]),
    "long added tokens": lambda: whole(
        added_tokens=[added(json.dumps([i * 7919 % 10_007] * 80)) for i in range(10_000)]
    ),
    "added tokens that grow": lambda: (
        normalizers(*[replace("a", "a" * 9)] * 4)
        | {"added_tokens": [added("a" * 500, i, normalized=True) for i in range(1000)]}
    ),
    "added tokens of white space": lambda: whole(
        added_tokens=[added(" " * i, lstrip=True, rstrip=True) for i in range(1, 200)]
    ),
    "added tokens that take spaces": lambda: whole(
        added_tokens=[added("<s>", lstrip=True, rstrip=True, single_word=True)]
    ),
    "an added token with a huge id": lambda: whole(added_tokens=[added("x", (1 << 32) - 1)]),
    "an added token that vanishes": lambda: (
        normalizers(replace("x", "")) | {"added_tokens": [added("x", normalized=True), added("xx", 1, normalized=True)]}
    ),
    "a search for nothing that never ends": lambda: (
        normalizers({"type": "Strip", "strip_left": True, "strip_right": False})
        | {"added_tokens": [added("▁x", 0, normalized=True), added(" ", 1, normalized=True)]}
    ),
    "added tokens that are one": lambda: (
        normalizers({"type": "Lowercase"})
        | {"added_tokens": [added("X", 0, normalized=True), added("x", 1, normalized=True)]}
    ),
    # Models
    "huge ids": lambda: whole(model=bpe(vocab={"a": 0, "b": (1 << 32) - 1}, merges=[])),
    "ids beyond all bounds": lambda: whole(model=bpe(vocab={"a": 0, "b": 1 << 64}, merges=[])),
    "negative ids": lambda: whole(model=bpe(vocab={"a": -1}, merges=[])),
    "ids that are none": lambda: whole(model=bpe(vocab={"a": True, "b": 0.5}, merges=[])),
    "the same id twice": lambda: whole(model=bpe(vocab={"a": 0, "b": 0, "ab": 0}, merges=[["a", "b"]])),
    "an empty vocabulary": lambda: whole(model=bpe(vocab={}, merges=[])),
    "a token of nothing": lambda: whole(model=bpe(vocab={"": 0, "a": 1}, merges=[["", "a"], ["a", ""]])),
    "merges of nothing": lambda: whole(model=bpe(merges=[["", ""], ["a"], []])),
    "merges without tokens": lambda: whole(model=bpe(merges=[["x", "y"]])),
    "merges of numbers": lambda: whole(model=bpe(merges=[[1, 2]])),
    "merges that are lines": lambda: whole(model=bpe(merges=["a a", "a  a", "aa"])),
    "half of a letter as a mark": lambda: whole(
        model=bpe(vocab={"é": 0, "a": 1, "aé": 2}, merges=[["a", "é"]], continuing_subword_prefix="x")
    ),
    "a long mark at each letter": lambda: whole(model=bpe(continuing_subword_prefix="x" * 1_000_000, merges=[])),
    "a long mark at each end": lambda: whole(model=bpe(end_of_word_suffix="x" * 10_000_000, merges=[])),
    "dropout": lambda: whole(model=bpe(dropout=0.5)),
    "an unknown token that is missing": lambda: whole(model=bpe(unk_token="<none>", vocab={"b": 0}, merges=[])),
    "a token of a million letters": lambda: whole(model=bpe(vocab={"a" * 1_000_000: 0}, merges=[])),
    "pieces without scores": lambda: unigram([["a", None], ["b", "x"]]),
    "pieces with absurd scores": lambda: unigram([["a", 1e308], ["aa", -1e308], ["b", 0]]),
    "an endless score": lambda: unigram([["a", float("inf")], ["b", float("nan")]]),
    "pieces of nothing": lambda: unigram([["", 0.0], ["", -1.0]]),
    "a piece of a million letters": lambda: unigram([["a" * 1_000_000, 0.0]]),
    "every beginning of a long piece": lambda: unigram([["a" * i, -1.0 / i] for i in range(1, 2000)]),
    "an unknown piece that is missing": lambda: unigram([], unk_id=1 << 40),
    "no unknown piece": lambda: unigram([], unk_id=None),
    "no pieces": lambda: whole(model={"type": "Unigram", "vocab": [], "unk_id": None}),
    "pieces of an odd kind": lambda: unigram([[1, 2], [], "ab", None]),
    "a word of any length": lambda: word_piece(max_input_chars_per_word=HUGE, vocab={"[UNK]": 0, "b": 1}),
    "a long mark of words": lambda: word_piece(
        max_input_chars_per_word=HUGE, continuing_subword_prefix="#" * 10_000, vocab={"[UNK]": 0, "a": 1}
    ),
    "words without an unknown one": lambda: word_piece(unk_token="<none>"),
    "words by number": lambda: whole(model={"type": "WordLevel", "vocab": {"a": "x"}, "unk_token": 3}),
    "an unknown model": lambda: whole(model={"type": "Pickle", "vocab": {}}),
    "no model": lambda: whole(model=None),
    # The document itself
    "another version": lambda: whole(version="9"),
    "lists in lists": lambda: b"[" * 100_000,
    "a list as the model": lambda: whole(model=[[]]),
    "many empty lists": lambda: b'{"x":[' + b"[]," * 10_000_000 + b"[]]}",
    "a number without end": lambda: b'{"version": ' + b"9" * 1_000_000 + b"}",
    **{
        f"{part} is {value!r:.12}": lambda part=part, value=value: whole(**{part: value})
        for part in ("normalizer", "pre_tokenizer", "added_tokens", "post_processor", "decoder")
        for value in STRANGE
        if value is not None
    },
}


def written(attack: Any) -> bytes:
    return attack if isinstance(attack, bytes) else json.dumps(attack).encode()


def main() -> None:
    """Reads names of folders from stdin, opens their tokenizers, and uses each for the texts beside it."""
    logging.disable()
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for line in sys.stdin:
        sys.stdout.write(outcome(Path(line.rstrip("\n"))) + "\n")
        sys.stdout.flush()


def outcome(folder: Path) -> str:
    try:
        tokenizer = tokenizer_from_folder(folder)
    except GreenroomError as error:
        return f"refused: {error}"
    for text in json.loads((folder / "texts.json").read_text(encoding="utf-8")):
        with contextlib.suppress(GreenroomError):
            ids = tokenizer.encode(text)
            assert all(0 <= token < tokenizer.vocab_size for token in ids)
            assert isinstance(tokenizer.decode(ids), str)
    return "read"


if __name__ == "__main__":
    main()
