"""Everything there is to look at: pages, panels, dialogs, at every size, zoom, theme and language."""

from __future__ import annotations

import re
import time
from pathlib import Path

from screen import NotSeen
from user import QUESTIONS, User


def stage(user: User) -> None:
    s = user.screen
    user.answered()
    user.choose_preset("Brief")
    s.click("Stage", kind="QPushButton")
    user.shows("the stage", stage=True)
    user.ask("Write a short poem about the sea.")
    s.shoot("30-stage")
    user.answered()
    user.palette("performance of", "Performance panel")
    user.shows("the performance panel", performance=True, stage=True)
    s.find("Milliseconds a token.*", enabled=False)
    s.shoot("31-stage-and-performance")
    user.panels(stage=False, performance=True)
    s.shoot("32-performance")
    user.panels(stage=False, performance=False)
    s.key("ctrl+k")
    s.type("sta")
    s.find("Stage", kind="row")
    s.shoot("33-palette")
    s.key("Escape")
    user.gone("^What was found$")


def replay(user: User) -> None:
    """A run is saved, opened again and played."""
    s = user.screen
    user.answered()
    user.panels(stage=True, performance=False)
    kept = user.papers / "run"
    s.click("Save this run")
    user.file_dialog(kept)
    user.until(lambda: any(user.papers.glob("run*")), "the file of the run")
    s.click("Open a saved run")
    user.file_dialog(next(user.papers.glob("run*")))
    user.shows("the replay", replay=True)
    s.shoot("34-replay")
    user.toggle_theme()
    s.shoot("34-replay-other-theme")
    user.toggle_theme()
    s.click("Close the replay")
    user.shows("the loaded model", replay=False)
    user.panels(stage=False, performance=False)


def card(user: User) -> None:
    """The benchmark card, as another program gets it."""
    s = user.screen
    for theme in ("", "-other-theme"):
        user.panels(stage=False, performance=True)
        s.click("Copy benchmark card")
        s.find("Copied")
        taken = s.pictures / f"35-card{theme}"
        s.take_clipboard(taken)
        if not taken.with_suffix(".png").exists():
            raise NotSeen("the card as a picture")
        s.click("Copy as text")
        s.take_clipboard(taken)
        if "tok/s" not in taken.with_suffix(".txt").read_text(encoding="utf-8"):
            raise NotSeen("the card as text")
        user.toggle_theme()
    user.panels(stage=False, performance=False)


def dialogs(user: User) -> None:
    """What opens over the window, in both themes."""
    s = user.screen
    user.answered()
    for theme in ("", "-other-theme"):
        s.click("Plan: .*")
        s.find("Predicted answer speed", enabled=False)
        s.shoot(f"36-plan{theme}")
        s.key("Escape")
        user.page("ctrl+2")
        s.click("Details of Qwen3-30B-A3B Instruct")
        s.until(lambda seen: "Qwen3-30B-A3B Instruct" in seen["windows"], "the model's details")
        time.sleep(1)
        s.shoot(f"37-details{theme}")
        s.key("Escape")
        user.page("ctrl+3")
        s.click("Compare with this PC…")
        s.until(lambda seen: "Compare machines" in seen["windows"], "the comparison")
        time.sleep(3)
        s.shoot(f"38-compare{theme}")
        s.key("Escape")
        wizard(user, f"39-wizard{theme}", "set up", "Set up this PC again")
        user.page("ctrl+1")
        user.toggle_theme()


def wizard(user: User, mark: str, words: str, entry: str) -> None:
    """All its pages, from the palette on."""
    s = user.screen
    titles = {"Greenroom setup", "Greenroom: 설정"}
    user.palette(words, entry)
    s.until(lambda seen: bool(titles & set(seen["windows"])), "the set-up guide")
    pages = (
        ("welcome", "Welcome to Greenroom|Greenroom에 오신 것을 환영합니다", "Continue|계속"),
        ("pc", "This PC|이 PC", "Continue|계속"),
        ("fits", "What fits|.*맞는 모델.*", "Continue|계속"),
        ("start", "Start|시작", ""),
    )
    for name, title, further in pages:
        s.find(title, 30, kind="label")
        if further:
            s.find(further, 60, kind="QPushButton")
        time.sleep(1)
        s.shoot(f"{mark}-{name}")
        if further:
            s.click(further, kind="QPushButton")
    s.key("Escape")
    s.until(lambda seen: not titles & set(seen["windows"]), "the guide's end")


def pages(user: User) -> None:
    for number, key in enumerate(("ctrl+2", "ctrl+3", "ctrl+comma")):
        user.page(key)
        user.screen.shoot(f"{40 + number}-page")
    user.sections("5")
    user.page("ctrl+1")


def korean(user: User) -> None:
    s = user.screen
    user.speak("한국어")
    s.shoot("60-korean-settings")
    user.page("ctrl+1")
    s.key("ctrl+n")
    user.begin(lambda: s.click("프랑스의 수도는.*"))
    # In the middle of an answer, and back.
    user.speak("English")
    user.answered()
    user.speak("한국어")
    tour(user, "60-korean")
    user.sections("64-korean-")
    user.speak("English")
    user.page("ctrl+1")


