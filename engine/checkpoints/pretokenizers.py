"""How byte-level BPE vocabularies cut text into words before merging: one record per GGUF `tokenizer.ggml.pre`.

The patterns are the definitions that the model families publish in their own tokenizer.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tokenizers
from tokenizers import normalizers, pre_tokenizers

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LINES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
)


def _modern(digits: str, letters: str = r"\p{L}", others: str = r"\p{L}\p{N}") -> str:
    """The pattern that Llama 3 and Qwen share: words, runs of digits, punctuation, line ends."""
    return rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?{letters}+|{digits}| ?[^\s{others}]+[\r\n]*|{_LINES}"


_LLAMA3 = _modern(r"\p{N}{1,3}")
_QWEN2 = _modern(r"\p{N}")
_QWEN35 = _modern(r"\p{N}", letters=r"[\p{L}\p{M}]", others=r"\p{L}\p{M}\p{N}")
_TEKKEN = "|".join((*_CASED, r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", _LINES))
_GPT4O = "|".join(
    (*(f"{word}{_CONTRACTIONS}?" for word in _CASED), r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", _LINES)
)
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_LINES}",
)
_BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class PreTokenizer:
    """splits:  patterns whose matches are cut out, one after the other
    gpt2:    then GPT-2's own pattern, built into the byte-level step
    digits:  first every digit by itself
    nfc:     text is brought to Unicode form C first
    ignore_merges: a word that is itself in the vocabulary is taken whole
    add_bos: what holds when the file does not say
    """

    splits: tuple[str, ...] = ()
    gpt2: bool = False
    digits: bool = False
    nfc: bool = False
    ignore_merges: bool = False
    add_bos: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        steps: list[pre_tokenizers.PreTokenizer] = []
        if self.digits:
            steps.append(pre_tokenizers.Digits(individual_digits=True))
        steps += [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated") for pattern in self.splits]
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=self.gpt2))
        return pre_tokenizers.Sequence(steps)

    def normalizer(self) -> normalizers.Normalizer | None:
        return normalizers.NFC() if self.nfc else None


GPT2 = PreTokenizer(gpt2=True)
_LLAMA3_RULE = PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True)
_QWEN2_RULE = PreTokenizer((_QWEN2,), nfc=True)
_DIGITS_RULE = PreTokenizer(gpt2=True, digits=True)
_DEEPSEEK3_RULE = PreTokenizer(_DEEPSEEK3)
_GPT4O_RULE = PreTokenizer((_GPT4O,))
_BAILING_RULE = PreTokenizer((_BAILING,))

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    "default": GPT2,
    **dict.fromkeys(("gpt-2", "gpt2", "phi-2", "olmo", "mpt", "jais", "exaone4", "gigachat"), GPT2),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2"), _LLAMA3_RULE),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), PreTokenizer((_LLAMA3,))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), _QWEN2_RULE),
    **dict.fromkeys(("stablelm2", "hunyuan", "solar-open", "grok-2"), PreTokenizer((_QWEN2,))),
    "qwen35": PreTokenizer((_QWEN35,), nfc=True),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"), _DIGITS_RULE
    ),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense"), _DEEPSEEK3_RULE),
    "deepseek-coder": PreTokenizer(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}")),
    **dict.fromkeys(("gpt-4o", "llama4", "minimax-m2", "kanana2"), _GPT4O_RULE),
    "tekken": PreTokenizer((_TEKKEN,), ignore_merges=True, add_bos=True),
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), _BAILING_RULE),
}
