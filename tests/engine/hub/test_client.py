"""Who sees the credentials, which answers are taken, and what is said of addresses."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import logging
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from engine.control import Control
from engine.errors import GreenroomError
from engine.hub import repository as repositories
from engine.hub.catalogue import fetch_update
from engine.hub.client import next_address, open_client
from engine.hub.headers import fetch_headers
from engine.hub.network import NetworkSettings, shown
from engine.hub.repository import Hub, RemoteFile, RemoteModel
from engine.hub.transfer import FileTransfer, RetryPolicy, Throttle
from tests.fake_hub import COMMIT
from tests.fake_transport import Body, answer, answer_by
from tests.raw_server import RawServer, after

HUB, TOKEN, SECRET = "https://hub.example", "hf_secret", "pa55word"
SETTINGS = NetworkSettings(endpoint=HUB)
FILE = RemoteFile("model-Q4_0.gguf", 1000, None, None)
MODEL = RemoteModel("maker/model", COMMIT, "Q4_0", "model-Q4_0", "gguf", (FILE,))
ROW = {"type": "file", "path": FILE.path, "size": FILE.nbytes, "oid": "a" * 40}
#: Other origins than the hub's, though they look like it.
OTHERS = [
    "https://evil.example",
    "http://hub.example",
    "https://hub.example:8443",
    "https://hub.example.evil.example",
    "https://evil-hub.example",
    "https://xn--hb-xka.example",
]


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_ENDPOINT", "HF_HUB_OFFLINE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def failed(why: str, remedy: str) -> GreenroomError:
    return GreenroomError("It failed", why, remedy)


def transfer(settings: NetworkSettings, folder: Path, attempts: int = 1, file: RemoteFile = FILE) -> None:
    class Awake(Control):
        def sleep(self, seconds: float) -> None:
            pass

    with open_client(settings, TOKEN, Awake()) as client:
        url = Hub(settings).url("maker/model", "main", file.path)
        policy = RetryPolicy(attempts)
        FileTransfer(client, url, file, folder / "part", Throttle(), policy, lambda _: None, lambda _: None).run()


Request = Callable[[NetworkSettings, Path], object]
REQUESTS: dict[str, Request] = {
    "search": lambda settings, _: Hub(settings, TOKEN).search("model"),
    "listing": lambda settings, _: Hub(settings, TOKEN).repository("maker/model"),
    "headers": lambda settings, folder: fetch_headers(MODEL, settings, TOKEN, folder),
    "catalogue": lambda settings, _: fetch_update(f"{settings.address}/catalogue.json", settings),
    "transfer": transfer,
}
every_request = pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS.keys())


def with_credentials(asked: list[httpx2.Request]) -> set[str]:
    names = {"authorization", "cookie", "proxy-authorization"}
    return {str(each.url) for each in asked if names & set(each.headers)}


def listing_with(link: str) -> Callable[[httpx2.Request], httpx2.Response]:
    """A hub with one file, whose list of files has a `Link` header."""

    def hub(request: httpx2.Request) -> httpx2.Response:
        if "/tree/" in request.url.path:
            return answer(json.dumps([ROW]).encode(), Link=link)
        return answer(json.dumps({"sha": COMMIT}).encode())

    return hub


@pytest.mark.parametrize("other", OTHERS)
def test_a_list_that_goes_on_at_another_origin_is_not_followed(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answer_by(listing_with(f'<{other}/api/models?cursor=x>; rel="next"'), monkeypatch)
    # A step down from https is refused as such.
    with pytest.raises(GreenroomError, match=r"on another server|address that is not safe"):
        Hub(SETTINGS, TOKEN).repository("maker/model")
    assert len(asked) == len(with_credentials(asked)) == 2
    assert {each.url.origin for each in asked} == {httpx2.URL(HUB).origin}


@every_request
@pytest.mark.parametrize("other", OTHERS)
def test_credentials_stay_at_the_hubs_origin(
    request_: Request, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def redirect(request: httpx2.Request) -> httpx2.Response:
        if str(request.url).startswith(f"{HUB}/"):
            return answer(status=302, Location=f"{other}/stolen", Set_Cookie="me=you; Domain=example")
        return answer(status=404)

    asked = answer_by(redirect, monkeypatch)
    with pytest.raises(GreenroomError):
        request_(SETTINGS, tmp_path)
    assert all(url.startswith(f"{HUB}/") for url in with_credentials(asked))


def test_the_credentials_do_not_depend_on_who_follows_redirects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries have headers and redirects of their own."""

    def redirect(request: httpx2.Request) -> httpx2.Response:
        return answer(status=302, Location="https://evil.example/") if "hub" in request.url.host else answer()

    asked = answer_by(redirect, monkeypatch)
    with open_client(SETTINGS, TOKEN) as client:
        client._http.get(HUB, headers={"Authorization": "Bearer other"}, follow_redirects=True)
        client._http.get("https://evil.example/", headers={"Authorization": f"Bearer {TOKEN}", "Cookie": "a=b"})
        client._http.get(f"https://user:{SECRET}@evil.example/")
    assert [each.headers.get("Authorization") for each in asked] == [f"Bearer {TOKEN}", None, None, None]
    assert "Cookie" not in asked[2].headers


