"""The list of chats: order, search, rename, delete, undo."""

from __future__ import annotations

from datetime import datetime

import pytest
from PySide6.QtCore import QModelIndex, Qt
from PySide6.QtWidgets import QLineEdit, QMenu

from app.chat.list_model import BATCH, HIT
from app.chat.sidebar import ID, ChatList, group_of
from app.widgets.file_dialog import FileDialog

NOW = datetime(2026, 3, 14, 10, 0).timestamp()
HOUR, DAY = 3600, 86400


@pytest.fixture
def chats(qtbot, store):
    made = ChatList(store)
    qtbot.addWidget(made)
    made.resize(240, 500)
    made.show()
    return made


def add(store, *titles):
    return [store.create_chat(title) for title in titles]


def row_of(chats, chat_id):
    model = chats.view.model()
    return next(i for i in (model.index(row, 0) for row in range(model.rowCount())) if i.data(ID) == chat_id)


@pytest.mark.parametrize(
    ("ago", "group"),
    [(0, "Today"), (9 * HOUR, "Today"), (11 * HOUR, "Yesterday"), (33 * HOUR, "Yesterday"),
     (35 * HOUR, "Previous 7 days"), (7 * DAY, "Previous 7 days"),
     (8 * DAY, "Older"), (900 * DAY, "Older"), (-HOUR, "Today")],
)  # fmt: skip
def test_groups_follow_the_calendar(ago, group):
    assert group_of(NOW - ago, NOW) == group


def test_new_chats_come_first_under_today(chats, store, qtbot):
    assert chats.rows == []
    add(store, "older", "newer")
    qtbot.waitUntil(lambda: chats.rows == ["Today", "newer", "older"])


def test_search_filters_and_says_when_nothing_is_found(chats, store, qtbot):
    add(store, "여행 일정", "parser")
    chats.filter("여행")
    qtbot.waitUntil(lambda: chats.rows == ["Today", "여행 일정"])
    chats.filter("nonsense")
    qtbot.waitUntil(lambda: chats.rows == [])
    assert chats._nothing.text() == "No chats found"
    chats.filter("")
    qtbot.waitUntil(lambda: len(chats.rows) == 3)


