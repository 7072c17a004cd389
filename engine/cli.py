"""The headless verbs: `greenroom probe | plan | compare | recommend | generate | bench | perplexity |
models | download`.

With --json a verb prints exactly one JSON document on stdout, {"error": {what, why, remedy}} if it does not come to an
end; everything else goes to stderr or the log. docs/command-line.md describes the documents.
Exit codes: 0 done, 1 a bug, 2 bad input or it cannot be done, 130 interrupted (Ctrl-C, or nobody reads the output any
more), 129 and 143 ended by SIGHUP and SIGTERM.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

# Only light modules here: `greenroom --help` answers at once, and the rest is imported by the verb that needs it.
from engine import cli_bench, cli_download, cli_generate, cli_machines, cli_models
from engine.cli_options import (
    add_loading,
    add_model,
    add_shortcuts,
    add_threads,
    add_wishes,
    count,
    read_text,
    window,
)
from engine.cli_words import describe, gigabytes, plural, predicted_speeds
from engine.errors import Cancelled, GreenroomError
from engine.terminal import OutputClosedError, Terminal

if TYPE_CHECKING:
    from engine.checkpoints.checkpoint import Checkpoint
    from engine.hardware.report import HardwareReport
    from engine.placement.plan import OffloadPlan, Prediction
    from engine.runtime.engine import Engine
    from engine.runtime.events import GenerationStats

_log = logging.getLogger(__name__)

DONE, BUG, REFUSED, INTERRUPTED = 0, 1, 2, 130


class _Ended(KeyboardInterrupt):
    """The system or the user's shell asked the program to end; what it holds is put in order as after Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


@dataclass(frozen=True)
class Verb:
    """One verb: its options, and what it does with them. `run` returns the JSON document."""

    name: str
    help: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Terminal], dict[str, Any]]


def main(argv: Sequence[str] | None = None, paint: cli_machines.Paint | None = None) -> int:
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
    import engine

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
    for verb in _VERBS:
        sub = verbs.add_parser(verb.name, help=verb.help, description=verb.help, allow_abbrev=False)
        verb.add_options(sub)
        sub.add_argument("--json", action="store_true", help="print one JSON document on stdout and nothing else")
        sub.set_defaults(verb=verb, parser=sub)
    return parser


# --- probe ---------------------------------------------------------------------------------------------------------


def _probe_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--calibrate", action="store_true", help="measure RAM, kernels and graphics cards, and remember it"
    )


def _probe(args: argparse.Namespace, terminal: Terminal) -> dict[str, Any]:
    from engine.hardware.probe import probe

    report = probe(calibrate=args.calibrate, progress=terminal.progress)
    for line in describe(report):
        terminal.say(line)
    return report.to_json()


# --- plan ----------------------------------------------------------------------------------------------------------


def _plan_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser, planned_only=True)
    add_threads(parser)
    add_wishes(parser)
    add_shortcuts(parser)
    parser.add_argument(
        "--prompt-tokens",
        type=count,
        metavar="N",
        help="of the prompt whose reading is predicted (default 512)",
    )
    cli_machines.add_what_if(parser)


def _plan(args: argparse.Namespace, terminal: Terminal) -> dict[str, Any]:
    report = cli_machines.this_or_another(args)
    with opened(args.model, terminal, planned_only=True) as checkpoint:
        plan = _for_prompt(checkpoint, report, args)
        terminal.say(f"{checkpoint.name}, {gigabytes(checkpoint.nbytes)}")
        for line in plan.explanation:
            terminal.say(f"  {line}")
        if plan.runnable:
            for line in predicted_speeds(plan):
                terminal.say(f"  {line}")
        for line in plan.alternatives:
            terminal.say(f"- {line}")
        return {"model": model_document(checkpoint), **plan.to_json()}


def _for_prompt(checkpoint: Checkpoint, report: HardwareReport, args: argparse.Namespace) -> OffloadPlan:
    """The plan for the context that was named; for one that takes the prompt, where none was."""
    prompt = args.prompt_tokens
    if prompt is None:
        return planned(checkpoint, report, args, args.context)
    plan = planned(checkpoint, report, args, args.context, prompt=prompt)
    if prompt <= plan.context:
        return plan
    if args.context is not None:
        raise GreenroomError(
            f"A prompt of {plural(prompt, 'token')} cannot be planned",
            f"a context of {plural(plan.context, 'token')} was asked for",
            f"Choose --context {prompt} or more, or a shorter prompt.",
        )
    return planned(checkpoint, report, args, prompt, prompt=prompt)


# --- perplexity ----------------------------------------------------------------------------------------------------


def _perplexity_options(parser: argparse.ArgumentParser) -> None:
    add_loading(parser)
    add_threads(parser)
    parser.add_argument(
        "--file", required=True, metavar="FILE", help='a text file in UTF-8; "-" reads from standard input'
    )
    parser.add_argument("--window", type=window, default=512, metavar="N", help="tokens per window (default 512)")
    parser.add_argument("--stride", type=count, metavar="N", help="between window starts (default: half a window)")


