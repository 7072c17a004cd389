"""Chats leave as Markdown, HTML and JSON, and come in from three programs, whatever the file is like."""

from __future__ import annotations

import contextlib
import json
import threading
import zipfile
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from PySide6.QtWidgets import QWidget

from app import tasks
from app.chat.exchange import Exchange
from app.chat.storage import importing, loading
from app.chat.storage.exporting import to_html, to_json, to_markdown, write
from app.chat.storage.importing import read
from app.chat.storage.portable import PortableChat, PortableMessage
from app.chat.storage.preset_store import MOST_PRESETS, PresetStore
from app.chat.storage.presets import ChatSettings, Preset, Sampling
from app.chat.storage.records import Attachment
from engine.errors import Cancelled, GreenroomError
from engine.runtime.events import GenerationStats

STATS = GenerationStats(prompt_tokens=3, completion_tokens=5, decode_tps=12.5)
CHAT = PortableChat(
    "Pipes | and <b>",
    1_700_000_000.0,
    1_700_000_100.0,
    (
        PortableMessage("user", "Look <at> this", None, 1.0, attachments=(Attachment("a.md", "```\ncode\n```", 12),)),
        PortableMessage("assistant", "old answer", 0, 2.0, "Qwen3", None, STATS, "end"),
        PortableMessage(
            "assistant", "<think>hm</think>\n\n**Bold** <img src=x>", 0, 3.0, "Qwen3", 1.5, STATS, "length"
        ),
        PortableMessage("user", "more", 1, 4.0, attachments=(Attachment("b.txt", "beg", 900),)),
    ),
    2,
    True,
    "Work",
    {"own": {"seed": 7}, "start": 2},
)


def load(path, data):
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return read(path)


def texts(chat):
    return [message.text for message in chat.path]


def test_our_json_gives_the_same_again(tmp_path):
    path = tmp_path / "chats.json"
    write([CHAT, CHAT], path)
    assert read(path) == [CHAT, CHAT]


POET = Preset("Poet", Sampling(temperature=1.3, top_k=5, stop=("END",)), "Rhyme.\n\nAlways.", "off")


def settled(path, presets):
    return [ChatSettings.from_plain(chat.settings) for chat in read(path, presets)]


def test_a_preset_travels_with_the_chats_that_have_it(tmp_path):
    path = tmp_path / "chats.json"
    own = ChatSettings("Poet", Sampling(temperature=0.5), "Mine.", start=2)
    had = [ChatSettings("Poet"), own, ChatSettings("Precise"), ChatSettings()]
    write([replace(CHAT, settings=settings.to_plain()) for settings in had], path, [POET, Preset("Other")])
    assert [raw["name"] for raw in json.loads(path.read_text())["presets"]] == ["Poet"], "nobody has the other"
    assert settled(path, [POET]) == had, "where it is known they have it still"
    kept = [
        ChatSettings(own=POET.sampling, system=POET.system, thinking="off"),
        ChatSettings(own=Sampling(0.5, top_k=5, stop=("END",)), system="Mine.", thinking="off", start=2),
        *had[2:],
    ]
    assert settled(path, []) == kept
    assert settled(path, [Preset("Poet", system="Another's.")]) == kept, "it is another of that name"


def test_presets_in_a_file_that_make_no_sense(tmp_path):
    path = tmp_path / "chats.json"
    chat = {"messages": [{"role": "user", "text": "q"}], "settings": {"preset": "Precise"}}
    whole = {"format": "greenroom-chats", "version": 1, "chats": [chat]}
    for presets in (None, 3, "x", [3, {}, {"name": 4}], [{"name": "Precise", "system": "Not this."}]):
        path.write_text(json.dumps(whole | {"presets": presets}))
        assert settled(path, []) == [ChatSettings("Precise")]
    path.write_text(json.dumps(whole | {"presets": [{"name": "A"}] * (MOST_PRESETS + 1)}))
    assert len(read(path)) == 1


def test_markdown_shows_the_visible_path():
    text = to_markdown([CHAT])
    assert text.startswith("# Pipes | and \\<b>\n")
    assert "## You\n\na.md\n\n````\n```\ncode\n```\n````\n\nLook <at> this" in text
    assert "## Qwen3\n\n**Bold** <img src=x>" in text
    assert "hm" not in text
    assert "old answer" not in text


