#!/usr/bin/env python3
"""Ask osv.dev for known advisories about every locked version, those for other systems included. Needs a network.

    python3 installers/lock/audit_lock.py

Exit code 0: none known. 1: some, they are listed. 3: the service could not be asked, so nothing is known.
Only names and versions of public packages are sent.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any

LOCK = Path(__file__).resolve().parent
API = "https://api.osv.dev/v1/"
TIMEOUT_SECONDS = 30
MOST_BYTES = 16 << 20


class NoAnswerError(Exception):
    """The service could not be asked, or did not answer as it should."""


def locked_versions() -> list[tuple[str, str]]:
    """(name, version) of everything locked, without the "+cpu" of a build: advisories know only releases."""
    found = set()
    for path in LOCK.glob("*.txt"):
        text = path.read_text(encoding="utf-8")
        found |= set(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;+]+)", text, re.MULTILINE))
    return sorted(found)


def ask(url: str, question: object = None) -> Any:
    data = None if question is None else json.dumps(question).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            return json.loads(answer.read(MOST_BYTES))
    except (OSError, HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise NoAnswerError(str(reason)) from None


def advisories(api: str, versions: list[tuple[str, str]]) -> dict[str, set[str]]:
    """Identifiers of advisories, each with the "name version" it is about."""
    queries: list[dict[str, Any]] = [
        {"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in versions
    ]
    found: dict[str, set[str]] = {}
    while queries:
        more = []
        results = ask(api + "querybatch", {"queries": queries})["results"]
        for query, result in zip(queries, results, strict=True):
            about = f"{query['package']['name']} {query['version']}"
            for advisory in result.get("vulns", []):
                found.setdefault(advisory["id"], set()).add(about)
            if token := result.get("next_page_token"):
                more.append({**query, "page_token": token})
        queries = more
    return found


def report(api: str) -> int:
    """Print each advisory once, under its first identifier. Returns how many there are."""
    versions = locked_versions()
    known: set[str] = set()
    count = 0
    for identifier, about in sorted(advisories(api, versions).items()):
        if identifier in known:
            continue
        details = ask(api + "vulns/" + urllib.parse.quote(identifier, safe=""))
        known |= {identifier, *details.get("aliases", [])}
        if details.get("withdrawn"):
            continue
        count += 1
        summary = details.get("summary") or details.get("details", "")
        line = f"{', '.join(sorted(about))}: {identifier} {summary[:200]}"
        print("".join(character if character.isprintable() else " " for character in line))
    print(f"{count} known advisories about {len(versions)} locked versions.")
    return count


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="List known advisories about what bootstrap.py installs.")
    parser.add_argument("--api", default=API, help="another address of the service")
    try:
        return 1 if report(parser.parse_args(arguments).api) else 0
    except NoAnswerError as error:
        print(f"Nothing was checked: the advisory service did not answer ({error}).", file=sys.stderr)
    except (AttributeError, KeyError, TypeError, ValueError):
        print("Nothing was checked: the advisory service's answer has another form than expected.", file=sys.stderr)
    return 3


if __name__ == "__main__":
    sys.exit(main())
