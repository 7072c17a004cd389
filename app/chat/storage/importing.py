"""Chats from files: our own JSON, an export of ChatGPT (the .zip or its conversations.json), a chat of LM Studio.

Files come from anywhere: every size is bounded before anything is made of it, what is no text is left out, and a file
that is none of these gets one clear sentence.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.chat.storage import columns
from app.chat.storage.columns import MOST_CHARACTERS
from app.chat.storage.exporting import FORMAT, VERSION
from app.chat.storage.loading import load, refused
from app.chat.storage.portable import PortableChat, PortableMessage
from app.chat.storage.preset_store import MOST_PRESETS
from app.chat.storage.presets import BUILT_IN, ChatSettings, Preset
from app.chat.storage.records import MOST_FILES, ROLES, Attachment
from app.language import tr
from app.settings.store import PROMPT_LIMIT
from engine.errors import GreenroomError
from engine.placement.plan import Range
from engine.progress import Progress, ProgressCallback, ignore_progress

MOST_CHATS = 100_000
MOST_MESSAGES = 50_000
#: Sentences about how an answer went, and their characters.
MOST_STEPS, MOST_LINE = 20, 2000
#: Marks of sources in ChatGPT's answers, which only its own page can show.
_MARKS = re.compile("\ue200[^\ue200\ue201]*\ue201|[\ue200-\ue20f]")


def read(
    path: Path, presets: Sequence[Preset] = (), progress: ProgressCallback = ignore_progress
) -> list[PortableChat]:
    """The chats of a file that have messages. Raises GreenroomError, and lets Cancelled of `progress` through.

    presets: the user's own. A chat whose preset is none of them, or another of that name, has what the file says of it
    as its own.
    """
    message = tr("Reading {name}", name=path.name)

    def told(done: int, total: int) -> None:
        progress(Progress(done, total, message))

    told(0, 0)
    data: Any = []
    for parsed in load(path, told):
        # A large export of ChatGPT is split into several lists.
        if isinstance(parsed, list) and isinstance(data, list):
            data += parsed
        else:
            data = parsed
    kind, chats = _recognise(data, path)
    if len(chats) > MOST_CHATS:
        raise refused(
            path,
            tr("it contains {chats} chats; at most {most} can be imported at once", chats=len(chats), most=MOST_CHATS),
        )
    missing = _missing(data, presets) if kind is _own else {}
    found = []
    for place, raw in enumerate(chats):
        if place % 50 == 0:
            told(place, len(chats))
        chat = kind(raw, path) if isinstance(raw, dict) else None
        if chat is not None and chat.messages:
            found.append(_settled(chat, missing))
    if not found:
        raise refused(path, tr("it contains no chats with messages"))
    return found


def _recognise(data: Any, path: Path) -> tuple[Callable[[dict[str, Any], Path], PortableChat | None], list[Any]]:
    """The reader for the file's chats, and the chats as they stand there."""
    if isinstance(data, dict) and data.get("format") == FORMAT:
        if data.get("version") != VERSION:
            raise GreenroomError(
                tr("{name} was not imported", name=path.name),
                tr("it was saved by a newer version of Greenroom"),
                tr("Update Greenroom."),
            )
        if isinstance(data.get("chats"), list):
            return _own, data["chats"]
    elif isinstance(data, dict) and isinstance(data.get("messages"), list) and _is_lm_studio(data["messages"]):
        return _lm_studio, [data]
    elif isinstance(data, dict) and isinstance(data.get("mapping"), dict):
        return _chatgpt, [data]
    elif isinstance(data, list) and any(isinstance(c, dict) and isinstance(c.get("mapping"), dict) for c in data):
        return _chatgpt, data
    elif isinstance(data, list) and data and all(map(_is_plain, data)):
        return _lm_studio, [{"messages": data, "name": path.stem}]
    raise refused(path, tr("it is not a Greenroom, ChatGPT or LM Studio export"))