def test_html_loads_nothing_and_shows_markup_as_text():
    page = to_html([CHAT])
    assert "<strong>Bold</strong> &lt;img src=x&gt;" in page
    assert "<title>Pipes | and &lt;b&gt;</title>" in page
    assert "Look &lt;at&gt; this" in page
    hostile = PortableMessage(
        "assistant", "![x](https://evil.example/p.png) [y](javascript:alert(1)) <script>z</script>", None, 1.0
    )
    page = to_html([PortableChat("t", 1.0, 1.0, (hostile,))])
    for forbidden in ("<img", 'src="http', 'href="javascript', "<script"):
        assert forbidden not in page


def test_the_ending_names_the_format(tmp_path):
    for ending, begin in ((".md", "# "), (".html", "<!doctype html>"), (".JSON", "{")):
        write([CHAT], tmp_path / f"x{ending}")
        assert (tmp_path / f"x{ending}").read_text(encoding="utf-8").startswith(begin)
    with pytest.raises(GreenroomError, match="its file extension is not supported"):
        write([CHAT], tmp_path / "x.docx")
    with pytest.raises(GreenroomError, match="was not saved"):
        write([CHAT], tmp_path / "missing" / "x.md")
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".JSON", ".html", ".md"], "nothing half-written stays"


def node(key, parent, role, text, children=(), **more):
    content = {"content_type": "text", "parts": [text]} if isinstance(text, str) else text
    message = {"author": {"role": role}, "content": content, "create_time": 1.5e9, **more}
    return key, {"id": key, "parent": parent, "children": list(children), "message": message}


CHATGPT = {
    "title": "Trip",
    "create_time": 1.6e9,
    "update_time": 1.6e9 + 5,
    "current_node": "a2",
    "mapping": dict(
        [
            ("root", {"id": "root", "parent": None, "children": ["s"], "message": None}),
            node("s", "root", "system", "", ["q"]),
            node("q", "s", "user", "Where to?", ["a1", "t"]),
            node("a1", "q", "assistant", "Busan", metadata={"model_slug": "gpt-4o"}),
            node("t", "q", "assistant", {"content_type": "code", "text": "search()"}, ["r"], recipient="browser"),
            node("r", "t", "tool", "results", ["a2"]),
            node("a2", "r", "assistant", {"content_type": "multimodal_text", "parts": ["Seoul", {"asset": 1}]}),
            node("lost", "nowhere", "user", "Still here?"),
        ]
    ),
}


def test_chatgpt(tmp_path):
    (chat,) = load(tmp_path / "conversations.json", [CHATGPT])
    assert (chat.title, chat.created, chat.updated) == ("Trip", 1.6e9, 1.6e9 + 5)
    assert texts(chat) == ["Where to?", "Seoul"]
    assert [m.text for m in chat.messages] == ["Where to?", "Busan", "Seoul", "Still here?"]
    assert [m.parent for m in chat.messages] == [None, 0, 0, None]
    assert (chat.messages[1].model, chat.messages[1].stop_reason) == ("gpt-4o", "end")


def test_chatgpt_as_it_is_downloaded(tmp_path):
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("user.json", "{}")
        archive.writestr("export/conversations.json", json.dumps([CHATGPT]))
    assert texts(read(path)[0]) == ["Where to?", "Seoul"]


def test_chatgpt_in_several_parts(tmp_path):
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in (1, 0, 2):
            archive.writestr(f"conversations-00{number}.json", json.dumps([CHATGPT | {"title": f"Trip {number}"}]))
        archive.writestr("shared_conversations.json", "[]")
    assert [chat.title for chat in read(path)] == ["Trip 0", "Trip 1", "Trip 2"]


def test_chatgpt_with_speech_thoughts_and_marks_of_sources(tmp_path):
    spoken = {
        "content_type": "multimodal_text",
        "parts": [
            {"content_type": "audio_transcription", "text": "How high is it?", "direction": "in"},
            {"content_type": "real_time_user_audio_video_asset_pointer", "audio_asset_pointer": {"size_bytes": 1}},
        ],
    }
    cited = "8,848 m.\ue200cite\ue202turn0search1\ue202turn0search4\ue201 It grows."
    mapping = dict(
        [
            node("c", None, "user", {"content_type": "user_editable_context", "user_profile": "x"}, ["q"]),
            node("q", "c", "user", spoken, ["t"]),
            node("t", "q", "assistant", {"content_type": "thoughts", "thoughts": [{"summary": "s"}]}, ["r"]),
            node("r", "t", "assistant", {"content_type": "reasoning_recap", "content": "Thought for 2 s"}, ["a"]),
            node("a", "r", "assistant", cited, [], weight=1.0, end_turn=True, recipient="all"),
        ]
    )
    (chat,) = load(tmp_path / "a.json", [{"title": "Everest", "mapping": mapping, "current_node": "a"}])
    assert texts(chat) == ["How high is it?", "8,848 m. It grows."]


