"""The walk of a new user through the real program, by mouse and keyboard, with pictures of what was seen.

    python tests/app/walk/walk.py FOLDER [--turns 30] [--data DATA] [SCENE ...]

FOLDER takes the pictures, the program's stderr and `walk.txt`. Needs Xvfb, openbox, xdotool and ImageMagick, and the
demo model on this PC (`greenroom demo` fetches it). Ends with an error when something was not where a user expects it,
when Qt or Python warned, or when memory grew.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from screen import NotSeen, Screen

#: What other programs write to stderr: there is no session around the screen.
FOREIGN = re.compile(r"Openbox-Message|^\s*$|dbus|libEGL|MESA|Gtk-|propagateSizeHints")
ANSWER_S = 120
QUESTIONS = (
    "What is the capital of France?",
    "Write a Python function that adds two numbers.",
    "List three colours as bullet points.",
    "Make a table of two animals and their sounds.",
    "Tell me about the sea in two sentences.",
)


class Walk:
    def __init__(self, home: Path, data: Path, pictures: Path, turns: int) -> None:
        self.home, self.data, self.pictures, self.turns = home, data, pictures, turns
        self.figures: list[str] = []
        self.screen: Screen

    def note(self, text: str) -> None:
        self.figures.append(text)
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def on(self, name: str, width: int, height: int, scale: float, steps: tuple[str, ...]) -> None:
        """One scene on a screen of its own."""
        begun, usual = time.monotonic(), self.data
        if name in FRESH:
            # Another user, with these settings and no chats.
            self.data = prepared(usual.parent / f"{usual.name}-{name}", (usual / "models" / "demo").resolve())
            (self.data / "settings.json").write_text(json.dumps(FRESH[name]))
        self.screen = Screen(self.home, self.data, self.pictures, width, height, scale)
        try:
            self.screen.start()
            self.screen.resize(width, height)
            for step in steps:
                since = time.monotonic()
                getattr(self, step)()
                self.note(f"  {step}: {time.monotonic() - since:.0f} s")
            if self.screen.quit() != 0:
                raise NotSeen("the program did not end in peace")
        finally:
            self.screen.close()
            if self.data != usual:
                shutil.rmtree(self.data)
                self.data = usual
        self.note(f"{name} {width}x{height} at {scale:g}: {time.monotonic() - begun:.0f} s")

    def answered(self) -> None:
        self.screen.until(lambda seen: seen["state"] == "ready", "the end of the answer", ANSWER_S)

    def ask(self, text: str) -> None:
        self.screen.key("ctrl+l")
        self.screen.type(text)
        self.begin(lambda: self.screen.key("Return"))

    def begin(self, act: Callable[[], object]) -> None:
        """Do what begins an answer, and see that it began; a short one is over at once."""
        started = "SELECT COUNT(*) FROM messages WHERE role = 'assistant'"
        goes_on = "SELECT COUNT(*) FROM messages WHERE role = 'assistant' AND stop_reason IS NULL"
        before = self.rows(started)[0][0]
        act()
        deadline = time.monotonic() + 60
        while self.rows(started)[0][0] == before and not self.rows(goes_on)[0][0]:
            if time.monotonic() > deadline:
                self.screen.shoot("not-seen")
                raise NotSeen(f"an answer; there are {before}")
            time.sleep(0.05)

    def rows(self, sql: str) -> list[tuple]:
        with closing(sqlite3.connect(self.data / "chats.sqlite", timeout=10)) as db:
            return db.execute(sql).fetchall()

    def palette(self, words: str) -> None:
        self.screen.key("ctrl+k")
        self.screen.type(words)
        self.screen.key("Return")
        time.sleep(0.3)

    def choose_preset(self, name: str) -> None:
        self.screen.click("How this chat answers: .*")
        self.screen.find("Preset", 10, kind="QComboBox")
        self.screen.type(name)
        self.screen.key("Escape")
        self.screen.find(f"How this chat answers: {name}")

    def file_dialog(self, path: Path) -> None:
        self.screen.find("File &name:|File name:", 15, enabled=False)
        self.screen.type(str(path))
        self.screen.key("Return")

    # Scenes

    def first_minute(self) -> None:
        s = self.screen
        s.find("Welcome to Greenroom", 60)
        s.shoot("01-welcome")
        s.key("Return")
        s.find("Disk", 60)
        s.find("Continue", 60)
        s.shoot("02-this-pc")
        s.click("Continue")
        s.find("What fits", 30)
        time.sleep(2)
        s.shoot("03-what-fits")
        s.click("Continue")
        s.find("Chat now with the built-in demo model")
        s.shoot("04-start")
        s.click("Chat now with the built-in demo model")
        s.click("Start", kind="QPushButton")
        self.answered()
        s.shoot("05-demo-ready")
        self.begin(lambda: s.click(re.escape(QUESTIONS[0])))
        s.shoot("06-answering")
        self.answered()
        s.shoot("07-answered")

    def presets(self) -> None:
        s = self.screen
        s.click("How this chat answers: .*")
        s.find("System prompt", 10)
        s.click("Sampling")
        s.click("Longest answer|Max tokens|Token limit|.*[Tt]okens.*", kind="QSpinBox")
        s.key("ctrl+a")
        s.type("48\t")
        s.shoot("10-options")
        s.click("More about presets")
        s.shoot("10-preset-menu")
        s.click("Save as a preset…", kind="entry")
        s.find("Name of the new preset", 5)
        s.type("Brief")
        s.key("Return")
        time.sleep(0.3)
        s.key("Escape")
        s.find("How this chat answers: Brief")
        kept = self.papers / "my-presets.json"
        self.preset_menu("Export my presets…")
        self.file_dialog(kept)
        self.until(kept.exists, "the file of presets")
        self.preset_menu("Delete this preset")
        s.key("Escape")
        s.find("How this chat answers: Recommended.*")
        self.preset_menu("Import presets…")
        s.shoot("10-file-dialog")
        self.file_dialog(kept)
        self.choose_preset("Brief")

    def preset_menu(self, entry: str) -> None:
        s = self.screen
        s.click("How this chat answers: .*")
        s.click("More about presets")
        s.click(entry, kind="entry")

    @property
    def papers(self) -> Path:
        """Where the user keeps files."""
        folder = self.pictures / "papers"
        folder.mkdir(exist_ok=True)
        return folder

    def until(self, holds: Callable[[], object], what: str, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                raise NotSeen(what)
            time.sleep(0.1)

    def thirty_turns(self) -> None:
        s = self.screen
        self.answered()
        before = s.rss
        for turn in range(self.turns):
            self.ask(f"{QUESTIONS[turn % len(QUESTIONS)]} ({turn + 1})")
            if turn == 2:
                s.key("Escape")
            self.answered()
            if s.sees("The context is full|context is full"):
                s.shoot("12-context-full")
                s.click("Leave out the oldest.*|.*oldest.*", kind="QPushButton")
            if turn in (0, 4, 14):
                self.note(f"after {turn + 1} turns: {s.rss:.1f} MB")
        s.shoot("11-thirty-turns")
        self.note(f"RSS before {self.turns} turns {before:.1f} MB, after {s.rss:.1f} MB")

    def branches(self) -> None:
        s = self.screen
        self.begin(lambda: s.click("Regenerate this answer"))
        self.answered()
        s.find("2/2")
        s.click("Previous version")
        s.find("1/2")
        s.click("Next version")
        s.find("2/2")
        s.move_to(s.find("Your message"))
        s.click("Edit message")
        s.find("Editing an earlier message.*", enabled=False)
        s.shoot("13-editing")
        s.key("ctrl+a")
        s.type("What is two plus two?")
        self.begin(lambda: s.key("Return"))
        self.answered()
        s.shoot("14-branch")
        s.click("More for this answer")
        s.shoot("15-message-menu")
        s.key("Escape")

    def search_find(self) -> None:
        s = self.screen
        s.key("ctrl+f")
        s.type("capital")
        time.sleep(0.6)
        s.shoot("20-search")
        s.key("ctrl+a", "BackSpace")
        s.key("ctrl+shift+f")
        s.type("colours")
        time.sleep(0.6)
        s.shoot("21-find")
        s.key("Return", "Return", "Escape")

    def sort_chats(self) -> None:
        s = self.screen
        title = self.rows("SELECT title FROM chats WHERE deleted IS NULL ORDER BY id LIMIT 1")[0][0]
        row = re.escape(title)
        s.click(row, 3, kind="row")
        s.shoot("22-chat-menu")
        s.click("Pin", kind="entry")
        s.find("Pinned", kind="row")
        s.click(row, 3, kind="row")
        s.click("Unpin", kind="entry")
        s.click(row, 3, kind="row")
        s.click("Move to folder", kind="entry")
        s.click("New folder…", kind="entry")
        s.find("Name of the folder")
        s.type("Geography")
        s.shoot("23-folder-name")
        s.key("Return")
        s.find("Geography", kind="row")
        s.shoot("24-folder")

    def files(self) -> None:
        s = self.screen
        self.answered()
        note = self.papers / "note.txt"
        note.write_text("The greenroom is the room where actors wait before they go on stage.\n" * 12)
        s.key("ctrl+n")
        s.click("Attach text files")
        self.file_dialog(note)
        s.find("note.txt.*", enabled=False)
        s.shoot("25-attachment")
        self.ask("What is a greenroom?")
        self.answered()
        s.key("ctrl+f")
        s.type("actors wait")
        s.find("What is a greenroom.*", kind="row")
        s.shoot("26-found-in-a-file")
        s.key("ctrl+a", "BackSpace")
        target = self.papers / "exported"
        for ending, entry in ((".json", "JSON.*"), (".md", "Markdown.*"), (".html", "Web page.*")):
            title = self.rows("SELECT title FROM chats WHERE deleted IS NULL ORDER BY id LIMIT 1")[0][0]
            s.click(re.escape(title), 3, kind="row")
            s.click("Export", kind="entry")
            s.click(entry, kind="entry")
            self.file_dialog(target.with_suffix(ending))
            s.find(f"Saved as exported{ending}", 20, enabled=False)
        s.shoot("26-exported")
        before = self.rows("SELECT COUNT(*) FROM chats")[0][0]
        self.palette("import chats")
        self.file_dialog(target.with_suffix(".json"))
        s.find("1 chat was imported|1 chats? .*imported", 20, enabled=False)
        s.shoot("27-imported")
        if self.rows("SELECT COUNT(*) FROM chats")[0][0] != before + 1:
            raise NotSeen("the imported chat")
        s.key("ctrl+n")

    def drag_and_paste(self) -> None:
        """From another program: a file is dropped, then pasted; a picture and a very long text are pasted."""
        s = self.screen
        self.answered()
        dropped, copied = self.papers / "dropped.txt", self.papers / "copied.csv"
        dropped.write_text("The curtain rises at eight.\n" * 20)
        copied.write_text("animal,sound\ncow,moo\n" * 20)
        s.key("ctrl+n")
        with s.other_program("file", str(dropped)):
            s.drag((60, 330), s.find("Message"))
            s.find("dropped.txt, .* tokens")
        with s.other_program("file", str(copied)):
            s.key("ctrl+l", "ctrl+v")
            s.find("copied.csv, .* tokens")
        s.shoot("28-dropped-and-pasted")
        with s.other_program("image"):
            s.key("ctrl+v")
            s.find("The picture was not attached.*", enabled=False)
            s.shoot("28-pasted-picture")
        with s.other_program("text", "200000"):
            s.key("ctrl+v")
            s.find("Pasted text, .* (tokens|characters)", 30)
            s.find("Pasted text has ~?[0-9.k]+ tokens, and .* are free in this chat.", 60, enabled=False)
            s.shoot("28-pasted-too-much")
        s.click("Leave it out", kind="QPushButton")
        s.click("Remove dropped.txt")
        s.click("Remove copied.csv")
        s.key("ctrl+l")
        s.type("What is a stage?")
        s.find("What is a stage\\?")
        s.key("ctrl+a", "BackSpace")

    def stage(self) -> None:
        s = self.screen
        self.answered()
        self.choose_preset("Brief")
        s.click("Stage", kind="QPushButton")
        s.find("Stage", kind="label")
        self.ask("Write a short poem about the sea.")
        time.sleep(1.0)
        s.shoot("30-stage")
        self.answered()
        self.palette("performance of")
        s.shoot("31-stage-and-performance")
        s.click("Stage", kind="QPushButton")
        time.sleep(0.3)
        s.shoot("32-performance")
        s.key("ctrl+shift+p")
        s.key("ctrl+k")
        s.type("sta")
        s.shoot("33-palette")
        s.key("Escape")

    def second_start(self) -> None:
        """The window that is there comes up, and takes what the second start was to open."""
        s = self.screen
        s.xdotool("search", "--onlyvisible", "--name", "Greenroom$", "windowminimize")
        if s.start_again() != 0:
            raise NotSeen("the end of the second start")
        s.click("New chat")

    def pages(self) -> None:
        s = self.screen
        for number, (key, name) in enumerate((("ctrl+2", "models"), ("ctrl+3", "this-pc"), ("ctrl+comma", "settings"))):
            s.key(key)
            time.sleep(2.0 if number < 2 else 0.5)
            s.shoot(f"{40 + number}-{name}")
        self.sections(SECTIONS, "5")
        s.key("ctrl+1")

    def sections(self, names: tuple[str, ...], mark: str) -> None:
        """Each section of the settings, which are open."""
        for number, name in enumerate(names):
            self.section(name)
            time.sleep(0.6)
            self.screen.shoot(f"{mark}{number}-settings")

    def section(self, name: str) -> None:
        """A narrow window has a list to choose from instead of the buttons."""
        try:
            self.screen.click(name, kind="QPushButton", seconds=1)
        except NotSeen:
            self.screen.click("Page of the settings|설정 페이지", kind="Combo")
            pairs = zip(SECTIONS, SECTIONS_KO, strict=True)
            place = next(
                n for n, pair in enumerate(pairs) if re.fullmatch(name, pair[0]) or re.fullmatch(name, pair[1])
            )
            self.screen.key("Home", *["Down"] * place, "Return")

    def korean(self) -> None:
        s = self.screen
        self.speak("Language", "한국어")
        s.find("새 .*", 20)
        s.shoot("60-korean-settings")
        s.key("ctrl+1")
        s.click("프랑스의 수도는.*")
        # In the middle of an answer, and back.
        self.speak("언어.*", "English")
        s.find("New chat", 20)
        self.answered()
        self.speak("Language", "한국어")
        s.find("새 .*", 20)
        self.tour("60-korean")
        s.key("ctrl+comma")
        self.sections(SECTIONS_KO, "64-korean-")
        self.speak("언어.*", "English")
        s.find("New chat", 20)
        s.key("ctrl+1")

    def speak(self, field: str, language: str) -> None:
        s = self.screen
        s.key("ctrl+comma")
        self.section("General|일반")
        s.click(field, kind="Combo")
        s.click(f".*{language}.*", kind="row")

    def zoomed(self) -> None:
        """The program's own zoom at its largest, in the smallest of usual windows, in both languages."""
        s = self.screen
        self.answered()
        for _ in range(12):
            s.key("ctrl+equal")
        time.sleep(1.0)
        for language in ("English", "한국어"):
            self.speak("Language|언어.*", language)
            time.sleep(1.5)
            mark = f"90-zoom-{'en' if language == 'English' else 'ko'}"
            self.tour(mark)
            s.key("ctrl+comma")
            self.sections(SECTIONS if language == "English" else SECTIONS_KO, f"{mark}-")
            self.palette("set up" if language == "English" else "설정 안내")
            time.sleep(1.5)
            s.shoot(f"{mark}-wizard")
            s.key("Return")
            time.sleep(3)
            s.shoot(f"{mark}-wizard-pc")
            s.key("Escape")
        self.speak("언어.*", "English")
        s.key("ctrl+0")
        s.find("New chat", 20)

    def dark(self) -> None:
        s = self.screen
        s.key("ctrl+shift+l")
        s.shoot("65-other-theme")

    def killed(self) -> None:
        s = self.screen
        self.answered()
        s.key("ctrl+n")
        self.ask("Write a short poem about the sea.")
        last = "SELECT text FROM messages WHERE role = 'assistant' ORDER BY id DESC LIMIT 1"
        deadline = time.monotonic() + 30
        while not self.rows(last)[0][0] and time.monotonic() < deadline:
            time.sleep(0.05)
        s.kill()
        saved = self.rows(last)[0][0]
        if not saved:
            raise NotSeen("the answer that was being written")
        s.start()
        s.find("Greenroom ended while.*|.*unfinished.*|.*was not finished.*", 60, enabled=False)
        self.answered()
        s.shoot("70-after-kill")
        if self.rows(last)[0][0] != saved:
            raise NotSeen("the text that was written before the end")
        s.click("Open that chat")
        s.find("Messages")
        s.shoot("71-cut-off-answer")
        s.click("Continue.*|Go on.*|Finish.*", kind="QPushButton")
        time.sleep(1)
        s.key("Escape")
        self.answered()
        if not self.rows(last)[0][0].startswith(saved[:20]):
            raise NotSeen("the continued answer")

    def tour(self, mark: str = "") -> None:
        """What every size of the window must stand: used on narrow, large and sharp screens, and in Korean."""
        s = self.screen
        self.answered()
        seen = s.look()
        name = mark or f"80-{seen['size'][0]}x{seen['size'][1]}-{s.scale:g}"
        # A narrow window has folded the list of chats; this unfolds it.
        s.key("ctrl+f")
        s.click("What is the capital.*", kind="row")
        s.shoot(f"{name}-0-chat")
        s.key("ctrl+shift+e")
        s.shoot(f"{name}-1-stage-toggled")
        s.key("ctrl+shift+p")
        s.shoot(f"{name}-2-performance")
        s.key("ctrl+shift+e")
        s.shoot(f"{name}-3-stage-toggled")
        if s.look()["performance"]:
            s.key("ctrl+shift+p")
        for number, (key, page) in enumerate((("ctrl+2", "models"), ("ctrl+3", "this-pc"), ("ctrl+comma", "settings"))):
            s.key(key)
            s.until(lambda seen: not any(WAITING.search(item["text"]) for item in seen["items"]), f"all of {page}", 90)
            s.shoot(f"{name}-{number + 4}-{page}")
        s.key("ctrl+1")
        s.key("ctrl+k")
        s.shoot(f"{name}-7-palette")
        s.key("Escape")
        s.key("ctrl+period")
        s.shoot(f"{name}-8-options")
        s.key("Escape")
        s.key("ctrl+shift+l")
        s.shoot(f"{name}-9-other-theme")

    def pictures_for_the_readme(self) -> None:
        """In a fresh data folder, at 1440x900."""
        s = self.screen
        s.find("Welcome to Greenroom", 60)
        s.click("Chat now with the demo model")
        self.answered()
        self.choose_preset("Precise")
        for question in (QUESTIONS[0], QUESTIONS[2], QUESTIONS[4]):
            self.ask(question)
            self.answered()
        s.xdotool("mousemove", "700", "600")
        s.shoot("chat-light", window=True)
        s.key("ctrl+shift+l")
        s.click("Stage", kind="QPushButton")
        s.xdotool("mousemove", "700", "600")
        self.ask("Explain in three sentences why the sky is blue.")
        time.sleep(1.2)
        s.shoot("chat-dark", window=True)
        self.answered()
        s.key("ctrl+3")
        s.find("Compare with this PC…", 60)
        s.until(lambda seen: "Working it out…" not in {item["text"] for item in seen["items"]}, "the answer", 120)
        s.shoot("this-pc-dark", window=True)
        s.key("ctrl+2", "ctrl+shift+l")
        s.find("Download", 60)
        waits = re.compile("working it out", re.IGNORECASE)
        s.until(lambda seen: not any(waits.match(item["text"]) for item in seen["items"]), "all plans", 120)
        s.shoot("models-light", window=True)

    def no_model(self) -> None:
        s = self.screen
        s.find("Choose a model", 30)
        s.key("ctrl+l")
        s.type("Am I heard?")
        s.shoot("75-no-model")
        s.key("Return")
        s.find("Load a model to start chatting")

    def model_gone(self) -> None:
        s = self.screen
        s.until(lambda seen: seen["state"] in ("ready", "failed"), "an end of the loading", 60)
        time.sleep(1)
        s.shoot("76-model-gone")
        s.find(".*Qwen3-30B-A3B.*", enabled=False)

    def offline(self) -> None:
        s = self.screen
        self.answered()
        s.key("ctrl+2")
        s.click("Filter the models.*")
        s.type("qwen")
        s.key("Return")
        s.find(".*[Oo]ffline.*", enabled=False)
        s.shoot("77-offline-models")
        s.key("ctrl+1")
        s.shoot("78-offline-chat")

    def full_context(self) -> None:
        """Every choice there is when the context is full, with what each is said to take."""
        s = self.screen
        self.answered()
        full = re.compile("The context is full|This does not fit")
        for turn in range(9):
            s.key("ctrl+l")
            s.type(f"Tell me about the sea in two sentences. ({turn + 1})")
            s.key("Return")
            time.sleep(3)
            s.key("Escape")
            self.answered()
            if s.sees(full.pattern):
                break
        else:
            s.shoot("not-seen")
            raise NotSeen("a full context")
        s.shoot("72-context-full")
        s.click("More context…", kind="QPushButton")
        s.find("Load with .* tokens|Load anyway", 60, kind="QPushButton")
        s.shoot("73-more-context")
        s.click("Load with .* tokens|Load anyway", kind="QPushButton")
        s.until(lambda seen: seen["state"] == "loading", "the loading", 20)
        self.answered()
        s.shoot("74-larger-context")

    def switch_model(self) -> None:
        s = self.screen
        self.answered()
        self.load_from_the_list()
        s.key("ctrl+1")
        self.ask(QUESTIONS[0])
        self.answered()
        self.load_from_the_list()
        s.key("ctrl+1")
        s.find(".*answered in this chat.*frees.*", 30, enabled=False)
        s.shoot("79-another-model")
        s.click("Load .*", kind="QPushButton")
        s.find(".* is unloaded, which frees .*", 20, enabled=False)
        self.answered()

    def load_from_the_list(self) -> None:
        """The other one of the two models that are here."""
        s = self.screen
        s.key("ctrl+2")
        s.click("Load.*", kind="QPushButton", seconds=60)
        s.until(lambda seen: seen["state"] != "ready", "the loading", 20)
        self.answered()

    def tab_order(self) -> None:
        """Each press of Tab stands somewhere new and named, until it is round."""
        s = self.screen
        s.key("ctrl+l")
        seen: list[str] = []
        for _ in range(40):
            s.key("Tab")
            at = next((i for i in s.look()["items"] if i.get("focus")), None)
            if at is None or not (at["name"] or at["text"]):
                raise NotSeen(f"a name where Tab leads after {seen[-1:]}: {at}")
            name = f"{at['name'] or at['text'][:30]}"
            if name == "Message" and seen:
                break
            seen.append(name)
        self.note("Tab: " + " > ".join(seen))


