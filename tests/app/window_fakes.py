"""The window with a fake chat, and hands to use it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fakes import make_report
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.main_window import MainWindow
from engine.hardware.report import MemoryReport

LONG = 20_000
PATH = "/models/Qwen3-30B-A3B.gguf"
ROOT = Path(__file__).resolve().parents[2]


class FakeChatPage(QWidget):
    chatChanged = Signal(int)
    performanceShown = Signal(bool)

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[object] = []

    def new_chat(self) -> None:
        self.calls.append("new")

    def open_chat(self, chat: int) -> None:
        self.calls.append(chat)
        self.chatChanged.emit(chat)

    def show_performance(self, on: bool) -> None:
        self.calls.append(("performance", on))
        self.performanceShown.emit(on)

    def copy_card(self) -> bool:
        return False

    def shutdown(self) -> None:
        self.calls.append("shutdown")


class FakeChatList(QWidget):
    chatChosen = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.filters: list[str] = []
        self.current: int | None = None

    def set_current(self, chat: int) -> None:
        self.current = chat

    def filter(self, text: str) -> None:
        self.filters.append(text)


Open = Callable[..., MainWindow]


MEASURED = make_report(memory=MemoryReport(64_000_000_000, 50_000_000_000, {"8": 52.0}))


def press(qtbot: QtBot, window: MainWindow, key: str) -> None:
    """Through the action, as the shortcut does: a shortcut itself needs a window manager that gives focus."""
    action = window.actions_by_key[key]
    assert action in window.actions()
    action.trigger()


def banner_texts(window: MainWindow) -> list[str]:
    return [str(banner.error) for banner in window.banners.banners]


def click(window: MainWindow, text: str) -> None:
    next(b for b in window.banners.findChildren(QPushButton) if b.text() == text).click()
