"""What is in memory only while the chats cannot be saved: what it is, how it comes into the file, and its copies."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace

import pytest
from chat_fakes import ask
from full_disk import LONG, FullDisk
from hypothesis import given, settings
from hypothesis import strategies as st

from app.chat.storage import rescue
from app.chat.storage.portable import PortableChat, PortableMessage
from app.chat.storage.records import Attachment, Draft, Edit
from app.chat.storage.rescue import Copy
from app.chat.storage.store import ChatStore
from app.chat.storage.unsaved import Unsaved, UnsavedChat
from engine.errors import GreenroomError
from engine.placement.plan import Range
from engine.runtime.events import GenerationStats

PAPER = Attachment("notes.txt", "what was noted", 14)


@pytest.fixture
def disk(monkeypatch):
    return FullDisk(monkeypatch)


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Folders for copies, the first of which is none."""
    (tmp_path / "no folder").write_text("")
    found = [tmp_path / "no folder", tmp_path / "elsewhere"]
    monkeypatch.setattr(rescue, "places", lambda chats: found)
    return found


# What is unsaved


def test_nothing_is_unsaved_while_the_file_can_be_written(store):
    ask(store, "q", "a")
    assert not store.unsaved
    assert store.unsaved == Unsaved()
    assert store.save_now()


def test_what_would_be_lost_is_counted_by_chat(store, disk):
    chat, _, answer = ask(store, "old", "a")
    renamed, _, _ = ask(store, "to be renamed", "a")
    gone, _, _ = ask(store, "to be deleted", "a")
    disk.fill(store)
    new, question, _ = ask(store, "new", LONG)  # the question still had room
    assert "full" in store.problem.why
    store.add_message(chat, answer, "user", "one more")
    other = store.add_message(new, question, "assistant")
    store.finish(other, "another version", None, "end")
    store.rename(renamed, "renamed")
    store.pin(gone, True)
    store.delete(gone)
    store.set_draft(None, Draft("to be continued"))
    store.show_version(other, -1)
    store.set_note("folded", "x")
    lost = store.unsaved
    assert lost.chats == (UnsavedChat(new, "new", 2), UnsavedChat(chat, "old", 1), UnsavedChat(renamed, "renamed", 0))
    assert (lost.messages, lost.changed, lost.draft) == (3, 1, True)
    assert lost.characters > len(LONG)
    disk.free(store)
    assert store.save_now()
    assert (store.problem, store.unsaved) == (None, Unsaved())


def test_what_was_saved_before_an_answer_grew_is_not_all_of_it(store, disk):
    chat, _, answer = ask(store, "q", "the beginning")
    disk.fill(store)
    store.set_text(answer, LONG)
    assert store.unsaved.chats == (UnsavedChat(chat, "q", 1),)


# How it comes into the file


def test_there_is_no_saving_without_room(store, disk):
    ask(store, "q", "a")
    disk.fill(store)
    ask(store, "new", LONG)
    assert not store.save_now()
    assert store.unsaved.messages == 1, "it stays where it is"


def test_what_another_window_has_written_meanwhile_stays_beside_it(tmp_path, disk):
    store = ChatStore(tmp_path / "chats.sqlite")
    chat, _, answer = ask(store, "q", "a")
    disk.fill(store)
    ask(store, "what?", LONG, chat, answer)
    disk.free(store)
    other = ChatStore(tmp_path / "chats.sqlite")
    ask(other, "from the other", "b", chat, answer)
    assert store.save_now()
    assert not store.unsaved
    store.close()
    assert {m.text for m in other.portable(chat).messages} == {"q", "a", "what?", LONG, "from the other", "b"}
    # The one that was written last is shown; the other is one press of an arrow away.
    assert [m.text for m in other.messages(chat)][2:] == ["from the other", "b"]
    other.show_version(other.messages(chat)[2].id, -1)
    assert [m.text for m in other.messages(chat)][2:] == ["what?", LONG]
    other.close()


def test_a_folder_that_can_be_written_at_last_takes_what_was_written_before(tmp_path):
    path = tmp_path / "data" / "chats.sqlite"
    (tmp_path / "data").write_text("in the way")
    store = ChatStore(path)
    chat, _, _ = ask(store, "q", "a")
    store.set_draft(chat, Draft("half a thought", (PAPER,)))
    assert not store.save_now()
    (tmp_path / "data").unlink()
    assert store.save_now()
    store.close()
    again = ChatStore(path)
    assert again.problem is None
    (known,) = again.chats()
    assert [m.text for m in again.messages(known.id)] == ["q", "a"]
    assert again.draft(known.id) == Draft("half a thought", (PAPER,))
    again.close()


