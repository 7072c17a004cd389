"""Chats as files: Markdown and HTML of the visible path for people, JSON of every version for programs."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path

from app.chat.rendering import markdown_html
from app.chat.rendering.thinking import split_thought
from app.chat.storage.portable import PortableChat, PortableMessage
from app.chat.storage.presets import Preset
from app.chat.storage.records import EDITED, Attachment
from app.language import mark, tr
from engine.errors import GreenroomError
from engine.whole_file import write_whole

FORMAT, VERSION = "greenroom-chats", 1
#: What a message is written as, by role; an answer under the name of its model where that is known.
_SPEAKERS = {"user": mark("You"), "assistant": mark("Answer"), "system": mark("System prompt")}


def to_json(chats: Sequence[PortableChat], presets: Sequence[Preset] = ()) -> str:
    """All of the chats, so that an import gives the same again. presets: those that some of the chats may have."""
    return json.dumps(to_plain(chats, presets), ensure_ascii=False, indent=1) + "\n"


def to_plain(chats: Sequence[PortableChat], presets: Sequence[Preset] = ()) -> dict[str, object]:
    """What the JSON is made of. Presets go along that a chat has: the other PC may not know them."""
    whole = {"format": FORMAT, "version": VERSION, "chats": [_plain(chat) for chat in chats]}
    had = {chat.settings.get("preset") for chat in chats}
    carried = [preset.to_plain() for preset in presets if preset.name in had]
    return {**whole, "presets": carried} if carried else whole


def _plain(chat: PortableChat) -> dict[str, object]:
    messages = []
    for message in chat.messages:
        values = {k: v for k, v in asdict(message).items() if v not in (None, "", (), [])}
        messages.append(values | {"role": message.role, "text": message.text})
    return {**asdict(chat), "messages": messages}


def to_markdown(chats: Sequence[PortableChat]) -> str:
    """The visible messages. Thinking sections are left out, attached files stand in fences."""
    return "\n---\n\n".join(_markdown(chat) for chat in chats)


def _markdown(chat: PortableChat) -> str:
    parts = [f"# {_literal(chat.title)}", f"*{_when(chat.created)}*"]
    for message in chat.path:
        parts.append(f"## {_speaker(message)}")
        parts += [f"{_literal(_file_line(a))}\n\n{_fenced(a.text)}" for a in message.attachments]
        parts.append(_said(message).strip())
    return "\n\n".join(parts) + "\n"


def _literal(name: str) -> str:
    """A name as Markdown shows it, whatever signs are in it."""
    return re.sub(r"([\\`*\[<&])", r"\\\1", name)


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"


_PAGE = """<!doctype html>
<html><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.6 system-ui, sans-serif; max-width: 44rem; margin: 2rem auto; padding: 0 1rem; }}
article {{ margin: 1.5rem 0; }}
.user {{ background: color-mix(in srgb, #1f8a5f 14%, transparent); border-radius: 12px; padding: .6rem 1rem; }}
.who, time, .file {{ font-size: .85rem; opacity: .7; }}
pre {{ overflow-x: auto; padding: .8rem; border-radius: 8px; background: color-mix(in srgb, gray 14%, transparent); }}
table {{ border-collapse: collapse; }} td, th {{ border: 1px solid gray; padding: .2rem .6rem; }}
.task-list-item {{ list-style: none; }} pre .math {{ white-space: pre-wrap; }}
.plain {{ white-space: pre-wrap; overflow-wrap: anywhere; }}
</style></head><body>
{body}
</body></html>
"""


def to_html(chats: Sequence[PortableChat]) -> str:
    """One page that loads nothing: no scripts, no images, and the user's words as they were written."""
    body = []
    for chat in chats:
        body.append(f"<h1>{html.escape(chat.title)}</h1>\n<time>{_when(chat.created)}</time>")
        for message in chat.path:
            said = _said(message)
            text = markdown_html.to_html(said) if message.role == "assistant" else _verbatim("div", said)
            files = "".join(map(_folded, message.attachments))
            who = html.escape(_speaker(message))
            body.append(
                f'<article class="{html.escape(message.role)}"><div class="who">{who}</div>{files}{text}</article>'
            )
    title = chats[0].title if len(chats) == 1 else tr("%n chats", n=len(chats))
    return _PAGE.format(title=html.escape(title), body="\n".join(body))


def _folded(attachment: Attachment) -> str:
    name = html.escape(_file_line(attachment))
    return f'<details><summary class="file">{name}</summary>{_verbatim("pre", attachment.text)}</details>'


def _verbatim(tag: str, text: str) -> str:
    return f'<{tag} class="plain">{html.escape(text.strip())}</{tag}>'


#: By the ending of the file.
WRITERS: dict[str, Callable[[Sequence[PortableChat]], str]] = {
    ".md": to_markdown,
    ".html": to_html,
    ".json": to_json,
}


def write(chats: Sequence[PortableChat], path: Path, presets: Sequence[Preset] = ()) -> None:
    """Write chats in the form that the file's ending names. Raises GreenroomError when that cannot be done.

    presets: the user's own; JSON takes those along that the chats have.
    """
    writer = WRITERS.get(path.suffix.lower())
    if writer is to_json:
        writer = partial(to_json, presets=presets)
    if writer is None:
        raise GreenroomError(
            tr("{name} was not saved", name=path.name),
            tr("its file extension is not supported"),
            tr("Use .md, .html or .json."),
        )
    try:
        # A lone surrogate, as a broken paste may carry, has no UTF-8.
        write_whole(path, writer(chats).encode("utf-8", "replace"), private=False)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise GreenroomError(
            tr("{name} was not saved", name=path.name), why, tr("Choose another folder or free some disk space.")
        ) from error


def _said(message: PortableMessage) -> str:
    return split_thought(message.text).answer if message.role == "assistant" else message.text


def _speaker(message: PortableMessage) -> str:
    if message.role == "assistant" and message.model:
        edited = message.stop_reason == EDITED
        return tr("{model}, edited by you", model=message.model) if edited else message.model
    return tr(_SPEAKERS.get(message.role, message.role))


def _file_line(attachment: Attachment) -> str:
    return attachment.name if attachment.whole else tr("{name} (beginning)", name=attachment.name)


def _when(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, ValueError):
        return ""
