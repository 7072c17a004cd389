"""`greenroom download`: bring a model here, or see what there is and how it would run before it is fetched."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import engine
from engine.cli.options import positive
from engine.cli.terminal import Terminal
from engine.cli.text import predicted_speeds
from engine.errors import GreenroomError
from engine.progress import Progress
from engine.units import size_text

if TYPE_CHECKING:
    from engine.hub.downloads import DownloadManager, DownloadStatus
    from engine.hub.network import NetworkSettings
    from engine.hub.repository import RemoteModel, Repository

HELP = "bring a model here from the hub, or say beforehand how it would run"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        nargs="?",
        metavar="OWNER/NAME[:LABEL]",
        help='a repository and which model of it, e.g. "maker/model-GGUF:Q4_K_M", or the address of its page; without '
        "it, the unfinished downloads",
    )
    parser.add_argument("--list", action="store_true", dest="listing", help="only list what the repository holds")
    parser.add_argument("--plan", action="store_true", help="only fetch the header and say how it would run here")
    parser.add_argument("--to", metavar="DIR", help="instead of Greenroom's models folder")
    parser.add_argument("--revision", metavar="NAME", help="branch, tag or commit (default: the newest)")
    parser.add_argument("--rate", type=positive, metavar="MB/s", help="use no more of the network than this")


def run(args: argparse.Namespace, terminal: Terminal) -> dict[str, Any]:
    from engine.hub.credentials import token
    from engine.hub.network import NetworkSettings
    from engine.hub.repository import Hub, choose, named

    settings = NetworkSettings()
    if args.target is None:
        return _unfinished(args, terminal)
    repo, label = named(args.target)
    repository = Hub(settings, token()).repository(repo, args.revision)
    if args.listing:
        return _listed(repository, terminal)
    model = choose(repository, label)
    if args.plan:
        return _planned(model, settings, terminal)
    return _downloaded(args, settings, model, terminal)


def _manager(args: argparse.Namespace, settings: NetworkSettings) -> DownloadManager:
    from engine.hub.downloads import DownloadManager
    from engine.hub.library import models_folder

    folder = Path(os.path.abspath(os.path.expanduser(args.to))) if args.to else models_folder()
    rate = round(1e6 * args.rate) if args.rate else 0
    return DownloadManager(folder, models_folder().parent / "downloads.db", settings, bytes_per_s=rate, own_only=True)


def _downloaded(
    args: argparse.Namespace, settings: NetworkSettings, model: RemoteModel, terminal: Terminal
) -> dict[str, Any]:
    from engine.hub.download_words import progress_text

    manager = _manager(args, settings)
    try:
        manager.start()
        terminal.note(f"{model.name}, {size_text(model.nbytes)} in {len(model.files)} file(s), from {settings.host}")
        download = manager.add(model)
        try:
            while True:
                status = manager.wait(download, 0.2)
                terminal.progress(Progress(status.done, 0, f"{model.name}: {progress_text(status)}"))
                if status.state in ("finished", "failed", "paused"):
                    break
        except BaseException:
            # Ctrl-C: what has come stays, and the same command goes on from there.
            manager.pause(download)
            terminal.note(f'Paused; the same command, or "greenroom download {model.repo}:{model.label}", goes on.')
            raise
    finally:
        manager.close()
    if status.notice:
        terminal.note(status.notice)
    if status.state == "failed" and status.error is not None:
        raise status.error
    terminal.say(str(status.path))
    return {**_document(status), "path": str(status.path)}


def _unfinished(args: argparse.Namespace, terminal: Terminal) -> dict[str, Any]:
    from engine.hub.download_words import progress_text
    from engine.hub.network import NetworkSettings

    manager = _manager(args, NetworkSettings())
    try:
        found = [status for status in manager.status() if status.state != "finished"]
        problem = manager.problem()
    finally:
        manager.close()
    if problem is not None:
        terminal.note(str(problem))
    for status in found:
        why = f" ({status.error})" if status.error is not None else ""
        terminal.say(f"{status.repo}:{status.label}  {progress_text(status)}{why}")
    if not found:
        terminal.note("Nothing is on its way. Name a repository to download from.")
    return {"downloads": [_document(status) for status in found]}


def _listed(repository: Repository, terminal: Terminal) -> dict[str, Any]:
    terms = ", its terms must be accepted first" if repository.gated else ""
    terminal.say(f"{repository.repo}, licence {repository.licence or 'not stated'}{terms}")
    if repository.skipped:
        terminal.note(f"{repository.skipped} file(s) are left out: their names cannot be used on every system.")
    width = max(len(model.label) for model in repository.models)
    for model in repository.models:
        files = "" if len(model.files) == 1 else f"  {len(model.files)} files"
        terminal.say(f"{model.label:{width}}  {size_text(model.nbytes):>9}  {model.name}{files}")
    return {
        "repo": repository.repo,
        "commit": repository.commit,
        "licence": repository.licence,
        "gated": repository.gated,
        "models": [
            {"label": m.label, "name": m.name, "form": m.form, "bytes": m.nbytes, "files": [f.path for f in m.files]}
            for m in repository.models
        ],
    }


def _planned(model: RemoteModel, settings: NetworkSettings, terminal: Terminal) -> dict[str, Any]:
    from engine.hub.credentials import token
    from engine.hub.headers import fetch_headers

    path = fetch_headers(model, settings, token(), progress=terminal.progress)
    checkpoint = engine.open_checkpoint(path)
    try:
        plan = engine.plan(checkpoint, engine.probe(quick=True))
    finally:
        checkpoint.close()
    terminal.say(f"{model.name}, {size_text(model.nbytes)} to download")
    for line in (*plan.explanation, *(predicted_speeds(plan) if plan.runnable else ()), *plan.alternatives):
        terminal.say(f"  {line}")
    return {"repo": model.repo, "label": model.label, "download_bytes": model.nbytes, **plan.to_json()}


def _document(status: DownloadStatus) -> dict[str, Any]:
    error: GreenroomError | None = status.error
    return {
        "repo": status.repo,
        "label": status.label,
        "name": status.name,
        "state": status.state,
        "done_bytes": status.done,
        "total_bytes": status.total,
        "error": None if error is None else {"what": error.what, "why": error.why, "remedy": error.remedy},
        "notice": status.notice,
    }