def test_a_file_of_a_newer_program_is_not_written_to(tmp_path):
    store = ChatStore(tmp_path / "chats.sqlite")
    store._db.execute("PRAGMA user_version = 999")
    store.close()
    before = (tmp_path / "chats.sqlite").read_bytes()
    store = ChatStore(tmp_path / "chats.sqlite")
    ask(store, "q", "a")
    assert not store.save_now()
    store.close()
    assert (tmp_path / "chats.sqlite").read_bytes() == before


MESSAGES = st.lists(
    st.tuples(
        st.integers(0, 9), st.sampled_from(["user", "assistant"]), st.text("ab 한", max_size=6), st.integers(1, 3)
    ),
    min_size=1,
    max_size=9,
)


def a_chat(rows, **changes):
    """Of (parent, role, text, created): parents may be any earlier message, or none; times may be the same."""
    made = tuple(
        PortableMessage(role, text, None if parent >= place else parent, float(created), stop_reason="end")
        for place, (parent, role, text, created) in enumerate(rows)
    )
    return replace(PortableChat("A title", 5.0, 6.0, made, len(made) - 1), **changes)


def paths(chat):
    """Every message as the texts on the way to it, in no order: the numbers of messages may be others."""
    found = []
    for message in chat.messages:
        way, at = [], message
        while at is not None:
            way.append((at.role, at.text, at.created))
            at = None if at.parent is None else chat.messages[at.parent]
        found.append(tuple(way))
    return sorted(found)


@settings(max_examples=30)
@given(rows=MESSAGES, known=st.integers(0, 9), cut=st.integers(0, 6))
def test_what_comes_in_is_there_once_and_whole(rows, known, cut, tmp_path_factory):
    whole = a_chat(rows)
    part = list(whole.messages[:known])
    if part:
        part[-1] = replace(part[-1], text=part[-1].text[:cut], stop_reason=None)
    store = ChatStore(tmp_path_factory.mktemp("in") / "chats.sqlite")
    if part:
        store.add_portable([a_chat((), messages=tuple(part), leaf=len(part) - 1)])
    (chat,) = store.bring_in([whole])
    once = store.portable(chat)
    assert len(store.chats()) == 1
    assert paths(once) == paths(whole)
    assert [m.text for m in once.path] == [m.text for m in whole.path]
    assert store.bring_in([whole]) == [chat]
    assert store.portable(chat) == once, "a second time changes nothing"
    for words in {m.text for m in whole.messages if len(m.text.strip()) > 2}:
        assert store.chats(words), "it is searchable"
    store._db.execute("INSERT INTO search(search, rank) VALUES ('integrity-check', 1)")
    store.close()


def test_an_answer_that_went_on_here_keeps_its_words(store):
    chat, _, answer = ask(store, "q", "one two three")
    whole = store.portable(chat)
    shorter = replace(whole, messages=(whole.messages[0], replace(whole.messages[1], text="one")))
    store.rename(chat, "A better name")
    store.add_message(chat, answer, "user", "later")  # the chat is newer here
    assert store.bring_in([shorter]) == [chat]
    assert [m.text for m in store.messages(chat)] == ["q", "one two three", "later"]
    assert store.title(chat) == "A better name"


def test_drafts_are_put_together(store):
    chat, _, _ = ask(store, "q", "a")
    whole = store.portable(chat)
    store.set_draft(chat, Draft("here"))
    drafts = [(0, json.dumps(["there", [["notes.txt", "what was noted", 14]]])), (None, json.dumps(["new", []]))]
    for _ in range(2):
        store.take_unsaved([whole], drafts)
        assert store.draft(chat) == Draft("here\n\nthere", (PAPER,))
        assert store.draft(None) == Draft("new")


def test_a_change_of_a_message_comes_back_as_a_draft(store, disk, tmp_path):
    disk.fill(store)
    chat, question, _ = ask(store, "q", LONG)
    store.set_draft(chat, Draft("waits", (), Edit(question, "half a change", (PAPER,))))
    assert store.draft(chat).edit == Edit(question, "half a change", (PAPER,))
    assert [known.id for known in store.unsaved.chats] == [chat]
    elsewhere = ChatStore(tmp_path / "elsewhere.sqlite3")
    ask(elsewhere, "another", "chat")
    (brought,) = elsewhere.take_unsaved(*store.give_unsaved())
    assert elsewhere.draft(brought) == Draft("waits\n\nhalf a change", (PAPER,))
    elsewhere.take_unsaved(*store.give_unsaved())
    assert elsewhere.draft(brought) == Draft("waits\n\nhalf a change", (PAPER,)), "once"
    elsewhere.close()


# Copies


