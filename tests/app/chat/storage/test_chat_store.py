"""What chats are made of: versions and branches, folders, drafts, searches, what is deleted and brought back."""

from __future__ import annotations

import sqlite3

import pytest
from chat_fakes import ask
from hypothesis import given
from hypothesis import strategies as st

from app.chat.storage.messages import CLOSED
from app.chat.storage.records import Attachment, Draft
from app.chat.storage.store import TITLE_LENGTH, ChatStore, title_of
from engine.errors import GreenroomError
from engine.runtime.events import GenerationStats


def test_a_chat_is_there_again_after_reopening(tmp_path):
    path = tmp_path / "chats.sqlite3"
    first = ChatStore(path)
    chat_id, question_id, answer_id = ask(first, "Why is the sky blue?", "Rayleigh scattering.")
    failed = first.add_message(chat_id, answer_id, "assistant")
    first.finish(failed, "half", None, "error", GreenroomError("No answer", "memory is full", "Close something."), 2.5)
    first.close()

    again = ChatStore(path)
    assert again.problem is None
    assert [chat.title for chat in again.chats()] == ["Why is the sky blue?"]
    question, answer, broken = again.messages(chat_id)
    assert (question.id, question.role, question.text, question.parent_id) == (
        question_id,
        "user",
        "Why is the sky blue?",
        None,
    )
    assert answer.text == "Rayleigh scattering."
    assert answer.model == "demo"
    assert answer.stop_reason == "end"
    assert answer.stats == GenerationStats(prompt_tokens=3, completion_tokens=5, decode_tps=12.5)
    assert str(broken.error) == "No answer: memory is full. Close something."
    assert broken.thought_s == 2.5
    again.close()


def test_a_regenerated_answer_is_a_version_and_the_old_one_stays(store):
    chat_id, question_id, first = ask(store, "q", "one")
    second = store.add_message(chat_id, question_id, "assistant")
    store.finish(second, "two", None, "end")
    follow_up = store.add_message(chat_id, second, "user", "more")

    assert [m.text for m in store.messages(chat_id)] == ["q", "two", "more"]
    shown = store.messages(chat_id)[1]
    assert (shown.version, shown.versions) == (2, 2)

    store.show_version(second, -1)
    assert [m.text for m in store.messages(chat_id)] == ["q", "one"]
    assert store.messages(chat_id)[1].version == 1
    store.show_version(first, -1)  # there is none before the first
    assert [m.id for m in store.messages(chat_id)] == [question_id, first]
    store.show_version(first, +1)
    assert [m.id for m in store.messages(chat_id)] == [question_id, second, follow_up]


def test_an_edited_first_question_is_a_branch_at_the_root(store):
    chat_id, question_id, _ = ask(store, "q", "one")
    ask(store, "q, put better", "two", chat_id=chat_id)
    assert [m.text for m in store.messages(chat_id)] == ["q, put better", "two"]
    assert store.messages(chat_id)[0].versions == 2
    store.show_version(store.messages(chat_id)[0].id, -1)
    assert store.messages(chat_id)[0].id == question_id


def test_versions_do_not_mix_with_other_chats(store):
    ask(store, "a", "1")
    chat_id, _, _ = ask(store, "b", "2")
    assert [m.versions for m in store.messages(chat_id)] == [1, 1]


def test_delete_can_be_undone_until_the_store_closes(tmp_path):
    path = tmp_path / "chats.sqlite3"
    store = ChatStore(path)
    chat_id, _, _ = ask(store, "secret plan", "of mine")
    store.delete(chat_id)
    assert store.chats() == []
    assert store.chats("secret") == []
    assert store.title(chat_id) is None
    store.restore(chat_id)
    assert [m.text for m in store.messages(chat_id)] == ["secret plan", "of mine"]
    store.delete(chat_id)
    store.close()
    raw = sqlite3.connect(path)
    assert raw.execute("SELECT COUNT(*) FROM chats").fetchone() == (0,)
    assert raw.execute("SELECT COUNT(*) FROM messages").fetchone() == (0,)
    assert raw.execute("SELECT COUNT(*) FROM search WHERE search MATCH 'secret'").fetchone() == (0,)
    raw.close()


