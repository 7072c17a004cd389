"""`greenroom generate`: one prompt, one answer."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from engine.cli.common import loaded
from engine.cli.options import add_loading, add_threads, count, plain_text, read_text
from engine.cli.terminal import Terminal
from engine.cli.text import plural, speed_range
from engine.errors import GreenroomError
from engine.progress import Progress

HELP = "load a model and answer one prompt"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_loading(parser)
    add_threads(parser)
    parser.add_argument(
        "--prompt",
        required=True,
        type=plain_text,
        metavar="TEXT",
        help='the question; "-" reads it from standard input',
    )
    parser.add_argument("--system", type=plain_text, metavar="TEXT", help="instructions given before the question")
    parser.add_argument(
        "--thinking", metavar="on|off|LEVEL", help="whether or how much to think before answering, where the model can"
    )
    parser.add_argument("--hide-thoughts", action="store_true", help="show the answer only")
    parser.add_argument("--raw", action="store_true", help="continue the text as it is, without the chat template")
    parser.add_argument("--max-tokens", type=count, metavar="N", help="longest answer (default %(default)s)")
    parser.add_argument("--temperature", type=float, metavar="T", help="0 is greedy (default %(default)s)")
    parser.add_argument("--top-k", type=int, metavar="K", help="0 is off (default %(default)s)")
    parser.add_argument("--top-p", type=float, metavar="P", help="1 is off (default %(default)s)")
    parser.add_argument("--min-p", type=float, metavar="P", help="0 is off (default %(default)s)")
    parser.add_argument("--repetition-penalty", type=float, metavar="R", help="1 is off (default %(default)s)")
    parser.add_argument("--presence-penalty", type=float, metavar="A", help="0 is off (default %(default)s)")
    parser.add_argument("--frequency-penalty", type=float, metavar="A", help="0 is off (default %(default)s)")
    parser.add_argument("--seed", type=int, metavar="S", help="makes a sampled answer repeatable")
    parser.add_argument(
        "--stop", action="append", type=plain_text, metavar="TEXT", help="end before this text; repeatable"
    )
    parser.add_argument(
        "--no-lookup",
        dest="lookup",
        action="store_false",
        help="do not guess ahead from what was said before; the answer is the same either way",
    )
    from engine.runtime.events import SamplingParams

    defaults = SamplingParams(max_tokens=MAX_TOKENS)
    parser.set_defaults(**{name: getattr(defaults, name) for name in _SAMPLING})


#: A small model can repeat itself for ever; this is a long answer, and ends such a one within the minute.
MAX_TOKENS = 1024

#: Options of `generate` that are fields of SamplingParams under the same name.
_SAMPLING = (
    "max_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "lookup",
)


def run(args: argparse.Namespace, terminal: Terminal) -> dict[str, Any]:
    from engine.runtime.events import STOP_REASONS, Message, SamplingParams

    params = SamplingParams(stop=tuple(args.stop or ()), **{name: getattr(args, name) for name in _SAMPLING})
    if args.raw and args.system:
        raise GreenroomError("--system cannot be used with --raw", "raw text has no roles", "Leave one of them out.")
    if args.raw and args.thinking:
        why = "raw text has no template to say so"
        raise GreenroomError("--thinking cannot be used with --raw", why, "Leave one of them out.")
    asked = read_text(None) if args.prompt == "-" else args.prompt
    if not asked.strip():
        raise GreenroomError("There is nothing to answer", "the prompt is empty", "Write something after --prompt.")
    system = [Message("system", args.system)] if args.system else []
    prompt = asked if args.raw else [*system, Message("user", asked)]
    text: list[str] = []
    thoughts: list[str] = []
    token_ids: list[int] = []
    with loaded(args, terminal, args.context) as (engine, learn):
        kernel = engine.kernel
        try:
            for event in engine.generate(prompt, params, thinking=args.thinking):
                stats = event.stats
                read = stats.reused_tokens + stats.prefilled_tokens
                if stats.completion_tokens == 0 and read < stats.prompt_tokens:
                    terminal.progress(Progress(read, stats.prompt_tokens, "Reading the prompt"))
                thoughts.append(event.thought)
                if not args.hide_thoughts:
                    terminal.aside(event.thought)
                    if event.text and any(thoughts) and not any(text):
                        terminal.aside("\n\n")
                text.append(event.text)
                token_ids += event.token_ids
                terminal.stream(event.text)
        finally:
            # Also when it is broken off, so that what comes next starts on a line of its own.
            if text:
                terminal.stream("\n")
        status = engine.status()
    predicted = learn(stats)
    reason = event.stop_reason or "error"
    drafts = f"{stats.accepted_tokens} of {stats.drafted_tokens} guesses right · " if stats.drafted_tokens else ""
    # The first token counts to the prompt's reading: an answer of one has no speed.
    speed = f"{stats.decode_tps:.1f} tok/s · " if stats.decode_tps else ""
    terminal.note(
        f"{speed}{plural(stats.completion_tokens, 'token')} · {drafts}first token "
        f"{stats.first_token_s:.1f} s · prompt {stats.prefill_tps:.0f} tok/s · {kernel} · "
        f"stopped: {STOP_REASONS[reason]}"
    )
    terminal.note(f"Predicted: {speed_range(predicted.decode_tps)}, prompt {speed_range(predicted.prefill_tps)}.")
    for note in status.notes:
        terminal.note(f"Note: {note}")
    return {
        "text": "".join(text),
        "thought": "".join(thoughts),
        "token_ids": token_ids,
        "stop_reason": reason,
        "stats": asdict(stats),
        "kernel": kernel,
        "status": status.to_json(),
        "prediction": asdict(predicted),
    }
