"""A conversation: presets, thirty turns, branches, finding, sorting, a full context, another model."""

from __future__ import annotations

import json
import re

from screen import NotSeen
from user import QUESTIONS, User

#: MB that the second half of the turns may add: what is drawn is freed, what is kept is text.
MOST_GROWTH = 40
FULL = "The context is full|This does not fit"
#: What a small model is long about.
LONG_QUESTIONS = (
    "Count from 1 to 1000, one number per line.",
    "Tell me a long story about a lighthouse and its keeper.",
    "Write a detailed guide to baking bread, with every step explained.",
    "Explain the history of Rome from its beginning to its end, century by century.",
)


def stop_with_escape(user: User) -> None:
    s = user.screen
    last = "SELECT text, stop_reason FROM messages WHERE role = 'assistant' ORDER BY id DESC LIMIT 1"
    # A fast PC may be at the end of an answer before the hand is at Escape; of all of them it is not.
    for question in LONG_QUESTIONS:
        user.answered()
        user.ask(question)
        user.until(lambda: user.rows(last)[0][0] or not user.unfinished, "the first words of the answer", 60)
        s.key("Escape")
        user.answered()
        text, reason = user.rows(last)[0]
        if reason == "cancelled":
            break
    else:
        raise NotSeen("an answer that Escape stopped")
    s.find(".*stopped by you.*")
    s.shoot("09-stopped")
    s.click("More actions")
    s.click("Continue answer", kind="entry")
    user.until(lambda: len(user.rows(last)[0][0]) > len(text), "more of the answer", 60)
    s.key("Escape")
    user.answered()
    if not user.rows(last)[0][0].startswith(text.rstrip()):
        raise NotSeen("what was there before the answer was continued")


def presets(user: User) -> None:
    s = user.screen
    s.click("Chat settings: .*")
    s.find("System prompt", 10)
    s.click("Sampling")
    s.click("Maximum answer length", kind="QSpinBox")
    s.key("ctrl+a")
    s.type("48\t")
    s.shoot("10-options")
    s.click("Preset actions")
    s.find("Save as preset…", kind="entry")
    s.shoot("10-preset-menu")
    s.click("Save as preset…", kind="entry")
    s.find("New preset name", 5)
    s.type("Brief")
    s.key("Return")
    s.find("Chat settings: Brief", enabled=False)
    s.key("Escape")
    kept = user.papers / "my-presets.json"
    user.preset_menu("Export my presets…")
    user.file_dialog(kept)
    user.until(kept.exists, "the file of presets")
    if json.loads(kept.read_text())["presets"] != [{"name": "Brief", "sampling": {"max_tokens": 48}}]:
        raise NotSeen("the preset as it was made")
    user.preset_menu("Delete preset")
    s.key("Escape")
    s.find("Chat settings: Recommended.*")
    user.preset_menu("Import presets…")
    s.shoot("10-file-dialog")
    user.file_dialog(kept)
    user.choose_preset("Brief")


def thirty_turns(user: User) -> None:
    s = user.screen
    user.answered()
    before, turns = s.rss, user.count("messages WHERE role = 'user'")
    middle = 0.0
    for turn in range(user.turns):
        user.ask(f"{QUESTIONS[turn % len(QUESTIONS)]} ({turn + 1})")
        user.answered()
        if s.sees("context is full"):
            s.shoot("12-context-full")
            s.click("Leave out the oldest.*", kind="QPushButton")
        if turn in (0, 4, 14):
            middle = s.rss
            user.note(f"after {turn + 1} turns: {middle:.1f} MB")
    s.shoot("11-thirty-turns")
    user.note(f"RSS before {user.turns} turns {before:.1f} MB, after {s.rss:.1f} MB")
    if user.count("messages WHERE role = 'user'") != turns + user.turns or user.unfinished:
        raise NotSeen(f"{user.turns} turns")
    if user.turns > 15 and s.rss > middle + MOST_GROWTH:
        raise NotSeen(f"memory that does not grow: {middle:.1f} MB became {s.rss:.1f} MB")