@pytest.mark.parametrize("half", ["\ud800", "\udcff.txt", "a\ud83d b"])
def test_half_characters_are_kept_as_question_marks(store, half):
    """From names of files that are not UTF-8, and from JSON of other programs."""
    chat_id = store.create_chat(half)
    store.add_message(chat_id, None, "user", half, attachments=[Attachment(half, half, len(half))])
    store.rename(chat_id, half)
    store.move(chat_id, half)
    store.set_draft(chat_id, Draft(half, (Attachment(half, half, 1),)))
    store.set_chat_settings(chat_id, {"system": half})
    said = half.encode("utf-8", "replace").decode()
    assert store.messages(chat_id)[0].text == said
    assert store.draft(chat_id).text == said
    assert [chat.title for chat in store.chats()] == [said]


@pytest.mark.parametrize("full_text", [True, False])
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", True),
        (" \x1f ", True),
        ('"', True),
        ('say "hi"', True),
        ("cats OR dogs", False),
        ("NEAR( * ^ - : AND", False),
        ("100%", True),
        ("1_0%", False),
        ("😀", True),
        ("한국", True),
        ("한국어로", True),
        ("שלום", True),
        ("cats\0dogs", False),
        ("hello\0world", True),
        ("\ud800", False),
        ("x" * 100_000, False),
        ("hello " * 5000, True),
        (" ".join(map(str, range(50_000))), False),
    ],
)
def test_a_query_may_be_anything(tmp_path, monkeypatch, full_text, query, found):
    if not full_text:
        monkeypatch.setattr(ChatStore, "_make_search", staticmethod(lambda db: False))
    store = ChatStore(tmp_path / "chats.sqlite3")
    chat_id, _, answer = ask(store, "q", 'hello world, say "hi" 100% 한국어로 😀 שלום')
    assert bool(store.chats(query)) == found
    hit = store.find_in(chat_id, query)
    assert hit.message_id == (answer if query.strip() and found else hit.message_id)
    store.close()


def test_rename(store):
    chat_id, _, _ = ask(store, "q", "a")
    store.rename(chat_id, "  A better\n name ")
    assert store.title(chat_id) == "A better name"
    store.rename(chat_id, "   ")
    assert store.title(chat_id) == "A better name"


@pytest.mark.parametrize("full_text", [True, False])
def test_search(tmp_path, monkeypatch, full_text):
    if not full_text:
        monkeypatch.setattr(ChatStore, "_make_search", staticmethod(lambda db: False))
    store = ChatStore(tmp_path / "chats.sqlite3")
    trip, _, _ = ask(store, "부산 여행 일정을 정리해 줘", "첫째 날: 해운대")
    code, _, _ = ask(store, "Refactor the parser", 'use a 100% "match" statement, snake_case')

    def found(query):
        return {chat.id for chat in store.chats(query)}

    assert found("") == {trip, code}
    assert found("여행") == {trip}, "two characters are a word in Korean"
    assert found("해운대") == {trip}
    assert found("PARSER") == {code}
    assert found("parser snake_case") == {code}, "one word in the title, one in an answer"
    assert found("parser 여행") == set()
    assert found("snakeXcase") == set(), "_ is no wildcard"
    assert found("100%") == {code}
    assert found("0%x") == set(), "% is no wildcard"
    assert found('"match"') == {code}
    assert found("' OR 1 --") == set()
    store.close()


def test_listeners_hear_what_the_list_shows(store):
    heard = []
    store.subscribe(heard.append)
    chat_id, _, answer_id = ask(store, "q", "a")
    assert set(heard) == {chat_id}
    heard.clear()
    store.set_text(answer_id, "streaming must not disturb the list")
    assert heard == []
    store.rename(chat_id, "x")
    store.delete(chat_id)
    store.restore(chat_id)
    assert heard == [chat_id] * 3


