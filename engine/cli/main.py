"""`greenroom VERB`: its arguments, the verb that they name, and how it ends.

With --json a verb prints exactly one JSON document on stdout, {"error": {what, why, remedy}} if it does not come to an
end; everything else goes to stderr or the log. docs/command-line.md describes the documents.
Exit codes: 0 done, 1 a bug, 2 bad input or it cannot be done, 130 interrupted (Ctrl-C, or nobody reads the output any
more), 129 and 143 ended by SIGHUP and SIGTERM.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, Protocol

# Only light modules here: `greenroom --help` answers at once, and the rest is imported by the verb that needs it.
import engine
from engine.cli import bench, compare, download, generate, models, perplexity, plan, probe, recommend
from engine.cli.terminal import OutputClosedError, Terminal
from engine.errors import Cancelled, GreenroomError

_log = logging.getLogger(__name__)

DONE, BUG, REFUSED, INTERRUPTED = 0, 1, 2, 130


class _Ended(KeyboardInterrupt):
    """The system or the user's shell asked the program to end; what it holds is put in order as after Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


class Verb(Protocol):
    """The module of a verb."""

    HELP: str

    def add_options(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace, terminal: Terminal) -> dict[str, Any]:
        """Do it; the JSON document."""


#: What `greenroom` takes as its first argument; without one the window opens.
VERBS: dict[str, Verb] = {
    "probe": probe,
    "plan": plan,
    "compare": compare,
    "recommend": recommend,
    "generate": generate,
    "bench": bench,
    "perplexity": perplexity,
    "models": models,
    "download": download,
}


def main(argv: Sequence[str] | None = None, paint: compare.Paint | None = None) -> int:
    """Run one verb (argv without the program's name; None takes the process's); the exit code.

    paint: makes the picture of `compare`; None where nothing here can paint
    """
    log_file = None
    # Also before the arguments are understood: whoever asks for JSON gets a refusal as JSON too.
    terminal = Terminal(json="--json" in (sys.argv[1:] if argv is None else argv))
    try:
        args, unknown = _parser().parse_known_args(argv)
        if unknown:
            # Argparse itself would name the help of the whole program, not the verb's.
            args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        args.paint = paint
        from engine.folders import close_to_others
        from engine.log import start_logging

        log_file = start_logging()
        close_to_others()
        # A library that prints must not spoil the answer or the JSON document.
        with _ends_in_order(), contextlib.redirect_stdout(sys.stderr):
            document = args.verb.run(args, terminal)
        terminal.document(document)
    except SystemExit as stop:
        # argparse has printed its help or the version.
        return stop.code if isinstance(stop.code, int) else REFUSED
    except GreenroomError as error:
        _log.info("refused: %s", error, exc_info=True)
        terminal.refuse(error)
        return REFUSED
    except (KeyboardInterrupt, Cancelled) as stop:
        # A second Ctrl-C has nothing left to stop but these lines.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        terminal.note("Stopped.")
        terminal.refuse_document(GreenroomError("Stopped", "it was interrupted", "Run the command again."))
        return stop.exit_code if isinstance(stop, _Ended) else INTERRUPTED
    except (OutputClosedError, BrokenPipeError):  # the latter from argparse, which prints the help itself
        return INTERRUPTED
    except (ImportError, MemoryError) as error:
        _log.exception("refused")
        terminal.refuse(_unavailable(error))
        return REFUSED
    except Exception as error:
        _log.exception("unexpected error")
        where = f"The details are in {log_file}" if log_file else "The log could not be written"
        why = f"a fault of Greenroom's ({type(error).__name__}: {error})"
        terminal.refuse(GreenroomError("This should not have happened", why, f"{where}."))
        return BUG
    finally:
        terminal.close()
    return DONE


@contextlib.contextmanager
def _ends_in_order() -> Iterator[None]:
    """SIGTERM and a terminal that is closed stop the work as Ctrl-C does, unless someone else takes care of them."""
    signals = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # nohup has SIGHUP ignored, and it stays so.
    ours = [number for number in signals if signal.getsignal(number) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        ours = []

    def end(number: int, frame: object) -> NoReturn:
        for again in ours:
            signal.signal(again, signal.SIG_IGN)
        raise _Ended(number)

    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _unavailable(error: ImportError | MemoryError) -> GreenroomError:
    """A library that cannot be mapped into memory and one that is not installed look alike to Python."""
    if isinstance(error, MemoryError):
        remedy = "Close other programs, or choose a smaller model or a shorter context."
        return GreenroomError("Greenroom cannot go on", "there is not enough memory", remedy)
    while isinstance(error.__cause__, ImportError):
        error = error.__cause__
    why = " ".join(str(error).split())
    return GreenroomError(
        "A part of Greenroom cannot be loaded", why, "Free some memory if it is short, or run the set-up again."
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise GreenroomError("The command was not understood", message, f'"{self.prog} --help" lists what can be said.')


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="greenroom",
        description="Runs Mixture-of-Experts models bigger than your graphics card, and says beforehand how fast. "
        "Without a verb the window opens.",
        epilog="MODEL is a .gguf file (the first of a split), a folder of safetensors, the name of a model you have "
        '(see "greenroom models"), or "demo". The variable GREENROOM_DATA names another folder for models and logs.',
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"greenroom {engine.__version__}")
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    for name, verb in VERBS.items():
        sub = verbs.add_parser(name, help=verb.HELP, description=verb.HELP, allow_abbrev=False)
        verb.add_options(sub)
        sub.add_argument("--json", action="store_true", help="print one JSON document on stdout and nothing else")
        sub.set_defaults(verb=verb, parser=sub)
    return parser
