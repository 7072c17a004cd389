"""Tokenizer and chat template from the files beside safetensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.checkpoints.chat_template import MAX_SOURCE, ChatTemplate
from engine.checkpoints.file_bytes import file_size, read_bytes
from engine.checkpoints.json_file import read_optional_object
from engine.checkpoints.tokenizer import Tokenizer
from engine.checkpoints.tokenizer_json import read_tokenizer_json
from engine.checkpoints.vocabulary import StoredTokenizer
from engine.checkpoints.vocabulary_files import read_vocabulary
from engine.errors import GreenroomError


def tokenizer_from_folder(folder: Path) -> Tokenizer:
    """Raises GreenroomError when there is no tokenizer.json or other vocabulary, or it is damaged."""
    settings = _settings(folder)
    stored = _stored(folder, settings)
    backend = stored.backend
    tokens = {kind: backend.token_to_id(text) for kind, text in _special_texts(settings).items()}
    bos, ends = tokens.get("bos"), {tokens.get("eos"), tokens.get("eot")} - {None}
    for source in ("generation_config.json", "config.json"):
        record = read_optional_object(folder / source)
        ends |= set(_ids(record.get("eos_token_id")))
        if bos is None:
            bos = next(_ids(record.get("bos_token_id")), None)
    wanted = settings.get("add_bos_token")
    if not isinstance(wanted, bool):
        wanted = bos is not None and stored.first == bos
    ids = (token for token in ends if token is not None)
    return Tokenizer(backend, bos_id=bos, eos_ids=ids, add_bos=wanted, vocab_size=stored.size)


def chat_template_from_folder(folder: Path) -> ChatTemplate:
    """chat_template.jinja, else tokenizer_config.json's, else a plain one that suits the vocabulary."""
    settings = _settings(folder)
    texts = _special_texts(settings)
    bos, eos = texts.get("bos", ""), texts.get("eos", "")
    others = {f"{kind}_token": text for kind, text in texts.items()}
    sources = _template_sources(folder, settings)
    source = sources.get("default") or next(iter(sources.values()), None)
    if source:
        return ChatTemplate(source, bos, eos, tool_source=sources.get("tool_use"), variables=others)
    try:
        chatml = _stored(folder, settings).backend.token_to_id("<|im_start|>") is not None
    except GreenroomError:
        chatml = False
    return ChatTemplate.plain(bos, eos, chatml=chatml)


def _stored(folder: Path, settings: Mapping[str, Any]) -> StoredTokenizer:
    path = folder / "tokenizer.json"
    return read_tokenizer_json(path) if path.exists() else read_vocabulary(folder, settings)


def _settings(folder: Path) -> Mapping[str, Any]:
    return read_optional_object(folder / "special_tokens_map.json") | read_optional_object(
        folder / "tokenizer_config.json"
    )


def _special_texts(settings: Mapping[str, Any]) -> dict[str, str]:
    """ "bos" -> "<s>" and so on; each is stored as a string or as a record with its content."""
    texts = {}
    for key, value in settings.items():
        text = value.get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and isinstance(text, str):
            texts[key.removesuffix("_token")] = text
    return texts


def _ids(value: Any) -> Iterator[int]:
    """One id or a list of them."""
    for item in value if isinstance(value, list) else [value]:
        if type(item) is int:
            yield item


def _template_sources(folder: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    path = folder / "chat_template.jinja"
    if path.exists():
        size = file_size(path)
        data = read_bytes(path, 0, min(size, 4 * MAX_SOURCE + 1))
        return {"default": data.tobytes().decode("utf-8", "replace")}
    stored = settings.get("chat_template")
    if stored is None:
        stored = read_optional_object(folder / "chat_template.json").get("chat_template")
    if isinstance(stored, str):
        return {"default": stored}
    records = stored if isinstance(stored, list) else []
    return {
        record["name"]: record["template"]
        for record in records
        if isinstance(record, dict) and isinstance(record.get("name"), str) and isinstance(record.get("template"), str)
    }