def test_chatgpt_with_a_very_long_chat_and_with_circles(tmp_path):
    long = dict(node(f"n{i}", f"n{i - 1}", "user", str(i), [f"n{i + 1}"]) for i in range(5000))
    (chat,) = load(tmp_path / "a.json", [{"title": "", "mapping": long, "current_node": "n4999"}])
    assert len(chat.path) == 5000
    assert chat.title == "Imported chat"
    circle = dict([node("x", "y", "user", "1", ["y"]), node("y", "x", "user", "2", ["x"])])
    (chat,) = load(tmp_path / "b.json", [{"mapping": circle}])
    assert texts(chat) == ["1", "2"]


LM_STUDIO = {
    "name": "Parser",
    "pinned": True,
    "createdAt": 1_700_000_000_000,
    "userLastMessagedAt": 1_700_000_050_000,
    "systemPrompt": "Be brief.",
    "messages": [
        {
            "versions": [
                {"type": "singleStep", "role": "user", "content": [{"type": "text", "text": "Fix it"}]},
                {"type": "singleStep", "role": "user", "content": [{"type": "text", "text": "Fix it, please"}]},
            ],
            "currentlySelected": 1,
        },
        {
            "versions": [
                {
                    "type": "multiStep",
                    "role": "assistant",
                    "senderInfo": {"senderName": "qwen3-30b"},
                    "steps": [
                        {
                            "type": "contentBlock",
                            "content": [{"type": "text", "text": "hm"}],
                            "style": {"type": "thinking", "ended": True},
                        },
                        {"type": "contentBlock", "content": [{"type": "text", "text": "Done."}, {"type": "file"}]},
                        {"type": "debugInfoBlock", "debugInfo": "x"},
                    ],
                }
            ],
            "currentlySelected": 0,
        },
    ],
}


def test_names_are_no_markup_in_markdown():
    message = PortableMessage("user", "q", None, 1.0, attachments=(Attachment("<b>R&D</b>_[1].txt", "x", 1),))
    text = to_markdown([PortableChat("*Sea* & <i>", 1.0, 1.0, (message,))])
    page = MarkdownIt("commonmark").render(text)
    assert "<h1>*Sea* &amp; &lt;i&gt;</h1>" in page
    assert "<p>&lt;b&gt;R&amp;D&lt;/b&gt;_[1].txt</p>" in page


def test_lm_studio(tmp_path):
    (chat,) = load(tmp_path / "1700.conversation.json", LM_STUDIO)
    assert (chat.title, chat.pinned, chat.settings) == ("Parser", True, {"system": "Be brief."})
    assert (chat.created, chat.updated) == (1.7e9, 1.7e9 + 50)
    assert texts(chat) == ["Fix it, please", "<think>\nhm\n</think>\n\nDone."]
    assert [m.parent for m in chat.messages] == [None, None, 1]
    assert chat.messages[-1].model == "qwen3-30b"


def test_lm_studio_as_it_was_written_before(tmp_path):
    old = {
        "name": "Parser",
        "modelName": "mistral",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Fix it"},
            {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
            {"role": "tool", "content": "x"},
        ],
    }
    (chat,) = load(tmp_path / "old.json", old)
    assert chat.title == "Parser"
    assert texts(chat) == ["Be brief.", "Fix it", "Done."]
    assert [m.parent for m in chat.messages] == [None, 0, 1]