def test_pins_and_folders(store):
    first, _, _ = ask(store, "first", "1")
    second, _, _ = ask(store, "second", "2")
    changed = [chat.updated for chat in store.chats()]
    store.pin(first, True)
    store.move(second, "  Work \n trips ")
    store.move(first, "apples")
    assert [(c.id, c.pinned, c.folder) for c in store.chats()] == [
        (second, False, "Work trips"),
        (first, True, "apples"),
    ]
    assert [chat.updated for chat in store.chats()] == changed, "tidying up is no change of the chat"
    assert store.folders() == ["apples", "Work trips"]
    store.move(second, "")
    store.delete(first)
    assert store.folders() == []


def test_drafts_are_kept(tmp_path):
    path = tmp_path / "chats.sqlite3"
    store = ChatStore(path)
    chat_id, _, _ = ask(store, "q", "a")
    half = Draft("half a thought", (Attachment("notes.txt", "the beginn", 4000),))
    store.set_draft(chat_id, half)
    store.set_draft(None, Draft("for a new chat"))
    store.close()
    store = ChatStore(path)
    assert store.draft(chat_id) == half
    assert not store.draft(chat_id).attachments[0].whole
    assert store.draft(None) == Draft("for a new chat")
    store.set_draft(None, Draft())
    store.set_draft(chat_id, Draft())
    assert store.draft(None).empty
    assert store.draft(chat_id).empty
    assert store.draft(999).empty
    store.close()


def test_attachments_belong_to_their_question(store):
    files = (Attachment("a.py", "print()", 7), Attachment("b.txt", "beg", 900))
    chat_id = store.create_chat("look")
    question = store.add_message(chat_id, None, "user", "look", attachments=files)
    store.add_message(chat_id, question, "assistant")
    assert [m.attachments for m in store.messages(chat_id)] == [files, ()]
    store.delete(chat_id)
    store.purge()
    assert store._db.execute("SELECT COUNT(*) FROM attachments").fetchone() == (0,)


def test_a_deleted_message_takes_what_follows_and_comes_back(store):
    chat_id, question, first = ask(store, "q", "one")
    second = store.add_message(chat_id, question, "assistant")
    store.finish(second, "two pineapples", None, "end")
    follow_up = store.add_message(chat_id, second, "user", "more pineapples")
    store.delete_message(second)
    assert [m.id for m in store.messages(chat_id)] == [question, first], "the other version stands in"
    assert (store.messages(chat_id)[1].version, store.messages(chat_id)[1].versions) == (1, 1)
    assert store.chats("pineapples") == []
    store.restore_message(second)
    assert [m.id for m in store.messages(chat_id)] == [question, second, follow_up]
    store.delete_message(follow_up)
    store.delete_message(second)
    store.restore_message(second)
    assert [m.id for m in store.messages(chat_id)] == [question, second], "what was deleted before stays deleted"
    store.delete_message(question)
    assert store.messages(chat_id) == []
    store.close()
    raw = sqlite3.connect(store.path)
    assert raw.execute("SELECT COUNT(*) FROM messages").fetchone() == (0,)
    raw.close()


def test_answers_cut_off_by_a_crash_are_found_once(store):
    assert store.unfinished() is None
    chat_id, question, _ = ask(store, "q", "whole")
    assert store.unfinished() is None
    cut = store.add_message(chat_id, question, "assistant")
    store.set_text(cut, "half an ans")
    assert store.unfinished() == (chat_id, cut)
    assert store.messages(chat_id)[-1].cut_off
    store.settle_unfinished(cut - 1)
    assert store.unfinished() == (chat_id, cut), "one that is being written meanwhile is left alone"
    store.settle_unfinished(cut)
    assert store.unfinished() is None
    assert store.messages(chat_id)[-1].stop_reason == CLOSED
    store.reopen(cut)
    assert store.unfinished() == (chat_id, cut)
    store.finish(cut, "half an answer, whole", None, "end")
    assert not store.messages(chat_id)[-1].cut_off


