"""A hub on 127.0.0.1 that speaks the Hugging Face HTTP API, with faults by script.

Model info, search, paged trees, resolve with redirects to a "CDN" (another origin), LFS and git hashes, ranges,
gated repositories.
"""

from __future__ import annotations

import hashlib
import json
import random
import socket
import ssl
import struct
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_TILE = 1 << 20


class Pattern:
    """`nbytes` deterministic bytes that never lie in memory as a whole."""

    def __init__(self, nbytes: int, seed: int = 0) -> None:
        self.nbytes = nbytes
        self._tile = random.Random(seed).randbytes(min(_TILE, max(nbytes, 1)))

    def read(self, offset: int, nbytes: int) -> memoryview:
        """Up to nbytes from offset on: no further than the tile's end."""
        start = offset % len(self._tile)
        return memoryview(self._tile)[start : start + min(nbytes, self.nbytes - offset)]

    def digest(self, algorithm: Any) -> str:
        offset = 0
        while offset < self.nbytes:
            block = self.read(offset, _TILE)
            algorithm.update(block)
            offset += len(block)
        return str(algorithm.hexdigest())


class Plain(Pattern):
    def __init__(self, content: bytes) -> None:
        super().__init__(0)
        self.nbytes, self._tile = len(content), content


@dataclass(frozen=True)
class Fault:
    """What happens to one answer that carries a file's bytes.

    kind: "stall" (silence after `at` bytes), "reset" (connection reset after `at`), "short" (closed after `at`),
          "wrong_length" (Content-Length one too high), "wrong_bytes" (the byte at `at` is another), "too_many" (a
          hundred more than the file has, without a length), "status" (answer `status`, with `retry_after`), "trickle"
          (`at` bytes at a time with pauses), "etag" (a new one from now on), "redirect_loop", "no_range", "expired"
          (403 by the CDN), "unsafe_redirect" (to file:///), "gzip" (claims to be compressed)
    """

    kind: str
    at: int = 0
    status: int = 503
    retry_after: str = ""


@dataclass
class FakeFile:
    content: Pattern
    lfs: bool = True
    sha256: str = ""
    blob_id: str = ""
    version: int = 0
    faults: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sha256 = self.content.digest(hashlib.sha256()) if self.lfs else ""
        header = b"blob %d\0" % self.content.nbytes
        self.blob_id = "a" * 40 if self.lfs else self.content.digest(hashlib.sha1(header))

    @property
    def etag(self) -> str:
        return (self.sha256 or self.blob_id) + ("" if not self.version else f"-{self.version}")


@dataclass
class FakeRepository:
    files: dict[str, FakeFile]
    gated: bool = False
    licence: str = "apache-2.0"
    downloads: int = 1


