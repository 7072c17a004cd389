"""A server on 127.0.0.1 that does with each connection whatever a test wants, HTTP or not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

#: Gets the connection and an event that is set when the test is over.
Serve = Callable[[socket.socket, threading.Event], object]


class RawServer:
    """Use as a context manager. `reached` is set when a connection has come and `serve` has begun."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.reached, self.over = threading.Event(), threading.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for each in (self._listener, *self._connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._threads.append(threading.Thread(target=self._run, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _run(self, connection: socket.socket) -> None:
        with suppress(OSError):
            # Only an event that says "a client waits now" lets a test stop it while it waits.
            connection.recv(65536)
            self.reached.set()
            self._serve(connection, self.over)


def silent(connection: socket.socket, over: threading.Event) -> None:
    """Takes what comes and never says anything."""
    over.wait()


def after(*pieces: bytes) -> Serve:
    """Says that much and no more."""

    def serve(connection: socket.socket, over: threading.Event) -> None:
        for piece in pieces:
            connection.sendall(piece)
        over.wait()

    return serve


def dribbling(beginning: bytes, piece: bytes, every_s: float = 0.05) -> Serve:
    """The same piece again and again, slowly, without end."""

    def serve(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(beginning)
        while not over.wait(every_s):
            connection.sendall(piece)

    return serve