SECTIONS = (
    "General",
    "Appearance",
    "Answers",
    "Models folder",
    "Performance",
    "Network",
    "Privacy",
    "Shortcuts",
    "About",
)
SECTIONS_KO = ("일반", "모양", "답변", "모델 폴더", "성능", "네트워크", "개인 정보", "단축키", "정보")
WAITING = re.compile("working it out|looking at|계산 중|확인하고 있|살펴보고 있", re.IGNORECASE)
SCENES = {
    "first": (1280, 820, 1.0, ("first_minute",)),
    "chat": (
        1280,
        820,
        1.0,
        ("presets", "thirty_turns", "branches", "search_find", "sort_chats", "files", "drag_and_paste"),
    ),
    "panels": (1280, 820, 1.0, ("stage", "tab_order", "second_start")),
    "pages": (1280, 820, 1.0, ("pages", "korean", "dark")),
    "killed": (1280, 820, 1.0, ("killed",)),
    "no-model": (1280, 820, 1.0, ("no_model",)),
    "gone": (1280, 820, 1.0, ("model_gone",)),
    "offline": (1280, 820, 1.0, ("offline",)),
    "full": (1280, 820, 1.0, ("full_context",)),
    "switch": (1280, 820, 1.0, ("switch_model",)),
    "readme": (1440, 900, 1.0, ("pictures_for_the_readme",)),
    "small": (1024, 700, 1.0, ("tour",)),
    "zoomed": (1024, 700, 1.0, ("zoomed",)),
    "large": (2560, 1440, 1.0, ("tour",)),
    "sharp": (2560, 1640, 2.0, ("tour",)),
    "sharp-small": (1400, 760, 2.0, ("tour",)),
}


