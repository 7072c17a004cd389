"""The popover that says how a chat answers: what is changed there holds at once and is kept."""

from __future__ import annotations

import pytest
from chat_fakes import PLAN
from PySide6.QtCore import QPoint, QPointF, QRect, Qt
from PySide6.QtGui import QTextCursor, QWheelEvent
from PySide6.QtWidgets import QApplication, QPushButton

from app.chat.page import ChatPage
from app.chat.storage.preset_store import PresetStore
from app.chat.storage.presets import ChatSettings, Preset, Sampling
from app.host import HostState
from app.settings.store import Settings
from app.theme import theme
from engine.runtime.events import Begun

QWEN = HostState(
    "ready", "Qwen3", "/m/q.gguf", PLAN, family="qwen3moe", thinking=("off", "on"), suggested={"temperature": 0.6}
)


@pytest.fixture
def page(qtbot, host, store, private_data):
    host.set_state(QWEN)
    made = ChatPage(host, store, lambda: Settings(system_prompt="From the page."))
    qtbot.addWidget(made)
    made.resize(900, 700)
    made.show()
    made.open_options()
    yield made
    if made.options is not None:
        made.options.close()
    made.shutdown()


def options(page):
    return page.options


def ask(page, host):
    page.send("q")
    host.answer("a")
    return host.asked[-1]


def choose_preset(page, name):
    combo = options(page).presets
    combo.setCurrentIndex(combo.findText(name))
    combo.activated.emit(combo.currentIndex())


def entry(page, text):
    return next(action for action in options(page).preset_menu().actions() if action.text() == text)


def test_it_shows_what_holds(page):
    shown = options(page)
    assert shown.presets.currentText() == "Recommended"
    assert shown.system.toPlainText() == "From the page."
    assert shown.thinking_choices == ["Default", "Off", "On"]
    assert shown.fields["temperature"].value() == 0.6
    assert shown.fields["top_k"].value() == 20
    assert shown.fields["seed"].text() == "random"
    assert shown.fields["max_tokens"].text() == "no limit"
    assert "temperature 0.6, top-p 0.95" in shown.more.text()
    assert not shown.fields["temperature"].isVisible(), "the wall of controls is folded away"
    shown.more.click()
    assert shown.fields["temperature"].isVisible()


def test_every_change_holds_for_the_next_answer(page, host, store, qtbot):
    shown = options(page)
    shown.fields["temperature"].setValue(1.25)
    shown.fields["seed"].setValue(3)
    shown.fields["seed"].setValue(-1)
    assert page._controller.settings_of(None).own == Sampling(temperature=1.25), "random again"
    shown.fields["seed"].setValue(7)
    shown.fields["max_tokens"].setValue(100)
    shown.choose_thinking(1)
    shown.system.setPlainText("Answer in Korean.")
    shown.stop.setPlainText("END\n<|im_end|>")
    qtbot.waitUntil(lambda: page._controller.settings_of(None).system == "Answer in Korean.")
    messages, params = ask(page, host)
    assert messages[0].content == "Answer in Korean."
    assert (params.temperature, params.seed, params.max_tokens, params.stop) == (1.25, 7, 100, ("END", "<|im_end|>"))
    assert host.wished[-1] == ("off", Begun())
    assert page.composer.settings_button.text() == "Recommended (edited)"
    kept = page._controller.settings_of(page.chat)
    assert kept.own == Sampling(temperature=1.25, seed=7, max_tokens=100, stop=("END", "<|im_end|>"))
    shown.close()
    page.new_chat()
    assert page.composer.settings_button.text() == "Recommended"


def test_what_is_typed_last_is_not_lost_when_it_closes(page, host):
    options(page).system.setPlainText("Be brief.")
    options(page).close()
    assert ask(page, host)[0][0].content == "Be brief."


def test_a_preset_takes_the_place_of_what_was_changed(page, host):
    options(page).fields["temperature"].setValue(1.25)
    choose_preset(page, "Precise")
    assert options(page).fields["temperature"].value() == 0.2
    assert page.composer.settings_button.text() == "Precise"
    assert ask(page, host)[1].temperature == 0.2


def test_presets_are_saved_used_and_deleted(page, host, store, qtbot):
    shown = options(page)
    shown.fields["top_k"].setValue(5)
    shown.system.setPlainText("Tell stories.")
    shown.save_preset("  Story teller ")
    assert shown.presets.currentText() == "Story teller"
    assert page._controller.settings_of(None) == ChatSettings("Story teller")
    assert page.composer.settings_button.text() == "Story teller"
    messages, params = ask(page, host)
    assert (messages[0].content, params.top_k) == ("Tell stories.", 5)
    page.open_options()
    assert entry(page, "Delete preset").isEnabled()
    entry(page, "Delete preset").trigger()
    assert options(page).presets.currentText() == "Recommended"
    assert options(page).presets.findText("Story teller") == -1