def test_a_plain_list_of_messages(tmp_path):
    (chat,) = load(
        tmp_path / "My talk.json",
        [{"role": "user", "content": "Fix it"}, {"role": "assistant", "content": "Done."}],
    )
    assert (chat.title, texts(chat)) == ("My talk", ["Fix it", "Done."])
    assert [m.parent for m in chat.messages] == [None, 0]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "it is empty"),
        (" ", "it is not valid JSON, or it is truncated"),
        ("[1, 2", "it is not valid JSON, or it is truncated"),
        ("[" * 100_000, "no JSON|nested"),
        ("[]", "not a Greenroom"),
        ('{"a": 1}', "not a Greenroom"),
        ('{"messages": [1]}', "not a Greenroom"),
        ('{"messages": []}', "it contains no chats with messages"),
        ('{"format": "greenroom-chats", "version": 2, "chats": []}', "newer version of Greenroom"),
        (
            '{"format": "greenroom-chats", "version": 1, "chats": [{"messages": [{"role": "boss"}]}]}',
            "a message in it has an unknown format",
        ),
        (
            '{"format": "greenroom-chats", "version": 1, "chats": '
            '[{"messages": [{"role": "user", "text": "x", "parent": 5}]}]}',
            "a message in it has an unknown format",
        ),
    ],
)
def test_what_is_no_chat_gets_one_clear_sentence(tmp_path, content, why):
    with pytest.raises(GreenroomError, match=why) as refused:
        load(tmp_path / "odd.json", content)
    assert refused.value.what == "odd.json was not imported"


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(b"\xff\xfe\x00garbage")
    with pytest.raises(GreenroomError, match="it is not valid JSON, or it is truncated"):
        read(path)
    path.write_bytes(b"PK\x05\x06" + bytes(18))
    with pytest.raises(GreenroomError, match=r"no conversations\.json"):
        read(path)
    with pytest.raises(GreenroomError, match="not imported: no such file"):
        read(tmp_path / "missing.json")


def test_sizes_are_bounded_before_anything_is_made_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "MOST_BYTES", 10_000)
    path = tmp_path / "big.json"
    path.write_text(" " * 10_001)
    with pytest.raises(GreenroomError, match="larger than"):
        read(path)
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", " " * 1_000_000)
    assert bomb.stat().st_size < 10_000
    with pytest.raises(GreenroomError, match="when unpacked"):
        read(bomb)
    monkeypatch.setattr(loading, "MOST_BYTES", 1_000_000)
    monkeypatch.setattr(loading, "MOST_PARTS", 1000)
    path.write_text("[" + "{}," * 1000 + "{}]")
    with pytest.raises(GreenroomError, match="too complex"):
        read(path)
    monkeypatch.setattr(importing, "MOST_CHATS", 1)
    with pytest.raises(GreenroomError, match="2 chats"):
        load(tmp_path / "many.json", [CHATGPT, CHATGPT])
    monkeypatch.setattr(importing, "MOST_MESSAGES", 2)
    with pytest.raises(GreenroomError, match="more than 2 messages"):
        load(tmp_path / "long.json", [CHATGPT])


def test_an_import_can_be_cancelled(tmp_path):
    def stop(progress):
        raise Cancelled

    with pytest.raises(Cancelled):
        read(tmp_path / "x.json", progress=stop)


