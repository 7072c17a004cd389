"""The user's settings: a small JSON file, written whole, kept in memory when it cannot be written."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.folders import keep_aside, make_writable
from app.theme.zoom import ZOOMS
from engine.errors import GreenroomError
from engine.folders import config_folder
from engine.hub.proxy_password import hold_password, split_password
from engine.whole_file import write_whole

log = logging.getLogger(__name__)

RECENT_LIMIT = 8
CONTEXT_RANGE = (256, 1_048_576)
THREADS_RANGE = (1, 1024)
EXPERTS_SHARE_RANGE = (0.25, 1.0)
DEFERRED_SHARE_RANGE = (0.0, 0.75)
TEMPERATURE_RANGE = (0.0, 2.0)
TOP_P_RANGE = (0.05, 1.0)
PENALTY_RANGE = (1.0, 2.0)
ANSWER_RANGE = (16, 1_048_576)
DOWNLOADS_RANGE = (1, 8)
#: Megabytes per second.
RATE_RANGE = (1, 10_000)
#: Gigabytes kept back for other programs.
RESERVE_RANGE = (0.0, 512.0)
ZOOM_RANGE = (ZOOMS[0], ZOOMS[-1])
KV_TYPES = ("auto", "f32", "bf16", "f16", "q8")
#: Settings that every plan depends on.
PLANNING = frozenset(
    {
        *("context", "threads", "kv_type", "keep_gpu", "prefer_gpu", "leave_ram", "leave_vram", "max_vram", "exact"),
        *("experts_share", "deferred_share"),
    }
)
#: Characters of a system prompt.
PROMPT_LIMIT = 20_000


@dataclass(frozen=True)
class Settings:
    """theme:   "system" | "light" | "dark"
    language: "system", or a code of `app.language.languages`
    enter:   what Enter does while a message is written: "send", or "newline" (then Ctrl+Enter sends)
    zoom:    size of all text and of what belongs to it, 1.0 is the usual one
    density: "comfortable" | "compact"
    reduced_motion: nothing moves that need not
    stage:   the stage is open beside the chat
    shortcuts: what the user chose instead of an action's own shortcut, by the action's key, in Qt's portable form; ""
        for none
    context: the most tokens of KV cache, None lets the plan choose
    threads: None lets the plan choose
    kv_type, keep_gpu, prefer_gpu: as in `engine.placement.plan.Wishes`
    leave_ram, leave_vram, max_vram: gigabytes, as in Wishes; None lets the plan choose
    exact:   float32 everywhere, for comparing with other programs
    experts_share, deferred_share: as in Wishes
    models_folder: where the user keeps models, None for the program's own folder
    start:   what to load at start: "last" (the model used last, else the demo), "demo" or "nothing"
    last_model: the model loaded last: a path or "demo"
    recent:  paths, newest first
    window:  the window's place and size as Qt saves it, in base64
    temperature, top_p, repetition_penalty, max_tokens: as in SamplingParams; None leaves it to the program, which
        knows what suits the model
    system_prompt: what every chat tells the model first, "" for nothing
    hub, proxy, ca_file, offline: as in `engine.hub.network.NetworkSettings`; "" takes the system's. None of them holds
        a password: the proxy's is kept by `engine.hub.proxy_password`
    downloads_at_once: models on their way at the same time
    download_rate: MB/s that downloads may use together, None for no limit
    welcomed: the wizard of the first start was finished or closed
    """

    theme: str = "system"
    language: str = "system"
    enter: str = "send"
    zoom: float = 1.0
    density: str = "comfortable"
    reduced_motion: bool = False
    stage: bool = False
    shortcuts: Mapping[str, str] = field(default_factory=dict)
    context: int | None = None
    threads: int | None = None
    kv_type: str = "auto"
    keep_gpu: bool = False
    prefer_gpu: bool = False
    leave_ram: float | None = None
    leave_vram: float | None = None
    max_vram: float | None = None
    exact: bool = False
    experts_share: float = 1.0
    deferred_share: float = 0.0
    models_folder: str | None = None
    start: str = "last"
    last_model: str | None = None
    recent: tuple[str, ...] = field(default_factory=tuple)
    window: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None
    system_prompt: str = ""
    hub: str = ""
    proxy: str = ""
    ca_file: str = ""
    offline: bool = False
    downloads_at_once: int = 2
    download_rate: int | None = None
    welcomed: bool = False

    @property
    def wishes(self) -> dict[str, Any]:
        """What the user asks of every plan: fields of `engine.placement.plan.Wishes`, without those left open."""
        chosen: dict[str, Any] = {
            "threads": self.threads,
            "kv_type": None if self.kv_type == "auto" else self.kv_type,
            "keep_gpu": self.keep_gpu or None,
            "prefer_gpu": self.prefer_gpu or None,
            "dtype": "float32" if self.exact else None,
            "experts_share": self.experts_share if self.experts_share < 1.0 else None,
            "deferred_share": self.deferred_share or None,
        }
        for name in ("leave_ram", "leave_vram", "max_vram"):
            size = getattr(self, name)
            chosen[name] = None if size is None else round(size * 1e9)
        return {name: value for name, value in chosen.items() if value is not None}


def _checked(raw: Any) -> Settings:
    """Settings from what the file holds; anything that makes no sense falls back to its default."""
    defaults = Settings()
    if not isinstance(raw, dict):
        return defaults

    def choice(key: str, allowed: tuple[str, ...]) -> str:
        return raw[key] if raw.get(key) in allowed else str(getattr(defaults, key))

    def number(key: str, low: int, high: int) -> int | None:
        value = raw.get(key)
        return value if type(value) is int and low <= value <= high else None

    def fraction(key: str, low: float, high: float) -> float | None:
        value = raw.get(key)
        return float(value) if type(value) in (int, float) and low <= value <= high else None

    def text(key: str) -> str | None:
        value = raw.get(key)
        return value if isinstance(value, str) and _writable(value) else None

    keys = raw.get("shortcuts")
    shortcuts = {k: v for k, v in keys.items() if isinstance(v, str)} if isinstance(keys, dict) else {}
    recent = raw.get("recent")
    paths = [p for p in recent if isinstance(p, str) and _writable(p)] if isinstance(recent, list) else []
    return Settings(
        theme=choice("theme", ("system", "light", "dark")),
        language=text("language") or defaults.language,
        enter=choice("enter", ("send", "newline")),
        zoom=fraction("zoom", *ZOOM_RANGE) or defaults.zoom,
        density=choice("density", ("comfortable", "compact")),
        reduced_motion=raw.get("reduced_motion") is True,
        stage=raw.get("stage") is True,
        shortcuts=shortcuts,
        context=number("context", *CONTEXT_RANGE),
        threads=number("threads", *THREADS_RANGE),
        kv_type=choice("kv_type", KV_TYPES),
        keep_gpu=raw.get("keep_gpu") is True,
        prefer_gpu=raw.get("prefer_gpu") is True,
        leave_ram=fraction("leave_ram", *RESERVE_RANGE),
        leave_vram=fraction("leave_vram", *RESERVE_RANGE),
        max_vram=fraction("max_vram", *RESERVE_RANGE),
        exact=raw.get("exact") is True,
        experts_share=fraction("experts_share", *EXPERTS_SHARE_RANGE) or defaults.experts_share,
        deferred_share=fraction("deferred_share", *DEFERRED_SHARE_RANGE) or defaults.deferred_share,
        models_folder=text("models_folder"),
        start=choice("start", ("last", "demo", "nothing")),
        last_model=text("last_model"),
        recent=tuple(paths[:RECENT_LIMIT]),
        window=text("window"),
        temperature=fraction("temperature", *TEMPERATURE_RANGE),
        top_p=fraction("top_p", *TOP_P_RANGE),
        repetition_penalty=fraction("repetition_penalty", *PENALTY_RANGE),
        max_tokens=number("max_tokens", *ANSWER_RANGE),
        system_prompt=(text("system_prompt") or "")[:PROMPT_LIMIT],
        hub=re.sub(r"(?<=://)[^/?#]*@", "", text("hub") or ""),
        proxy=split_password(text("proxy") or "")[0],
        ca_file=text("ca_file") or "",
        offline=raw.get("offline") is True,
        downloads_at_once=number("downloads_at_once", *DOWNLOADS_RANGE) or defaults.downloads_at_once,
        download_rate=number("download_rate", *RATE_RANGE),
        # Who has a file without it used the program before there was a wizard.
        welcomed=raw.get("welcomed") is not False,
    )


def _writable(text: str) -> bool:
    """Whether it is some text that the system takes as well, for instance as a path."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return bool(text) and "\0" not in text


