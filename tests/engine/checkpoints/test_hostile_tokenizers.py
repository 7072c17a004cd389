"""Tokenizers made to bring a program down: each is read or refused by a process of little memory, which lives on.

The process stands for the program: what would kill or hang that one, kills or hangs this one, and the test fails.
"""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import write_folder
from fuzzing import Fuzzer
from hostile_tokenizers import (
    ATTACKS,
    BYTE_LEVEL,
    METASPACE,
    PATTERNS,
    STRANGE,
    TEXTS,
    added,
    replace,
    split,
    whole,
    written,
)

#: Seconds for one tokenizer and its texts, far above what any takes.
PATIENCE = 150


class Victim:
    """Opens tokenizers in a process of its own."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("hostile_tokenizers.py"))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def opens(self, folder: Path) -> str:
        """What became of it: "read", or "refused: " and why."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watch = threading.Timer(PATIENCE, self._process.kill)
        watch.start()
        try:
            self._process.stdin.write(f"{folder}\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        finally:
            watch.cancel()
        if not answer:
            pytest.fail(f"the program ended: {self._process.wait()}")
        return answer.strip()

    def close(self) -> None:
        self._process.communicate()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None


@pytest.fixture(scope="module")
def victims() -> Iterator[list[Victim]]:
    started = [Victim()]
    yield started
    for victim in started:
        victim.close()


@pytest.fixture
def victim(victims: list[Victim]) -> Victim:
    """Another one when the last test killed it."""
    if victims[-1].ended:
        victims.append(Victim())
    return victims[-1]


def folder_with(folder: Path, data: bytes, texts: Any) -> Path:
    if not folder.exists():
        settings = {"bos_token": "<s>", "eos_token": "</s>"}
        write_folder(folder, {}, None, tokenizer_config=settings)
    (folder / "tokenizer.json").write_bytes(data)
    (folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_in_a_tokenizer_ends_the_program(name: str, victim: Victim, tmp_path: Path) -> None:
    outcome = victim.opens(folder_with(tmp_path / "m", written(ATTACKS[name]()), TEXTS))
    assert outcome == "read" or outcome.startswith("refused: ")
    assert outcome.isprintable()


# Attacks put together by chance

ATOMS = (
    "[a]",
    "[ab]",
    "[^a]",
    "[A-Z]",
    r"\s",
    r"\S",
    r"\p{L}",
    r"\p{N}",
    r"\d",
    ".",
    " ",
    "a",
    r"\b",
    "$",
    "[b&&[^a]]",
    "(?i:é)",
)
SIGNS = ("", "", "?", "*", "+", "*?", "++", "{1,3}", "{2,}", "{50}")
SMALL = ({"type": "NFC"}, {"type": "NFKD"}, {"type": "Lowercase"}, {"type": "ByteLevel"}, {"type": "StripAccents"})
CUTS = (BYTE_LEVEL, METASPACE, {"type": "Digits", "individual_digits": True}, {"type": "WhitespaceSplit"})
WORDS = (
    "a",
    "b",
    "aA",
    " ",
    "\n",
    "1",
    "é",
    "\u0301",
    "ﷺ",
    "日本",
    "。",
    "🎉",
    "<s>",
    "▁",
    "\0",
    "<|im_end|>",
    "x<b>y",
)


def pattern(rng: random.Random, depth: int = 2) -> str:
    if rng.random() < 0.3:
        return rng.choice(list(PATTERNS.values()))
    branches = []
    for _ in range(rng.randint(1, 3)):
        parts = [
            f"({rng.choice(('?:', '', '?=', '?!', '?>'))}{pattern(rng, depth - 1)})"
            if depth and rng.random() < 0.3
            else rng.choice(ATOMS)
            for _ in range(rng.randint(1, 3))
        ]
        branches.append("".join(part + rng.choice(SIGNS) for part in parts))
    return "|".join(branches)


def step(rng: random.Random) -> dict[str, Any]:
    text = rng.choice(WORDS) * rng.choice((0, 1, 2, 30))
    return rng.choice(
        (
            rng.choice(SMALL),
            {"type": "Prepend", "prepend": text},
            replace(rng.choice(WORDS), text),
            replace(pattern(rng), text, "Regex"),
            {"type": "Strip", "strip_left": True, "strip_right": rng.random() < 0.5},
        )
    )


def cut(rng: random.Random) -> dict[str, Any]:
    behavior = rng.choice(("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"))
    made = split(pattern(rng), behavior=behavior, invert=rng.random() < 0.2)
    return rng.choice((made, made, rng.choice(CUTS), {"type": "FixedLength", "length": rng.randint(1, 9)}))


def model(rng: random.Random) -> dict[str, Any]:
    tokens = list(
        dict.fromkeys(["<s>", *("".join(rng.choices(WORDS, k=rng.randint(1, 4))) for _ in range(40)), *WORDS])
    )
    if rng.random() < 0.3:
        pieces = [[token, rng.choice((0.0, -1.0, -1e300, 1e300))] for token in tokens]
        return {
            "type": "Unigram",
            "vocab": pieces,
            "unk_id": rng.choice((None, 0, 3)),
            "byte_fallback": rng.random() < 0.5,
        }
    vocabulary = {token: number for number, token in enumerate(tokens)}
    known = [[one, other] for one in tokens for other in tokens if one + other in vocabulary]
    unknown = rng.choice((None, "<s>", "none"))
    return {
        "type": "BPE",
        "vocab": vocabulary,
        "merges": known,
        "unk_token": unknown,
        "ignore_merges": rng.random() < 0.5,
    }


def composed(rng: random.Random) -> dict[str, Any]:
    flags = ("normalized", "lstrip", "rstrip", "single_word")
    tokens = [
        added("".join(rng.choices(WORDS, k=rng.randint(0, 3))), i, **{flag: rng.random() < 0.3 for flag in flags})
        for i in range(rng.randint(0, 20))
    ]
    document = whole(
        normalizer={"type": "Sequence", "normalizers": [step(rng) for _ in range(rng.randint(0, 4))]},
        pre_tokenizer={"type": "Sequence", "pretokenizers": [cut(rng) for _ in range(rng.randint(0, 3))]},
        added_tokens=tokens,
        model=model(rng),
    )
    if rng.random() < 0.2:
        document = copy.deepcopy(document)
        place: Any = document
        while isinstance(place, (dict, list)) and place:
            keys = list(place) if isinstance(place, dict) else range(len(place))
            key = rng.choice(list(keys))
            if rng.random() < 0.4:
                place[key] = copy.deepcopy(rng.choice(STRANGE))
                break
            place = place[key]
    return document


def texts(rng: random.Random) -> list[str]:
    runs = ("".join(rng.choices(WORDS, k=rng.randint(1, 4))) * rng.choice((1, 3, 2000)) for _ in range(3))
    return ["".join(runs), "".join(rng.choices(WORDS, k=300))]


def test_tokenizers_put_together_by_chance(fuzzer: Fuzzer, victim: Victim, tmp_path: Path) -> None:
    for rng in fuzzer.rounds():
        outcome = victim.opens(folder_with(tmp_path / "m", written(composed(rng)), texts(rng)))
        assert outcome == "read" or outcome.startswith("refused: ")
        assert outcome.isprintable()
