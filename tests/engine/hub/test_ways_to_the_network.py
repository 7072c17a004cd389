"""Proxies, certificates, mirrors, offline mode: what lies between this PC and the hub."""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from engine.control import Control
from engine.errors import GreenroomError
from engine.hub.client import open_client
from engine.hub.network import NetworkSettings
from engine.hub.repository import Hub
from engine.hub.transfer import FileTransfer, RetryPolicy, Throttle, verify
from tests.fake_hub import FakeHub, Fault, Pattern

REPO, NAME = "maker/model", "model-Q4_0.gguf"
NBYTES = 1_000_003
VARIABLES = ("HF_ENDPOINT", "HF_HUB_OFFLINE", "SSL_CERT_FILE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        hub.add(REPO, {NAME: Pattern(NBYTES, seed=1)})
        yield hub


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Signed by itself, for 127.0.0.1, with its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl to make a certificate")
    folder = tmp_path_factory.mktemp("certificate")
    pem, key = folder / "hub.pem", folder / "hub.key"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(key), "-out", str(pem)]
    subprocess.run([openssl, "req", "-x509", "-days", "2", *made, *subject], check=True, capture_output=True)
    return pem


@pytest.fixture
def secure(certificate: Path) -> Iterator[FakeHub]:
    with FakeHub(certificate=certificate, key=certificate.with_suffix(".key")) as hub:
        hub.add(REPO, {NAME: Pattern(NBYTES, seed=1)})
        yield hub


def bring(settings: NetworkSettings, folder: Path, policy: RetryPolicy | None = None) -> bool:
    """List the repository, fetch its file, check it."""
    hub = Hub(settings)
    file = hub.repository(REPO).models[0].files[0]
    part = folder / "model.part"
    with open_client(settings) as client:
        FileTransfer(
            client,
            hub.url(REPO, "main", file.path),
            file,
            part,
            Throttle(),
            policy or RetryPolicy(attempts=2, first_s=0.001),
            lambda _: None,
            lambda _: None,
        ).run()
    return verify(part, file, Control(), lambda _: None)


class Proxy:
    """Carries connections on 127.0.0.1 to where they ask to go: plain HTTP, CONNECT and SOCKS5. refuse: with 407."""

    def __init__(self, refuse: bool = False) -> None:
        self.refuse = refuse
        self.asked: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        # A shutdown wakes what waits in accept and recv; a close alone does not.
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(5)

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        try:
            first = client.recv(65536)
            if first[:1] == b"\x05":
                self._socks(client)
            elif first:
                self._http(client, first)
        except OSError:
            return

    def _socks(self, client: socket.socket) -> None:
        client.sendall(b"\x05\x00")
        kind = client.recv(4)[3]
        size = 4 if kind == 1 else client.recv(1)[0]
        host = client.recv(size)
        name = socket.inet_ntoa(host) if kind == 1 else host.decode()
        port = struct.unpack(">H", client.recv(2))[0]
        client.sendall(b"\x05\x00\x00\x01" + bytes(6))
        self._join(client, name, port, b"")

    def _http(self, client: socket.socket, first: bytes) -> None:
        method, target, _ = first.split(b" ", 2)
        if self.refuse:
            client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        elif method == b"CONNECT":
            host, _, port = target.decode().partition(":")
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            self._join(client, host, int(port), b"")
        else:
            url = urlsplit(target.decode())
            self._join(client, url.hostname or "", url.port or 80, first.replace(f"http://{url.netloc}".encode(), b""))

    def _join(self, client: socket.socket, host: str, port: int, first: bytes) -> None:
        self.asked.append(f"{host}:{port}")
        server = socket.create_connection((host, port))
        self._sockets.append(server)
        server.sendall(first)
        self._start(self._pump, server, client)
        self._pump(client, server)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                # A kept connection asks again with the whole address; only the path is the server's business.
                if data.startswith(b"GET http://"):
                    data = b"GET /" + data.split(b"/", 3)[3]
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            return


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy()
    yield made
    made.close()


@pytest.mark.parametrize("scheme", ["http", "socks5", "socks5h"])
def test_everything_goes_through_the_proxy(hub: FakeHub, proxy: Proxy, tmp_path: Path, scheme: str) -> None:
    assert bring(NetworkSettings(endpoint=hub.url, proxy=f"{scheme}://{proxy.address}"), tmp_path)
    hosts = {urlsplit(url).netloc for url in (hub.url, hub.cdn_url)}
    assert set(proxy.asked) == hosts