def branches(user: User) -> None:
    s = user.screen
    user.begin(lambda: s.click("Regenerate this answer"))
    user.answered()
    s.find("2/2")
    s.click("Previous version")
    s.find("1/2")
    s.click("Next version")
    s.find("2/2")
    old = user.rows("SELECT text FROM messages WHERE role = 'user' ORDER BY id DESC LIMIT 1")[0][0]
    s.move_to(s.find("Your message"))
    s.click("Edit message")
    s.find("Editing an earlier message.*", enabled=False)
    s.shoot("13-editing")
    s.key("ctrl+a")
    s.type("What is two plus two?")
    user.begin(lambda: s.key("Return"))
    user.answered()
    s.find("2/2")
    s.shoot("14-branch")
    texts = {text for (text,) in user.rows("SELECT text FROM messages WHERE role = 'user'")}
    if not {old, "What is two plus two?"} <= texts:
        raise NotSeen("both versions of the message")
    s.click("More actions")
    s.find("Continue answer", kind="entry")
    s.shoot("15-message-menu")
    s.key("Escape")
    user.gone("Copy raw text")


def search_find(user: User) -> None:
    s = user.screen
    user.count("chats")
    s.key("ctrl+f")
    s.type("capital")
    s.find("What is the capital.*", kind="row")
    s.shoot("20-search")
    s.key("ctrl+a")
    s.type("zebra crossing")
    user.gone("What is the capital of France.* \\(1\\)")
    s.key("ctrl+a", "BackSpace")
    s.find("What is the capital.*", kind="row")
    s.key("ctrl+shift+f")
    s.type("colours")
    s.find("([0-9]+) of \\1", enabled=False)
    s.shoot("21-find")
    s.key("Return")
    s.find("[0-9]+ of [0-9]+", enabled=False)
    s.key("Escape")
    user.gone("^Find in this chat$")


def sort_chats(user: User) -> None:
    s = user.screen
    title = user.rows("SELECT title FROM chats WHERE deleted IS NULL ORDER BY id LIMIT 1")[0][0]
    row = re.escape(title)
    s.click(row, 3, kind="row")
    s.find("Pin", kind="entry")
    s.shoot("22-chat-menu")
    s.click("Pin", kind="entry")
    s.find("Pinned", kind="row")
    s.click(row, 3, kind="row")
    s.click("Unpin", kind="entry")
    user.gone("^Pinned$")
    s.click(row, 3, kind="row")
    s.click("Move to folder", kind="entry")
    s.click("New folder…", kind="entry")
    s.find("Folder name")
    s.type("Geography")
    s.shoot("23-folder-name")
    s.key("Return")
    s.find("Geography", kind="row")
    s.shoot("24-folder")


def full_context(user: User) -> None:
    """Every choice there is when the context is full, with what each is said to take."""
    s = user.screen
    user.answered()
    for turn in range(9):
        s.key("ctrl+l")
        s.type(f"Tell me about the sea in two sentences. ({turn + 1})")
        before = user.count("messages")
        s.key("Return")
        user.until(lambda before=before: user.count("messages") > before or s.sees(FULL), "a question or a refusal")
        if s.sees(FULL):
            break
        user.answered()
    s.find(f"({FULL}).*", enabled=False)
    s.shoot("72-context-full")
    s.click("Increase context…", kind="QPushButton")
    s.find("Load with .* tokens|Load anyway", 60, kind="QPushButton")
    s.shoot("73-more-context")
    s.click("Load with .* tokens|Load anyway", kind="QPushButton")
    s.until(lambda seen: seen["state"] == "loading", "the loading", 20)
    user.answered()
    s.find(".* of 512 tokens", 20, enabled=False)
    s.shoot("74-larger-context")


def switch_model(user: User) -> None:
    s = user.screen
    user.answered()
    load_from_the_list(user)
    user.page("ctrl+1")
    user.ask(QUESTIONS[0])
    user.answered()
    load_from_the_list(user)
    user.page("ctrl+1")
    s.find(".*answered in this chat.*frees.*", 30, enabled=False)
    s.shoot("79-another-model")
    before = s.look()["model"]
    s.click("Load .*", kind="QPushButton")
    # Said while it loads, which a small model may do between two looks.
    user.until(
        lambda: s.sees(".* is unloaded, which frees .*") or s.look()["model"] not in ("", before), "what is unloaded"
    )
    user.answered()
    if s.look()["model"] == before:
        raise NotSeen("another model")


def load_from_the_list(user: User) -> None:
    """The other one of the two models that are here."""
    s = user.screen
    before = s.look()["model"]
    user.page("ctrl+2")
    s.click("Load .*", kind="QPushButton", seconds=60)
    s.until(lambda seen: seen["state"] == "ready" and seen["model"] != before, "another model", 60)