def test_a_search_says_where_it_found_what(store):
    chat_id, question, answer = ask(store, "Fruit", "We have many kinds.\n\nAmong them are PINEAPPLES and plums.")
    ask(store, "another", "pineapples only")
    hit = store.find_in(chat_id, "pineapples plums")
    assert hit.message_id == answer
    assert hit.excerpt == "…them are PINEAPPLES and plums."
    assert store.find_in(chat_id, "fruit").message_id == question
    assert store.find_in(chat_id, "kinds elsewhere").message_id == answer
    assert store.find_in(chat_id, "nowhere").message_id is None


def test_the_path_goes_to_a_message_of_another_version(store):
    chat_id, question, first = ask(store, "q", "one")
    second = store.add_message(chat_id, question, "assistant", "two")
    store.show_message(first)
    assert [m.id for m in store.messages(chat_id)] == [question, first]
    store.show_message(question)
    assert [m.id for m in store.messages(chat_id)] == [question, first], "what is on the path already changes nothing"
    store.show_message(second)
    assert [m.id for m in store.messages(chat_id)] == [question, second]


def test_what_was_asked_last(store):
    for question in ("one", "two", "one"):
        ask(store, question, "answer")
    assert store.questions(5) == ["one", "two"]
    assert store.questions(1) == ["one"]


def test_settings_and_model_of_a_chat(store):
    chat_id, _, _ = ask(store, "q", "a")
    assert (store.chat_settings(chat_id), store.model_path(chat_id)) == ({}, "")
    store.set_chat_settings(chat_id, {"system": "Be brief.", "temperature": 0.5})
    store.set_model_path(chat_id, "/models/m.gguf")
    assert store.chat_settings(chat_id) == {"system": "Be brief.", "temperature": 0.5}
    assert store.model_path(chat_id) == "/models/m.gguf"


def test_a_chat_travels_with_all_its_versions(store, tmp_path):
    chat_id, question, first = ask(store, "q", "one")
    store.add_message(chat_id, question, "assistant", "two")
    store.show_version(first, 0)
    store.add_message(chat_id, first, "user", "see", attachments=[Attachment("n.txt", "n", 1)])
    store.set_chat_settings(chat_id, {"seed": 7, "start": first})
    store.pin(chat_id, True)
    chat = store.portable(chat_id)
    assert [m.text for m in chat.path] == ["q", "one", "see"]
    other = ChatStore(tmp_path / "other.sqlite3")
    ask(other, "other numbers", "there")
    (copied,) = other.add_portable([chat])
    assert other.chat_settings(copied) == {"seed": 7, "start": other.messages(copied)[1].id}, "the same message"
    assert other.portable(copied) == chat
    assert [m.text for m in other.messages(copied)] == ["q", "one", "see"]
    assert other.messages(copied)[1].versions == 2
    assert other.chats("two")
    other.close()


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Hello", "Hello"),
        ("\n\n## Fix **this**:\ncode", "Fix **this**:"),
        ("   ", "New chat"),
        ("word " * 40, "word word word word word word word word word word word word…"),
        ("가" * 100, "가" * 60 + "…"),
    ],
)
def test_titles(text, title):
    assert title_of(text) == title


@given(st.text())
def test_titles_are_one_short_line(text):
    title = title_of(text)
    assert 0 < len(title) <= TITLE_LENGTH + 1
    assert "\n" not in title


@pytest.mark.parametrize("damaged", ["", "[", "[]", "{}", "[1, 2, 3]", '"x"', '{"prompt_tokens": []}', "[" * 100_000])
def test_damage_within_what_is_kept_as_json_is_passed_over(store, damaged):
    chat_id, _, _ = ask(store, "q", "a")
    store._db.execute("UPDATE messages SET stats = ?1, error = ?1", (damaged,))
    store._db.execute("UPDATE chats SET settings = ?1, draft = ?1", (damaged,))
    store.set_note("draft", damaged)
    answer = store.messages(chat_id)[-1]
    assert (answer.text, answer.error, answer.predicted) == ("a", None, None)
    assert answer.stats in (None, GenerationStats())
    assert (store.draft(chat_id), store.draft(None)) == (Draft(), Draft())
    assert not store.chat_settings(chat_id) or damaged.startswith("{")
    assert store.portable(chat_id).path[-1].text == "a"
