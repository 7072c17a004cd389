"""What a user of the program knows how to do, each seen to have happened before it is done."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from screen import NotSeen, Screen

ANSWER_S = 120
QUESTIONS = (
    "What is the capital of France?",
    "Write a Python function that adds two numbers.",
    "List three colours as bullet points.",
    "Make a table of two animals and their sounds.",
    "Tell me about the sea in two sentences.",
)
#: Pages by the key that shows them.
PAGES = {"ctrl+1": "chat", "ctrl+2": "models", "ctrl+3": "hardware", "ctrl+comma": "settings"}
#: Sections of the settings by the names of their buttons.
SECTIONS = {
    "general": ("General", "일반"),
    "appearance": ("Appearance", "모양"),
    "answers": ("Answers", "답변"),
    "models": ("Models folder", "모델 폴더"),
    "performance": ("Performance", "성능"),
    "network": ("Network", "네트워크"),
    "privacy": ("Privacy", "개인 정보"),
    "shortcuts": ("Shortcuts", "단축키"),
    "about": ("About", "정보"),
}
LANGUAGES = {"English": "en", "한국어": "ko"}
WAITING = re.compile("working it out|looking (?:at|them up)|계산 중|확인하고 있|살펴보고 있", re.IGNORECASE)


class User:
    """screen: with the program on it; data: the program's; papers: where the user keeps files."""

    def __init__(self, screen: Screen, data: Path, papers: Path, say: Callable[[str], None], turns: int) -> None:
        self.screen, self.data, self.papers, self.note, self.turns = screen, data, papers, say, turns
        papers.mkdir(exist_ok=True)

    def shows(self, what: str, **state: Any) -> dict[str, Any]:
        """Wait until the window is in that state, by the names the witness gives."""
        return self.screen.until(lambda seen: all(seen.get(key) == value for key, value in state.items()), what)

    def until(self, holds: Callable[[], object], what: str, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                self.screen.shoot("not-seen")
                raise NotSeen(what)
            time.sleep(0.1)

    def gone(self, pattern: str, seconds: float = 10) -> None:
        self.until(lambda: not self.screen.sees(pattern), f"the end of “{pattern}”", seconds)

    def rows(self, sql: str) -> list[tuple]:
        """Of the chats' database."""
        with closing(sqlite3.connect(self.data / "chats.sqlite", timeout=10)) as db:
            return db.execute(sql).fetchall()

    def count(self, what: str) -> int:
        return self.rows(f"SELECT COUNT(*) FROM {what}")[0][0]

    # Chatting

    def answered(self) -> None:
        self.screen.until(lambda seen: seen["state"] == "ready", "the end of the answer", ANSWER_S)

    def ask(self, text: str) -> None:
        self.screen.key("ctrl+l")
        self.screen.type(text)
        self.begin(lambda: self.screen.key("Return"))

    def begin(self, act: Callable[[], object]) -> None:
        """Do what begins an answer, and see that it began; a short one is over at once."""
        before = self.count("messages WHERE role = 'assistant'")
        act()
        self.until(
            lambda: self.count("messages WHERE role = 'assistant'") != before or self.unfinished,
            f"an answer; there are {before}",
            60,
        )

    @property
    def unfinished(self) -> int:
        return self.count("messages WHERE role = 'assistant' AND stop_reason IS NULL")

    def choose_preset(self, name: str) -> None:
        s = self.screen
        s.click("Chat settings: .*")
        s.find("Preset", 10, kind="Choice")
        s.type(name)
        s.key("Escape")
        s.find(f"How this chat answers: {name}")

    def preset_menu(self, entry: str) -> None:
        s = self.screen
        s.click("Chat settings: .*")
        s.click("Preset actions")
        s.click(entry, kind="entry")

    # Finding the way

    def palette(self, words: str, entry: str) -> None:
        """A command or a chat by some of its words. entry: a pattern for the title that must come first."""
        s = self.screen
        s.key("ctrl+k")
        s.find("Find a command, chat, model or setting|명령, 채팅, 모델, 설정 찾기", kind="QLineEdit")
        s.type(words)
        listed = "What was found|찾은 결과"
        s.until(
            lambda seen: any(
                item["kind"] == "row"
                and re.fullmatch(listed, item["list"])
                and item["on"]
                and re.fullmatch(entry, item["name"])
                for item in seen["items"]
            ),
            f"“{entry}” for “{words}” in the palette",
        )
        s.key("Return")
        self.gone(f"^(?:{listed})$")

    def page(self, key: str) -> None:
        """By its shortcut; what is worked out there has come to its end."""
        s = self.screen
        s.key(key)
        self.shows(f"the page of {key}", page=PAGES[key])
        s.until(lambda seen: not any(WAITING.search(i["text"]) for i in seen["items"]), f"all of {PAGES[key]}", 90)

    def section(self, key: str) -> None:
        """Of the settings, which are open. A narrow window has a list to choose from instead of the buttons."""
        s, names = self.screen, "|".join(SECTIONS[key])
        if s.sees("^(?:Settings page|설정 페이지)$"):
            s.click("Settings page|설정 페이지", kind="Combo")
            s.find("|".join(name for both in SECTIONS.values() for name in both), kind="row")
            s.key("Home", *["Down"] * list(SECTIONS).index(key), "Return")
        else:
            s.click(names, kind="QPushButton")
        self.shows(f"the settings of {key}", page="settings", section=key)
        s.find(names, kind="label")

    def sections(self, mark: str) -> None:
        """A picture of each section of the settings."""
        self.page("ctrl+comma")
        for number, key in enumerate(SECTIONS):
            self.section(key)
            s = self.screen
            s.until(
                lambda seen: not any(WAITING.search(i["name"] or i["text"]) for i in seen["items"]), f"all of {key}", 30
            )
            s.shoot(f"{mark}{number}-{key}")

    def speak(self, language: str) -> None:
        s = self.screen
        self.page("ctrl+comma")
        self.section("general")
        s.click("Language|언어.*", kind="Combo")
        s.click(f".*{language}.*", kind="row")
        self.shows(language, language=LANGUAGES[language])
        s.find("New chat|새 채팅", 20)

    def toggle_theme(self) -> None:
        dark = self.screen.look()["dark"]
        self.screen.key("ctrl+shift+l")
        self.shows("the other theme", dark=not dark)

    def panels(self, stage: bool, performance: bool) -> None:
        """Which of them are to be seen."""
        for name, key, wanted in (("performance", "ctrl+shift+p", performance), ("stage", "ctrl+shift+e", stage)):
            if self.screen.look()[name] != wanted:
                self.screen.key(key)
            self.shows(f"{name} {'on' if wanted else 'off'}", **{name: wanted})

    def file_dialog(self, path: Path) -> None:
        self.screen.find("File &name:|File name:", 15, enabled=False)
        self.screen.type(str(path))
        self.screen.key("Return")
        self.gone("^File &?name:$")
