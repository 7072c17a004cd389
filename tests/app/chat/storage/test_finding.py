"""Short words, of which the full-text index has no piece, are found as reading every text finds them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat.storage import finding
from app.chat.storage.portable import PortableChat, PortableMessage
from app.chat.storage.records import Attachment
from app.chat.storage.store import ChatStore

LETTERS = "여행 가을aBc\"%_'É🙂"
TEXTS = st.lists(st.text(LETTERS, min_size=1, max_size=6), min_size=1, max_size=5)


def chat_of(*texts: str, files: tuple[str, ...] = ()) -> PortableChat:
    attached = tuple(Attachment("a.txt", text, len(text)) for text in files)
    messages = tuple(
        PortableMessage("user", text, place - 1 if place else None, 1.0, attachments=attached if not place else ())
        for place, text in enumerate(texts)
    )
    return PortableChat("", 1.0, 1.0, messages)


def ids(store: ChatStore, query: str, indexed: bool = True) -> set[int]:
    return {row[0] for row in finding.chats(store._db, query, indexed)}


@given(said=TEXTS, filed=TEXTS, taken=st.booleans(), query=st.text(LETTERS, min_size=1, max_size=3))
def test_the_index_finds_what_reading_finds(said: list[str], filed: list[str], taken: bool, query: str) -> None:
    store = ChatStore(Path(":memory:"))
    store.add_portable([chat_of(text) for text in said] + [chat_of("?", files=(text,)) for text in filed])
    while taken and store.index_next():
        pass
    found, read = ids(store, query), ids(store, query, indexed=False)
    # Reading knows the two cases of English letters only.
    assert found >= read
    assert "É" in query.upper() or found == read
    store.close()


@pytest.mark.parametrize("query", ["책", "여행", "in", "he"])
def test_a_short_word_is_found_wherever_it_stands(store: ChatStore, query: str) -> None:
    texts = [query, f"{query}…", f"… {query}", f"…{query}…", f"{query}.", f".{query}", f"long {query} long"]
    added = store.add_portable([chat_of(text) for text in texts] + [chat_of("?", files=(text,)) for text in texts])
    store.add_portable([chat_of("나"), chat_of("x"), chat_of("")])
    assert ids(store, query) == set(added), "files that are not in the index yet"
    while store.index_next():
        pass
    assert ids(store, query) == set(added)


def test_both_cases_are_found(store: ChatStore) -> None:
    added = store.add_portable([chat_of("ÄB"), chat_of("äb is"), chat_of("it is Äb")])
    assert ids(store, "äB") == ids(store, "ÄB") == ids(store, "ä") == set(added)


def test_no_text_is_read_for_a_short_word(store: ChatStore) -> None:
    """Reading takes as long as there are texts, and two syllables are what is looked for most in Korean."""
    store.add_portable([chat_of("서울 여행"), chat_of("여행을 간다")])
    condition, values = finding._occurs(store._db, "여행")
    plan = store._db.execute(f"EXPLAIN QUERY PLAN SELECT chat_id FROM messages WHERE {condition}", values).fetchall()
    # The partial indexes hold only what is still to be taken in.
    steps = [row[3] for row in plan if "_unindexed" not in row[3]]
    assert not any(step.startswith(("SCAN messages", "SCAN attachments")) for step in steps), steps


def test_a_word_that_is_everywhere_is_looked_for_in_the_texts(
    store: ChatStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = store.add_portable([chat_of("여행을 간다"), chat_of("여행은 좋다"), chat_of("여행")])
    monkeypatch.setattr(finding, "COMMON", 1)
    assert finding._beginning_with(store._db, "search", "여행") is None
    assert ids(store, "여행") == set(added)


def test_a_deleted_message_is_not_found(store: ChatStore) -> None:
    chat = store.create_chat("")
    store.delete_message(store.add_message(chat, None, "user", "여행"))
    assert ids(store, "여행") == set()