def test_a_click_chooses(chats, store, qtbot):
    first, _ = add(store, "first", "second")
    chats.refresh()
    place = chats.view.visualRect(row_of(chats, first)).center()
    with qtbot.waitSignal(chats.chatChosen) as chosen:
        qtbot.mouseClick(chats.view.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert chosen.args == [first]


def test_headings_cannot_be_chosen(chats, store, qtbot):
    add(store, "first")
    chats.refresh()
    place = chats.view.visualRect(chats.view.model().index(0, 0)).center()
    with qtbot.assertNotEmitted(chats.chatChosen):
        qtbot.mouseClick(chats.view.viewport(), Qt.MouseButton.LeftButton, pos=place)


def test_the_keyboard_opens_deletes_and_renames(chats, store, qtbot):
    first, second = add(store, "first", "second")
    chats.refresh()
    chats.view.setFocus(Qt.FocusReason.TabFocusReason)
    chats.view.setCurrentIndex(row_of(chats, first))
    with qtbot.waitSignal(chats.chatChosen) as chosen:
        qtbot.keyClick(chats.view, Qt.Key.Key_Return)
    assert chosen.args == [first]
    qtbot.keyClick(chats.view, Qt.Key.Key_F2)
    editor = chats.view.findChild(QLineEdit)
    assert editor.text() == "first"
    editor.setText("renamed")
    with qtbot.assertNotEmitted(chats.chatChosen):
        qtbot.keyClick(editor, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: "renamed" in chats.rows)
    assert store.title(first) == "renamed"
    chats.view.setCurrentIndex(row_of(chats, second))
    qtbot.keyClick(chats.view, Qt.Key.Key_Delete)
    assert store.title(second) is None


def test_delete_can_be_undone(chats, store, qtbot):
    first, second = add(store, "first", "second")
    chats.refresh()
    chats.set_current(first)
    chats.delete(first)
    assert chats.undo_shown
    assert chats.bar_text == "Deleted “first”"
    qtbot.waitUntil(lambda: chats.rows == ["Today", "second"])
    with qtbot.waitSignal(chats.chatChosen) as chosen:
        chats.undo()
    assert chosen.args == [first], "the chat that was open is opened again"
    assert not chats.undo_shown
    assert store.title(first) == "first"
    chats.delete(second)
    with qtbot.assertNotEmitted(chats.chatChosen):
        chats.undo()


def entries(menu):
    return [action.text() for action in menu.actions() if action.text()]


def entry(menu, text):
    return next(action for action in menu.actions() if action.text() == text)


def test_the_menu_of_a_chat(chats, store, qtbot):
    first, _ = add(store, "first", "second")
    chats.refresh()
    menu = chats.menu_for(row_of(chats, first))
    assert entries(menu) == ["Rename", "Pin", "Move to folder", "Export", "Delete"]
    entry(menu, "Pin").trigger()
    qtbot.waitUntil(lambda: chats.rows == ["Pinned", "first", "Today", "second"])
    menu = chats.menu_for(row_of(chats, first))
    entry(menu, "Unpin").trigger()
    qtbot.waitUntil(lambda: chats.rows == ["Today", "second", "first"])
    entry(chats.menu_for(row_of(chats, first)), "Delete").trigger()
    assert store.title(first) is None


def test_folders_open_and_close(chats, store, qtbot):
    first, second, _ = add(store, "first", "second", "third")
    chats.move(first, "Work")
    chats.move(second, "art")
    qtbot.waitUntil(lambda: chats.rows == ["art", "second", "Work", "first", "Today", "third"])
    work = next(row_index(chats, "Work"))
    qtbot.mouseClick(chats.view.viewport(), Qt.MouseButton.LeftButton, pos=chats.view.visualRect(work).center())
    assert chats.rows == ["art", "second", "Work", "Today", "third"]
    again = ChatList(store)
    qtbot.addWidget(again)
    assert again.rows == chats.rows, "what is closed stays closed"
    chats.filter("first")
    qtbot.waitUntil(lambda: chats.rows == ["Work", "first"])
    chats.filter("")
    qtbot.waitUntil(lambda: len(chats.rows) == 5)
    menu = entry(chats.menu_for(row_of(chats, second)), "Move to folder").menu()
    assert entries(menu) == ["art", "Work", "New folder…", "Move out of folder"]
    entry(menu, "Move out of folder").trigger()
    qtbot.waitUntil(lambda: "art" not in chats.rows)
    entry(chats.menu_for(next(row_index(chats, "Work"))), "Move all chats out of folder").trigger()
    qtbot.waitUntil(lambda: len(chats.rows) == 4)
    assert store.folders() == []


def row_index(chats, text):
    model = chats.view.model()
    return (model.index(row, 0) for row in range(model.rowCount()) if model.index(row, 0).data() == text)


def test_a_hit_is_shown_and_opened(chats, store, qtbot):
    chat = store.create_chat("Fruit")
    store.add_message(chat, None, "user", "Do you know any words about pineapples?")
    message = store.messages(chat)[-1].id
    chats.filter("PINEAPPLES")
    qtbot.waitUntil(lambda: chats.view.words == ["PINEAPPLES"])
    index = row_of(chats, chat)
    assert index.data(HIT).excerpt == "…about pineapples?"
    chats.grab()
    heard = []
    chats.chatChosen.connect(lambda chat: heard.append(chat))
    chats.hitChosen.connect(lambda *hit: heard.append(hit))
    qtbot.mouseClick(chats.view.viewport(), Qt.MouseButton.LeftButton, pos=chats.view.visualRect(index).center())
    assert heard == [chat, (message, "PINEAPPLES")]


def test_many_chats_are_handed_out_as_they_are_looked_at(chats, store, qtbot):
    for number in range(BATCH + 50):
        store._create_chat(f"chat {number}")
    chats.refresh()
    assert len(chats.rows) == BATCH
    chats.view.scrollToBottom()
    qtbot.waitUntil(lambda: len(chats.rows) == BATCH + 51)
    place = chats.view.verticalScrollBar().value()
    chats.refresh()
    assert len(chats.rows) == BATCH + 51
    assert chats.view.verticalScrollBar().value() == place


def test_chats_go_out_and_come_in(chats, store, qtbot, tmp_path):
    first, second = add(store, "first", "second")
    store.add_message(first, None, "user", "hello")
    path = tmp_path / "all.json"
    chats.exchange.export([first, second], path)
    qtbot.waitUntil(path.exists)
    qtbot.waitUntil(lambda: chats.bar_text == "Saved as all.json")
    with qtbot.waitSignal(chats.chatChosen) as chosen:
        chats.exchange.take(path)
    assert chosen.args != [first], "a chat without messages is left out, the other is opened as a copy"
    assert [m.text for m in store.messages(chosen.args[0])] == ["hello"]
    assert not chats.undo_shown
    (tmp_path / "bad.json").write_text("nonsense")
    with qtbot.waitSignal(chats.failed) as failed:
        chats.exchange.take(tmp_path / "bad.json")
    assert "bad.json was not imported" in str(failed.args[0])
    with qtbot.waitSignal(chats.failed):
        chats.exchange.export([first], tmp_path / "missing" / "x.md")


def test_the_menu_of_the_list(chats, store):
    add(store, "one")
    chats.refresh()
    menu = chats.menu_for(QModelIndex())
    assert entries(menu) == ["Import chats…", "Export all chats"]
    assert entries(entry(menu, "Export all chats").menu()) == ["Markdown…", "Web page…", "JSON, with all versions…"]


def test_streaming_does_not_disturb_the_place(chats, store, qtbot):
    ids = add(store, *(f"chat {n}" for n in range(60)))
    chats.refresh()
    chats.view.verticalScrollBar().setValue(400)
    store.rename(ids[0], "renamed")
    qtbot.waitUntil(lambda: "renamed" in chats.rows)
    assert chats.view.verticalScrollBar().value() == 400


def test_three_dots_on_a_row_open_its_menu(chats, store, qtbot, monkeypatch):
    first = store.create_chat("one")
    chats.refresh()
    opened = []
    monkeypatch.setattr(chats, "menu_for", lambda index: opened.append(index.data(ID)) or QMenu(chats.view))
    row = chats.view.visualRect(row_of(chats, first))
    with qtbot.assertNotEmitted(chats.chatChosen):
        qtbot.mouseClick(chats.view.viewport(), Qt.MouseButton.LeftButton, pos=chats.view.menu_area(row).center())
    assert opened == [first]
    for menu in chats.view.findChildren(QMenu):
        menu.close()
    with qtbot.waitSignal(chats.chatChosen):
        qtbot.mouseClick(chats.view.viewport(), Qt.MouseButton.LeftButton, pos=row.center())
    assert opened == [first]


def test_all_files_that_could_not_be_imported_are_named(chats, tmp_path, qtbot):
    failures = []
    chats.failed.connect(failures.append)
    for name in ("a", "b", "c", "d"):
        (tmp_path / f"{name}.json").write_text("nonsense")
        chats.exchange.take(tmp_path / f"{name}.json")
    qtbot.waitUntil(lambda: bool(failures))
    (failure,) = failures
    assert failure.what == "4 files were not imported"
    named = [name for name in ("a.json", "b.json", "c.json", "d.json") if name in failure.why]
    assert len(named) == 3
    assert failure.why.endswith("and 1 more")
    assert not chats.exchange.busy


def test_a_long_title_leaves_the_word_that_it_was_deleted(chats, store, qtbot):
    chat = store.create_chat("A title that is longer than the bar is wide, by far, whatever is done")
    chats.refresh()
    chats.view.setFocus(Qt.FocusReason.TabFocusReason)
    chats.delete(chat)
    assert chats._bar_text._mode == Qt.TextElideMode.ElideMiddle
    qtbot.keyClick(chats.view, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert store.title(chat) is not None
    assert not chats.undo_shown
    qtbot.keyClick(chats.view, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)


def test_every_form_is_offered_for_an_export(chats, store, tmp_path, monkeypatch, qtbot):
    (chat,) = add(store, "A title")
    store.add_message(chat, None, "user", "hello")
    chats.exchange.choose_target([chat], ".md", "A title")
    dialog = chats.exchange._window.findChild(FileDialog)
    dialog.setDirectory(str(tmp_path))
    assert [name.rsplit("*", 1)[1] for name in dialog.nameFilters()] == [".md)", ".html)", ".json)"]
    assert dialog.selectedFiles()[0].endswith("A title.md")
    html = dialog.nameFilters()[1]
    dialog.selectNameFilter(html)
    dialog.filterSelected.emit(html)
    assert dialog.selectedFiles()[0].endswith("A title.html")
    dialog.reject()