def test_a_deleted_preset_can_be_had_back_with_the_chats_that_used_it(page, host, store):
    shown, controller = options(page), page._controller
    for name in ("Poet", "Pirate"):
        shown.system.setPlainText(f"As a {name}.")
        shown.save_preset(name)
    choose_preset(page, "Poet")
    shown.fields["top_k"].setValue(3)
    shown.close()
    ask(page, host)
    other = page.chat
    page.new_chat()
    controller.set_settings(None, ChatSettings("Poet"))
    page.open_options()
    entry(page, "Delete preset").trigger()
    assert options(page).presets.currentText() == "Recommended"
    assert page.composer.settings_button.text() == "Recommended"
    options(page).close()
    # The chat may have begun by then.
    assert ask(page, host)[0][0].content == "From the page."
    (note,) = page.banners.banners
    assert "“Poet” was deleted" in note.error.what
    next(b for b in note.findChildren(QPushButton) if b.text() == "Undo").click()
    assert page.composer.settings_button.text() == "Poet"
    assert not page.banners.banners
    assert ask(page, host)[0][0].content == "As a Poet."
    assert controller.settings_of(other) == ChatSettings("Poet", Sampling(top_k=3))
    assert controller.resolved(other)[1] == "As a Poet."
    assert [preset.name for preset in PresetStore().own] == ["Poet", "Pirate"], "kept, at its place"


def test_a_deleted_preset_takes_no_other_ones_place(page):
    options(page).save_preset("Poet")
    entry(page, "Delete preset").trigger()
    options(page).system.setPlainText("Anew.")
    options(page).save_preset("Poet")
    (note,) = page.banners.banners
    next(b for b in note.findChildren(QPushButton) if b.text() == "Undo").click()
    assert "another preset now has this name" in str(page.banners.banners[-1].error)
    assert PresetStore().presets["Poet"].system == "Anew."


def test_the_field_always_has_the_system_prompt_that_holds(page):
    shown = options(page)
    for name, prompt in (("Poet", "Rhyme."), ("Pirate", "Say arr.")):
        shown.system.setPlainText(prompt)
        shown.save_preset(name)
    for name, prompt in (("Poet", "Rhyme."), ("Recommended", "From the page."), ("Pirate", "Say arr.")):
        choose_preset(page, name)
        assert shown.system.toPlainText() == prompt
    entry(page, "Delete preset").trigger()
    assert shown.system.toPlainText() == "From the page."
    shown.system.setPlainText("Mine.")
    choose_preset(page, "Recommended")
    choose_preset(page, "Poet")
    assert shown.system.toPlainText() == "Rhyme.", "what was the chat's own went with the preset before"


def test_the_prompt_of_a_preset_is_read_and_changed_where_it_stands(page, host, qtbot):
    chat = page._controller.settings_of
    # A field spells line breaks and wide spaces another way.
    whole = "One.\r\nTwo\xa0words.\n" + "\n".join(f"Line {n}." for n in range(40))
    page._controller.presets.save(Preset("Long", system=whole))
    page.options.close()
    page._controller.set_settings(None, ChatSettings("Long"))
    page.open_options()
    shown = options(page)
    assert shown.system.toPlainText().endswith("Line 39.")
    assert shown.system.verticalScrollBar().maximum() > 0, "the rest is reached"
    shown.stop.setPlainText("END")
    qtbot.waitUntil(lambda: chat(None).own.stop == ("END",))
    assert chat(None).system is None, "nobody has touched the prompt"
    shown.system.moveCursor(QTextCursor.MoveOperation.End)
    qtbot.keyClicks(shown.system, " More.")
    qtbot.waitUntil(lambda: chat(None).system is not None)
    assert chat(None).system.endswith("Line 39. More.")
    assert chat(None).system.startswith("One."), "the preset's text was added to"
    for _ in " More.":
        qtbot.keyClick(shown.system, Qt.Key.Key_Backspace)
    qtbot.waitUntil(lambda: chat(None).system is None)
    page._controller.presets.save(Preset("Long", system="Another."))
    shown.close()
    assert ask(page, host)[0][0].content == "Another.", "as the preset, whatever that becomes"


