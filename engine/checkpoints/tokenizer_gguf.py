"""Tokenizer and chat template rebuilt from a GGUF header."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers

from engine.checkpoints.chat_template import ChatTemplate
from engine.checkpoints.gguf_header import GgufHeader
from engine.checkpoints.pretokenizers import GPT2, PRE_TOKENIZERS
from engine.checkpoints.tokenizer import END_NAMES, Tokenizer
from engine.errors import GreenroomError

log = logging.getLogger(__name__)

_TOKENS = "tokenizer.ggml.tokens"
# Values of tokenizer.ggml.token_type
_NORMAL = 1
_CONTROL = 3
_USER_DEFINED = 4
_BYTE = 6
# No trained vocabulary has longer pieces; every split of each is tried.
_MAX_MERGED_PIECE = 512
_SPACE_MARK = "▁"


def tokenizer_from_gguf(header: GgufHeader) -> Tokenizer:
    """Raises GreenroomError when the file carries no tokenizer or one of a kind that is not read."""
    config = header.config
    model = config.get("tokenizer.ggml.model")
    if _TOKENS not in header.arrays or model is None:
        _refuse(header, "it carries no tokenizer")
    tokens = header.strings(_TOKENS)
    kinds = _numbers(header, "tokenizer.ggml.token_type", len(tokens))
    try:
        if model == "gpt2":
            backend, add_bos = _byte_level(header, tokens)
        elif model == "llama":
            backend, add_bos = _sentencepiece(header, tokens, kinds), True
        else:
            _refuse(header, f'its tokenizer is of the kind "{model}", and only "gpt2" and "llama" are supported yet')
        backend.add_tokens(list(_added_tokens(tokens, kinds)))
    except GreenroomError:
        raise
    except Exception as error:  # the library raises nothing more precise
        log.warning("tokenizer of %s", header.path, exc_info=True)
        _refuse(header, f"its tokenizer is damaged ({str(error)[:120]})")
    ends = (_token_id(config, kind, len(tokens)) for kind in ("eos", "eot", "eom"))
    wanted = config.get("tokenizer.ggml.add_bos_token")
    return Tokenizer(
        backend,
        bos_id=_token_id(config, "bos", len(tokens)),
        eos_ids=[token for token in ends if token is not None],
        add_bos=wanted if isinstance(wanted, bool) else add_bos,
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
    if "tokenizer.ggml.merges" not in header.arrays:
        _refuse(header, "its tokenizer has no merges")
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
    merges, useless = [], 0
    for merge in header.strings("tokenizer.ggml.merges"):
        # The first half is never empty, so a space in first place belongs to it.
        space = merge.find(" ", 1)
        if space < 0:
            _refuse(header, "its tokenizer has a merge of one part")
        left, right = merge[:space], merge[space + 1 :]
        # Two tokens that make no third are never joined, and some vocabularies list such a merge.
        if left in vocabulary and right in vocabulary and left + right not in vocabulary:
            useless += 1
        else:
            merges.append((left, right))
    if useless:
        log.warning("%s: %d merges that lead to no token are left out", header.path.name, useless)
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=rule.ignore_merges))
    backend.pre_tokenizer = rule.build()
    backend.decoder = decoders.ByteLevel()
    normalizer = rule.normalizer()
    if normalizer is not None:
        backend.normalizer = normalizer
    return backend, rule.add_bos


def _sentencepiece(header: GgufHeader, tokens: Sequence[str], kinds: Sequence[int]) -> tokenizers.Tokenizer:
    """SentencePiece's BPE: of all neighbours that form a piece, the best-scored is merged first."""
    scores = _numbers(header, "tokenizer.ggml.scores", len(tokens))
    vocabulary = {token: number for number, token in enumerate(tokens)}
    unknown = _token_id(header.config, "unknown", len(tokens)) or 0
    ranked = []
    for number, token in enumerate(tokens):
        if (kinds and kinds[number] in (_CONTROL, _BYTE)) or len(token) > _MAX_MERGED_PIECE:
            continue
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocabulary and right in vocabulary:
                score = scores[number] if scores else 0.0
                ranked.append((-score, vocabulary[left], vocabulary[right], left, right))
    ranked.sort()
    model = models.BPE(
        vocab=vocabulary,
        merges=[(left, right) for *_, left, right in ranked],
        unk_token=tokens[unknown] if tokens else None,
        fuse_unk=True,
        byte_fallback=True,
    )
    backend = tokenizers.Tokenizer(model)
    steps: list[Any] = [normalizers.Replace(" ", _SPACE_MARK)]
    if header.config.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, normalizers.Prepend(_SPACE_MARK))
    backend.normalizer = normalizers.Sequence(steps)
    backend.decoder = decoders.Sequence([decoders.Replace(_SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()])
    return backend


def _added_tokens(tokens: Sequence[str], kinds: Sequence[int]) -> Iterator[AddedToken]:
    for token, kind in zip(tokens, kinds or [_NORMAL] * len(tokens), strict=True):
        # Some converters store <|im_end|> and its like as ordinary tokens; an answer would then never end.
        special = kind == _CONTROL or (token in END_NAMES and token.startswith("<|"))
        # A user-defined piece with a space mark (runs of spaces) is found by merging; text holds no such mark.
        if token and (special or (kind == _USER_DEFINED and _SPACE_MARK not in token)):
            yield AddedToken(token, special=special, normalized=False)


def _token_id(config: Mapping[str, Any], kind: str, count: int) -> int | None:
    value = config.get(f"tokenizer.ggml.{kind}_token_id")
    return value if type(value) is int and 0 <= value < count else None


def _numbers(header: GgufHeader, key: str, count: int) -> list[Any]:
    """One number per token; empty when the file has none."""
    if key not in header.arrays:
        return []
    values: list[Any] = header.numbers(key).tolist()
    if len(values) != count:
        _refuse(header, f"its tokenizer has {count} tokens, but {len(values)} entries of {key}")
    return values


def _refuse(header: GgufHeader, why: str) -> NoReturn:
    raise GreenroomError(f"{header.path.name} cannot be used", why, "Choose another file of this model.")
