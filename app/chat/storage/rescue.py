"""Copies of what the chat file had no room for, in another folder: written when the program ends, offered when it
starts again.

A copy is an export like any other, readable only for its owner, with the drafts beside the chats.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from app.chat.storage.exporting import to_plain
from app.chat.storage.importing import read_own
from app.chat.storage.portable import PortableChat
from engine.errors import GreenroomError
from engine.folders import cache_folder, config_folder, make_private
from engine.whole_file import write_whole

log = logging.getLogger(__name__)

ENDING, LEFT = ".json", ".left.json"
#: Of copies that are looked at; more are somebody's game.
MOST = 50

Drafts = Sequence[tuple[int | None, str]]


@dataclass(frozen=True)
class Rescued:
    """A copy that was found. drafts: as `ChatStore.give_unsaved` has them."""

    path: Path
    chats: list[PortableChat]
    drafts: list[tuple[int | None, str]]


def places(chats_file: Path) -> list[Path]:
    """Folders for a copy, those that outlive a restart of the system first.

    The chats' own comes first: a few messages may fit where the whole file does not.
    """
    found = [chats_file.parent, config_folder(), cache_folder()]
    if sys.platform != "win32":
        found.append(Path("/var/tmp"))
    found.append(Path(tempfile.gettempdir()))
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        found.append(Path(runtime))
    return list(dict.fromkeys(found))


class Copy:
    """The one copy of this run of the program. For any thread."""

    def __init__(self, chats_file: Path) -> None:
        self._chats_file = chats_file
        self._name = f"{_prefix(chats_file)}{secrets.token_hex(4)}{ENDING}"
        self._lock = Lock()
        self._newest = 0
        #: Where it is; None while there is none.
        self.path: Path | None = None

    def write(self, number: int, chats: Sequence[PortableChat], drafts: Drafts) -> None:
        """Have it hold that, in the first folder with room. number: what comes late with a lower one is dropped."""
        whole = to_plain(chats) | {"drafts": [list(draft) for draft in drafts]}
        data = json.dumps(whole, ensure_ascii=False).encode("utf-8", "replace")
        with self._lock:
            if number < self._newest:
                return
            self._newest = number
            for folder in places(self._chats_file):
                path = folder / self._name
                try:
                    make_private(folder)
                    write_whole(path, data, on_disk=True)
                except OSError as error:
                    log.info("No copy of the chats in %s: %s", folder, error)
                    continue
                if self.path not in (None, path):
                    remove(self.path)
                if self.path != path:
                    log.warning("What cannot be saved of the chats is in %s", path)
                self.path = path
                return
            log.critical("What could not be saved of the chats is lost: no folder has room for %d bytes", len(data))

    def drop(self, number: int) -> None:
        """All of it is saved."""
        with self._lock:
            self._newest = max(self._newest, number)
            if self.path is not None:
                remove(self.path)
                self.path = None


def remove(path: Path) -> None:
    """A copy that is needed no more."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s could not be removed: %s", path, error)


def found(chats_file: Path) -> Iterator[Rescued]:
    """The copies for these chats, oldest first. What is none of ours, or damaged, is passed over and stays."""
    paths = [
        path
        for folder in places(chats_file)
        for path in _listed(folder, _prefix(chats_file))
        if not path.name.endswith(LEFT) and _is_own(path)
    ]
    for path in sorted(paths, key=_age)[:MOST]:
        try:
            chats, beside = read_own(path)
            yield Rescued(path, chats, _drafts(beside.get("drafts"), len(chats)))
        except GreenroomError as error:
            log.warning("A copy of chats cannot be used: %s", error)


def _drafts(raw: Any, chats: int) -> list[tuple[int | None, str]]:
    kept: list[tuple[int | None, str]] = []
    for entry in raw if isinstance(raw, list) else []:
        match entry:
            case [None, str(text)]:
                kept.append((None, text))
            case [int(place), str(text)] if 0 <= place < chats:
                kept.append((place, text))
    return kept


def leave(path: Path) -> Path:
    """Keep a copy, and offer it no more. Returns its new name."""
    left = path.with_name(path.name.removesuffix(ENDING) + LEFT)
    try:
        return path.replace(left)
    except OSError as error:
        log.warning("%s could not be renamed: %s", path, error)
        return path


def _prefix(chats_file: Path) -> str:
    """Each data folder has its own."""
    whose = hashlib.sha256(str(chats_file.absolute()).encode("utf-8", "replace")).hexdigest()[:12]
    return f"greenroom-rescued-{whose}-"


def _listed(folder: Path, prefix: str) -> list[Path]:
    try:
        return list(folder.glob(f"{prefix}*{ENDING}"))
    except OSError:
        return []


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _is_own(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and (sys.platform == "win32" or status.st_uid == os.getuid())
