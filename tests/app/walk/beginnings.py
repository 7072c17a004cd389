"""The first minute: with the demo, without a model, with one that is gone, offline, again, and after a power cut."""

from __future__ import annotations

import re
import time

from screen import NotSeen
from user import QUESTIONS, User


def first_minute(user: User) -> None:
    s = user.screen
    s.find("Welcome to Greenroom", 60)
    s.shoot("01-welcome")
    s.key("Return")
    s.find("Disk", 60)
    s.find("Continue", 60)
    s.shoot("02-this-pc")
    s.click("Continue")
    s.find("What fits", 30)
    s.find("Download", 60)
    s.shoot("03-what-fits")
    s.click("Continue")
    s.find("Chat now with the built-in demo model")
    s.shoot("04-start")
    s.click("Chat now with the built-in demo model")
    s.click("Start", kind="QPushButton")
    user.answered()
    s.shoot("05-demo-ready")
    user.begin(lambda: s.click(re.escape(QUESTIONS[0])))
    s.shoot("06-answering")
    user.answered()
    s.find("Regenerate this answer")
    s.shoot("07-answered")


def no_model(user: User) -> None:
    s = user.screen
    s.find("Choose a model", 30)
    s.key("ctrl+l")
    s.type("Am I heard?")
    s.shoot("75-no-model")
    s.key("Return")
    s.find("Load a model to start chatting")
    if user.count("messages"):
        raise NotSeen("a message that waits for a model")


def model_gone(user: User) -> None:
    s = user.screen
    s.until(lambda seen: seen["state"] in ("ready", "failed"), "an end of the loading", 60)
    s.find("Qwen3-30B-A3B.* is not here any more", enabled=False)
    s.shoot("76-model-gone")


def offline(user: User) -> None:
    s = user.screen
    user.answered()
    user.page("ctrl+2")
    s.click("Filter the models.*")
    s.type("qwen")
    s.key("Return")
    s.find("huggingface.co was not asked", enabled=False)
    s.shoot("77-offline-models")
    user.page("ctrl+1")
    s.shoot("78-offline-chat")


def second_start(user: User) -> None:
    """The window that is there comes up, and takes what the second start was to open."""
    s = user.screen
    s.xdotool("search", "--onlyvisible", "--name", "Greenroom$", "windowminimize")
    user.shows("the window as an icon", minimised=True)
    if s.start_again() != 0:
        raise NotSeen("the end of the second start")
    user.shows("the window", minimised=False)
    s.click("New chat")


def killed(user: User) -> None:
    s = user.screen
    user.answered()
    s.key("ctrl+n")
    user.ask("Write a short poem about the sea.")
    last = "SELECT text FROM messages WHERE role = 'assistant' ORDER BY id DESC LIMIT 1"
    user.until(lambda: user.rows(last)[0][0] or not user.unfinished, "a saved part of the answer", 30)
    s.kill()
    saved = user.rows(last)[0][0]
    if not saved or not user.unfinished:
        raise NotSeen("the answer that was being written")
    s.start()
    s.find("Greenroom ended while it was answering.*", 60, enabled=False)
    user.answered()
    s.shoot("70-after-kill")
    if user.rows(last)[0][0] != saved:
        raise NotSeen("the text that was written before the end")
    s.click("Open chat")
    s.find("Messages")
    s.shoot("71-cut-off-answer")
    s.click("Continue answer", kind="QPushButton")
    user.until(lambda: len(user.rows(last)[0][0]) > len(saved), "more of the answer", 60)
    s.key("Escape")
    user.answered()
    time.sleep(1)
    if not user.rows(last)[0][0].startswith(saved.rstrip()):
        raise NotSeen("what the continued answer began with")