#: Scenes of another user, with the settings they begin with.
FRESH = {
    "no-model": {"welcomed": True, "start": "nothing"},
    "gone": {"welcomed": True, "start": "last", "last_model": "/nowhere/Qwen3-30B-A3B-Q4_K_M.gguf"},
    "offline": {"welcomed": True, "start": "demo", "offline": True},
    "full": {"welcomed": True, "start": "demo", "context": 256},
    "switch": {"welcomed": True, "start": "demo", "max_tokens": 32},
}


def prepared(data: Path, demo: Path) -> Path:
    """A data folder in which the demo model is."""
    (data / "models").mkdir(parents=True, exist_ok=True)
    if not (data / "models" / "demo").exists():
        (data / "models" / "demo").symlink_to(demo)
    return data


def complaints(log: Path) -> list[str]:
    text = log.read_text(errors="replace") if log.exists() else ""
    return [line for line in text.splitlines() if not FOREIGN.search(line)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("scenes", nargs="*", help="of " + ", ".join(SCENES) + ", or one step")
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--data", type=Path, help="go on in this data folder")
    parser.add_argument("--demo", type=Path, default=Path.home() / ".local/share/greenroom/models/demo")
    options = parser.parse_intermixed_args()
    # A home as users have one: the window names folders in it.
    home = Path(tempfile.mkdtemp(prefix="home-"))
    data = prepared(options.data or home / ".local/share/greenroom", options.demo)
    walk = Walk(home, data, options.folder.resolve(), options.turns)
    failed = []
    for name in options.scenes or [name for name in SCENES if name != "readme"]:
        width, height, scale, steps = SCENES.get(name, (1280, 820, 1.0, (name,)))
        try:
            walk.on(name, width, height, scale, steps)
        except (NotSeen, OSError, AssertionError, KeyError) as error:
            failed.append(f"{name}: {error}")
            walk.note(f"FAILED {name}: {error}")
    said = complaints(walk.screen.log)
    (options.folder / "walk.txt").write_text("\n".join([*walk.figures, *said]) + "\n", encoding="utf-8")
    for line in said:
        walk.note(f"stderr: {line}")
    shutil.rmtree(home)
    return 1 if failed or said else 0


if __name__ == "__main__":
    sys.exit(main())
