"""Tokenizer and chat template rebuilt from a GGUF header."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import tokenizers
from tokenizers import AddedToken

from engine.checkpoints import sentencepiece
from engine.checkpoints.chat_template import ChatTemplate
from engine.checkpoints.file_bytes import shown
from engine.checkpoints.gguf_header import GgufHeader
from engine.checkpoints.pretokenizers import CHARACTER_RULES, GPT2, PRE_TOKENIZERS, byte_level
from engine.checkpoints.sentencepiece import CONTROL, NORMAL, SPACE_MARK, USER_DEFINED, Pieces
from engine.checkpoints.tokenizer import END_NAMES, Tokenizer
from engine.checkpoints.vocabulary import add_tokens
from engine.errors import GreenroomError
from engine.words import say

log = logging.getLogger(__name__)

_TOKENS = "tokenizer.ggml.tokens"
#: Phi's special tokens that leave what is behind them alone.
_PLAIN = frozenset({"<unk>", "<s>", "<|endoftext|>"})
#: How texts are cut, by tokenizer.ggml.model.
_KINDS = ("gpt2", "llama", "gemma4", "t5")


def tokenizer_from_gguf(header: GgufHeader) -> Tokenizer:
    """Raises GreenroomError when the file carries no tokenizer or one of a kind that is not read."""
    config = header.config
    model = config.get("tokenizer.ggml.model")
    if _TOKENS not in header.arrays or model is None:
        _refuse(header, say("it carries no tokenizer"))
    if model not in _KINDS:
        _refuse(
            header,
            say(
                "its tokenizer is of the kind {model}, and only {kinds} are read",
                model=shown(str(model)),
                kinds=", ".join(_KINDS),
            ),
        )
    tokens = header.strings(_TOKENS)
    kinds = _numbers(header, "tokenizer.ggml.token_type", len(tokens))
    try:
        if model == "gpt2" and config.get("tokenizer.ggml.pre") in CHARACTER_RULES:
            backend, add_bos = _merged_characters(header, tokens), False
        elif model == "gpt2":
            backend, add_bos = _byte_level(header, tokens)
        elif model == "gemma4":
            backend, add_bos = _merged_characters(header, tokens), True
        else:
            backend, add_bos = _sentencepiece(header, tokens, kinds, unigram=model == "t5"), model == "llama"
        swallows = model == "llama" and config.get("general.architecture") in ("phi3", "phimoe")
        add_tokens(backend, _added_tokens(tokens, kinds, swallows))
    except GreenroomError:
        raise
    except Exception as error:  # the library raises nothing more precise
        log.warning("tokenizer of %s", header.path, exc_info=True)
        _refuse(header, say("its tokenizer is damaged ({value})", value=str(error)[:120]))
    ends = (_token_id(config, kind, len(tokens)) for kind in ("eos", "eot", "eom"))
    wanted = config.get("tokenizer.ggml.add_bos_token")
    return Tokenizer(
        backend,
        bos_id=_token_id(config, "bos", len(tokens)),
        eos_ids=[token for token in ends if token is not None],
        vocab_size=len(tokens),
        # Files of Gemma 4 say no, wrongly: without its first token the model writes nonsense.
        add_bos=wanted if isinstance(wanted, bool) and model != "gemma4" else add_bos,
    )


def chat_template_from_gguf(header: GgufHeader) -> ChatTemplate:
    """The file's own template, else a plain one that suits its vocabulary."""
    config = header.config
    tokens = header.strings(_TOKENS) if _TOKENS in header.arrays else []

    def text(kind: str) -> str:
        token = _token_id(config, kind, len(tokens))
        return "" if token is None else tokens[token]

    source = config.get("tokenizer.chat_template")
    if isinstance(source, str) and source.strip():
        tools = config.get("tokenizer.chat_template.tool_use")
        return ChatTemplate(
            source, text("bos"), text("eos"), tool_source=tools if isinstance(tools, str) and tools.strip() else None
        )
    return ChatTemplate.plain(text("bos"), text("eos"), chatml="<|im_start|>" in tokens)


