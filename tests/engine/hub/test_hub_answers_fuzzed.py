"""Hubs that answer anything: one sentence comes of it, the credentials stay at home, and the work has an end."""

from __future__ import annotations

import itertools
import json
import random
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fuzzing import Fuzzer

from engine.control import Control, controlled_by
from engine.errors import GreenroomError
from engine.hub import client
from engine.hub import repository as repositories
from engine.hub.catalogue import fetch_update
from engine.hub.client import open_client
from engine.hub.headers import _Room, _Source
from engine.hub.network import NetworkSettings
from engine.hub.repository import Hub, RemoteFile, is_repo
from engine.hub.transfer import FileTransfer, RetryPolicy, Throttle
from engine.safe_paths import is_safe
from tests.fake_hub import COMMIT
from tests.fake_transport import Body, answer_by

pytestmark = pytest.mark.usefixtures("data_folder")

HUB, TOKEN, LOGIN = "https://hub.example", "hf_secret", "pa55word"
FILE = RemoteFile("model-Q4_0.gguf", 1000, None, None)
MAX_REQUESTS, MAX_BYTES = 200, 20 * repositories.MAX_LISTING_BYTES
HOSTS = ["hub.example", "HUB.example", "hub.example:443", "hub.example:444", "evil.example", "cdn.example", "127.0.0.1"]
ODD_TEXTS = ["", " ", "\x00", "\x1b[2J", "\ud800", "é" * 50, "‮", "x" * 5000, "[bad", "%", "%zz", "\\", "@", "a:b@c"]


class Awake(Control):
    """Waits for nothing, and counts how often it was asked to."""

    def sleep(self, seconds: float) -> None:
        assert 0 <= seconds <= 600


