"""Whatever window there is: all of it can be reached, read and closed, in either language and with large letters.

A window is in the table of openers or the test fails: every widget of the program must have been on the screen.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from fakes import FakeApi, FakeEngine, make_plan, make_report
from looks import faults, in_palette, in_sight, name_of, one_of_several, own, takes_tab
from openers import FILE, NAMED, OPENERS, Opener
from PySide6.QtCore import QCoreApplication, QEvent, QPoint, QRect, QSize, Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QFileDialog, QMenu, QTextBrowser, QWidget
from pytestqt.qtbot import QtBot
from shiboken6 import isValid
from whole import unreadable

import app
from app import tasks
from app.compare.study import models
from app.host import EngineHost
from app.main_window import MainWindow
from app.settings.store import SettingsStore
from engine.hardware.report import MemoryReport
from engine.hub.catalogue import catalogue
from engine.status import ExpertUsage

LONG = 20_000
MEASURED = make_report(memory=MemoryReport(64_000_000_000, 50_000_000_000, {"8": 52.0}))
#: Of the smallest usual screen.
ROOM = QSize(1024, 700)
_PLAN = make_plan()
#: What has no other language, and what fakes say.
NOT_OURS = (
    *sorted((model.name for model in (*catalogue(), *models())), key=len, reverse=True),
    *sorted({download.repo for model in catalogue() for download in model.downloads}, key=len, reverse=True),
    *(f"Good at {model.good_at}." for model in catalogue()),
    *_PLAN.explanation,
    _PLAN.prediction.bottleneck,
    FakeEngine.kernel,
    "python",
)


def every_widget() -> set[type[QWidget]]:
    """Each kind of widget that the program has; not what others are made from."""
    for module in pkgutil.walk_packages(app.__path__, "app."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found, ahead = set(), [QWidget]
    while ahead:
        below = ahead.pop().__subclasses__()
        ahead += below
        found |= {kind for kind in below if own(kind) and not any(own(k) for k in kind.__subclasses__())}
    return found


def _wrong(root: QWidget, known: tuple[str, ...] | None) -> list[str]:
    unread = [] if isinstance(root, QFileDialog) else unreadable(root)
    # Names and folders have no end.
    return [*faults(root, known), *(f for f in unread if NAMED not in f and not f.startswith("shortened: '/"))]


class Visit:
    def __init__(self, window: MainWindow) -> None:
        self.window = window
        self.seen: set[type] = set()
        self.faults: dict[str, None] = {}

    def settle(self) -> None:
        tasks.finish()
        for _ in range(3):  # a scroll bar that comes takes room, and so on
            QApplication.processEvents()

    def open(self, opener: Opener) -> QWidget:
        """The window that is on top then."""
        opener.opens(self.window)
        self.settle()
        return QApplication.activePopupWidget() or QApplication.activeModalWidget() or self.window

    def close(self) -> None:
        """Whatever has opened over the window, and beside the chat."""
        while (popup := QApplication.activePopupWidget()) is not None:
            popup.close()
        for root in QApplication.topLevelWidgets():
            if root is not self.window and root.isVisible():
                root.close()
        page, window = self.window.chat_page, self.window
        page.show_performance(False)
        page.find_bar.close_bar()
        page.link_bar.hide()
        for notice in page._advice.notices:
            page._advice.close(notice.key)
        page.composer.cancel_edit()
        window.notices.dismiss("fault")
        if window.palette_box is not None and isValid(window.palette_box):
            window.open_palette()
        if window.contents.stage is not None:
            window.actions_by_key["stage"].trigger()
        self.settle()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)

    def complain(self, name: str, fault: str) -> None:
        self.faults[f"{name}: {fault}"] = None

    def left(self) -> int:
        """Widgets and timers that there are."""
        return len(QApplication.allWidgets()) + len(self.window.findChildren(QTimer))

    def report(self) -> None:
        if self.faults:
            pytest.fail("\n".join(self.faults), pytrace=False)

    def look(self, name: str, root: QWidget, known: tuple[str, ...] | None) -> None:
        for widget in (self.window, root):
            self.seen |= {type(part) for part in (widget, *widget.findChildren(QWidget)) if part.isVisible()}
        found = _wrong(root, known)
        if found:  # what another thread has told meanwhile may not be laid out yet
            self.settle()
            found = _wrong(root, known)
        for fault in found:
            self.complain(name, fault)


@pytest.fixture
def make_visit(
    api: FakeApi,
    host: EngineHost,
    settings: SettingsStore,
    load: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    qtbot: QtBot,
    tmp_path: Path,
) -> Iterator[Callable[..., Visit]]:
    counts = np.arange(12, dtype=np.uint64).reshape(2, 6)
    monkeypatch.setattr(FakeEngine, "usage", lambda engine: ExpertUsage((0, 1), counts, counts % 3 == 0))
    windows = []

    def make(language: str, zoom: float) -> Visit:
        models = tmp_path / "models"
        models.mkdir()
        path = f"/models/{FILE}"
        settings.change(zoom=zoom, language=language, recent=[path], models_folder=str(models))
        api.report = MEASURED
        api.names[path] = NAMED
        window = MainWindow(host, settings, None, lambda: True, lambda progress: MEASURED)
        window.resize(ROOM)
        qtbot.addWidget(window)
        window.show()
        qtbot.waitUntil(lambda: window.chat_page is not None, timeout=LONG)
        load(host, path)
        with qtbot.waitSignal(host.answerFinished, timeout=LONG):
            window.chat_page.send("How fast is this?")
        windows.append(window)
        return Visit(window)

    yield make
    for window in windows:
        window.close()
    settings.change(zoom=1.0)


@pytest.mark.parametrize(("language", "zoom"), [("en", 1.0), ("ko", 1.0), ("en", 2.0), ("ko", 2.0)])
def test_all_can_be_read(make_visit: Callable[..., Visit], language: str, zoom: float) -> None:
    visit = make_visit(language, zoom)
    for name, opener in OPENERS.items():
        root = visit.open(opener)
        if isinstance(root, QDialog):
            root.resize(ROOM)
            visit.settle()
            if not QRect(QPoint(), ROOM).contains(root.rect()):
                visit.complain(name, f"needs {root.size().toTuple()}")
        visit.look(name, root, None if language == "en" else NOT_OURS)
        visit.close()
    visit.report()
    if zoom == 1.0:  # larger letters leave no room for some
        missing = sorted(kind.__qualname__ for kind in every_widget() - visit.seen)
        assert ", ".join(missing) == ""


#: Those in which little room is hard: the conversation and what stands beside, over and below it.
IN_THE_CHAT = (
    "a chat",
    "editing a message",
    "find in the chat",
    "the link bar",
    "the notice bar",
    "performance",
    "stage",
    "replay",
)


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_chat_can_be_read_in_the_narrowest_window_with_large_letters(
    make_visit: Callable[..., Visit], language: str
) -> None:
    visit = make_visit(language, 2.0)
    visit.window.resize(visit.window.minimumWidth(), ROOM.height())
    for name in IN_THE_CHAT:
        root = visit.open(OPENERS[name])
        visit.look(name, root, None if language == "en" else NOT_OURS)
        visit.close()
    # What is shortened says the rest in its tip.
    visit.faults = {fault: None for fault in visit.faults if ": shortened: " not in fault}
    visit.report()


def press(key: Qt.Key, root: QWidget) -> None:
    """As the user does, to whatever has the keyboard."""
    focus = QApplication.focusWidget()
    QTest.keyClick(focus if focus is not None and focus.window() is root else root.focusWidget() or root, key)


def tab_round(root: QWidget) -> list[str]:
    """What Tab does wrong on its way round a window."""
    expected = [widget for widget in in_sight(root) if takes_tab(widget)]
    press(Qt.Key.Key_Tab, root)
    first = root.focusWidget()
    if first is None:
        return ["nothing takes the keyboard"] if expected else []
    if in_palette(first):
        return []  # its only field; what is behind it waits
    seen, now, still = {first}, first, 0
    for _ in range(2000):
        press(Qt.Key.Key_Tab, root)
        before, now = now, root.focusWidget()
        still = still + 1 if now is before else 0
        if still > (20 if isinstance(now, QTextBrowser) else 1):
            if len(expected) == 1:
                break
            return [f"{type(now).__name__} “{name_of(now)}” keeps the Tab key"]
        if now is first and still == 0:
            break
        seen.add(now)
    else:
        return ["Tab never comes round"]
    left = [
        f"Tab misses {type(widget).__name__} “{name_of(widget)}”"
        for widget in expected
        if isValid(widget)
        and widget.isVisible()
        and widget not in seen
        and widget.focusProxy() not in seen
        and not one_of_several(widget)
    ]
    return left


@pytest.mark.parametrize("language", ["en", "ko"])
def test_tab_reaches_everything_and_comes_round(make_visit: Callable[..., Visit], language: str) -> None:
    visit = make_visit(language, 1.0)
    visit.window.activateWindow()
    for name, opener in OPENERS.items():
        root = visit.open(opener)
        if not isinstance(root, (QMenu, QFileDialog)):
            for fault in tab_round(root):
                visit.complain(name, fault)
        visit.close()
    visit.report()


@pytest.mark.parametrize("language", ["en", "ko"])
def test_esc_closes_it_and_nothing_is_left(make_visit: Callable[..., Visit], language: str) -> None:
    visit = make_visit(language, 1.0)
    window = visit.window
    window.activateWindow()
    for name, opener in OPENERS.items():
        if opener.stays:
            continue
        root = visit.open(opener)
        focus = root.focusWidget()
        press(Qt.Key.Key_Escape, root)
        visit.settle()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        if opener.open(window) if opener.open is not None else isValid(root) and root.isVisible():
            visit.complain(
                name, f"Esc does not close it; “{name_of(focus) if focus is not None else None}” has the keyboard"
            )
        visit.close()
        counts = [visit.left()]
        # What is made once, and kept, is no leak.
        while len(counts) < 4 and (len(counts) == 1 or counts[-1] > counts[-2]):
            visit.open(opener)
            visit.close()
            counts.append(visit.left())
        if len(counts) == 4:
            visit.complain(name, f"leaves widgets or timers behind: {counts}")
    visit.report()
