"""Servers that take a connection and then let us wait, in every phase of it."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.control import Control, controlled_by
from engine.errors import Cancelled, GreenroomError
from engine.hub import client as clients
from engine.hub import connections
from engine.hub.catalogue import fetch_update
from engine.hub.client import open_client
from engine.hub.headers import fetch_headers
from engine.hub.network import NetworkSettings
from engine.hub.repository import Hub, RemoteFile, RemoteModel
from engine.hub.transfer import FileTransfer, RetryPolicy, Throttle
from tests.fake_hub import FakeHub, Pattern
from tests.raw_server import RawServer, Serve, after, dribbling, silent

#: Small enough that its header is asked for as the whole file.
FILE = RemoteFile("model-Q4_0.gguf", 500_000, None, None)
MODEL = RemoteModel("maker/model", "0" * 40, "Q4_0", "model-Q4_0", "gguf", (FILE,))
OK = b"HTTP/1.1 200 OK\r\n"
#: Far longer than any test runs: only a stop ends a wait.
NEVER_S = 1000.0


def search(settings: NetworkSettings, folder: Path) -> None:
    Hub(settings).search("model")


def listing(settings: NetworkSettings, folder: Path) -> None:
    Hub(settings).repository("maker/model")


def headers(settings: NetworkSettings, folder: Path) -> None:
    fetch_headers(MODEL, settings, folder=folder)


def catalogue(settings: NetworkSettings, folder: Path) -> None:
    fetch_update(f"{settings.hub}/catalogue.json", settings)


def transfer(settings: NetworkSettings, folder: Path) -> None:
    with open_client(settings) as client:
        url = Hub(settings).url("maker/model", "main", FILE.path)
        policy = RetryPolicy(attempts=1)
        FileTransfer(client, url, FILE, folder / "part", Throttle(), policy, lambda _: None, lambda _: None).run()


Request = Callable[[NetworkSettings, Path], None]
REQUESTS: list[Request] = [search, listing, headers, catalogue, transfer]


class Stopped:
    """Runs a request on a thread of its own, stops it once `reached` is set, and keeps how it ended."""

    def __init__(self, request: Request, settings: NetworkSettings, folder: Path, reached: threading.Event) -> None:
        self.raised: BaseException | None = None
        control = Control()
        thread = threading.Thread(target=self._run, args=(control, request, settings, folder), daemon=True)
        thread.start()
        assert reached.wait(20)
        control.stop()
        thread.join(20)
        self.ended = not thread.is_alive()

    def _run(self, control: Control, request: Request, settings: NetworkSettings, folder: Path) -> None:
        try:
            with controlled_by(control):
                request(settings, folder)
        except BaseException as error:
            self.raised = error


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.__name__)
@pytest.mark.parametrize(
    "serve",
    [
        silent,
        after(OK[:9]),
        after(OK, b"Content-Type: applic"),
        after(OK, b"Content-Length: 500000\r\n\r\n", b"GGUF"),
        after(OK, b"Transfer-Encoding: chunked\r\n\r\n", b"3\r\n["),
        dribbling(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    ],
    ids=["silent", "half a status", "half a header", "half a body", "half a chunk", "hints without end"],
)
def test_a_stop_ends_every_wait_for_a_server(request_: Request, serve: Serve, tmp_path: Path) -> None:
    with RawServer(serve) as server:
        settings = NetworkSettings(endpoint=f"http://{server.address}", stall_s=NEVER_S)
        stopped = Stopped(request_, settings, tmp_path, server.reached)
    assert stopped.ended
    assert isinstance(stopped.raised, Cancelled)


@pytest.mark.parametrize("endpoint", ["http://hub.example", "https://hub.example"])
@pytest.mark.parametrize("proxy", ["http", "socks5"])
def test_a_stop_ends_the_wait_for_a_proxy(endpoint: str, proxy: str, tmp_path: Path) -> None:
    with RawServer(silent) as server:
        settings = NetworkSettings(endpoint=endpoint, proxy=f"{proxy}://{server.address}", stall_s=NEVER_S)
        stopped = Stopped(transfer, settings, tmp_path, server.reached)
    assert stopped.ended
    assert isinstance(stopped.raised, Cancelled)


@pytest.mark.parametrize("login", ["", "user:password@"])
@pytest.mark.parametrize(
    "says",
    [
        b"\x05",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x05\x07",
        b"\x05\xff",
        b"\x05\x00\x05",
        b"\xff" * 5000,
    ],
    ids=lambda says: ascii(says)[:20],
)
def test_a_proxy_that_speaks_no_socks_is_one_sentence(says: bytes, login: str, tmp_path: Path) -> None:
    with RawServer(after(says)) as server:
        settings = NetworkSettings(endpoint="https://hub.example", proxy=f"socks5://{login}{server.address}", stall_s=1)
        with pytest.raises(GreenroomError, match="The proxy refused") as refused:
            search(settings, tmp_path)
    assert "password" not in str(refused.value)


def test_a_stop_ends_the_wait_for_a_tls_handshake(tmp_path: Path) -> None:
    with RawServer(silent) as server:
        settings = NetworkSettings(endpoint=f"https://{server.address}", stall_s=NEVER_S)
        stopped = Stopped(transfer, settings, tmp_path, server.reached)
    assert stopped.ended
    assert isinstance(stopped.raised, Cancelled)


def test_a_stop_ends_the_wait_for_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, over = threading.Event(), threading.Event()

    def look_up(*_: object, **__: object) -> list[object]:
        asked.set()
        over.wait(60)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    try:
        stopped = Stopped(search, NetworkSettings(endpoint="http://hub.example"), tmp_path, asked)
    finally:
        over.set()
    assert stopped.ended
    assert isinstance(stopped.raised, Cancelled)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets connections wait when nobody accepts them")
def test_a_stop_ends_the_wait_for_a_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reached = threading.Event()
    real = connections.Connections._connect

    def connect(*args: object) -> None:
        reached.set()
        real(*args)  # type: ignore[arg-type]

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        queued = []
        while True:  # until the queue is full
            queued.append(socket.socket())
            queued[-1].settimeout(1)
            try:
                queued[-1].connect(listener.getsockname())
            except TimeoutError:
                break
        monkeypatch.setattr(connections.Connections, "_connect", connect)
        settings = NetworkSettings(endpoint=f"http://127.0.0.1:{listener.getsockname()[1]}", stall_s=NEVER_S)
        stopped = Stopped(search, settings, tmp_path, reached)
        for each in queued:
            each.close()
    assert stopped.ended
    assert isinstance(stopped.raised, Cancelled)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.__name__)
@pytest.mark.parametrize(
    "serve",
    [
        dribbling(OK + b"X: ", b"x"),
        dribbling(OK, b"X: y\r\n"),
        dribbling(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["one header", "headers", "continue"],
)
def test_headers_that_never_end_are_given_up(request_: Request, serve: Serve, tmp_path: Path) -> None:
    # Something comes far more often than a connection may be silent.
    with RawServer(serve) as server:
        settings = NetworkSettings(endpoint=f"http://{server.address}", stall_s=0.6)
        with pytest.raises(GreenroomError, match="did not come in time"):
            request_(settings, tmp_path)


@pytest.mark.parametrize("request_", [search, listing, headers, catalogue], ids=lambda request: request.__name__)
def test_answers_that_are_read_whole_have_an_end(
    request_: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "ANSWER_S", 0.5)
    with RawServer(dribbling(OK + b"Content-Length: 500000\r\n\r\n", b" ")) as server:
        settings = NetworkSettings(endpoint=f"http://{server.address}", stall_s=NEVER_S)
        with pytest.raises(GreenroomError, match="did not come in time"):
            request_(settings, tmp_path)


def test_all_pages_of_a_listing_have_an_end_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.hub.repository.ANSWER_S", 0.5)
    with FakeHub(page=1) as hub:
        hub.add("maker/model", {f"model-{i}.gguf": Pattern(100) for i in range(1000)})
        real = FakeHub.url.fget
        assert real is not None

        def slow(self: FakeHub) -> str:
            time.sleep(0.02)
            return str(real(self))

        endpoint = hub.url
        monkeypatch.setattr(FakeHub, "url", property(slow))
        with pytest.raises(GreenroomError, match="did not come in time"):
            Hub(NetworkSettings(endpoint=endpoint)).repository("maker/model")
        assert len(hub.requests) < 1000


def test_a_header_larger_than_any_is_refused(tmp_path: Path) -> None:
    lines = b"".join(b"X-%d: y\r\n" % i for i in range(50_000))
    with (
        RawServer(after(OK, lines)) as server,
        pytest.raises(GreenroomError, match="broke"),
    ):
        search(NetworkSettings(endpoint=f"http://{server.address}", stall_s=20), tmp_path)


def test_an_address_that_is_silent_leaves_time_for_the_next(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    port = int(hub.url.rpartition(":")[2])
    tried: list[str] = []
    real = connections.Connections._connect

    def connect(
        self: connections.Connections, connection: socket.socket, address: tuple[str, int], wait: object
    ) -> None:
        tried.append(address[0])
        if address[0] == "127.0.0.2":
            while True:
                time.sleep(wait.step())  # type: ignore[attr-defined]
        real(self, connection, address, wait)  # type: ignore[arg-type]

    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, port)) for address in ("127.0.0.2", "127.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(connections.Connections, "_connect", connect)
    assert Hub(NetworkSettings(endpoint=f"http://hub.example:{port}", stall_s=3)).search("model")
    assert tried == ["127.0.0.2", "127.0.0.1"]


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        hub.add("maker/model", {FILE.path: Pattern(FILE.nbytes)})
        yield hub


def test_a_proxy_may_speak_tls_too(hub: FakeHub, tmp_path: Path) -> None:
    """The hub's TLS runs inside the proxy's."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl to make a certificate")
    pem, key = tmp_path / "hub.pem", tmp_path / "hub.key"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(key), "-out", str(pem)]
    subprocess.run([openssl, "req", "-x509", "-days", "2", *made, *subject], check=True, capture_output=True)
    context = ssl.create_default_context(cafile=pem)
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(pem, key)

    with FakeHub(certificate=pem, key=key) as secure:
        ready = threading.Event()
        listener = socket.create_server(("127.0.0.1", 0))

        def proxy() -> None:
            client, _ = listener.accept()
            with server_side.wrap_socket(client, server_side=True) as tls:
                tls.recv(65536)
                tls.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                ready.set()
                with socket.create_connection(("127.0.0.1", int(secure.url.rpartition(":")[2]))) as onward:

                    def back() -> None:
                        while data := onward.recv(65536):
                            tls.sendall(data)

                    threading.Thread(target=back, daemon=True).start()
                    while data := tls.recv(65536):
                        onward.sendall(data)

        threading.Thread(target=proxy, daemon=True).start()
        stream = connections.Connections(Control()).connect_tcp("127.0.0.1", listener.getsockname()[1], 20)
        stream = stream.start_tls(context, "127.0.0.1", 20)
        stream.write(b"CONNECT hub HTTP/1.1\r\n\r\n", 20)
        assert stream.read(65536, 20).startswith(b"HTTP/1.1 200")
        inner = stream.start_tls(context, "127.0.0.1", 20)
        inner.write(b"GET /api/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 20)
        answer = b""
        while not answer.endswith(b"[]") and (data := inner.read(65536, 20)):
            answer += data
        inner.close()
        listener.close()
        assert answer.startswith(b"HTTP/1.1 200")
        assert secure.requests == ["GET /api/models"]