def test_the_default_port_and_capitals_are_the_same_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answer_by(lambda _: answer(b"[]"), monkeypatch)
    for endpoint in ("https://HUB.example", "https://hub.example:443/"):
        Hub(NetworkSettings(endpoint=endpoint), TOKEN).search("x")
    assert [each.headers["Authorization"] for each in asked] == [f"Bearer {TOKEN}"] * 2


def test_no_cookie_is_ever_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def redirect(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/again":
            return answer(b"[]")
        return answer(status=302, Location="/again", Set_Cookie="session=1; Path=/")

    asked = answer_by(redirect, monkeypatch)
    assert Hub(SETTINGS).search("x") == []
    assert len(asked) == 2
    assert "Cookie" not in asked[1].headers


@every_request
def test_name_and_password_of_the_hubs_address_go_to_the_hub_alone(
    request_: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def redirect(request: httpx2.Request) -> httpx2.Response:
        host = request.url.host
        return answer(status=302, Location="https://cdn.example/x") if host == "hub.example" else answer(status=404)

    asked = answer_by(redirect, monkeypatch)
    settings = NetworkSettings(endpoint=f"https://us%65r:{SECRET}@hub.example")
    with pytest.raises(GreenroomError) as refused:
        request_(settings, tmp_path)
    expected = "Basic " + base64.b64encode(f"user:{SECRET}".encode()).decode()
    assert [each.headers.get("Authorization") for each in asked] == [expected, None]
    assert all(SECRET not in str(each.url) for each in asked)
    assert SECRET not in f"{refused.value} {settings!r} {settings.hub} {Hub(settings).page('a/b')}"


@every_request
@pytest.mark.parametrize(
    ("endpoint", "proxy"),
    [
        (f"http://user:{SECRET}@127.0.0.1:9", ""),
        (f"http://user:{SECRET}@hub.invalid", ""),
        (f"http://user:{SECRET}/x@127.0.0.1:9", ""),
        (f"user:{SECRET}@hub.example", ""),
        (f"http://user:{SECRET}@[bad", ""),
        (f"http://user:{SECRET}@h h", ""),
        (HUB, f"http://user:{SECRET}@127.0.0.1:9"),
        (HUB, f"socks5://user:{SECRET}@127.0.0.1:9"),
        (HUB, f"gopher://user:{SECRET}@127.0.0.1:9"),
        (HUB, f"http://user:{SECRET}@[bad"),
        (HUB, f"http://user:{SECRET}@127.0.0.1:99999"),
    ],
)
def test_passwords_in_addresses_are_neither_said_nor_logged(
    request_: Request, endpoint: str, proxy: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(GreenroomError) as refused:
        request_(NetworkSettings(endpoint=endpoint, proxy=proxy), tmp_path)
    logging.getLogger("test").error("as faults are logged", exc_info=refused.value)
    assert SECRET not in f"{refused.value} {caplog.text}"


@pytest.mark.parametrize("proxy", [f"http://user:{SECRET}/x@proxy", f"u:{SECRET}@p", f"http://u:{SECRET}@[bad"])
def test_a_password_in_a_proxy_of_the_environment_is_not_said(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(GreenroomError) as refused:
        Hub(NetworkSettings(endpoint="https://127.0.0.1:9")).search("x")
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("token", ["two words", "líne", "a\r\nX-Other: b", "tab\t", "\x00"])
def test_what_is_no_token_is_not_sent(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answer_by(lambda _: answer(b"[]"), monkeypatch)
    with pytest.raises(GreenroomError, match="it is not a token") as refused:
        Hub(SETTINGS, token).search("x")
    assert asked == []
    assert token not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"http://user:{SECRET}@host/x", "http://host/x"),
        (f"http://user:{SECRET}@with@signs@host", "http://host"),
        (f"user:{SECRET}@host", "host"),
        (f"http://user:{SECRET}/x@host", "http://host"),
        (f"see http://u:{SECRET}@a and 'https://u:{SECRET}@b'.", "see http://a and 'https://b'."),
        ("https://host:8080/path?x=1", "https://host:8080/path?x=1"),
        ("no address at all", "no address at all"),
    ],
)
def test_addresses_are_shown_without_name_and_password(text: str, said: str) -> None:
    assert shown(text) == said


def test_a_proxys_words_are_short_and_plain(tmp_path: Path) -> None:
    with RawServer(after(b"HTTP/1.1 500 \x1b[2J" + b"x" * 50_000 + b"\r\n\r\n")) as proxy:
        settings = NetworkSettings(endpoint=HUB, proxy=f"http://{proxy.address}")
        with pytest.raises(GreenroomError, match="The proxy refused") as refused:
            Hub(settings).search("x")
    assert refused.value.why.isprintable()
    assert len(refused.value.why) <= 200


#: Some may be followed, since they name a place and stay encrypted.
ODD = [
    "",
    " ",
    "//",
    "//evil.example/x",
    "javascript:alert(1)",
    "file:///etc/passwd",
    "ftp://hub.example/x",
    "data:text/plain,x",
    "http://hub.example/x",
    "http://[bad",
    "https://[bad",
    "https://[::1",
    "https://[v1.x]/",
    "https://",
    "https:///path",
    "https:/path",
    "https:path",
    "https://user:pass@hub.example/x",
    "https://hub.example@evil.example/",
    "https://hub.example\\@evil.example/",
    "https://evil.example\\.hub.example/",
    "https://hub.example:99999/",
    "https://hub.example:x/",
    "https://hub.example:0/",
    "https://hüb.example/",
    "https://xn--/",
    "https://" + "a" * 300 + ".example/",
    "https://" + "a." * 200 + "example/",
    "https://hub..example/",
    "https://.example/",
    "https://-/",
    "https://%68ub.example/",
    "https://hub.example/\x00",
    "https://hub.example/\r\nX: y",
    "https://hub.example/a b",
    "https://hub.example/" + "x" * 1_000_000,
    "?" * 100_000,
    "\x7f",
    "\ud800",
    "::::",
    "https://1.2.3.4.5.6:7/",
]


@every_request
@pytest.mark.parametrize("location", ODD, ids=lambda text: ascii(text)[:40])
def test_an_odd_redirect_is_one_sentence(
    request_: Request, location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def redirect(request: httpx2.Request) -> httpx2.Response:
        raw = [(b"Location", location.encode("utf-8", "surrogatepass"))]
        return httpx2.Response(302, headers=raw, stream=Body([b""]))

    asked = answer_by(redirect, monkeypatch)
    with pytest.raises(GreenroomError):
        request_(SETTINGS, tmp_path)
    assert len(asked) <= 6
    for each in asked:
        assert each.url.scheme == "https"
        assert not each.url.userinfo


@every_request
def test_a_redirect_to_nowhere_is_one_sentence(
    request_: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_by(lambda _: answer(status=301), monkeypatch)
    with pytest.raises(GreenroomError, match="address that is not safe"):
        request_(SETTINGS, tmp_path)


@pytest.mark.parametrize(
    ("here", "target", "found"),
    [
        ("https://a.example/x/y", "z", "https://a.example/x/z"),
        ("https://a.example/x", "/모델?a=b%20c", "https://a.example/%EB%AA%A8%EB%8D%B8?a=b%20c"),
        ("http://a.example/x", "https://b.example/", "https://b.example/"),
        ("http://a.example/x", "http://127.0.0.1:8080/y", "http://127.0.0.1:8080/y"),
        ("https://a.example/x", "https://[::1]:8443/y", "https://[::1]:8443/y"),
        ("https://a.example/x", "//b.example/y", "https://b.example/y"),
    ],
)
def test_plain_redirects_are_followed(here: str, target: str, found: str) -> None:
    assert next_address(here, target, failed) == found


@every_request
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "identity, gzip", "GZIP", "unknown"])
def test_a_compressed_answer_is_refused_before_a_byte_of_it_is_unpacked(
    request_: Request, encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = Body(itertools.repeat(gzip.compress(bytes(1 << 20))))
    headers = [("Content-Encoding", encoding)]
    asked = answer_by(lambda _: httpx2.Response(200, headers=headers, stream=bomb), monkeypatch)
    with pytest.raises(GreenroomError, match="the server sent it compressed"):
        request_(SETTINGS, tmp_path)
    assert bomb.read_bytes == 0
    assert {each.headers["Accept-Encoding"] for each in asked} == {"identity"}


@every_request
@pytest.mark.parametrize("status", [200, 206, 404, 429, 500])
def test_a_body_without_end_is_broken_off(
    request_: Request, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = []

    def endless(request: httpx2.Request) -> httpx2.Response:
        bodies.append(Body(itertools.repeat(bytes(1 << 16))))
        return httpx2.Response(
            status, headers=[("Content-Encoding", "gzip")] if status > 299 else [], stream=bodies[-1]
        )

    answer_by(endless, monkeypatch)
    with pytest.raises(GreenroomError):
        request_(SETTINGS, tmp_path)
    # What is no success is not read at all.
    limit = 0 if status > 299 else repositories.MAX_LISTING_BYTES + (1 << 16)
    assert sum(body.read_bytes for body in bodies) <= limit


def test_pages_without_end_are_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repositories, "_MAX_PAGES", 20)

    def hub(request: httpx2.Request) -> httpx2.Response:
        if "/tree/" not in request.url.path:
            return answer(json.dumps({"sha": COMMIT}).encode())
        return answer(b"[]", Link=f'<{request.url}>; rel="next"')

    asked = answer_by(hub, monkeypatch)
    with pytest.raises(GreenroomError, match="more than 20,000 files"):
        Hub(SETTINGS).repository("maker/model")
    assert len(asked) == 21


@pytest.mark.parametrize(
    "retry_after", ["31536000", "9" * 400, "Fri, 31 Dec 2999 23:59:59 GMT", "Fri, 31 Dec 99999999999", "x"]
)
@every_request
def test_a_server_that_asks_for_patience_is_not_waited_for_long(
    request_: Request, retry_after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answer_by(lambda _: answer(status=429, Retry_After=retry_after), monkeypatch)
    with pytest.raises(GreenroomError, match="asks to slow down"):
        request_(SETTINGS, tmp_path)
    assert len(asked) == 1


def test_a_server_that_sends_next_to_nothing_each_time_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answer_by(lambda request: _part(request, b"x"), monkeypatch)
    with pytest.raises(GreenroomError, match="the server stopped after"):
        transfer(SETTINGS, tmp_path, attempts=5)
    assert len(asked) == 5


def test_a_file_that_changes_each_time_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though each attempt brings a good part of it."""
    count = itertools.count()
    large = RemoteFile(FILE.path, 1_000_000, None, None)

    def change(request: httpx2.Request) -> httpx2.Response:
        assert len(asked) < 100
        return _part(request, bytes(100_000), large.nbytes, ETag=f'"{next(count)}"')

    asked = answer_by(change, monkeypatch)
    with pytest.raises(GreenroomError, match="keeps changing"):
        transfer(SETTINGS, tmp_path, attempts=5, file=large)


def _part(request: httpx2.Request, content: bytes, nbytes: int = FILE.nbytes, **headers: str) -> httpx2.Response:
    first = int(request.headers.get("Range", "bytes=0-")[6:-1])
    span = f"bytes {first}-{nbytes - 1}/{nbytes}"
    return answer(content, 206 if first else 200, Content_Range=span, **headers)


ODD_VALUES = ["x", "", [], {}, [[]], 1.5, float("nan"), float("inf"), -1, 10**400, True, None, "9" * 5000]


@pytest.mark.parametrize("value", ODD_VALUES, ids=lambda value: ascii(value)[:20])
@pytest.mark.parametrize("field", ["id", "downloads", "likes", "gated", "tags"])
def test_odd_fields_of_search_hits_are_left_out(field: str, value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    good = {"id": "maker/model", "downloads": 5, "likes": 1, "gated": "auto", "tags": ["license:mit"]}
    content = json.dumps([good, {**good, field: value}, value]).encode()
    answer_by(lambda _: answer(content), monkeypatch)
    first, *others = Hub(SETTINGS).search("x")
    assert (first.downloads, first.likes, first.gated, first.licence) == (5, 1, True, "mit")
    for hit in others:
        assert repositories.is_repo(hit.repo)
        assert type(hit.downloads) is type(hit.likes) is int
        assert 0 <= hit.downloads < 1 << 53
        assert type(hit.gated) is bool
        assert hit.licence in ("mit", "")


@pytest.mark.parametrize("value", ODD_VALUES, ids=lambda value: ascii(value)[:20])
@pytest.mark.parametrize("field", ["type", "path", "size", "oid", "lfs", "lfs.size", "lfs.oid"])
def test_files_with_odd_fields_are_left_out(field: str, value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    odd: dict[str, object] = {**ROW, "path": "odd-Q8_0.gguf"}
    if "." in field:
        odd["lfs"] = {"oid": "b" * 64, "size": 2000, field.partition(".")[2]: value}
    else:
        odd[field] = value

    def hub(request: httpx2.Request) -> httpx2.Response:
        document = [ROW, odd, value] if "/tree/" in request.url.path else {"sha": COMMIT, "tags": value}
        return answer(json.dumps(document).encode())

    answer_by(hub, monkeypatch)
    found = Hub(SETTINGS).repository("maker/model")
    assert "model-Q4_0" in [model.name for model in found.models]
    for file in (file for model in found.models for file in model.files):
        assert type(file.path) is str
        assert type(file.nbytes) is int
        assert 0 <= file.nbytes < 1 << 53
        assert file.sha256 is None or len(file.sha256) == 64
        assert file.blob_id is None or len(file.blob_id) == 40


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"{}",
        b"1",
        b'"x"',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[1" + b"0" * 5000 + b"]",
        b"\xff\xfe",
        b"NaN",
        b"<html>",
        b"\x1f\x8b\x08",
    ],
    ids=lambda content: ascii(content)[:20],
)
def test_what_is_no_listing_is_one_sentence(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_by(lambda _: answer(content), monkeypatch)
    for ask in (lambda: Hub(SETTINGS).search("x"), lambda: Hub(SETTINGS).repository("a/b")):
        with pytest.raises(GreenroomError, match="something that is no listing"):
            ask()


def test_tags_by_the_million_are_borne(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = ["x"] * 1_000_000 + ["license:mit"]
    answer_by(lambda _: answer(json.dumps([{"id": "a/b", "tags": tags}]).encode()), monkeypatch)
    assert [hit.licence for hit in Hub(SETTINGS).search("x")] == ["mit"]


@pytest.mark.parametrize("text", ["\ud800", "a&limit=1#?/../x", "x" * 200_000, "\x00\n", "한국어"])
def test_any_text_can_be_searched_for(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answer_by(lambda _: answer(b"[]"), monkeypatch)
    try:
        assert Hub(SETTINGS).search(text) == []
    except GreenroomError as error:
        assert "its address cannot be used" in error.why  # noqa: PT017
        return
    assert asked[0].url.path == "/api/models"
    assert asked[0].url.params.get_list("limit") == ["50"]


@pytest.mark.parametrize("commit", [*ODD_VALUES, "main", "../x", "\ud800", COMMIT.upper(), COMMIT + "\n", COMMIT[1:]])
def test_a_listing_without_a_commit_is_none(commit: object, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answer_by(lambda _: answer(json.dumps({"sha": commit}).encode()), monkeypatch)
    for revision in (None, "main", "\ud800"):
        with pytest.raises(GreenroomError, match="something that is no listing"):
            Hub(SETTINGS).repository("maker/model", revision)
    assert len(asked) == 3