def test_a_copy_is_written_where_there_is_room_and_read_again(store, places, disk):
    disk.fill(store)
    chat, _, answer = ask(store, "q", LONG)
    error = GreenroomError("It broke off", "memory ran out", "Try again.")
    stats = GenerationStats(3, 0, 3, 7, 0.1, 0.1, 30.0, 12.0)
    store.finish(answer, LONG, stats, "error", error, predicted=Range(9, 10, 12), stepped_down=["Less memory."])
    store.set_draft(chat, Draft("and then", (PAPER,)))
    store.set_draft(None, Draft("something new"))
    copy = Copy(store.path)
    copy.write(1, *store.give_unsaved())
    assert copy.path.parent == places[1]
    if sys.platform != "win32":
        assert copy.path.stat().st_mode & 0o777 == 0o600
    (found,) = rescue.found(store.path)
    assert found.path == copy.path
    again = ChatStore(store.path.with_name("again.sqlite"))
    again.take_unsaved(found.chats, found.drafts)
    (known,) = again.chats()
    answer = again.messages(known.id)[-1]
    assert (answer.text, answer.stats, answer.stop_reason) == (LONG, stats, "error")
    assert (answer.predicted, answer.stepped_down) == (Range(9, 10, 12), ("Less memory.",))
    assert (answer.error.what, answer.error.why, answer.error.remedy) == (error.what, error.why, error.remedy)
    assert (again.draft(known.id), again.draft(None)) == (Draft("and then", (PAPER,)), Draft("something new"))
    again.close()
    assert not list(rescue.found(store.path.with_name("again.sqlite"))), "other chats have copies of their own"


def test_there_is_one_copy_and_it_is_the_newest(store, places):
    chat, _, _ = ask(store, "q", "a")
    first, second = store.portable(chat), replace(store.portable(chat), title="Newer")
    copy = Copy(store.path)
    copy.write(2, [second], [])
    copy.write(1, [first], [])  # was begun before, and ends later
    assert [[c.title for c in found.chats] for found in rescue.found(store.path)] == [["Newer"]]
    places.insert(0, store.path.parent)  # where it fits now
    copy.write(3, [first], [])
    assert [(found.path.parent, found.chats[0].title) for found in rescue.found(store.path)] == [(places[0], "q")]
    copy.drop(4)
    copy.write(3, [first], [])
    assert not list(rescue.found(store.path))


def test_where_nothing_can_be_written_it_is_said_in_the_log(store, places, caplog):
    chat, _, _ = ask(store, "q", "a")
    del places[1:]
    copy = Copy(store.path)
    copy.write(1, [store.portable(chat)], [])
    assert copy.path is None
    assert "no folder has room" in caplog.text
    assert not list(rescue.found(store.path))


def test_what_is_no_copy_of_ours_is_passed_over_and_stays(store, places, tmp_path, caplog):
    chat, _, _ = ask(store, "q", "a")
    copy = Copy(store.path)
    copy.write(1, [store.portable(chat)], [])
    whole = copy.path.read_bytes()
    for name, data in {"1": b"{", "2": b"[]", "3": b'{"format": "greenroom-chats"}', "4": whole[:-9], "5": b""}.items():
        copy.path.with_name(copy.path.name.replace(".json", f"{name}.json")).write_bytes(data)
    if sys.platform != "win32":
        (tmp_path / "theirs.json").write_bytes(whole)
        os.symlink(tmp_path / "theirs.json", copy.path.with_name(copy.path.name.replace(".json", "6.json")))
    before = sorted(places[1].iterdir())
    assert [found.path for found in rescue.found(store.path)] == [copy.path]
    assert sorted(places[1].iterdir()) == before
    assert "cannot be used" in caplog.text
    left = rescue.leave(copy.path)
    assert not list(rescue.found(store.path))
    assert left.read_bytes() == whole


@pytest.mark.parametrize(
    "drafts", [None, 3, [3], [[0]], [[1, "[]"]], [[-1, "[]"]], [[True, "x"]], [["a", "x"]], [[0, 1]]]
)
def test_drafts_that_make_no_sense_are_left_out(store, places, drafts):
    chat, _, _ = ask(store, "q", "a")
    copy = Copy(store.path)
    copy.write(1, [store.portable(chat)], [])
    copy.path.write_text(json.dumps(json.loads(copy.path.read_text()) | {"drafts": drafts}))
    (found,) = rescue.found(store.path)
    store.take_unsaved(found.chats, found.drafts)
    assert store.draft(chat).empty


def test_places_outlive_a_restart_before_those_that_do_not(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    found = rescue.places(tmp_path / "chats.sqlite")
    assert (found[0], found[-1]) == (tmp_path, tmp_path / "run")
    assert len(found) == len(set(found)) >= 4
