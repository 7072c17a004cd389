"""Makes the tokenizer.model files in sentencepiece/ and what SentencePiece itself makes of some texts.

Run by hand, once, with the package `sentencepiece`, which the tests do not need:
`python tests/engine/checkpoints/sentencepiece_files.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "sentencepiece"
CORPUS = [
    "The quick brown fox doesn't jump over 12345 lazy dogs; we'll see in 2024!",
    "Der Fuchs springt über den faulen Hund, naïve café, Ångström.",
    "def f(x): return x**2 + 3.14159  # comment",
    "日本語のテキストと中文文本。한국어 텍스트도 있습니다。",
    "Приветствуем вас! Ελληνικά γράμματα",
] * 3
TEXTS = [
    "Hello, world!",
    " leading and  two   spaces ",
    "the fox sees 2024 dogs",
    "日本語 テキスト, 中文 한국어 привет",
    "ﬁne ①② Ｗｉｄｅ é e\u0301 \u00a0x",
    "🎉 emoji\u200d\ttab\nline\n\n",
    "<sep>fox<sep> ▁ __",
]
KINDS: dict[str, dict[str, Any]] = {
    "bpe": {"model_type": "bpe", "normalization_rule_name": "identity", "remove_extra_whitespaces": False},
    "bpe-no_prefix": {"model_type": "bpe", "normalization_rule_name": "identity", "add_dummy_prefix": False},
    "unigram": {"model_type": "unigram", "normalization_rule_name": "identity"},
    # SentencePiece's usual rules (NFKC and more) are a quarter of a megabyte.
    "unigram-nfkc": {"model_type": "unigram", "byte_fallback": True, "vocab_size": 620},
}


def main() -> None:
    import sentencepiece

    FOLDER.mkdir(exist_ok=True)
    expected = {}
    for name, options in KINDS.items():
        common = {"vocab_size": 320, "byte_fallback": options["model_type"] == "bpe", "hard_vocab_limit": False}
        if options["model_type"] == "bpe":
            common |= {"vocab_size": 480, "user_defined_symbols": ["<sep>"]}
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS), model_prefix=str(FOLDER / name), minloglevel=2, **{**common, **options}
        )
        (FOLDER / f"{name}.vocab").unlink()
        processor = sentencepiece.SentencePieceProcessor(model_file=str(FOLDER / f"{name}.model"))
        expected[name] = [processor.encode(text) for text in TEXTS]
    (FOLDER / "expected.json").write_text(json.dumps(expected))


if __name__ == "__main__":
    main()
