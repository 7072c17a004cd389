"""The audit, against a service on this machine that answers as osv.dev does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import audit_lock
import pytest


class Service:
    def __init__(self) -> None:
        self.vulnerable: dict[str, list[str]] = {}
        self.advisories: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str]] = []
        self.raw: bytes | None = None
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.reply(service.advisories[self.path.rpartition("/")[2]])

            def do_POST(self) -> None:
                queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
                self.reply({"results": [service.answer(query) for query in queries]})

            def reply(self, value: object) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(value).encode() if service.raw is None else service.raw)

            def log_message(self, *words: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.api = f"http://127.0.0.1:{self.server.server_address[1]}/v1/"

    def answer(self, query: dict[str, Any]) -> dict[str, Any]:
        """One identifier a page."""
        assert query["package"]["ecosystem"] == "PyPI"
        name, page = query["package"]["name"], int(query.get("page_token", 0))
        self.asked.append((name, query["version"]))
        identifiers = self.vulnerable.get(name, [])
        if not identifiers:
            return {}
        more = {"next_page_token": str(page + 1)} if page + 1 < len(identifiers) else {}
        return {"vulns": [{"id": identifiers[page], "modified": "2026-01-01T00:00:00Z"}], **more}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv("no_proxy", "*")
    service = Service()
    thread = threading.Thread(target=service.server.serve_forever)
    thread.start()
    yield service
    service.server.shutdown()
    thread.join()
    service.server.server_close()


def test_every_locked_version_is_asked_for(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit_lock.main(["--api", service.api]) == 0
    asked = dict(service.asked)
    assert {"pip", "torch", "numpy", "pytest", "colorama", "nvidia-cublas"} <= set(asked)
    assert "+" not in "".join(asked.values()), "advisories know only releases"
    assert "0 known advisories" in capsys.readouterr().out


def test_advisories_are_listed_once(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    service.vulnerable = {"numpy": ["GHSA-1", "PYSEC-1", "GHSA-2"], "torch": ["GHSA-3"]}
    service.advisories = {
        "GHSA-1": {"id": "GHSA-1", "summary": "Bad \x1b[31mnews\n", "aliases": ["PYSEC-1"]},
        "GHSA-2": {"id": "GHSA-2", "summary": "Not so", "withdrawn": "2026-01-01T00:00:00Z"},
        "GHSA-3": {"id": "GHSA-3", "details": "Worse news"},
    }
    assert audit_lock.main(["--api", service.api]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("numpy ")
    assert "GHSA-1 Bad  [31mnews" in lines[0]
    assert "GHSA-3 Worse news" in lines[1]
    assert lines[2].startswith("2 known advisories")


def test_without_a_network_it_says_so_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit_lock.main(["--api", "http://127.0.0.1:9/v1/"]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("Nothing was checked")
    assert len(captured.err.splitlines()) == 1


@pytest.mark.parametrize("raw", [b"<html>", b"[]", b"{}", b'{"results": [{"vulns": [{}]}]}', b'{"results": 1}', b""])
def test_another_answer_is_no_result(service: Service, capsys: pytest.CaptureFixture[str], raw: bytes) -> None:
    service.raw = raw
    assert audit_lock.main(["--api", service.api]) == 3
    assert capsys.readouterr().err.startswith("Nothing was checked")
