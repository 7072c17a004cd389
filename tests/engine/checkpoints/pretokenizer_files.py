"""Makes pretokenizers.json: how llama.cpp cuts some texts by each of its rules, with one small vocabulary.

Run by hand, once, with a checkout of llama.cpp and the folder of its built libraries:
`python tests/engine/checkpoints/pretokenizer_files.py SOURCE LIBRARIES`.
"""

from __future__ import annotations

import json
import logging
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import tokenizers

sys.path.append(str(Path(__file__).parents[1]))

log = logging.getLogger(__name__)

TARGET = Path(__file__).with_name("pretokenizers.json")
TEXTS = [
    "The quick brown fox doesn't jump over 12345 lazy dogs; WE'LL see in 2024!",
    "Der Fuchs springt über den faulen Hund, naïve café, Ångström.\n\n  Indented\tline\r\n",
    "def f(x): return x**2 + 3.14159  # comment\n    if x != 0:\n        pass\n",
    "日本語のテキストと中文文本。한국어 텍스트도 있습니다。12天",
    "Приветствуем вас! Ελληνικά γράμματα; عربى नमस्ते ไทย",
    "1 12 123 1234 12345 1234567 ½ ² ٣٤٥٦",
    "line\n\n\nbreaks\r\n  and \t tabs \n",
    "🎉👩‍👩‍👧 emoji\u200d <=> $100.00 (a) [b] {c} a/b//c\\d\n/n",
    "camelCase HTTPServer iPhone's XMLs don't DON'T we'LL I'M they've ’s",
    "    leading and trailing   ",
]


def texts() -> list[str]:
    chance = random.Random(7)
    alphabet = "aAbBsSdlLtT'’ \n\t\r.,!?0123456789²ßÉ日本한글 нЖ🎉_-/("
    return [*TEXTS, *("".join(chance.choices(alphabet, k=24)) for _ in range(20))]


def vocabulary() -> tuple[list[str], list[str]]:
    """(tokens, merges) of a byte-level vocabulary trained without any cutting into words."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=700, show_progress=False, initial_alphabet=alphabet, max_token_length=6
    )
    # Pieces across all borders of words, so that a border in another place gives other tokens.
    backend.train_from_iterator(texts() * 3, trainer)
    model = json.loads(backend.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [" ".join(merge) for merge in model["merges"]]


def settings(rule: str, tokens: list[str], merges: list[str]) -> dict[str, Any]:
    """Of a GGUF file that holds nothing but a vocabulary."""
    values = {"model": "gpt2", "pre": rule, "tokens": tokens, "merges": merges, "token_type": [1] * len(tokens)}
    values |= {"bos_token_id": 0, "eos_token_id": 0}
    return {f"tokenizer__ggml__{key}": value for key, value in values.items()}


def main() -> None:
    from checkpoint_files import write_gguf
    from llama_cpp_files import build_oracle

    from engine.checkpoints.pretokenizers import PRE_TOKENIZERS

    logging.basicConfig(level=logging.INFO)
    tokens, merges = vocabulary()
    given = "".join(f"{text}\0" for text in texts()).encode()
    rules: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        oracle = build_oracle(*map(Path, sys.argv[1:3]), Path(scratch))
        for rule in PRE_TOKENIZERS:
            path = write_gguf(Path(scratch) / "m.gguf", **settings(rule, tokens, merges))
            done = subprocess.run([oracle, "tokenize", path], input=given, capture_output=True, check=False)
            if done.returncode:
                log.info("llama.cpp does not know %s", rule)
                continue
            ids = [[int(token) for token in line.split()] for line in done.stdout.decode().splitlines()]
            same = next((known for known in rules if known["ids"] == ids), None)
            if same is None:
                rules.append({"names": [rule], "ids": ids})
            else:
                same["names"].append(rule)
    record = {"tokens": tokens, "merges": merges, "texts": texts(), "rules": rules}
    TARGET.write_text(json.dumps(record, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


if __name__ == "__main__":
    main()