class SettingsStore(QObject):
    """`changed(names)` follows every change, with the set of field names that differ.

    problem: why settings cannot be saved, None while they can.
    old_password: the proxy's address and password that an older Greenroom left in the file, None once it is moved
    """

    changed = Signal(object)
    problemFound = Signal(object)

    def __init__(self, folder: Path | None = None, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._path = (folder or config_folder()) / "settings.json"
        self.problem: GreenroomError | None = None
        self.old_password: tuple[str, str] | None = None
        self._foreign: dict[str, Any] = {}
        self._values = self._read()

    @property
    def values(self) -> Settings:
        return self._values

    def change(self, **new: Any) -> None:
        """Sets fields and saves. What cannot be saved still holds for this session."""
        updated = _checked({**_plain(self._values), **{k: list(v) if k == "recent" else v for k, v in new.items()}})
        different = {f.name for f in fields(Settings) if getattr(updated, f.name) != getattr(self._values, f.name)}
        if not different:
            return
        self._values = updated
        self._write()
        self.changed.emit(different)

    def reset(self, names: Iterable[str]) -> None:
        """These fields as they are in a new installation."""
        defaults = Settings()
        self.change(**{name: getattr(defaults, name) for name in names})

    def remember_model(self, path: str) -> None:
        """After a model was loaded: it is the last one, and the first of the recent ones unless it is the demo."""
        recent = self._values.recent
        if path != "demo":
            recent = (path, *(p for p in recent if p != path))[:RECENT_LIMIT]
        self.change(last_model=path, recent=recent)

    def forget_recent(self, path: str) -> None:
        self.change(recent=tuple(p for p in self._values.recent if p != path))

    def drop_old_password(self) -> None:
        """From the file as well."""
        self.old_password = None
        self._write()

    def _read(self) -> Settings:
        try:
            raw = json.loads(self._path.read_text(encoding="utf-8-sig"))
            if not isinstance(raw, dict):
                raise ValueError("it is no table of settings")
        except FileNotFoundError:
            return Settings()
        except (OSError, ValueError, RecursionError) as error:
            log.warning("settings could not be read, defaults are used: %s", error)
            keep_aside(self._path)
            return Settings()
        # What a newer program has written is written again, so that it is there when that one comes back.
        self._foreign = {key: value for key, value in raw.items() if key not in Settings.__dataclass_fields__}
        address, password = split_password(str(raw.get("proxy") or ""))
        if password:
            hold_password(address, password)
            self.old_password = address, password
        return _checked(raw)

    def _write(self) -> None:
        before = self.problem
        try:
            make_writable(self._path.parent)
            whole = self._foreign | _plain(self._values)
            try:
                plain = json.dumps(whole, indent=2, ensure_ascii=False).encode()
            except UnicodeEncodeError:  # a path that is no UTF-8
                plain = json.dumps(whole, indent=2).encode()
            write_whole(self._path, plain)
            self.problem = None
        except GreenroomError as error:
            self.problem = error
        except OSError as error:
            self.problem = GreenroomError(
                "The settings could not be saved", (error.strerror or str(error)).lower(), "Free some disk space."
            )
        if self.problem is not None and before is None:
            log.warning("%s", self.problem)
            self.problemFound.emit(self.problem)


def _plain(values: Settings) -> dict[str, Any]:
    return asdict(replace(values, recent=())) | {"recent": list(values.recent)}