def zoomed(user: User) -> None:
    """The program's own zoom at its largest, in the smallest of usual windows, in both languages."""
    s = user.screen
    user.answered()
    for _ in range(12):
        s.key("ctrl+equal")
    user.shows("the largest zoom", zoom=2.0)
    for language, words, entry in (
        ("English", "set up", "Set up this PC again"),
        ("한국어", "다시 설정", "이 PC 다시 설정"),
    ):
        user.speak(language)
        mark = f"90-zoom-{'en' if language == 'English' else 'ko'}"
        s.click("Language|언어.*", kind="Combo")
        s.find("English", kind="row")
        s.shoot(f"{mark}-languages")
        s.key("Escape")
        tour(user, mark)
        user.sections(f"{mark}-6-")
        wizard(user, f"{mark}-wizard", words, entry)
    user.speak("English")
    s.key("ctrl+0")
    user.shows("the usual zoom", zoom=1.0)


def tour(user: User, mark: str = "") -> None:
    """What every size of the window must stand: used on narrow, large and sharp screens, and in Korean."""
    s = user.screen
    user.answered()
    seen = s.look()
    name = mark or f"80-{seen['size'][0]}x{seen['size'][1]}-{s.scale:g}"
    user.page("ctrl+1")
    # A narrow window has folded the list of chats, and a low one shows few of them.
    user.palette("what is the capital", "What is the capital.*")
    s.find("Messages|메시지 목록|메시지")
    user.panels(stage=False, performance=False)
    s.shoot(f"{name}-0-chat")
    user.panels(stage=True, performance=False)
    user.ask(QUESTIONS[4])
    user.answered()
    s.shoot(f"{name}-1-stage")
    # A narrow window has room for one of them.
    s.key("ctrl+shift+p")
    user.shows("the performance panel", performance=True)
    s.shoot(f"{name}-2-performance")
    user.panels(stage=False, performance=False)
    for number, (key, page) in enumerate((("ctrl+2", "models"), ("ctrl+3", "this-pc"), ("ctrl+comma", "settings"))):
        user.page(key)
        s.shoot(f"{name}-{number + 3}-{page}")
    user.page("ctrl+1")
    s.key("ctrl+k")
    s.find("Find a command, chat, model or setting|명령, 채팅, 모델, 설정 찾기", kind="QLineEdit")
    s.shoot(f"{name}-6-palette")
    s.key("Escape")
    s.key("ctrl+period")
    s.find("System prompt|시스템 프롬프트", 10)
    s.shoot(f"{name}-7-options")
    s.key("Escape")
    user.gone("^(System prompt|시스템 프롬프트)$")
    user.toggle_theme()
    s.shoot(f"{name}-8-other-theme")


def tab_order(user: User) -> None:
    """Each press of Tab stands somewhere new and named, until it is round."""
    s = user.screen
    s.key("ctrl+l")
    seen: list[str] = []
    places: set[tuple[int, ...]] = set()
    while len(seen) < 60:
        s.key("Tab")
        at = next((i for i in s.look()["items"] if i.get("focus")), None)
        if at is None or not (at["name"] or at["text"]):
            raise NotSeen(f"a name where Tab leads after {seen[-1:]}: {at}")
        name = at["name"] or at["text"][:30]
        if name == "Message" and seen:
            user.note("Tab: " + " > ".join(seen))
            return
        if tuple(at["place"]) in places:
            raise NotSeen(f"a new place where Tab leads after {seen[-1:]}: {name}")
        places.add(tuple(at["place"]))
        seen.append(name)
    raise NotSeen(f"the way round with Tab: {seen}")


def pictures_for_the_readme(user: User) -> None:
    """In a fresh data folder, at 1440x900."""
    s = user.screen
    s.find("Welcome to Greenroom", 60)
    s.click("Chat now with the demo model")
    user.answered()
    user.ask(QUESTIONS[1])
    user.answered()
    s.key("ctrl+n")
    user.choose_preset("Precise")
    for question in (QUESTIONS[0], "Write a short poem about the sea."):
        user.ask(question)
        user.answered()
    _shoot_window(user, "chat-light")
    user.toggle_theme()
    user.panels(stage=True, performance=False)
    user.ask("Tell me a long story about a lighthouse and its keeper.")
    _shoot_window(user, "chat-dark")
    user.answered()
    user.page("ctrl+3")
    s.find("Compare with this PC…", 60)
    s.until(lambda seen: "Calculating…" not in {item["text"] for item in seen["items"]}, "the answer", 120)
    _shoot_window(user, "this-pc-dark")
    user.page("ctrl+2")
    user.toggle_theme()
    s.find("Download", 60)
    waits = re.compile("working it out", re.IGNORECASE)
    s.until(lambda seen: not any(waits.match(item["text"]) for item in seen["items"]), "all plans", 120)
    _shoot_window(user, "models-light")


def _shoot_window(user: User, name: str) -> Path:
    """With the pointer where it hides nothing."""
    user.screen.xdotool("mousemove", "700", "600")
    return user.screen.shoot(name, window=True)