def test_the_proxy_of_the_environment_is_used(
    hub: FakeHub, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.address}")
    assert bring(NetworkSettings(endpoint=hub.url), tmp_path)
    assert proxy.asked


def test_encrypted_traffic_goes_through_a_proxy(
    secure: FakeHub, proxy: Proxy, certificate: Path, tmp_path: Path
) -> None:
    settings = NetworkSettings(endpoint=secure.url, proxy=f"http://{proxy.address}", ca_file=str(certificate))
    assert bring(settings, tmp_path)
    assert len(set(proxy.asked)) == 2


def test_a_proxy_that_wants_a_password_is_said(hub: FakeHub, secure: FakeHub, tmp_path: Path) -> None:
    proxy = Proxy(refuse=True)
    try:
        for each in (hub, secure):
            with pytest.raises(GreenroomError, match=r"wants a name and a password.*http://name:password@"):
                bring(NetworkSettings(endpoint=each.url, proxy=f"http://{proxy.address}"), tmp_path)
    finally:
        proxy.close()
    assert hub.requests == secure.requests == []


@pytest.mark.parametrize("scheme", ["http", "socks5"])
def test_a_proxy_that_is_not_there_is_said(hub: FakeHub, tmp_path: Path, scheme: str) -> None:
    with pytest.raises(GreenroomError, match=r"cannot be reached: .*proxy in Settings"):
        bring(NetworkSettings(endpoint=hub.url, proxy=f"{scheme}://127.0.0.1:9"), tmp_path)
    assert hub.requests == []


def test_an_unknown_certificate_is_refused(secure: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(GreenroomError, match=r"was not trusted: its certificate was refused .*certificate file"):
        bring(NetworkSettings(endpoint=secure.url), tmp_path)
    assert secure.requests == []


def test_a_certificate_of_ones_own_is_trusted(
    secure: FakeHub, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bring(NetworkSettings(endpoint=secure.url, ca_file=str(certificate)), tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    (tmp_path / "again").mkdir()
    assert bring(NetworkSettings(endpoint=secure.url), tmp_path / "again")


@pytest.mark.parametrize(("content", "says"), [(None, "no such file"), ("nothing", "holds no certificates")])
def test_a_certificate_file_that_is_none_is_said(tmp_path: Path, content: str | None, says: str) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(GreenroomError, match=says):
        open_client(NetworkSettings(ca_file=str(path)))


def test_a_server_that_does_not_speak_tls_is_said(hub: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(GreenroomError, match="no secure connection came about"):
        bring(NetworkSettings(endpoint=hub.url.replace("http://", "https://")), tmp_path)


def test_a_mirror_of_the_environment_is_asked(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"{hub.url}/")
    settings = NetworkSettings()
    assert bring(settings, tmp_path)
    assert Hub(settings).page(REPO) == f"{hub.url}/{REPO}"


@pytest.mark.parametrize("value", ["1", "TRUE", "yes", "on"])
def test_the_environment_can_forbid_the_network(hub: FakeHub, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", value)
    with pytest.raises(GreenroomError, match="unset HF_HUB_OFFLINE"):
        Hub(NetworkSettings(endpoint=hub.url)).search("model")
    assert hub.requests == []


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("HTTPS_PROXY", "http://[::bad", "its proxy setting is wrong"),
        ("HTTPS_PROXY", "gopher://proxy", "its proxy setting is wrong"),
        ("SSL_CERT_FILE", "/no/such/file.pem", "SSL_CERT_FILE or SSL_CERT_DIR"),
    ],
)
def test_variables_that_cannot_be_used_are_said(
    variable: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(GreenroomError, match=says):
        Hub(NetworkSettings()).repository("owner/model")


def test_a_name_that_nobody_knows_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(GreenroomError, match="its name cannot be looked up"):
        bring(NetworkSettings(endpoint="http://hub.invalid"), tmp_path)


@pytest.mark.parametrize(
    ("date", "comes"), [("Wed, 21 Oct 2015 07:28:00 GMT", True), ("Fri, 31 Dec 2999 23:59:59 GMT", False)]
)
def test_a_date_to_come_back_at_is_kept(hub: FakeHub, tmp_path: Path, date: str, comes: bool) -> None:
    hub.repositories[REPO].files[NAME].faults = [Fault("status", status=429, retry_after=date)]
    settings = NetworkSettings(endpoint=hub.url)
    if comes:
        assert bring(settings, tmp_path)
    else:
        with pytest.raises(GreenroomError, match="slow down"):
            bring(settings, tmp_path)