KEYS = st.sampled_from(
    [
        "title",
        "mapping",
        "message",
        "author",
        "role",
        "content",
        "content_type",
        "parts",
        "text",
        "parent",
        "children",
        "versions",
        "steps",
        "user",
        "assistant",
        "messages",
        "currentlySelected",
        "style",
        "type",
        "create_time",
        "createdAt",
        "stats",
        "leaf",
        "attachments",
        "name",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | KEYS | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=25,
)


@given(
    st.one_of(
        st.lists(
            st.fixed_dictionaries({"mapping": st.dictionaries(KEYS, VALUES, max_size=4)}, optional={"title": VALUES})
        ),
        st.fixed_dictionaries(
            {"messages": st.lists(st.fixed_dictionaries({"versions": st.lists(VALUES, max_size=3)}))}
        ),
        st.fixed_dictionaries(
            {"format": st.just("greenroom-chats"), "version": st.just(1), "chats": st.lists(VALUES, max_size=3)}
        ),
    )
)
def test_nonsense_of_the_right_shape_is_refused_or_read(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "fuzz.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    try:
        chats = read(path)
    except GreenroomError:
        return
    for chat in chats:
        assert all(m.parent is None or 0 <= m.parent < place for place, m in enumerate(chat.messages))
        assert json.loads(to_json([chat]))


OWN = '{{"format": "greenroom-chats", "version": 1, "chats": [{{"messages": [{{"role": "user", "text": "x"{}}}]{}}}]}}'


@pytest.mark.parametrize(
    "content",
    [
        OWN.format(', "created": ' + "9" * 4000, ""),
        OWN.format(', "stats": {"prompt_tokens": ' + "9" * 400 + "}", ', "created": 1e999'),
        OWN.format("", ', "settings": {"own": ' + "[" * 900 + "]" * 900 + "}"),
        OWN.format("", ', "settings": {"start": 1e999, "own": {"top_k": ' + "9" * 400 + ', "seed": Infinity}}'),
        OWN.format("", ', "settings": {"start": [], "preset": "\\ud800"}, "title": "\\ud800", "folder": "\\udfff"'),
        OWN.format(', "model": "\\ud800", "attachments": [{"name": "\\ud800", "text": "\\u0000"}]', ""),
    ],
)
def test_whatever_was_read_can_be_kept_and_written(tmp_path, store, content):
    path = tmp_path / "x.json"
    path.write_text(content)
    for chat in store.add_portable(read(path)):
        for ending in (".md", ".html", ".json"):
            write([store.portable(chat)], tmp_path / f"o{ending}")
    assert read(tmp_path / "o.json")


@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_archive_of_any_kind(tmp_path, kind):
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr("é/conversations.json", json.dumps([CHATGPT] * 20))
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with contextlib.suppress(GreenroomError):
            read(path)


@pytest.fixture
def exchange(store, qtbot):
    window = QWidget()
    qtbot.addWidget(window)
    made = Exchange(store, window)
    made.heard, made.failures, made.came = [], [], []
    made.said.connect(made.heard.append)
    made.failed.connect(made.failures.append)
    made.imported.connect(made.came.append)
    return made


def test_a_file_that_is_refused_stops_no_other(tmp_path, store, exchange, qtbot):
    write([CHAT] * 200, tmp_path / "good.json")
    (tmp_path / "bad.json").write_text("no")
    begun = []

    def add_a_bad_one(said):
        if said.startswith("Importing") and not begun:
            begun.append(len(store.chats()))
            exchange.take(tmp_path / "bad.json")

    exchange.said.connect(add_a_bad_one)
    exchange.take(tmp_path / "good.json")
    qtbot.waitUntil(lambda: bool(exchange.came) and bool(exchange.failures))
    assert begun[0] < len(store.chats()) == len(exchange.came[0]) == 200


def test_exports_wait_for_each_other(tmp_path, store, exchange, qtbot):
    chats = store.add_portable([CHAT] * 20)
    store.delete(chats[0])
    store.purge()
    exchange.export(chats, tmp_path / "many.json")
    exchange.export(chats[:2], tmp_path / "one.json")
    qtbot.waitUntil(lambda: {"Saved as many.json", "Saved as one.json"} <= set(exchange.heard))
    assert len(read(tmp_path / "many.json")) == 19, "one was deleted meanwhile"
    assert len(read(tmp_path / "one.json")) == 1


def test_presets_go_and_come_with_an_export(tmp_path, store, exchange, qtbot):
    presets = PresetStore()
    presets.save(POET)
    chats = store.add_portable([replace(CHAT, settings={"preset": "Poet"})])
    exchange.export(chats, tmp_path / "one.json")
    qtbot.waitUntil(lambda: "Saved as one.json" in exchange.heard)
    exchange.take(tmp_path / "one.json")
    qtbot.waitUntil(lambda: len(exchange.came) == 1)
    presets.delete("Poet")
    exchange.take(tmp_path / "one.json")
    qtbot.waitUntil(lambda: len(exchange.came) == 2)
    here, missing = (store.chat_settings(came[0]) for came in exchange.came)
    assert here == {"preset": "Poet"}
    assert (missing["system"], missing["own"]["temperature"]) == (POET.system, 1.3)


def test_large_chats_come_in_one_at_a_time_and_progress_is_told(tmp_path, store, exchange, qtbot, monkeypatch):
    monkeypatch.setattr("app.chat.exchange.CHARACTERS", 10)
    taken = []
    add = store.add_portable
    monkeypatch.setattr(store, "add_portable", lambda chats: taken.append(len(chats)) or add(chats))
    small = replace(CHAT, messages=(PortableMessage("user", "x", None, 1.0),), leaf=0)
    write([CHAT, CHAT, *[small] * 200], tmp_path / "good.json")
    exchange.take(tmp_path / "good.json")
    qtbot.waitUntil(lambda: bool(exchange.came))
    assert taken[:3] == [1, 1, 8]
    assert len(exchange.came[0]) == 202
    assert any(said.startswith("Reading good.json: ") and said.endswith("%") for said in exchange.heard)


def test_closing_the_window_ends_an_import(tmp_path, exchange, monkeypatch):
    reached = threading.Event()
    parsed = importing.load

    def endless(path, told):
        for _ in range(10**9):
            told(1, 10**9)
            reached.set()
        yield from parsed(path, told)

    monkeypatch.setattr(importing, "load", endless)
    write([CHAT], tmp_path / "good.json")
    exchange.take(tmp_path / "good.json")
    reached.wait()
    assert tasks.shutdown(60)
    assert not exchange.came
