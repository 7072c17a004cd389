"""Checkpoints in GGUF form: one file, or a split of several."""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.checkpoints.blocks import Floats
from engine.checkpoints.checkpoint import TensorInfo
from engine.checkpoints.file_bytes import absolute, read_bytes, shown
from engine.checkpoints.gguf_header import GgufHeader, read_header
from engine.checkpoints.stored import StoredCheckpoint
from engine.checkpoints.widened import WIDENED, widen
from engine.errors import GreenroomError
from engine.words import say

if TYPE_CHECKING:
    from engine.checkpoints.chat_template import ChatTemplate
    from engine.checkpoints.tokenizer import Tokenizer

log = logging.getLogger(__name__)

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.gguf)", re.IGNORECASE | re.DOTALL)


def shard_number(name: str) -> int | None:
    """Which part of a split a file name says it is, from 1; None for a whole file."""
    match = _SHARD.fullmatch(name)
    return int(match["number"]) if match else None


def plain_stem(name: str) -> str:
    """The file name without ".gguf" and without its shard number."""
    match = _SHARD.fullmatch(name)
    if match:
        return match["stem"]
    return name[: -len(".gguf")] if name.lower().endswith(".gguf") else name


def named_shards(path: Path) -> list[Path]:
    """Every part of the split that `path` belongs to, in order, there or not; `path` alone when it is whole."""
    match = _SHARD.fullmatch(path.name)
    if not match:
        return [path]
    return [
        path.with_name(f"{match['stem']}-{number:05d}-of-{match['count']}{match['suffix']}")
        for number in range(1, int(match["count"]) + 1)
    ]


def shard_paths(path: Path) -> list[Path]:
    """The same. Raises GreenroomError when a part is missing."""
    paths = named_shards(path)
    if shard_number(path.name) is None:
        return paths
    missing = [p.name for p in paths if not p.is_file()]
    if missing or not paths:
        listed = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        why = (
            say(
                "%n of its parts are missing: {listed}",
                n=len(missing),
                one="%n of its parts is missing: {listed}",
                listed=listed,
            )
            if paths
            else say("its name claims 0 parts")
        )
        raise GreenroomError(
            say("{name} cannot be opened", name=path.name), why, say("Download the missing parts into the same folder.")
        )
    return paths


class GgufCheckpoint(StoredCheckpoint):
    """Raises GreenroomError when a file is missing, damaged, or holds a format that is not read."""

    def __init__(self, path: Path) -> None:
        paths = shard_paths(absolute(path))
        headers = [read_header(part) for part in paths]
        self._first = first = headers[0]
        _check_split(headers)
        architecture = first.config.get("general.architecture")
        if not isinstance(architecture, str) or not architecture:
            why = say("its header does not name an architecture (general.architecture)")
            raise GreenroomError(
                say("{name} cannot be used", name=first.path.name),
                why,
                say("Choose a file that holds a language model."),
            )
        tensors = _join(headers)
        widened = {name: widen(tensor) for name, tensor in tensors.items() if tensor.format in WIDENED}
        for kind, count in Counter(assembly.part.format for assembly in widened.values()).items():
            layout = WIDENED[kind].layout.name
            log.info("%s: %d tensors of type %s are held as %s: the same values", first.path.name, count, kind, layout)
        tensors.update({name: assembly.info for name, assembly in widened.items()})
        super().__init__(first.path, "gguf", architecture, _title(first), first.config, tensors, widened)

    def _factors(self, name: str) -> Floats | None:
        """Of NVFP4 matrices, which a tensor named .scale beside the .weight tells: one number, or one per expert."""
        tensor = self.tensors.get(name)
        scale = self.tensors.get(name.removesuffix("weight") + "scale")
        if tensor is None or tensor.format != "NVFP4" or scale is None or not name.endswith(".weight"):
            return super()._factors(name)
        count = math.prod(scale.shape)
        if scale.format != "F32" or count not in (1, tensor.shape[0] if len(tensor.shape) == 3 else 1):
            why = say("tensor {name} does not fit the weights it belongs to", name=shown(scale.name))
            raise GreenroomError(
                say("{name} cannot be used", name=self.path.name), why, say("Download the file again.")
            )
        return read_bytes(scale.path, scale.offset, scale.nbytes).view("<f4").astype(np.float32)

    def tokenizer(self) -> Tokenizer:
        from engine.checkpoints.tokenizer_gguf import tokenizer_from_gguf

        return tokenizer_from_gguf(self._first)

    def _load_chat_template(self) -> ChatTemplate:
        from engine.checkpoints.tokenizer_gguf import chat_template_from_gguf

        return chat_template_from_gguf(self._first)


def _title(header: GgufHeader) -> str:
    """What to call a model: its name if a person wrote it, else its file, which also tells the quantisation.

    Converters make names of folders ("Smollm2 135M 8k Lc100K Mix1 Ep2") with a capital on every word.
    """
    name = header.config.get("general.name")
    words = name.split() if isinstance(name, str) else []
    if len(words) > 1 and any(word.isalpha() and word.islower() for word in words):
        return " ".join(words)
    return plain_stem(header.path.name)


def _check_split(headers: list[GgufHeader]) -> None:
    first = headers[0]
    count = first.config.get("split.count", 1)
    if count not in (0, 1, len(headers)):
        why = say("it is the first of {count} parts, but its name does not say so", count=count)
        remedy = say("Give the parts their original names, which end in -00001-of- and their number.")
        raise GreenroomError(say("{name} cannot be opened", name=first.path.name), why, remedy)
    for number, header in enumerate(headers):
        if header.config.get("split.no", number) != number:
            why = say("{name} is not part {number} of this split", name=header.path.name, number=number + 1)
            raise GreenroomError(
                say("{name} cannot be opened", name=first.path.name), why, say("Download the parts again.")
            )
    total = first.config.get("split.tensors.count")
    held = sum(len(header.tensors) for header in headers)
    if len(headers) > 1 and total is not None and total != held:
        why = say("of the tensors it should have, {total}, its parts hold {held}", held=held, total=total)
        raise GreenroomError(
            say("{name} cannot be opened", name=first.path.name), why, say("Download the parts again.")
        )


def _join(headers: list[GgufHeader]) -> dict[str, TensorInfo]:
    tensors: dict[str, TensorInfo] = {}
    for header in headers:
        for name, tensor in header.tensors.items():
            if name in tensors:
                why = say("two of its parts hold tensor {name}", name=shown(name))
                raise GreenroomError(
                    say("{name} cannot be opened", name=headers[0].path.name), why, say("Download the parts again.")
                )
            tensors[name] = tensor
    return tensors