class FakeHub:
    """Use as a context manager.

    By file name, `bytes_sent` counts what went out and `first_bytes` lists where each answer began; `requests` lists
    "METHOD path" of everything that was asked.

    certificate, key: PEM files; with them it speaks https
    """

    def __init__(
        self, page: int = 1000, token: str = "hf_good", certificate: Path | None = None, key: Path | None = None
    ) -> None:
        self.repositories: dict[str, FakeRepository] = {}
        self.page, self.token = page, token
        self.requests: list[str] = []
        self.authorised_cdn_requests = 0
        self.bytes_sent: dict[str, int] = defaultdict(int)
        self.first_bytes: dict[str, list[int]] = defaultdict(list)
        self.api_faults: list[Fault] = []
        #: What every listing says its commit is.
        self.commit: object = COMMIT
        self.closing = threading.Event()
        context = None
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
        self._scheme = "http" if context is None else "https"
        self._servers = [_Server(self, cdn, context) for cdn in (False, True)]
        self._threads = [threading.Thread(target=server.serve_forever, args=(0.02,)) for server in self._servers]

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._servers[0].server_port}"

    @property
    def cdn_url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._servers[1].server_port}"

    def add(self, repo: str, files: dict[str, bytes | Pattern], **about: Any) -> FakeRepository:
        """Files under 1 kB, and JSON and text, lie in git; others are large files."""
        made = {}
        for path, content in files.items():
            content = Plain(content) if isinstance(content, bytes) else content
            lfs = content.nbytes >= 1000 and not path.endswith((".json", ".txt", ".jinja"))
            made[path] = FakeFile(content, lfs)
        self.repositories[repo] = FakeRepository(made, **about)
        return self.repositories[repo]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        for server, thread in zip(self._servers, self._threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, hub: FakeHub, cdn: bool, context: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), _Cdn if cdn else _Hub)
        self.hub = hub
        if context is not None:
            # Hands are shaken by each connection's own thread, when it first reads.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of every test here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    @property
    def hub(self) -> FakeHub:
        return self.server.hub

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.hub.requests.append(f"{self.command} {self.path}")
        self.answer(unquote(urlsplit(self.path).path).strip("/").split("/"), parse_qs(urlsplit(self.path).query))

    def answer(self, parts: list[str], query: dict[str, list[str]]) -> None:
        raise NotImplementedError

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def reply_json(self, document: Any, **headers: str) -> None:
        self.reply(200, json.dumps(document).encode(), Content_Type="application/json", **headers)

    def send_file(self, name: str, file: FakeFile, fault: Fault | None) -> None:
        """The file, or the range that was asked for, spoilt as the fault says."""
        kind = fault.kind if fault else ""
        total, first, status = file.content.nbytes, 0, 200
        asked = self.headers.get("Range")
        if asked and kind != "no_range":
            start, _, end = asked.removeprefix("bytes=").partition("-")
            first, status = int(start), 206
            if first >= total:
                return self.reply(416, Content_Range=f"bytes */{total}")
            total = min(total, int(end) + 1) if end else total
        self.hub.first_bytes[name].append(first)
        self.send_response(status)
        self.send_header("ETag", f'"{file.etag}"')
        self.send_header("Accept-Ranges", "bytes")
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{total - 1}/{file.content.nbytes}")
        if kind == "gzip":
            self.send_header("Content-Encoding", "gzip")
        if kind == "too_many":
            self.close_connection = True
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(total - first + (kind == "wrong_length")))
        self.end_headers()
        if self.command == "HEAD":
            return None
        offset, stop = first, total
        if fault and kind in ("stall", "reset", "short"):
            stop = min(total, max(first, fault.at))
        while offset < stop:
            step = fault.at if fault and kind == "trickle" else _TILE
            block: bytes | memoryview = file.content.read(offset, min(step, stop - offset))
            if fault and kind == "wrong_bytes" and offset <= fault.at < offset + len(block):
                spoilt = bytearray(block)
                spoilt[fault.at - offset] ^= 0xFF
                block = bytes(spoilt)
            self.connection.sendall(block)
            offset += len(block)
            self.hub.bytes_sent[name] += len(block)
            if kind == "trickle":
                time.sleep(0.002)
        if kind == "too_many":
            self.connection.sendall(bytes(100))
        elif kind == "stall":
            self.hub.closing.wait(20)
            self.close_connection = True
        elif kind == "reset":
            # Linger 0: close() sends a reset instead of an orderly end.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
        elif kind in ("short", "wrong_length"):
            self.close_connection = True
        return None


