"""Options that several verbs of the command line share, and the types of their values."""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
from pathlib import Path

from engine.errors import GreenroomError

#: A text is read whole, and its tokens take many times its room; no model has a context near this.
MOST_TEXT_BYTES = 256_000_000
#: More of it is a slip of the keyboard.
MOST_GB, MOST_PRICE = 1e9, 1e12


def add_model(parser: argparse.ArgumentParser, *, planned_only: bool = False) -> None:
    """planned_only: one of the catalogue will do, or one that is only known."""
    known = 'a file, a folder, the name of a model you have, or "demo"'
    if planned_only:
        known += '; also one that is not here: "glm-4.6", "deepseek-v3:Q8_0"'
    parser.add_argument("model", metavar="MODEL", help=known)


def add_loading(parser: argparse.ArgumentParser) -> None:
    """For verbs that load the model."""
    add_model(parser)
    add_wishes(parser)
    add_shortcuts(parser)
    parser.add_argument("--force", action="store_true", help="load even if the plan says it does not fit")


def add_threads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=count, metavar="N", help="CPU threads (default: one per fast core)")


def add_wishes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--context",
        type=count,
        metavar="N",
        help="tokens of question and answer together (default 8192, or the model's own limit if lower)",
    )
    parser.add_argument(
        "--device",
        type=device,
        default="auto",
        metavar="auto|cpu|cuda|sim",
        help="what computes all but the routed experts; sim plays a GPU on the CPU, e.g. sim:vram=2e9,copy=12e9",
    )
    parser.add_argument(
        "--dtype",
        choices=("auto", "float32", "bfloat16"),
        default="auto",
        help="arithmetic; float32 is for exact checks",
    )
    parser.add_argument(
        "--kv-type",
        choices=("auto", "f32", "bf16", "f16", "q8"),
        default="auto",
        help="numbers of the KV cache; q8 takes half the room of f16",
    )
    parser.add_argument(
        "--experts",
        choices=("stored", "int8", "int4", "int4_g128"),
        default="stored",
        help="re-code float experts while loading; int4_g128 is smallest and loses most",
    )
    parser.add_argument("--isa", metavar="TIER", help='highest kernel tier to use, e.g. "avx2"')
    parser.add_argument("--max-vram", type=amount, metavar="GB", help="use no more VRAM than this")
    parser.add_argument("--leave-ram", type=amount, metavar="GB", help="RAM to leave to other programs")
    parser.add_argument("--leave-vram", type=amount, metavar="GB", help="VRAM to leave to other programs")
    parser.add_argument("--keep-gpu", action="store_true", help="leave the GPU to games and other programs")
    parser.add_argument("--prefer-gpu", action="store_true", help="use the GPU even where the CPU should be faster")


def add_shortcuts(parser: argparse.ArgumentParser) -> None:
    """What changes a model's answers for speed."""
    parser.add_argument(
        "--experts-per-token",
        type=count,
        metavar="N",
        help="fewer than the model was trained with: faster in proportion, and answers get worse",
    )
    parser.add_argument(
        "--defer-experts",
        type=number,
        default=0,
        metavar="N",
        help="let a token's N weakest experts on the CPU take effect a layer later while the GPU goes on: others "
        "measured up to 1.45 times the speed and half a percent of accuracy lost (default 0)",
    )


def add_what_if(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what if this PC were another one")
    group.add_argument("--ram", type=amount, metavar="GB", help="RAM built in")
    group.add_argument("--ram-bandwidth", type=positive, metavar="GB/s", help="read bandwidth of the RAM")
    group.add_argument("--cpu", metavar="NAME", help='as sold, e.g. "Ryzen 9 7950X"; --threads tells its cores')
    group.add_argument("--sockets", type=count, metavar="N", help="how many of that CPU")
    group.add_argument("--vram", type=amount, metavar="GB", help="VRAM built in; 0 for no GPU")
    group.add_argument("--gpu", metavar="NAME", help='as sold, e.g. "RTX 4090"; other cards need --vram')


def device(text: str) -> str:
    """What `engine.placement.plan.Wishes` takes; the planner looks closer at a simulated one's settings."""
    if text in ("auto", "cpu", "cuda") or text.partition(":")[0] == "sim":
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is none of auto, cpu, cuda and sim")


def count(text: str) -> int:
    """A whole number from 1 on."""
    return _whole(text, 1)


def number(text: str) -> int:
    """A whole number from 0 on."""
    return _whole(text, 0)


def window(text: str) -> int:
    """Tokens of a window: one to start from and one to predict, at least."""
    return _whole(text, 2)


def _whole(text: str, least: int) -> int:
    with contextlib.suppress(ValueError):
        if (found := int(text)) >= least:
            return found
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")


def counts(text: str) -> list[int]:
    """Several of them, with commas between."""
    return [count(part) for part in text.split(",")]


def positive(text: str) -> float:
    with contextlib.suppress(ValueError):
        if math.isfinite(number := float(text)) and number > 0:
            return number
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")


def amount(text: str) -> int:
    """Bytes from a number of GB (10^9 bytes, as everywhere in Greenroom)."""
    with contextlib.suppress(ValueError):
        if 0 <= (number := float(text)) <= MOST_GB:
            return round(number * 1e9)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of GB")


def amounts(text: str) -> list[int]:
    """Several of them, with commas between."""
    return [amount(part) for part in text.split(",")]


def prices(text: str) -> list[float]:
    """Several numbers from 0 on."""
    with contextlib.suppress(ValueError):
        found = [float(part) for part in text.split(",")]
        if all(0 <= price <= MOST_PRICE for price in found):
            return found
    raise argparse.ArgumentTypeError(f"{text!r} are not prices")


def names(text: str) -> list[str]:
    """Several names, with commas between."""
    found = [part.strip() for part in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} has an empty name in it")
    return found


def plain_text(text: str) -> str:
    """What the shell passed, without the stand-ins Python uses for bytes that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def read_text(path: Path | None) -> str:
    """A text file in UTF-8, of MOST_TEXT_BYTES at most; None is standard input. Line breaks become "\\n".

    Raises GreenroomError when it cannot be read, is larger, or is not UTF-8.
    """
    name = "The standard input" if path is None else str(path)
    try:
        if path is None:
            if sys.stdin is None:
                raise OSError(None, "it is closed")
            data = sys.stdin.buffer.read(MOST_TEXT_BYTES + 1)
        else:
            with path.open("rb") as file:
                data = file.read(MOST_TEXT_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise GreenroomError(f"{name} cannot be read", why, "Name a text file.") from error
    if len(data) > MOST_TEXT_BYTES:
        why = f"it is longer than {MOST_TEXT_BYTES // 10**6} MB"
        raise GreenroomError(f"{name} cannot be read", why, "Give a shorter text.")
    try:
        return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        why = f"it is not UTF-8 text (byte {error.start})"
        raise GreenroomError(f"{name} cannot be read", why, "Convert it to UTF-8.") from error
