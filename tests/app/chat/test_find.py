"""Looking for words in the open chat, and going to what a search of all chats has found."""

from __future__ import annotations

from chat_fakes import STATS, fill
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QTextEdit

from app.chat.rendering.highlight import mark_words
from app.chat.storage.records import Attachment
from app.chat.storage.search import excerpt, places


def marked(page):
    """The marked words in sight, by the text of their message."""
    found = {}
    for view in page.transcript.views:
        words = [s.cursor.selectedText() for e in view.findChildren(QTextEdit) for s in e.extraSelections()]
        if words:
            found[view.message.text] = words
    return found


def chat_about(store, *texts):
    chat, parent = store.create_chat("words"), None
    for number, text in enumerate(texts):
        parent = store.add_message(chat, parent, "assistant" if number % 2 else "user", text)
        if number % 2:
            store.finish(parent, text, STATS, "end")
    return chat


def test_words_are_marked_counted_and_stepped_through(page, store, qtbot):
    page.open_chat(chat_about(store, "one apple", "**Apple** pie, apples", "no fruit", "an APPLE"))
    page.find()
    qtbot.keyClicks(page.find_bar.field, "apple")
    qtbot.waitUntil(lambda: page.find_bar.count_text == "3 of 3")
    assert marked(page) == {
        "one apple": ["apple"],
        "**Apple** pie, apples": ["Apple", "apple"],
        "an APPLE": ["APPLE"],
    }
    qtbot.keyClick(page.find_bar.field, Qt.Key.Key_Return)
    assert page.find_bar.count_text == "2 of 3"
    qtbot.keyClick(page.find_bar.field, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    qtbot.mouseClick(page.find_bar.newer, Qt.MouseButton.LeftButton)
    assert page.find_bar.count_text == "1 of 3", "after the last comes the first"
    page.find_bar.field.setText("pear")
    qtbot.waitUntil(lambda: page.find_bar.count_text == "No results")
    qtbot.keyClick(page.find_bar.field, Qt.Key.Key_Escape)
    assert page.find_bar.isHidden()
    assert marked(page) == {}


def test_messages_that_come_into_sight_are_marked_too(page, store, qtbot):
    page.open_chat(fill(store, 120))
    page.find()
    page.find_bar.field.setText("question 7")
    page.find_bar.search()
    assert page.find_bar.count_text.endswith("of 21"), "7, 17, 27 and so on, and 70 to 79"
    for _ in range(20):
        page.find_bar.step(-1)
    assert any("Question 7" in text for text in marked(page))


def test_an_answer_that_is_being_written_is_marked_at_its_end(page, host, qtbot):
    page.send("apple?")
    page.find_bar.open_bar("apple")
    host.answer("an apple")
    assert page.find_bar.count_text == "2 of 2"
    assert "an apple" in marked(page)


def test_a_hit_of_the_search_opens_in_its_version(page, host, store, qtbot):
    page.send("q")
    host.answer("an apple")
    first = page._messages[-1]
    page.message_actions.regenerate(first)
    host.answer("a pear")
    page.open_chat(page.chat)
    page.show_hit(first.id, "apple")
    assert [m.text for m in page._messages] == ["q", "an apple"]
    assert marked(page) == {"an apple": ["apple"]}
    assert page.find_bar.count_text == "1 of 1"
    page.show_hit(0, "words of a title")
    assert page.find_bar.count_text == "No results"


def test_places_overlap_nowhere_and_know_no_case():
    assert places("Apple pineapple", ["apple", "pine"]) == [(0, 5), (6, 10), (10, 15)]
    assert places("a.b a+b", ["."]) == [(1, 2)]
    assert places("anything", []) == places("anything", [""]) == []
    assert excerpt("short", ["nowhere"]) == "short"
    assert excerpt("가" * 100 + "여행" + "나" * 300, ["여행"])[:14] == "…" + "가" * 12 + "여"


def test_marks_know_characters_outside_the_basic_plane(qtbot):
    edit = QTextEdit()
    qtbot.addWidget(edit)
    edit.setPlainText("🍎🍎 apple")
    holder = page_like(edit)
    qtbot.addWidget(holder)
    assert mark_words(holder, ["apple"]) == 1
    assert edit.extraSelections()[0].cursor.selectedText() == "apple"


def page_like(edit):
    from PySide6.QtWidgets import QVBoxLayout, QWidget

    holder = QWidget()
    QVBoxLayout(holder).addWidget(edit)
    return holder


def test_a_word_in_a_file_is_a_hit_that_says_so(page, store, qtbot):
    chat = store.create_chat("words")
    files = [Attachment("zoo.txt", "a walrus and a seal", 19)]
    question = store.add_message(chat, None, "user", "What is this?", attachments=files)
    store.finish(store.add_message(chat, question, "assistant", "A seal."), "A seal.", STATS, "end")
    page.open_chat(chat)
    page.show_hit(question, "walrus")
    assert page.find_bar.count_text == "1 of 1, in zoo.txt"
    page.find_bar.field.setText("seal")
    page.find_bar.search()
    assert page.find_bar.count_text == "2 of 2", "the newest stands in the answer"
    page.find_bar.step(-1)
    assert page.find_bar.count_text == "1 of 2, in zoo.txt"


def test_where_the_search_stands_is_marked_stronger(page, store, qtbot):
    page.open_chat(chat_about(store, "one apple", "an apple pie", "no fruit", "an APPLE"))
    page.find_bar.open_bar("apple")

    def strong():
        return [
            view.message.text
            for view in page.transcript.views
            for text in view.findChildren(QTextEdit)
            for mark in text.extraSelections()
            if mark.format.background().color().alpha() == 255
        ]

    assert strong() == ["an APPLE"]
    page.find_bar.step(-1)
    assert strong() == ["an apple pie"]


def test_an_excerpt_has_no_marks_of_markdown():
    assert excerpt("## The **red** apple is `good` *now*", ["apple"], markdown=True) == "…red apple is good now"
    assert excerpt("# Apples", ["apple"], markdown=True) == "Apples"
    assert excerpt("**사과**는 빨갛다", ["사과"], markdown=True) == "사과는 빨갛다"
    assert excerpt("so 2**3 and 4**5 are", ["are"], markdown=True) == "…and 4**5 are"
    assert excerpt("a **kwargs", ["**kwargs"], markdown=True) == "a **kwargs", "it was looked for"
    assert excerpt("a **kwargs", ["kwargs"]) == "a **kwargs", "a file is shown as it is"
