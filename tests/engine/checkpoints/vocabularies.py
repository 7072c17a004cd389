"""Two small trained vocabularies, byte-level and of pieces, as GGUF stores them."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import tokenizers
from checkpoint_files import write_gguf
from tokenizers import models, normalizers, pre_tokenizers, trainers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6

CORPUS = [
    "The quick brown fox doesn't jump over 12345 lazy dogs; WE'LL see in 2024!",
    "Der Fuchs springt über den faulen Hund, naïve café, Ångström.\n\n  Indented\tline\r\n",
    "def f(x): return x**2 + 3.14159  # comment\n    if x != 0:\n        pass\n",
    "日本語のテキストと中文文本。한국어 텍스트도 있습니다。",
    "Приветствуем вас! Ελληνικά γράμματα; عربى नमस्ते",
] * 4


class ByteLevelVocabulary:
    """A small trained byte-level vocabulary with ChatML's special tokens."""

    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

    def __init__(self) -> None:
        trained = tokenizers.Tokenizer(models.BPE())
        trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=480, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
        )
        trained.train_from_iterator(CORPUS, trainer)
        model = json.loads(trained.to_str())["model"]
        tokens = sorted(model["vocab"], key=model["vocab"].get)
        self.tokens = [*self.special, *tokens]
        self.merges = [tuple(merge) for merge in model["merges"]]
        self.ids = {token: number for number, token in enumerate(self.tokens)}
        self.ranks = {merge: number for number, merge in enumerate(self.merges)}

    def gguf(self, path: Path, **settings: Any) -> Path:
        count = len(self.special)
        usual = {
            "tokenizer__ggml__model": "gpt2",
            "tokenizer__ggml__tokens": self.tokens,
            "tokenizer__ggml__token_type": [CONTROL] * count + [NORMAL] * (len(self.tokens) - count),
            "tokenizer__ggml__merges": [" ".join(merge) for merge in self.merges],
            "tokenizer__ggml__bos_token_id": 0,
            "tokenizer__ggml__eos_token_id": 0,
        }
        return write_gguf(path, **{**usual, **settings})


class PieceVocabulary:
    """A small trained SentencePiece-like BPE vocabulary with byte fallback."""

    def __init__(self) -> None:
        trained = tokenizers.Tokenizer(models.BPE())
        trained.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        trained.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex("▁+[^▁]*"), "isolated")
        trained.train_from_iterator(CORPUS[:3], trainers.BpeTrainer(vocab_size=220, show_progress=False))
        model = json.loads(trained.to_str())["model"]
        base = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
        # As in SentencePiece, a piece's score is minus the rank at which it was learned; letters come last.
        merged = list(dict.fromkeys("".join(merge) for merge in model["merges"]))
        letters = [token for token in model["vocab"] if token not in set(merged)]
        self.tokens = [*base, *merged, *letters]
        self.types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(merged) + len(letters))
        self.scores = [0.0] * len(base) + [-float(rank) for rank in range(len(merged) + len(letters))]
        self.ids = {token: number for number, token in enumerate(self.tokens)}

    def gguf(self, path: Path, **settings: Any) -> Path:
        usual = {
            "tokenizer__ggml__model": "llama",
            "tokenizer__ggml__tokens": self.tokens,
            "tokenizer__ggml__token_type": self.types,
            "tokenizer__ggml__scores": self.scores,
            "tokenizer__ggml__unknown_token_id": 0,
            "tokenizer__ggml__bos_token_id": 1,
            "tokenizer__ggml__eos_token_id": 2,
        }
        return write_gguf(path, **{**usual, **settings})

    def plain(self, text: str, prefix: bool = True) -> list[int]:
        """Merge the best-scored neighbours, leftmost first, until none is left; what is no piece goes as bytes."""
        parts = list((" " + text if prefix and text else text).replace(" ", "▁"))
        while True:
            pairs = [
                (-self.scores[self.ids[a + b]], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in self.ids
            ]
            if not pairs:
                break
            at = min(pairs)[1]
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        ids: list[int] = []
        for part in parts:
            ids += [self.ids[part]] if part in self.ids else [3 + byte for byte in part.encode()]
        return ids