class Tree:
    """Messages in the order they are added."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._messages: list[PortableMessage] = []

    @property
    def messages(self) -> tuple[PortableMessage, ...]:
        return tuple(self._messages)

    def add(self, message: PortableMessage) -> int:
        """Returns its place."""
        if len(self._messages) == MOST_MESSAGES:
            raise refused(self._path, tr("a chat in it has more than {most} messages", most=MOST_MESSAGES))
        self._messages.append(message)
        return len(self._messages) - 1


# Our own


def _own(raw: dict[str, Any], path: Path) -> PortableChat:
    tree = Tree(path)
    places: list[int] = []
    for message in _list(raw, "messages"):
        parent = message.get("parent") if isinstance(message, dict) else None
        known = parent is None or (type(parent) is int and 0 <= parent < len(places))
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ROLES or not known or not isinstance(message.get("text"), str):
            raise refused(path, tr("a message in it has an unknown format"))
        made = PortableMessage(
            role,
            message["text"][:MOST_CHARACTERS],
            None if parent is None else places[parent],
            _time(message.get("created")),
            columns.line(_text(message.get("model"))),
            columns.seconds(message.get("thought_s")),
            columns.known_stats(message["stats"]) if isinstance(message.get("stats"), dict) else None,
            columns.line(_text(message.get("stop_reason")))[:20] or None,
            _attachments(message.get("attachments")),
            _range(message.get("predicted")),
            _lines(message.get("stepped_down"), MOST_STEPS),
            _lines(message.get("error"), 3, exactly=True) or None,
        )
        places.append(tree.add(made))
    leaf = raw.get("leaf")
    settings = raw.get("settings")
    return PortableChat(
        _title(raw.get("title")),
        _time(raw.get("created")),
        _time(raw.get("updated")),
        tree.messages,
        leaf if type(leaf) is int and 0 <= leaf < len(places) else None,
        raw.get("pinned") is True,
        columns.line(_text(raw.get("folder"))),
        ChatSettings.from_plain(settings).to_plain() if isinstance(settings, dict) else {},
    )


def _missing(data: dict[str, Any], presets: Sequence[Preset]) -> dict[str, Preset]:
    """The presets of our own export that are not here, by name."""
    named = [Preset.from_plain(raw) for raw in _list(data, "presets")[:MOST_PRESETS] if isinstance(raw, dict)]
    here = {preset.name for preset in BUILT_IN}
    return {preset.name: preset for preset in named if preset.name not in here and preset not in presets}


def _settled(chat: PortableChat, missing: dict[str, Preset]) -> PortableChat:
    preset = missing.get(chat.settings.get("preset", ""))
    if preset is None:
        return chat
    return replace(chat, settings=ChatSettings.from_plain(chat.settings).without(preset).to_plain())


def _attachments(raw: Any) -> tuple[Attachment, ...]:
    return tuple(
        columns.attachment(entry["name"], entry["text"], entry.get("length"))
        for entry in (raw[:MOST_FILES] if isinstance(raw, list) else [])
        if isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("text"), str)
    )


def _range(raw: Any) -> Range | None:
    values = [_field(raw, name) for name in ("low", "likely", "high")]
    return Range(*map(float, values)) if all(map(columns.figure, values)) else None


def _lines(raw: Any, most: int, exactly: bool = False) -> tuple[str, ...]:
    known = raw[:most] if isinstance(raw, list) and all(isinstance(line, str) for line in raw) else []
    return tuple(line[:MOST_LINE] for line in known) if len(known) == most or not exactly else ()


# ChatGPT: a tree of nodes by id; nodes without words (tools, hidden system messages) are passed over


def _chatgpt(raw: dict[str, Any], path: Path) -> PortableChat | None:
    mapping = raw.get("mapping")
    if not isinstance(mapping, dict):
        return None
    tree = Tree(path)
    places: dict[str, int | None] = {}
    # Parents before children, without recursion: a chat of thousands of turns is that deep. What no root leads to, in a
    # circle or below a node that does not name it, comes last.
    roots = [key for key, node in mapping.items() if not _known(mapping, _field(node, "parent"))]
    starts = iter([*roots, *mapping])
    waiting: list[tuple[str, int | None]] = []
    while waiting or (start := next(starts, None)) is not None:
        if not waiting:
            waiting.append((start, None))
        key, parent = waiting.pop()
        if key in places:
            continue
        node = mapping[key]
        made = _chatgpt_message(_field(node, "message"), parent)
        places[key] = parent if made is None else tree.add(made)
        children = _field(node, "children")
        if isinstance(children, list):
            known = dict.fromkeys(child for child in children if _known(mapping, child) and child not in places)
            waiting += [(child, places[key]) for child in reversed(known)]
    current = raw.get("current_node")
    leaf = places.get(current) if isinstance(current, str) else None
    return PortableChat(
        _title(raw.get("title")), _time(raw.get("create_time")), _time(raw.get("update_time")), tree.messages, leaf
    )


def _chatgpt_message(message: Any, parent: int | None) -> PortableMessage | None:
    author = _field(message, "author")
    role = _field(author, "role")
    content = _field(message, "content")
    metadata = _field(message, "metadata")
    if role not in ROLES or _field(metadata, "is_visually_hidden_from_conversation") is True:
        return None
    if role == "assistant" and _field(message, "recipient") not in (None, "all"):
        return None  # a call of a tool
    kind = _field(content, "content_type")
    if kind in ("text", "multimodal_text"):
        parts = _field(content, "parts")
        text = "\n".join(map(_chatgpt_part, parts)) if isinstance(parts, list) else ""
        text = _MARKS.sub("", text).strip("\n")
    elif kind == "code":
        text = f"```\n{_text(_field(content, 'text'))}\n```"
    else:
        return None
    if not text.strip():
        return None
    model = columns.line(_text(_field(metadata, "model_slug"))) if role == "assistant" else ""
    done = "end" if role == "assistant" else None
    created = _time(_field(message, "create_time"))
    return PortableMessage(role, text[:MOST_CHARACTERS], parent, created, model, stop_reason=done)


def _chatgpt_part(part: Any) -> str:
    """Text, or what was said aloud; nothing for pictures and sound."""
    spoken = _field(part, "content_type") == "audio_transcription"
    return _text(_field(part, "text")) if spoken else _text(part)


# LM Studio: a list of places, each with versions; what follows belongs to the version that is selected


def _is_lm_studio(messages: list[Any]) -> bool:
    return all(isinstance(_field(m, "versions"), list) or _is_plain(m) for m in messages)


def _is_plain(message: Any) -> bool:
    """As LM Studio up to 0.2 wrote them, and many others do: a role and a text."""
    return isinstance(_field(message, "role"), str) and isinstance(_field(message, "content"), str | list)


def _lm_studio(raw: dict[str, Any], path: Path) -> PortableChat | None:
    tree = Tree(path)
    created = _time(raw.get("createdAt"), 1000)
    parent: int | None = None
    for place in _list(raw, "messages"):
        selected = place.get("currentlySelected")
        chosen: int | None = None
        for number, version in enumerate([place] if _is_plain(place) else _list(place, "versions")):
            made = _lm_studio_message(version, parent, created)
            added = tree.add(made) if made is not None else None
            if added is not None and (chosen is None or number == selected):
                chosen = added
        parent = parent if chosen is None else chosen
    prompt = _text(raw.get("systemPrompt"))[:MOST_CHARACTERS]
    updated = _time(raw.get("assistantLastMessagedAt") or raw.get("userLastMessagedAt") or raw.get("createdAt"), 1000)
    settings = ChatSettings(system=prompt[:PROMPT_LIMIT]).to_plain() if prompt.strip() else {}
    name = _title(raw.get("name"))
    return PortableChat(name, created, updated, tree.messages, parent, raw.get("pinned") is True, "", settings)


def _lm_studio_message(version: Any, parent: int | None, created: float) -> PortableMessage | None:
    role = _field(version, "role")
    if role not in ROLES:
        return None
    thought, said = [], []
    steps = _field(version, "steps")
    for step in steps if isinstance(steps, list) else [version]:
        text = _lm_studio_text(_field(step, "content"))
        style = _field(_field(step, "style"), "type")
        (thought if style == "thinking" else said).append(text)
    text = "\n\n".join(part for part in said if part.strip())
    thinking = "\n\n".join(part for part in thought if part.strip())
    if thinking and "</think>" not in thinking:
        text = f"<think>\n{thinking}\n</think>\n\n{text}"
    if not text.strip():
        return None
    model = columns.line(_text(_field(_field(version, "senderInfo"), "senderName")))
    done = "end" if role == "assistant" else None
    return PortableMessage(role, text[:MOST_CHARACTERS], parent, created, model, stop_reason=done)


def _lm_studio_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "".join(_text(_field(block, "text")) for block in blocks if _field(block, "type") == "text")


# Pieces


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _known(mapping: dict[str, Any], key: Any) -> bool:
    return isinstance(key, str) and key in mapping


def _list(raw: dict[str, Any], name: str) -> list[Any]:
    value = raw.get(name)
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _title(value: Any) -> str:
    return columns.line(" ".join(_text(value).split())) or tr("Imported chat")


def _time(value: Any, unit: float = 1.0) -> float:
    """Seconds since the epoch; now for what is no time."""
    seconds = value / unit if columns.figure(value) else 0.0
    return columns.moment(seconds) or time.time()
