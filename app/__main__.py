"""`greenroom`: with a verb the command line, without one the window."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from engine.words import say

if TYPE_CHECKING:
    from engine.placement.compare import Comparison, Use

NO_DISPLAY = (
    'Greenroom cannot open its window: {why}. Use `greenroom generate demo --prompt "..."` here, '
    "or start it in a desktop session."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 a fault of ours, 2 it cannot be done here, 130 interrupted."""
    multiprocessing.freeze_support()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["--probe-child"]:
        from engine.hardware.child import child_main

        return child_main(arguments[1:])
    if arguments[:1] == ["--template-child"]:
        from engine.checkpoints.template_child import main as template_child

        return template_child()
    if arguments and not _is_model(arguments):
        from engine.cli.main import main as command_line

        return command_line(arguments, paint=_paint)
    return open_window(arguments[0] if arguments else None)


def _paint(path: Path, rows: Sequence[Comparison], title: str, use: Use) -> None:
    """A comparison's picture, without a screen. Raises OSError."""
    # Before Qt looks for a display.
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from PySide6.QtWidgets import QApplication

    application = QApplication.instance() or QApplication(sys.argv[:1])
    from app.compare.dialog import save_picture

    save_picture(path, rows, title, use)
    del application


def _is_model(arguments: Sequence[str]) -> bool:
    """`greenroom FILE`, as a file manager calls it."""
    from app.paths import is_gone
    from engine.cli.main import VERBS

    first = arguments[0]
    return len(arguments) == 1 and not first.startswith("-") and first not in VERBS and not is_gone(first)


def open_window(model: str | None = None) -> int:
    """Runs the desktop program until its window closes. model: load this instead of the last one.

    Where the program runs already, with the same data, that window comes up and takes the model.
    """
    from app.display import missing_display

    why = missing_display()
    if why is not None:
        sys.stderr.write(NO_DISPLAY.format(why=why) + "\n")
        return 2

    from PySide6.QtCore import QTimer
    from PySide6.QtWidgets import QApplication

    from engine.folders import close_to_others, data_folder
    from engine.log import start_logging

    start_logging()
    close_to_others()
    QApplication.setApplicationName("greenroom")
    QApplication.setApplicationDisplayName("Greenroom")
    QApplication.setDesktopFileName("greenroom")
    application = QApplication(sys.argv[:1])

    from app.first_window import FirstWindow

    path = None if model is None else str(Path(model).resolve())
    first = FirstWindow(data_folder(), application)
    if not first.begin(path):
        return 0

    from app.garbage import collect_after
    from app.host import EngineHost
    from app.main_window import MainWindow
    from app.settings.store import SettingsStore

    host = EngineHost()
    window = MainWindow(host, SettingsStore(), welcome=model is None)
    sys.excepthook = _FaultReporter(window)
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        # Windows knows no terminal that hangs up, and under nohup it may.
        if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN:
            # Later: it comes between any two steps of Python's, in the middle of painting or with a lock in hand.
            signal.signal(getattr(signal, name), lambda *_: QTimer.singleShot(0, window.end_now))
    application.commitDataRequest.connect(window.chats.end_session)
    # Python sees a signal only when it runs; without this it would wait for the next event.
    heartbeat = QTimer(window)
    heartbeat.start(500)
    heartbeat.timeout.connect(lambda: None)
    first.serve(window, window.load_model)
    window.show()
    if path is not None:
        window.load_model(path)
    collect_after(host.answerFinished, window)
    code = application.exec()
    if window.hangs:
        # The interpreter would end its thread in the middle of native code, which aborts the program.
        logging.shutdown()
        os._exit(code)
    return code


class _FaultReporter:
    """Takes exceptions nobody caught: the detail to the log, one sentence to the window."""

    def __init__(self, window: object) -> None:
        self._window = window

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        from engine.errors import GreenroomError

        logging.getLogger("app").critical("uncaught", exc_info=(kind, error, trace))
        if isinstance(error, Exception):
            self._window.show_fault(
                GreenroomError(
                    say("Something went wrong in Greenroom"),
                    f"{kind.__name__}: {error}",
                    say("You can keep working. See the log for details."),
                )
            )


if __name__ == "__main__":
    sys.exit(main())