def _perplexity(args: argparse.Namespace, terminal: Terminal) -> dict[str, Any]:
    from engine.runtime.perplexity import perplexity

    text = read_text(None if args.file == "-" else Path(args.file))
    with loaded(args, terminal, args.context or args.window) as (engine, _):
        token_ids = engine.tokenizer.encode(text, special=False)
        result = perplexity(engine, token_ids, args.window, args.stride, terminal.progress)
    terminal.say(
        f"Perplexity {result.perplexity:.4f} ± {result.standard_error:.4f} over {result.tokens} tokens "
        f"(windows of {result.window}, every {result.stride})"
    )
    return result.to_json()


# --- shared by the verbs -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def opened(name: str, terminal: Terminal, *, planned_only: bool = False) -> Iterator[Checkpoint]:
    """planned_only: a model that is not here will do, if it is known by name."""
    import engine
    from engine.hub.library import resolve

    if name == "demo":
        from engine.hub.demo import PACKAGE_BYTES, demo_path, dense_path, prepare_demo

        if not os.path.exists(demo_path()):  # which does not mind a folder that is closed to us
            download = "" if os.path.exists(dense_path()) else f", with {gigabytes(PACKAGE_BYTES)} to download"
            terminal.note(f"The demo model is prepared; this happens once and takes a minute{download}.")
        path = prepare_demo(progress=terminal.progress)
    else:
        try:
            path = resolve(name)
        except GreenroomError as error:
            from engine.hub.described import described

            if not planned_only:
                raise
            if (found := described(name)) is None:
                names = 'Models that are not here are planned by the names of "greenroom models --catalogue".'
                raise GreenroomError(error.what, error.why, f"{error.remedy} {names}") from error
            yield found
            return
    with contextlib.closing(engine.open_checkpoint(path)) as checkpoint:
        yield checkpoint


#: Options that change answers, likewise fields of Wishes.
SHORTCUTS = ("experts_per_token", "defer_experts")
#: Options that are fields of Wishes under the same name.
WISHES = (
    "threads",
    "device",
    "dtype",
    "kv_type",
    "experts",
    "isa",
    "max_vram",
    "leave_ram",
    "leave_vram",
    "keep_gpu",
    "prefer_gpu",
)


def planned(
    checkpoint: Checkpoint, report: HardwareReport, args: argparse.Namespace, context: int | None, **more: int
) -> OffloadPlan:
    """more: wishes beside those that all verbs know."""
    import engine

    wishes = {name: getattr(args, name) for name in (*WISHES, *SHORTCUTS)}
    return engine.plan(checkpoint, report, context, **wishes, **more)


@contextlib.contextmanager
def loaded(
    args: argparse.Namespace, terminal: Terminal, context: int | None
) -> Iterator[tuple[Engine, Callable[[GenerationStats], Prediction]]]:
    """The model, and what remembers an answer's speed and says what was predicted."""
    import engine
    from engine.hardware.busy import MUCH_DISTURBED, OtherPrograms

    with opened(args.model, terminal) as checkpoint:
        report = engine.probe(present=True)
        plan = planned(checkpoint, report, args, context)
        check_runnable(checkpoint, plan, args.force, terminal)
        with engine.load(checkpoint, plan, terminal.progress) as ready:
            others = OtherPrograms()

            def learn(stats: GenerationStats) -> Prediction:
                busy = others.share()
                engine.learn(checkpoint, report, plan, stats, busy)
                if busy >= MUCH_DISTURBED:
                    terminal.note(
                        f"Other programs used {busy:.0%} of the CPU meanwhile: this speed does not correct the next "
                        "prediction. Close them for the model's own speed."
                    )
                return plan.prediction

            yield ready, learn


def check_runnable(checkpoint: Checkpoint, plan: OffloadPlan, force: bool, terminal: Terminal) -> None:
    if plan.runnable or force:
        return
    for line in (*plan.explanation, *plan.alternatives):
        terminal.note(line)
    raise GreenroomError(f"{checkpoint.name} was not loaded", plan.label, "Add --force to try anyway.")


def model_document(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "name": checkpoint.name,
        "path": str(checkpoint.path),
        "form": checkpoint.form,
        "architecture": checkpoint.architecture,
        "bytes": checkpoint.nbytes,
    }


_VERBS = (
    Verb("probe", "say what this PC is and what Greenroom can use of it", _probe_options, _probe),
    Verb("plan", "say where a model would live here and how fast it would be", _plan_options, _plan),
    Verb(
        "compare",
        "set this PC and others side by side for one model: mode, speed, cost",
        cli_machines.add_compare_options,
        cli_machines.compare,
    ),
    Verb(
        "recommend",
        "say which models of the catalogue suit this PC best, and why",
        cli_machines.add_recommend_options,
        cli_machines.recommend,
    ),
    Verb("generate", "load a model and answer one prompt", cli_generate.add_options, cli_generate.run),
    Verb(
        "bench", "measure prompt reading and answering beside the RAM's bandwidth", cli_bench.add_options, cli_bench.run
    ),
    Verb("perplexity", "measure how well a model predicts a text", _perplexity_options, _perplexity),
    Verb("models", "list the models on this PC", cli_models.add_options, cli_models.run),
    Verb(
        "download",
        "bring a model here from the hub, or say beforehand how it would run",
        cli_download.add_options,
        cli_download.run,
    ),
)

#: What `greenroom` takes as its first argument; without one the window opens.
VERBS = tuple(verb.name for verb in _VERBS)