def test_a_space_that_is_typed_stays_where_it_is(page, qtbot):
    shown = options(page)
    shown.system.moveCursor(QTextCursor.MoveOperation.End)
    qtbot.keyClicks(shown.system, " ")
    shown._take_texts()
    qtbot.keyClicks(shown.system, "And more.")
    shown._take_texts()
    assert page._controller.settings_of(None).system == "From the page. And more."


def test_an_emptied_field_sends_no_system_prompt(page, host):
    options(page).system.clear()
    options(page).close()
    assert page._controller.settings_of(None).system == ""
    page.open_options()
    assert options(page).system.toPlainText() == ""
    options(page).close()
    assert [message.role for message in ask(page, host)[0]] == ["user"]


def test_the_popover_is_no_taller_than_what_it_holds(page):
    shown = options(page)
    assert shown.height() == shown.sizeHint().height()


def test_a_preset_is_named_in_the_popover(page, qtbot):
    """A dialog would close it, and be gone with it."""
    shown = options(page)
    shown.fields["top_k"].setValue(5)
    entry(page, "Save as preset…").trigger()
    qtbot.keyClicks(shown.name, "Few words")
    qtbot.keyClick(shown.name, Qt.Key.Key_Return)
    assert shown.presets.currentText() == "Few words"
    assert shown.name.isHidden() or not shown.name.isVisible()


def test_a_name_that_is_taken_is_told(page, qtbot):
    options(page).save_preset("Precise")
    assert "it is the name of a built-in preset" in str(page.banners.banners[-1].error)


def test_back_to_the_preset(page):
    assert not entry(page, "Reset to preset").isEnabled()
    options(page).fields["min_p"].setValue(0.2)
    entry(page, "Reset to preset").trigger()
    assert page._controller.settings_of(None) == ChatSettings()


def test_presets_go_out_and_come_in(page, tmp_path):
    options(page).save_preset("Mine")
    file, said = tmp_path / "mine", []
    page.said.connect(said.append)
    page._opener.exchange("export", file)
    page._controller.set_settings(None, ChatSettings())
    page._controller.presets.delete("Mine")
    page._opener.exchange("import", tmp_path / "mine.json")
    assert "Mine" in page._controller.presets.presets
    assert page.composer.settings_button.text() == "Mine", "it is used"
    assert said == ["Saved as mine", "1 preset was imported"]
    (tmp_path / "bad.json").write_text("no")
    page._opener.exchange("import", tmp_path / "bad.json")
    assert "bad.json was not imported" in str(page.banners.banners[-1].error)


def test_a_model_that_leaves_no_choice_shows_none(page, host):
    page.options.close()
    host.set_state(HostState("ready", "Mixtral", "/m/x.gguf", PLAN))
    page.open_options()
    assert options(page).thinking_choices == []
    options(page).grab()


def test_it_closes_with_escape(page, qtbot):
    shown = options(page)
    qtbot.keyClick(shown, Qt.Key.Key_Escape)
    assert not shown.isVisible()
    page.open_options()


def in_sight(shown, field):
    return (
        shown.rect().contains(QRect(field.mapTo(shown, QPoint()), field.size()))
        and field.visibleRegion().boundingRect().height() == field.height()
    )


def test_on_a_screen_that_is_too_low_it_scrolls_to_what_tab_reaches(page, qtbot):
    theme().set_look("system", 2.0, "comfortable", False)
    try:
        page.options.close()
        page.open_options()
        shown, screen = options(page), page.screen().availableGeometry()
        shown.more.click()
        assert shown.height() <= screen.height()
        assert screen.top() <= shown.y() <= screen.bottom() - shown.height() + 1
        QApplication.processEvents()
        assert not in_sight(shown, shown.stop), "the screen of this test is low"
        shown.activateWindow()
        shown.more.setFocus()
        for _ in range(len(shown.fields) + 1):
            qtbot.keyClick(shown.focusWidget(), Qt.Key.Key_Tab)
            assert in_sight(shown, shown.focusWidget())
        assert shown.focusWidget() is shown.stop
    finally:
        page.options.close()
        theme().set_look("system", 1.0, "comfortable", False)


def test_the_wheel_scrolls_past_numbers_and_changes_none(page):
    shown = options(page)
    shown.more.click()
    spin = shown.fields["top_k"]
    before = spin.value()
    at = QPointF(spin.rect().center())
    turn = QWheelEvent(
        at,
        spin.mapToGlobal(at),
        QPoint(),
        QPoint(0, 120),
        Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(spin, turn)
    assert spin.value() == before
    assert not turn.isAccepted(), "what scrolls gets it"