def _byte_level(header: GgufHeader, tokens: Sequence[str]) -> tuple[tokenizers.Tokenizer, bool]:
    """(tokenizer, whether texts begin with bos when the file does not say)."""
    name = header.config.get("tokenizer.ggml.pre", "default")
    rule = PRE_TOKENIZERS.get(name)
    if rule is None:
        log.warning(
            "%s cuts text into words by the rule %r, which is not known here; GPT-2's is used, answers may suffer",
            header.path.name,
            name,
        )
        rule = GPT2
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = _merges(header, vocabulary)
    return byte_level(vocabulary, merges, rule), rule.add_bos


def _merged_characters(header: GgufHeader, tokens: Sequence[str]) -> tokenizers.Tokenizer:
    """BPE over characters with the file's own merges."""
    vocabulary = {token: number for number, token in enumerate(tokens)}
    unknown = _token_id(header.config, "unknown", len(tokens))
    model = sentencepiece.spaced_model(
        vocabulary, _merges(header, vocabulary), None if unknown is None else tokens[unknown]
    )
    return sentencepiece.wrap(model, space_first=False)


def _merges(header: GgufHeader, vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    if "tokenizer.ggml.merges" not in header.arrays:
        _refuse(header, say("its tokenizer has no merges"))
    merges = []
    for merge in header.strings("tokenizer.ggml.merges"):
        # The first half is never empty, so a space in first place belongs to it.
        space = merge.find(" ", 1)
        if space < 0:
            _refuse(header, say("its tokenizer has a merge of one part"))
        merges.append((merge[:space], merge[space + 1 :]))
    # Two tokens that make no third are never joined, and some vocabularies list such a merge.
    useful = [pair for pair in merges if pair[0] + pair[1] in vocabulary or not vocabulary.keys() >= set(pair)]
    if len(useful) < len(merges):
        log.warning("%s: %d merges that lead to no token are left out", header.path.name, len(merges) - len(useful))
    return useful


def _sentencepiece(
    header: GgufHeader, tokens: Sequence[str], kinds: Sequence[int], *, unigram: bool
) -> tokenizers.Tokenizer:
    config = header.config
    charsmap = b""
    if unigram and "tokenizer.ggml.precompiled_charsmap" in header.arrays:
        charsmap = header.numbers("tokenizer.ggml.precompiled_charsmap").astype(np.uint8).tobytes()
    return sentencepiece.build(
        Pieces(
            tokens,
            _numbers(header, "tokenizer.ggml.scores", len(tokens)),
            kinds,
            unigram=unigram,
            unknown=_token_id(config, "unknown", len(tokens)) or 0,
            space_first=bool(config.get("tokenizer.ggml.add_space_prefix", True)),
            squeeze=unigram and bool(config.get("tokenizer.ggml.remove_extra_whitespaces", False)),
            charsmap=charsmap,
        )
    )


def _added_tokens(tokens: Sequence[str], kinds: Sequence[int], swallows: bool) -> Iterator[AddedToken]:
    """swallows: special tokens take the white space behind them, which their tokenizer.json says and GGUF cannot."""
    for token, kind in zip(tokens, kinds or [NORMAL] * len(tokens), strict=True):
        # Some converters store <|im_end|> and its like as ordinary tokens; an answer would then never end.
        special = kind == CONTROL or (token in END_NAMES and token.startswith("<|"))
        # A user-defined piece with a space mark (runs of spaces) is found by merging; text holds no such mark.
        if token and (special or (kind == USER_DEFINED and SPACE_MARK not in token)):
            rstrip = swallows and special and token not in _PLAIN
            yield AddedToken(token, special=special, normalized=False, rstrip=rstrip)


def _token_id(config: Mapping[str, Any], kind: str, count: int) -> int | None:
    value = config.get(f"tokenizer.ggml.{kind}_token_id")
    return value if type(value) is int and 0 <= value < count else None


def _numbers(header: GgufHeader, key: str, count: int) -> list[Any]:
    """One number per token; empty when the file has none."""
    if key not in header.arrays:
        return []
    entries = header.arrays[key].count
    if entries != count:
        _refuse(
            header,
            say(
                "its tokenizer has %n tokens, but its {key} has {entries}",
                n=count,
                one="its tokenizer has %n token, but its {key} has {entries}",
                entries=entries,
                key=key,
            ),
        )
    values: list[Any] = header.numbers(key).tolist()
    return values


def _refuse(header: GgufHeader, why: str) -> NoReturn:
    raise GreenroomError(
        say("{name} cannot be used", name=header.path.name), why, say("Choose another file of this model.")
    )