class _Hub(_Handler):
    def answer(self, parts: list[str], query: dict[str, list[str]]) -> None:
        if self.hub.api_faults and parts[0] == "api":
            fault = self.hub.api_faults.pop(0)
            return self.reply(fault.status, **({"Retry_After": fault.retry_after} if fault.retry_after else {}))
        if parts == ["api", "models"]:
            return self._search(query.get("search", [""])[0])
        repo = "/".join(parts[2:4] if parts[:2] == ["api", "models"] else parts[:2])
        found = self.hub.repositories.get(repo)
        sent = self.headers.get("Authorization")
        if found is None:
            return self.reply(404 if sent else 401, X_Error_Code="RepoNotFound")
        if parts[:2] == ["api", "models"] and parts[4:5] == ["tree"]:
            return self._tree(found, repo, int(query.get("cursor", ["0"])[0]))
        if parts[:2] == ["api", "models"]:
            return self.reply_json(self._info(repo, found))
        if found.gated and sent != f"Bearer {self.hub.token}":
            return self.reply(403 if sent else 401, X_Error_Code="GatedRepo")
        return self._resolve(found, repo, "/".join(parts[4:]))

    def _info(self, repo: str, found: FakeRepository) -> dict[str, Any]:
        return {
            "id": repo,
            "modelId": repo,
            "sha": self.hub.commit,
            "gated": "manual" if found.gated else False,
            "private": False,
            "downloads": found.downloads,
            "likes": 1,
            "lastModified": "2026-11-01T00:00:00.000Z",
            "tags": ["gguf", f"license:{found.licence}"],
            "siblings": [{"rfilename": path} for path in found.files],
        }

    def _search(self, text: str) -> None:
        hits = [self._info(name, r) for name, r in self.hub.repositories.items() if text.lower() in name.lower()]
        self.reply_json(sorted(hits, key=lambda hit: -hit["downloads"]))

    def _tree(self, found: FakeRepository, repo: str, cursor: int) -> None:
        page = list(found.files.items())[cursor : cursor + self.hub.page]
        rows = []
        for path, file in page:
            row: dict[str, Any] = {"type": "file", "path": path, "size": file.content.nbytes, "oid": file.blob_id}
            if file.lfs:
                row["lfs"] = {"oid": file.sha256, "size": file.content.nbytes, "pointerSize": 134}
            rows.append(row)
        headers = {}
        if cursor + self.hub.page < len(found.files):
            tree = f"{self.hub.url}/api/models/{repo}/tree/{self.hub.commit}"
            headers["Link"] = f'<{tree}?recursive=True&cursor={cursor + self.hub.page}>; rel="next"'
        self.reply_json(rows, **headers)

    def _resolve(self, found: FakeRepository, repo: str, path: str) -> None:
        file = found.files.get(path)
        if file is None:
            return self.reply(404, X_Error_Code="EntryNotFound")
        fault = file.faults[0] if file.faults else None
        if fault and fault.kind == "etag":
            file.faults.pop(0)
            file.version += 1
            fault = file.faults[0] if file.faults else None
        if fault and fault.kind in ("status", "redirect_loop", "unsafe_redirect"):
            if fault.kind == "status":
                file.faults.pop(0)
                extra = {"Retry_After": fault.retry_after} if fault.retry_after else {}
                return self.reply(fault.status, **extra)
            loop = fault.kind == "redirect_loop"
            return self.reply(302, Location=self.path if loop else "file:///etc/passwd")
        if not file.lfs:
            if fault:
                file.faults.pop(0)
            return self.send_file(path, file, fault)
        return self.reply(
            302,
            Location=f"{self.hub.cdn_url}/{repo}/{quote(path)}?signature=x",
            ETag=f'"{COMMIT}"',
            X_Linked_Etag=f'"{file.etag}"',
            X_Linked_Size=str(file.content.nbytes),
            X_Repo_Commit=COMMIT,
        )


class _Cdn(_Handler):
    def answer(self, parts: list[str], query: dict[str, list[str]]) -> None:
        if self.headers.get("Authorization"):
            self.hub.authorised_cdn_requests += 1
        path = "/".join(parts[2:])
        file = self.hub.repositories["/".join(parts[:2])].files[path]
        fault = file.faults.pop(0) if file.faults else None
        if fault and fault.kind == "expired":
            return self.reply(403)
        return self.send_file(path, file, fault)
