"""Answers without a network: what a test says, to requests that went through all of our own code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import httpx2
import pytest

from engine.hub import client
from engine.hub.connections import Connections

Answer = Callable[[httpx2.Request], httpx2.Response]


class Body(httpx2.SyncByteStream):
    """Counts what is read of it."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self.read_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.read_bytes += len(piece)
            yield piece


def answer_by(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> list[httpx2.Request]:
    """Every client opened from now on gets its answers there. Returns the list of requests, which grows."""
    asked: list[httpx2.Request] = []
    real = client._connect_by

    def handle(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return answer(request)

    def connect(http: httpx2.Client, control: Any) -> Connections:
        made = real(http, control)
        cast(Any, http)._transport.close()
        cast(Any, http)._transport = httpx2.MockTransport(handle)
        cast(Any, http)._mounts.clear()
        return made

    monkeypatch.setattr(client, "_connect_by", connect)
    return asked


def answer(content: bytes = b"", status: int = 200, **headers: str) -> httpx2.Response:
    """Its body is not read, nor decoded, before somebody asks for it."""
    named = [(name.replace("_", "-"), value.encode("utf-8")) for name, value in headers.items()]
    return httpx2.Response(status, headers=[(name.encode(), value) for name, value in named], stream=Body([content]))
