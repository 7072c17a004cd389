"""Exports of three programs, changed by somebody who means harm: read or refused, and nothing takes for ever."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from fuzzing import Fuzzer
from hostile_text import hostile_text, is_one_clean_line

from app.chat.storage import importing
from app.chat.storage.exporting import to_html, to_json, to_markdown, to_plain
from app.chat.storage.importing import read
from app.chat.storage.portable import PortableChat, PortableMessage
from app.chat.storage.presets import Preset, Sampling
from app.chat.storage.records import MOST_FILES, Attachment
from app.chat.storage.store import ChatStore
from engine.errors import GreenroomError
from engine.runtime.events import GenerationStats


def node(key: str, parent: str | None, children: list[str], role: str = "user", text: str = "") -> dict[str, Any]:
    content = {"content_type": "text", "parts": [text or key]}
    message = {"author": {"role": role}, "content": content, "create_time": 1.6e9, "metadata": {"model_slug": "gpt"}}
    return {"id": key, "parent": parent, "children": children, "message": message}


def chatgpt(nodes: list[dict[str, Any]], current: str | None = None) -> list[dict[str, Any]]:
    return [{"title": "t", "create_time": 1e9, "current_node": current, "mapping": {n["id"]: n for n in nodes}}]


def load(path: Path, data: Any) -> list[PortableChat]:
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return read(path)


def texts(chat: PortableChat) -> list[str]:
    return [message.text for message in chat.path]


def test_circles_and_parents_that_are_not_there_show_what_can_be_read(tmp_path: Path) -> None:
    nodes = [
        node("a", "b", ["b"]),
        node("b", "a", ["a"]),
        node("self", "self", ["self"]),
        node("lost", "nowhere", ["nobody", 5, None, []]),  # type: ignore[list-item]
    ]
    (chat,) = load(tmp_path / "a.json", chatgpt(nodes, "b"))
    assert sorted(message.text for message in chat.messages) == ["a", "b", "lost", "self"]
    assert texts(chat) == ["a", "b"]


def test_a_child_that_all_nodes_name_a_thousand_times_is_there_once(tmp_path: Path) -> None:
    names = [f"n{i}" for i in range(300)]
    nodes = [node(name, None if i == 0 else names[i - 1], names * 10) for i, name in enumerate(names)]
    (chat,) = load(tmp_path / "a.json", chatgpt(nodes))
    assert len(chat.messages) == 300


def test_a_chain_of_a_million_is_refused_after_what_a_chat_may_have(tmp_path: Path) -> None:
    few = importing.MOST_MESSAGES + 10
    made = [node(f"n{i}", f"n{i - 1}", [f"n{i + 1}"]) for i in range(few)]
    with pytest.raises(GreenroomError, match="more than 50000 messages"):
        load(tmp_path / "a.json", chatgpt(made))


def test_marks_that_never_end_are_passed_over_once(tmp_path: Path) -> None:
    """Each of two million beginnings looked for its end to the end of the text: trillions of steps."""
    (chat,) = load(tmp_path / "a.json", chatgpt([node("a", None, [], text="\ue200" * 2_000_000 + "word")]))
    assert texts(chat) == ["word"]


def test_a_message_takes_as_many_files_as_one_may_have(tmp_path: Path) -> None:
    message = {"role": "user", "text": "x", "attachments": [{"name": "a\n\x1b", "text": "b"}] * 1000}
    own = {"format": "greenroom-chats", "version": 1, "chats": [{"messages": [message]}]}
    (chat,) = load(tmp_path / "a.json", own)
    assert len(chat.messages[0].attachments) == MOST_FILES
    assert chat.messages[0].attachments[0].name == "a \ufffd"


def test_names_from_a_file_are_clean_lines(tmp_path: Path) -> None:
    name = "a\n\x1b[2J\u202eb" + "x" * 10_000
    message = {"role": "assistant", "text": "x", "model": name, "stop_reason": name}
    chat = {"title": name, "folder": name, "messages": [message]}
    (read_,) = load(tmp_path / "a.json", {"format": "greenroom-chats", "version": 1, "chats": [chat]})
    for shown in (read_.title, read_.folder, read_.messages[0].model, read_.messages[0].stop_reason):
        assert is_one_clean_line(shown or "")
        assert 0 < len(shown or "") <= 200


STATS = GenerationStats(prompt_tokens=3, completion_tokens=5, decode_tps=12.5)
OWN = PortableChat(
    "title",
    1.7e9,
    1.7e9,
    (
        PortableMessage("user", "q", None, 1.0, attachments=(Attachment("a.md", "text", 12),)),
        PortableMessage("assistant", "a", 0, 2.0, "m", 1.5, STATS, "end", error=("what", "why", "remedy")),
        PortableMessage("assistant", "b", 0, 3.0, stepped_down=("less",)),
    ),
    1,
    True,
    "Work",
    {"own": {"seed": 7, "stop": ["x"]}, "start": 1, "preset": "Poet", "system": "s"},
)
LM_STUDIO = {
    "name": "n",
    "createdAt": 1_700_000_000_000,
    "systemPrompt": "Be brief.",
    "messages": [
        {"versions": [{"role": "user", "content": [{"type": "text", "text": "x"}]}], "currentlySelected": 0},
        {
            "versions": [
                {
                    "role": "assistant",
                    "senderInfo": {"senderName": "m"},
                    "steps": [
                        {"content": [{"type": "text", "text": "hm"}], "style": {"type": "thinking"}},
                        {"content": [{"type": "text", "text": "Done."}]},
                    ],
                }
            ],
            "currentlySelected": 0,
        },
    ],
}
KINDS: list[Any] = [
    to_plain([OWN, OWN], [Preset("Poet", Sampling(temperature=1.0), "Rhyme.")]),
    chatgpt([node("r", None, ["q"], "system"), node("q", "r", ["a"]), node("a", "q", [], "assistant")], "a") * 2,
    LM_STUDIO,
    [{"role": "user", "content": "x"}, {"role": "assistant", "content": [{"type": "text", "text": "y"}]}],
]
ODD = (None, True, -1, 0, 1, 2**31, 10**400, 1e300, float("nan"), float("inf"), "", [], {}, [[]], {"": None}, "r", "a")


def places(tree: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything in it."""
    found, waiting = [], [tree]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        found += [(holder, key) for key in keys]
        waiting += [holder[key] for key in keys if isinstance(holder[key], dict | list)]
    return found


