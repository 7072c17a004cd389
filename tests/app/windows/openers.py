"""How everything that can be on the screen gets there: the table that the test over all windows goes through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PySide6.QtCore import QModelIndex, QPoint
from PySide6.QtGui import QContextMenuEvent
from PySide6.QtWidgets import QApplication, QPushButton, QWidget
from shiboken6 import isValid

from app import tasks
from app.chat.advice import Notice
from app.chat.composing.attachment_view import AttachmentView
from app.chat.list_model import FOLDER, ID
from app.chat.message_view import AnswerView, QuestionView
from app.chat.saving import _write, save_bytes
from app.chat.storage.records import Attachment
from app.chat.unsaved_question import UnsavedQuestion
from app.language import tr
from app.main_window import MainWindow
from app.settings.models_folder import ModelsFolder
from app.settings.pages import PAGES
from app.stage.activity import Frame
from app.stage.recording import Recording
from app.stage.sources import Replay
from engine.errors import GreenroomError
from engine.runtime.events import GenerationStats
from engine.words import say

#: What a user may name something: markup that is no markup, and what menus take for an underlined letter.
NAMED = "<b>R&D</b>"
#: The same for files.
FILE = "<b>R&D<br>.gguf"
ANSWER = """<think>Which sea?</think>The sea is [deep](https://example.org) and \\(x^2\\).

\\[y = \\frac{1}{x}\\]

| animal | sound |
|--------|-------|
| cat    | meow  |

```python
print("sea")
```
"""
PAPER = Attachment(f"{NAMED}.txt", "The sea is deep.\n" * 40, 680)
FAILURE = GreenroomError(say("The answer was interrupted"), say("no model is loaded"), say("Load a model first."))
STEP = say("VRAM ran short in an answer: prompts are read {chunk} tokens at a time, which takes longer.", chunk=64)


def a_chat(window: MainWindow) -> int:
    """With an answer of every kind of block, a failure, a file, a pinned neighbour and one in a folder."""
    store, stats = window.store, GenerationStats(12, 0, 12, 40, 0.2, 0.2, 60.0, 42.0)
    chat = store.create_chat(NAMED)
    asked = store.add_message(chat, None, "user", f"What is {NAMED}?", attachments=[PAPER])
    answer = store.add_message(chat, asked, "assistant", model="m")
    store.finish(answer, ANSWER, stats, "end", thought_s=2.0, stepped_down=[STEP])
    other = store.add_message(chat, asked, "assistant", model="m")
    store.finish(other, "It is deep.", stats, "end")
    store.show_message(answer)
    again = store.add_message(chat, answer, "user", "And **more**?")
    failed = store.add_message(chat, again, "assistant", model="m")
    store.finish(failed, "So", None, "error", FAILURE)
    store.move(store.create_chat("Another"), NAMED)
    store.pin(store.create_chat("A third"), True)
    return chat


@dataclass(frozen=True)
class Opener:
    """opens: brings it up and returns what it is in, None for the window itself.

    open:  whether a part of the window is still there; a window of its own is asked itself
    stays: Esc does not close it: it is a page, or a part of one
    """

    opens: Callable[[MainWindow], object]
    open: Callable[[MainWindow], bool] | None = None
    stays: bool = False


def _press(window: MainWindow, *names: str) -> None:
    """A command, as the menus give it."""
    for name in names:
        window.actions_by_key[name].trigger()


def _page(key: str) -> Callable[[MainWindow], None]:
    def opens(window: MainWindow) -> None:
        window.show_page(key)
        tasks.finish()

    return opens


def _chat(window: MainWindow) -> None:
    store = window.store
    window.open_chat(next((chat.id for chat in store.chats() if chat.title == NAMED), None) or a_chat(window))


def _view(window: MainWindow, kind: type) -> QWidget:
    _chat(window)
    return next(view for view in window.chat_page.transcript.views if isinstance(view, kind))


def _wizard(pages: int) -> Callable[[MainWindow], None]:
    def opens(window: MainWindow) -> None:
        _press(window, "wizard")
        for _ in range(pages):
            tasks.finish()
            window.launcher.wizard.next()

    return opens


def _models(window: MainWindow) -> QWidget:
    """A row of the list that has a plan."""
    if window.page != "models":
        _page("models")(window)
    QApplication.processEvents()
    return next(row for row in window._pages["models"].rows if row.row.plan is not None)


def _details(window: MainWindow) -> None:
    row = _models(window).row
    window._pages["models"].open_details(row)


def _hardware(window: MainWindow) -> QWidget:
    if window.page != "hardware":
        _page("hardware")(window)
    panel = window._pages["hardware"].what_if
    tasks.finish()
    return panel


def _comparison(window: MainWindow) -> None:
    panel = _hardware(window)
    panel.ram.setValue(128)
    panel.open_comparison()
    tasks.finish()


def _list_of_chats(window: MainWindow) -> None:
    """More than have room, and unfolded where the window is narrow."""
    _chat(window)
    for number in range(20):
        window.store.create_chat(f"Chat {number}")
    window.sidebar.focus_search()


def _section(key: str) -> Callable[[MainWindow], None]:
    return lambda window: window.show_setting(key)


def _search_settings(window: MainWindow) -> None:
    window.show_setting("general")
    window._pages["settings"].search.setText("o")


def _stage(window: MainWindow) -> QWidget:
    _chat(window)
    if window.contents.stage is None:
        _press(window, "stage")
    return window.contents.stage


def _replay(window: MainWindow) -> None:
    panel = _stage(window)
    cells, none = np.array([1, 3], np.uint32), np.zeros(0, np.uint32)
    run = Recording(NAMED, (0, 1), 6)
    for second in range(4):
        run.add(Frame(second, second + 1, cells, cells, none))
    panel.open_replay(Replay(run))


def _performance(window: MainWindow) -> None:
    _chat(window)
    window.chat_page.show_performance(True)
    window.chat_page.performance.findChild(QPushButton).setFocus()


def _list_menu(role: int | None = None) -> Callable[[MainWindow], None]:
    """Of the first line of the list of chats that has something in a role; of the list itself without one."""

    def opens(window: MainWindow) -> None:
        _chat(window)
        window._chat_list.refresh()
        model = window._chat_list.view.model()
        rows = (model.index(row, 0) for row in range(model.rowCount()))
        index = QModelIndex() if role is None else next(index for index in rows if index.data(role))
        window._chat_list._open_menu(index, window.mapToGlobal(QPoint(100, 200)))

    return opens


def _notice(window: MainWindow) -> None:
    _chat(window)
    choices = ((tr("Load {model}", model=NAMED), lambda: None), (tr("Undo"), lambda: None))
    window.chat_page._advice._ask(Notice("test", f"{NAMED} {NAMED}", choices))
    QApplication.processEvents()
    window.chat_page.notices.buttons[0].setFocus()


def _banner(window: MainWindow) -> None:
    error = GreenroomError(NAMED, FAILURE.why, FAILURE.remedy)
    window.notices.show(error, "bad", "fault", [(tr("Undo"), lambda: None)])


def _options(window: MainWindow) -> object:
    _chat(window)
    _press(window, "chat_options")
    return window.chat_page.options


def _all_options(window: MainWindow) -> None:
    options = _options(window)
    options.more.setChecked(True)
    options._ask_name()


def _context_menu(window: MainWindow) -> None:
    view = _view(window, AnswerView)
    text = view.body.findChildren(QWidget)[0]
    QApplication.sendEvent(
        text, QContextMenuEvent(QContextMenuEvent.Reason.Keyboard, QPoint(4, 4), text.mapToGlobal(QPoint(4, 4)))
    )


def _move_models(window: MainWindow) -> None:
    window.show_setting("models")
    folder = Path(window.settings.values.models_folder)
    (folder / FILE).write_text("")
    window._pages["settings"].findChild(ModelsFolder).take(str(folder.parent))


def _models_stay(window: MainWindow) -> None:
    window.show_setting("models")
    window._pages["settings"].findChild(ModelsFolder)._not_moved(GreenroomError(NAMED, NAMED, NAMED))


def _unsaved(window: MainWindow) -> None:
    _chat(window)
    problem = GreenroomError(NAMED, tr("the disk with {folder} is full", folder=FILE), tr("Try again."))
    UnsavedQuestion(problem, window).open()


def _editing(window: MainWindow) -> None:
    question = _view(window, QuestionView)
    window.chat_page._editing.begin(question.message)


def _find(window: MainWindow) -> None:
    _chat(window)
    window.chat_page.find()
    window.chat_page.find_bar.field.setText("sea")


def _link(window: MainWindow) -> None:
    _chat(window)
    window.chat_page.link_bar.offer("https://example.org/?<b>R&D</b>")


def _palette(window: MainWindow) -> None:
    _press(window, "palette")
    window.palette_box.field.setText("r")


OPENERS = {
    "an empty chat": Opener(lambda window: window.new_chat(), stays=True),
    "a chat": Opener(_chat, stays=True),
    "editing a message": Opener(_editing, lambda window: window.chat_page.composer.editing),
    "find in the chat": Opener(_find, lambda window: window.chat_page.find_bar.isVisible()),
    "the link bar": Opener(_link, lambda window: window.chat_page.link_bar.isVisible()),
    "the notice bar": Opener(_notice, lambda window: NAMED in window.chat_page.notices.text),
    "a banner": Opener(_banner, stays=True),
    "performance": Opener(_performance, lambda window: window.chat_page.performance is not None),
    "stage": Opener(_stage, stays=True),
    "replay": Opener(_replay, stays=True),
    "an attached file": Opener(lambda window: AttachmentView(PAPER, window).open()),
    "how the chat answers": Opener(_options),
    "all options of the chat": Opener(_all_options),
    "menu of presets": Opener(lambda window: _options(window).preset_menu().popup(window.mapToGlobal(QPoint(9, 9)))),
    "menu of a question": Opener(
        lambda window: window.chat_page.message_actions.open_menu(
            _view(window, QuestionView).message, window.mapToGlobal(QPoint(300, 200))
        )
    ),
    "menu of an answer": Opener(
        lambda window: window.chat_page.message_actions.open_menu(
            _view(window, AnswerView).message, window.mapToGlobal(QPoint(300, 200))
        )
    ),
    "menu of a text": Opener(_context_menu),
    "menu of a chat": Opener(_list_menu(ID)),
    "menu of a folder": Opener(_list_menu(FOLDER)),
    "menu of the list": Opener(_list_menu()),
    "name of a folder": Opener(lambda window: window._chat_list._ask_folder(NAMED, print)),
    "list of chats": Opener(_list_of_chats, stays=True),
    "main menu": Opener(lambda window: window.sidebar.menu_button.click()),
    "menu of models": Opener(lambda window: (window.show_page("chat"), window.topbar.model.click())),
    "sum of the loaded model": Opener(lambda window: (window.show_page("chat"), window.topbar.chip.click())),
    "palette": Opener(_palette, lambda window: window.palette_box is not None and isValid(window.palette_box)),
    "models": Opener(_models, stays=True),
    "details of a model": Opener(_details),
    "sum of a model": Opener(lambda window: _models(window).chip.click()),
    "this PC": Opener(_hardware, stays=True),
    "sum of another PC": Opener(lambda window: _hardware(window).chip.click()),
    "comparison": Opener(_comparison),
    **{f"settings: {page.key}": Opener(_section(page.key), stays=True) for page in PAGES},
    "search in the settings": Opener(_search_settings, stays=True),
    "moving the models": Opener(_move_models),
    "models that stay": Opener(_models_stay),
    **{
        f"wizard: {name}": Opener(_wizard(pages))
        for pages, name in enumerate(("welcome", "this PC", "what fits", "start"))
    },
    "open a file": Opener(lambda window: _press(window, "open_file")),
    "open a folder": Opener(lambda window: _press(window, "open_folder")),
    "import": Opener(lambda window: _press(window, "import_chats")),
    "export": Opener(lambda window: (_chat(window), _press(window, "export_chat"))),
    "save something": Opener(lambda window: save_bytes(window, "Save", "a.txt", b"a", "Text (*.txt)")),
    "unsaved chats": Opener(_unsaved),
    "not saved": Opener(lambda window: _write(window, Path("/nowhere") / FILE, b"a")),
}
