"""Connections that can be given up at any moment, from the look-up of the name to the last byte.

A blocking call cannot be interrupted on every system, so each wait is a row of short ones. Between them the control
is asked whether to stop, and the time left is counted.
"""

from __future__ import annotations

import errno
import math
import os
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

import httpcore2

from engine.control import Control

_T = TypeVar("_T")

#: Longest time, in seconds, until a stopped wait notices.
_LOOK_S = 0.1
#: Addresses of one name that are tried. Each gets a share of the time, so that one that is silent leaves some.
_MAX_ADDRESSES, _SHARES = 6, 3
_BLOCK = 1 << 16
_UNDER_WAY = (errno.EINPROGRESS, errno.EWOULDBLOCK)

_deadline: ContextVar[float] = ContextVar("deadline", default=math.inf)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """All waits on this thread in here end after that time, together. Inside another `within` the earlier end holds."""
    before = _deadline.set(min(_deadline.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _deadline.reset(before)


class _Wait:
    """One wait. expired: what `step` raises when the time is over; Cancelled when the control is stopped."""

    def __init__(self, control: Control, timeout: float | None, expired: type[Exception]) -> None:
        self._control, self._expired = control, expired
        self._end = min(_deadline.get(), math.inf if timeout is None else time.monotonic() + timeout)

    def step(self) -> float:
        """Seconds to wait before the next step."""
        self._control.check()
        left = self._end - time.monotonic()
        if left <= 0:
            raise self._expired("the time is over")
        return min(_LOOK_S, left)


class Connections(httpcore2.NetworkBackend):
    """Opens connections for httpcore2. Everything in them raises Cancelled soon after the control is stopped."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._opened: WeakSet[socket.socket] = WeakSet()

    def close(self) -> None:
        """Closes what the library left open, as it does where a SOCKS proxy is silent."""
        for connection in list(self._opened):
            connection.close()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        whole = _Wait(self._control, timeout, httpcore2.ConnectTimeout)
        found = self._look_up(host, port, whole)[:_MAX_ADDRESSES]
        share = None if timeout is None else timeout / max(1, min(len(found), _SHARES))
        for number, (family, kind, protocol, _, address) in enumerate(found):
            whole.step()
            connection = socket.socket(family, kind, protocol)
            self._opened.add(connection)
            try:
                self._connect(connection, address, _Wait(self._control, share, httpcore2.ConnectTimeout))
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for option in socket_options or ():
                    connection.setsockopt(*option)
            except (OSError, httpcore2.ConnectTimeout) as error:
                connection.close()
                if number + 1 < len(found):
                    continue
                if isinstance(error, OSError):
                    raise httpcore2.ConnectError(str(error)) from error
                raise
            except BaseException:
                connection.close()
                raise
            return _Tcp(connection, self._control)
        raise httpcore2.ConnectError("the name has no address")

    def _look_up(self, host: str, port: int, wait: _Wait) -> list[Any]:
        """The system's look-up cannot be interrupted, so it gets a thread that nobody has to wait for."""
        answers: list[list[Any] | Exception] = []

        def look_up() -> None:
            try:
                answers.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
            except Exception as error:
                answers.append(error)

        thread = threading.Thread(target=look_up, name="name look-up", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(wait.step())
        (answer,) = answers
        try:
            if isinstance(answer, Exception):
                raise answer
            return answer
        except (OSError, UnicodeError) as error:  # UnicodeError: a part of the name is too long
            raise httpcore2.ConnectError(str(error)) from error

    def _connect(self, connection: socket.socket, address: Any, wait: _Wait) -> None:
        connection.setblocking(False)
        code = connection.connect_ex(address)
        if code in _UNDER_WAY:
            with selectors.DefaultSelector() as selector:
                selector.register(connection, selectors.EVENT_WRITE)
                while not selector.select(wait.step()):
                    pass
            code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))


class _Tcp(httpcore2.NetworkStream):
    def __init__(self, connection: socket.socket, control: Control) -> None:
        self._connection, self._control = connection, control

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        wait = _Wait(self._control, timeout, httpcore2.ReadTimeout)
        return self._until_done(partial(self._connection.recv, max_bytes), wait, httpcore2.ReadError)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        view = memoryview(buffer)
        while view:
            wait = _Wait(self._control, timeout, httpcore2.WriteTimeout)
            view = view[self._until_done(partial(self._connection.send, view), wait, httpcore2.WriteError) :]

    def _until_done(self, step: Callable[[], _T], wait: _Wait, broken: type[Exception]) -> _T:
        while True:
            seconds = wait.step()
            try:
                self._connection.settimeout(seconds)
                return step()
            except TimeoutError:
                continue
            except OSError as error:
                raise broken(str(error)) from error

    def close(self) -> None:
        self._connection.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _Tls(self, ssl_context, server_hostname, timeout)

    def get_extra_info(self, info: str) -> Any:
        if info != "is_readable":
            return None
        if self._connection.fileno() < 0:
            return True
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection, selectors.EVENT_READ)
            return bool(selector.select(0))


class _Tls(httpcore2.NetworkStream):
    """TLS over a connection, which may be TLS itself: that of a proxy."""

    def __init__(
        self,
        below: httpcore2.NetworkStream,
        context: ssl.SSLContext,
        server_hostname: str | None,
        timeout: float | None,
    ) -> None:
        self._below = below
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)
            self._until_done(self._tls.do_handshake, timeout)
        except (OSError, ValueError) as error:  # ValueError: a name that TLS does not know, like one with a dot first
            below.close()
            raise httpcore2.ConnectError(str(error)) from error
        except BaseException:
            below.close()
            raise

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            return self._until_done(partial(self._tls.read, max_bytes), timeout)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return b""  # many servers hang up without a goodbye
        except OSError as error:
            raise httpcore2.ReadError(str(error)) from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        view = memoryview(buffer)
        try:
            while view:
                view = view[self._until_done(partial(self._tls.write, view), timeout) :]
        except OSError as error:
            raise httpcore2.WriteError(str(error)) from error

    def _until_done(self, step: Callable[[], _T], timeout: float | None) -> _T:
        while True:
            try:
                done = step()
            except ssl.SSLWantReadError:
                self._send(timeout)
                if data := self._below.read(_BLOCK, timeout):
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            else:
                self._send(timeout)
                return done

    def _send(self, timeout: float | None) -> None:
        if self._outgoing.pending:
            self._below.write(self._outgoing.read(), timeout)

    def close(self) -> None:
        self._below.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _Tls(self, ssl_context, server_hostname, timeout)

    def get_extra_info(self, info: str) -> Any:
        return self._tls if info == "ssl_object" else self._below.get_extra_info(info)