def odd_value(rng: random.Random, depth: int = 0) -> Any:
    plain = [
        None,
        True,
        False,
        0,
        -1,
        1 << 53,
        1 << 70,
        10**400,
        1.5,
        1e308,
        float("nan"),
        float("inf"),
        COMMIT,
        "a" * 64,
    ]
    pick = rng.randrange(10)
    if pick == 0 and depth < 4:
        return [odd_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if pick == 1 and depth < 4:
        return {rng.choice(["size", "oid", "path", "x"]): odd_value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return rng.choice(plain) if pick < 7 else rng.choice([*ODD_TEXTS, "license:mit", "a/b"])


def spoilt(rng: random.Random, document: Any) -> Any:
    """The document with some values in it exchanged, left out or repeated."""
    if rng.random() < 0.08:
        return odd_value(rng)
    if isinstance(document, dict):
        return {key: spoilt(rng, value) for key, value in document.items() if rng.random() > 0.03}
    if isinstance(document, list):
        return [spoilt(rng, value) for value in document for _ in range(rng.choice([0, 1, 1, 1, 1, 2]))]
    return document


def document(rng: random.Random, path: str) -> Any:
    row = {"type": "file", "path": FILE.path, "size": FILE.nbytes, "oid": "a" * 40}
    large = {**row, "path": "other-Q8_0.gguf", "lfs": {"oid": "b" * 64, "size": 2000, "pointerSize": 134}}
    model = {"id": "maker/model", "sha": COMMIT, "downloads": 3, "likes": 1, "gated": "auto", "tags": ["license:mit"]}
    if "/tree/" in path:
        return [row, large, {"type": "directory", "path": "x"}]
    return [model, model] if path == "/api/models" else model


def address(rng: random.Random) -> str:
    scheme = rng.choice(["https://", "https://", "http://", "//", "", "file://", "javascript:", "https:"])
    login = rng.choice(["", "", "", f"user:{LOGIN}@", "@"])
    path = rng.choice(["/x", "/api/models?cursor=1", "", "?", "/" + "y" * 20_000, "/é", "/a b", *ODD_TEXTS])
    return scheme + login + rng.choice([*HOSTS, *ODD_TEXTS, "[::1]", "[::1", "h" * 300]) + path


def body(rng: random.Random, path: str) -> Body:
    kind = rng.randrange(12)
    if kind == 0:
        return Body([rng.randbytes(rng.randrange(2000))])
    if kind == 1:
        return Body([rng.choice([b"[", b'{"a":', b"[[],"]) * 20_000])
    if kind == 2 and rng.random() < 0.05:
        return Body(itertools.repeat(bytes(1 << 16)))
    if kind < 5:
        return Body([bytes(rng.choice([0, 1, 10, 999, 1000, 1001, 70_000]))])
    content = json.dumps(spoilt(rng, document(rng, path))).encode("utf-8", "surrogatepass")
    if rng.random() < 0.1:
        content = content[: rng.randrange(len(content) + 1)]
    return Body([content])


def headers(rng: random.Random) -> list[tuple[bytes, bytes]]:
    choices: dict[str, Callable[[], str]] = {
        "Location": lambda: address(rng),
        "Link": lambda: f'<{address(rng)}>; rel="next"' if rng.random() < 0.8 else rng.choice(ODD_TEXTS),
        "Content-Encoding": lambda: rng.choice(["identity", "gzip", "br", "", "identity, gzip"]),
        "Content-Length": lambda: rng.choice(["1000", "-1", "9" * 30, "x", "1000, 1001"]),
        "Content-Range": lambda: rng.choice(
            ["bytes 0-999/1000", "bytes 5-/*", "x", "bytes -1-1/1", "bytes " + "9" * 50]
        ),
        "Retry-After": lambda: rng.choice(["0", "1", "9" * 400, "-1", "Fri, 31 Dec 2999 23:59:59 GMT", *ODD_TEXTS]),
        "ETag": lambda: rng.choice(['"a"', 'W/"b"', *ODD_TEXTS]),
        "X-Linked-Etag": lambda: rng.choice(['"a"', '"b"', *ODD_TEXTS]),
        "Set-Cookie": lambda: rng.choice(["a=b", "a=b; Domain=.example; Path=/", *ODD_TEXTS]),
        "Content-Type": lambda: rng.choice(["application/json; charset=utf-7", "text/html; charset=\xff", "x"]),
    }
    chosen = [name for name in choices if rng.random() < 0.25]
    return [(name.encode(), choices[name]().encode("utf-8", "surrogatepass")) for name in chosen]


def test_no_answer_of_a_hub_does_more_than_fail(
    fuzzer: Fuzzer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repositories, "_MAX_PAGES", 50)
    # Reading the system's certificates takes longer than everything else.
    certificates = ssl.create_default_context()
    monkeypatch.setattr(client, "read_certificates", lambda _: certificates)
    rng = random.Random()
    bodies: list[Body] = []
    home = httpx2.URL(HUB).origin

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent = request.headers.get("Authorization")
        assert sent is None or request.url.origin == home
        assert "Cookie" not in request.headers
        assert request.url.scheme == "https"
        assert not request.url.userinfo
        bodies.append(body(rng, request.url.path))
        status = rng.choice([200, 200, 200, 206, 301, 302, 303, 307, 308, 204, 304, 400, 401, 403, 404, 416, 429, 503])
        return httpx2.Response(status, headers=headers(rng), stream=bodies[-1])

    asked = answer_by(answer, monkeypatch)
    for rng in fuzzer.rounds():
        asked.clear()
        bodies.clear()
        (tmp_path / "part").unlink(missing_ok=True)
        hub = Hub(NetworkSettings(endpoint=rng.choice([HUB, f"https://user:{LOGIN}@hub.example"])), TOKEN)
        said = ""
        with controlled_by(Awake()):
            try:
                _ask(hub, rng, tmp_path)
            except GreenroomError as error:
                said = str(error)
        assert LOGIN not in said
        assert TOKEN not in said
        assert len(asked) <= MAX_REQUESTS
        assert sum(each.read_bytes for each in bodies) <= MAX_BYTES


def _ask(hub: Hub, rng: random.Random, folder: Path) -> None:
    pick = rng.randrange(5)
    if pick == 0:
        for hit in hub.search("x"):
            assert is_repo(hit.repo)
            assert type(hit.downloads) is type(hit.likes) is int
            assert hit.licence.isprintable()
    elif pick == 1:
        found = hub.repository("maker/model")
        assert all(is_safe(file.path) and file.nbytes >= 0 for model in found.models for file in model.files)
    elif pick == 2:
        fetch_update(f"{HUB}/catalogue.json", hub.settings)
    else:
        with open_client(hub.settings, TOKEN) as opened:
            url = hub.url("maker/model", "main", FILE.path)
            if pick == 3:
                assert len(_Source(opened, url, FILE, "hub.example", _Room(500)).bytes(0, 500)) == 500
            else:
                done = FileTransfer(
                    opened,
                    url,
                    FILE,
                    folder / "part",
                    Throttle(),
                    RetryPolicy(3),
                    lambda _: None,
                    lambda _: None,
                    "a",
                )
                done.run()
                assert (folder / "part").stat().st_size == FILE.nbytes