def changed(rng: random.Random, tree: Any) -> Any:
    """Values put in the place of others, doubled, moved, renamed, taken away."""
    whole = [copy.deepcopy(tree)]
    for _ in range(rng.randrange(1, 6)):
        holder, key = rng.choice(places(whole))
        kind = rng.randrange(7)
        if kind == 0:
            holder[key] = rng.choice(ODD)
        elif kind == 1:
            holder[key] = hostile_text(rng)
        elif kind == 2:
            other, place = rng.choice(places(whole))
            holder[key] = copy.deepcopy(other[place])
        elif kind == 3 and isinstance(holder, dict):
            holder[rng.choice(("parent", "children", "text", "role", "messages", "start", "leaf"))] = holder.pop(key)
        elif kind == 4 and holder is not whole:
            del holder[key]
        elif kind == 5 and isinstance(holder, list) and holder is not whole:
            holder += [copy.deepcopy(holder[key])] * rng.choice((1, 3, 200))
        else:
            for _ in range(rng.choice((1, 2, 120))):
                holder[key] = rng.choice(([holder[key]], {"a": holder[key]}))
    return whole[0]


def test_changed_exports_are_read_or_refused_and_what_is_read_can_be_kept(
    fuzzer: Fuzzer, store: ChatStore, tmp_path: Path
) -> None:
    path = tmp_path / "a.json"
    kept = 0
    for rng in fuzzer.rounds():
        tree = changed(rng, rng.choice(KINDS))
        path.write_text(json.dumps(tree), encoding="utf-8")
        try:
            chats = read(path)
        except GreenroomError as error:
            said = str(error)
            assert is_one_clean_line(said), ascii(said)
            continue
        for chat in chats:
            assert all(m.parent is None or 0 <= m.parent < place for place, m in enumerate(chat.messages))
            assert is_one_clean_line(chat.title + chat.folder)
        for made in (to_json(chats), to_markdown(chats), to_html(chats)):
            assert made.encode("utf-8", "replace")
        for number in store.add_portable(chats):
            assert store.portable(number) is not None
            assert store.messages(number)
            store.delete(number)
            kept += 1
        store.purge()
    assert kept
