"""`greenroom perplexity`: how well a model predicts a text."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from engine.cli.common import loaded
from engine.cli.options import add_loading, add_threads, count, read_text, window
from engine.cli.terminal import Terminal

HELP = "measure how well a model predicts a text"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_loading(parser)
    add_threads(parser)
    parser.add_argument(
        "--file", required=True, metavar="FILE", help='a text file in UTF-8; "-" reads from standard input'
    )
    parser.add_argument("--window", type=window, default=512, metavar="N", help="tokens per window (default 512)")
    parser.add_argument("--stride", type=count, metavar="N", help="between window starts (default: half a window)")


def run(args: argparse.Namespace, terminal: Terminal) -> dict[str, Any]:
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
