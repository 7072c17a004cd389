"""`greenroom models`: what is on this PC, and what of the catalogue could be."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import engine
from engine.cli.terminal import Terminal
from engine.cli.text import plural, speed_range
from engine.units import size_text

HELP = "list the models on this PC"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--elsewhere", action="store_true", help="also those that other programs downloaded")
    parser.add_argument("--catalogue", action="store_true", help="also what could be downloaded, planned for this PC")
    parser.add_argument("--update-catalogue", metavar="URL", help="fetch a newer catalogue from this address first")


def run(args: argparse.Namespace, terminal: Terminal) -> dict[str, Any]:
    from engine.hub.library import installed, models_folder, unreadable
    from engine.hub.other_programs import find

    folder = models_folder()
    if (error := unreadable(folder)) is not None:
        raise error
    models = installed()
    width = max((len(model.name) for model in models), default=0)
    for model in models:
        terminal.say(f"{model.name:{width}}  {model.error or f'{model.architecture}, {size_text(model.nbytes)}'}")
    if not models:
        terminal.note(f'No models in {folder}; "demo" and paths to model files work too.')
    document: dict[str, Any] = {
        "folder": str(folder),
        "models": [{**asdict(model), "path": str(model.path)} for model in models],
    }
    if args.elsewhere:
        others = find()
        for other in others:
            terminal.say(f"{other.program}: {other.name}, {size_text(other.nbytes)}, {other.path}")
        document["elsewhere"] = [{**asdict(other), "path": str(other.path)} for other in others]
    if args.catalogue or args.update_catalogue:
        document["catalogue"] = list(_catalogue(args, terminal))
    return document


def _catalogue(args: argparse.Namespace, terminal: Terminal) -> Iterator[dict[str, Any]]:
    from engine.hub.catalogue import catalogue, fetch_update
    from engine.hub.network import NetworkSettings

    if args.update_catalogue:
        count = fetch_update(args.update_catalogue, NetworkSettings())
        terminal.note(f"The catalogue holds {plural(count, 'model')} now.")
    report = engine.probe(quick=True)
    for model in catalogue():
        for download in model.downloads:
            plan = engine.plan(model.checkpoint(download.label), report)
            nbytes = model.nbytes(download)
            # Worked out from the model's shape where nobody has seen the file.
            size = ("" if download.nbytes is not None else "~") + size_text(nbytes)
            speed = speed_range(plan.prediction.decode_tps) if plan.runnable else ""
            terminal.say(f"{download.repo}:{download.label}  {size}  {plan.label}  {speed}".rstrip())
            yield {
                "id": model.id,
                "repo": download.repo,
                "label": download.label,
                "bytes": nbytes,
                "bytes_confirmed": download.nbytes is not None,
                "licence": model.licence,
                "mode": plan.mode,
                "decode_tps": plan.prediction.decode_tps.likely,
            }
