"""How byte-level BPE vocabularies cut text into words before merging: one record per GGUF `tokenizer.ggml.pre`.

The patterns are the definitions that the model families publish in their own tokenizer.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tokenizers
from tokenizers import decoders, normalizers, pre_tokenizers

from engine.checkpoints.vocabulary import bpe

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LINES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
)


def _modern(
    digits: str, letters: str = r"\p{L}", others: str = r"\p{L}\p{N}", ends: str = r"[\r\n]*", lines: str = _LINES
) -> str:
    """The pattern that Llama 3 and Qwen share: words, runs of digits, punctuation, line ends."""
    return rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?{letters}+|{digits}| ?[^\s{others}]+{ends}|{lines}"


_LLAMA3 = _modern(r"\p{N}{1,3}")
_QWEN2 = _modern(r"\p{N}")
_QWEN35 = _modern(r"\p{N}", letters=r"[\p{L}\p{M}]", others=r"\p{L}\p{M}\p{N}")
_TEKKEN = "|".join((*_CASED, r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", _LINES))


def _cased(digits: str = r"\p{N}{1,3}", ends: str = r"[\r\n/]*") -> str:
    """GPT-4o's: a word ends where small letters are followed by a capital."""
    return "|".join((*(f"{word}{_CONTRACTIONS}?" for word in _CASED), digits, rf" ?[^\s\p{{L}}\p{{N}}]+{ends}", _LINES))


_GPT4O = _cased()
_KIMI = r"\p{Han}+|" + _cased(ends=r"[\r\n]*").replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]")
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_PUNCTUATED = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
_THOUSANDS = r"\d{1,3}(?=(?:\d{3})*\b)"
#: Cut first where digits are counted from the right: for each three all others are looked at, which would take minutes
#: for the million digits of a file. Shorter numbers are not touched.
_ENDLESS_NUMBER = r"\p{N}{3000}"
_DEEPSEEK3 = (r"\p{N}{1,3}", _KANA, rf"{_PUNCTUATED}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_LINES}")
_SPARK = (r"\p{N}{1,3}", _KANA, rf"{_PUNCTUATED}| ?[\p{{P}}\p{{S}}]+|[\r\n]|\s+(?!\S)|\s+", r"\p{N}")
_AFMOE_THOUSANDS = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
_AFMOE = (
    _ENDLESS_NUMBER,
    _AFMOE_THOUSANDS,
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff"
    "\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+",
    _DEEPSEEK3[2],
)
_YOUTU = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
    "|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    _cased(r"\p{N}"),
)
_SENTENCES = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"

#: The letters of DeepSeek LLM's words, first and last of each run: most that have a case, but not all.
_DEEPSEEK_LETTERS = """
41-5A 61-7A B5-B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376-377 37B-37D 37F-37F 386-386 388-38A 38C-38C
38E-3A1 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77
1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59-1F59 1F5B-1F5B 1F5D-1F5D 1F5F-1F7D 1F80-1FB4
1FB6-1FBC 1FBE-1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102-2102 2107-2107
210A-2113 2115-2115 2119-211D 2124-2124 2126-2126 2128-2128 212A-212D 212F-2134 2139-2139 213C-213F 2145-2149
214E-214E 2183-2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2-2CF3 A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E
AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2
118A0-118DF 1E900-1E943
"""


def _letters(runs: str) -> str:
    """A character class from runs of code points in hexadecimal."""
    pairs = (run.split("-") for run in runs.split())
    return "[" + "".join(rf"\x{{{first}}}-\x{{{last}}}" for first, last in pairs) + "]"


