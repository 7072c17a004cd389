"""Compares assets/catalogue.json with the hub: `python assets/catalogue/check.py [--write]`. Needs a network.

For each download: is the repository there, has it a model of that label, how large is it? --write puts the sizes found
into the catalogue, which then shows them as confirmed. Exit code 1 when anything is missing, 2 when the hub cannot be
reached.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import httpx2

from engine.errors import GreenroomError
from engine.hub.credentials import token
from engine.hub.network import NetworkSettings
from engine.hub.repository import Hub, Repository, choose

CATALOGUE = Path(__file__).parent.parent / "catalogue.json"


def main() -> int:
    document = json.loads(CATALOGUE.read_text(encoding="utf-8"))
    hub = Hub(NetworkSettings(), token())
    repositories: dict[str, Repository | GreenroomError] = {}
    wrong = 0
    for model in document["models"]:
        for download in model["downloads"]:
            repo, label = download["repo"], download["label"]
            try:
                if repo not in repositories:
                    repositories[repo] = hub.repository(repo)
                found = repositories[repo]
                if isinstance(found, GreenroomError):
                    raise found
                size = choose(found, label).nbytes
            except GreenroomError as error:
                if isinstance(error.__cause__, httpx2.TransportError):
                    print(error, file=sys.stderr)
                    return 2
                repositories.setdefault(repo, error)
                wrong += 1
                print(f"MISSING {repo}:{label}  {error}")
                continue
            known = download.get("bytes")
            note = "" if known in (None, size) else f", the catalogue says {known}"
            print(f"ok      {repo}:{label}  {size}{note}")
            download["bytes"] = size
    if "--write" in sys.argv[1:]:
        rows = ",\n".join(json.dumps(model, ensure_ascii=False) for model in document["models"])
        CATALOGUE.write_text(
            f'{{"version": 1, "date": "{document["date"]}", "models": [\n{rows}\n]}}\n', encoding="utf-8"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