_LAST_SPACES = r"\s+$"
#: Cut first for the same reason: a run of spaces is gone through from each of its places.
_ENDLESS_SPACE = r"\s{3000}"
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?{_letters(_DEEPSEEK_LETTERS)}+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    _ENDLESS_SPACE,
    _LAST_SPACES,
    _CJK,
    r"\p{N}",
)
_EXAONE = _modern(
    r"\p{N}", letters=r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)", ends=r"[\r\n/]?", lines=r"\s*[\r\n]|\s+(?!\S)|\s+"
)
_JAIS2 = _modern(
    r"\p{N}{1,3}",
    lines=r"\s*[\r\n]+|"
    + "|".join(rf"\s{{{run}}}(?!\S)" for run in ("512", "256", "128", "64", "32", "16", "8", "4", "1,2"))
    + r"|\s",
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
_COHERE_RULE = PreTokenizer((_ENDLESS_NUMBER, _THOUSANDS, _GPT4O))

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    # What llama.cpp takes for files from before rules had names.
    "default": PreTokenizer((r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "falcon": PreTokenizer((r"[\p{P}$+<=>^~|`]+", _GPT2, "[0-9][0-9][0-9]")),
    **dict.fromkeys(("gpt-2", "gpt2", "phi-2", "olmo", "mpt", "jais", "exaone4", "gigachat", "a.x-4.0"), GPT2),
    **dict.fromkeys(("mellum", "trillion", "granite-docling"), GPT2),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2"), _LLAMA3_RULE),
    "midm-2.0": _LLAMA3_RULE,
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), PreTokenizer((_LLAMA3,))),
    **dict.fromkeys(("glm4", "glm5"), PreTokenizer((_LLAMA3,), ignore_merges=True)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "kormo"), _QWEN2_RULE),
    **dict.fromkeys(("stablelm2", "hunyuan", "solar-open", "grok-2"), PreTokenizer((_QWEN2,))),
    "qwen35": PreTokenizer((_QWEN35,), nfc=True),
    "laguna": PreTokenizer((r"[^\n]+|\n+", _QWEN2)),
    "ufakzeka": PreTokenizer((_QWEN2.removeprefix(_CONTRACTIONS + "|"),)),
    "seed-coder": PreTokenizer((_modern(r"\p{N}", others=r"\p{L}\p{N}\r\n", ends=""),)),
    "minicpm5": PreTokenizer((r"\p{N}{1,3}", _modern(r"\p{N}+")), ignore_merges=True),
    "exaone-moe": PreTokenizer((_EXAONE,)),
    "jais-2": PreTokenizer((_JAIS2,)),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"), _DIGITS_RULE
    ),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"), _DEEPSEEK3_RULE),
    "deepseek-llm": PreTokenizer(_DEEPSEEK_LLM),
    "deepseek-coder": PreTokenizer(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")),
    "spark2_5": PreTokenizer(_SPARK),
    "afmoe": PreTokenizer(_AFMOE),
    "youtu": PreTokenizer(_YOUTU, ignore_merges=True),
    **dict.fromkeys(("gpt-4o", "llama4", "minimax-m2", "kanana2", "talkie"), _GPT4O_RULE),
    **dict.fromkeys(("tiny_aya", "cohere2moe"), _COHERE_RULE),
    "kimi-k2": PreTokenizer((_KIMI,)),
    "tekken": PreTokenizer((_TEKKEN,), ignore_merges=True, add_bos=True),
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), _BAILING_RULE),
    **dict.fromkeys(("poro-chat", "bloom", "gpt3-finnish"), PreTokenizer((_SENTENCES,))),
    "viking": PreTokenizer((_SENTENCES, r"\p{N}")),
}
#: Patterns from above that look at all that follows from every place of a text: alone they take hours for a long one.
_QUADRATIC = {_THOUSANDS, _AFMOE_THOUSANDS, _LAST_SPACES, _ENDLESS_NUMBER, _ENDLESS_SPACE}
#: All others: where one of their branches goes through a run of letters or spaces in vain, a later one takes that run.
LINEAR_PATTERNS = frozenset(split for rule in PRE_TOKENIZERS.values() for split in rule.splits) - _QUADRATIC
#: Rules that go with characters instead of bytes: spaces become "▁", and words are not cut at all.
CHARACTER_RULES = frozenset({"gemma4", "sarvam-moe"})


def _byte_letters() -> dict[int, str]:
    """GPT-2's byte-level alphabet: printable Latin-1 stands for itself, other bytes for U+0100 and up, in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(0x100 + hidden.index(byte) if byte in hidden else byte) for byte in range(256)}


LETTERS: Mapping[int, str] = _byte_letters()


def byte_level(vocabulary: dict[str, int], merges: list[tuple[str, str]], rule: PreTokenizer) -> tokenizers.Tokenizer:
    """BPE over the bytes of words. Raises ValueError when a merge lacks its tokens, or there is too much of all."""
    backend = tokenizers.Tokenizer(bpe(vocabulary, merges, ignore_merges=rule.ignore_merges))
    backend.pre_tokenizer = rule.build()
    backend.decoder = decoders.ByteLevel()
    normalizer = rule.normalizer()
    if normalizer is not None:
        backend.normalizer = normalizer
    return backend
