"""Questions to the hub, and to the servers that it names: who sees which credentials, which answers are taken.

Everything Greenroom asks of a network goes through here. A server chooses its answers: where it redirects to, how much
it sends and how slowly. None of that may cost more than one sentence.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import quote, unquote, urljoin, urlsplit

from engine.control import Control, current_control
from engine.errors import GreenroomError
from engine.hub.network import NetworkSettings, check_address, network_error, no_address, read_certificates
from engine.hub.proxy_password import join_password
from engine.words import say

if TYPE_CHECKING:
    import httpx2

    from engine.hub.connections import Connections

#: An answer that is read whole must be here within this time, all its redirects and pages included.
ANSWER_S = 300.0
_CONNECT_S = 15.0
_MAX_REDIRECTS = 6
_REDIRECTS = (301, 302, 303, 307, 308)
#: Signed addresses of storage services have up to 4,000 characters.
_MAX_ADDRESS = 16_000
_HOST = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?|[0-9a-f:.]+", re.IGNORECASE)
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))
#: Makes an error of why something failed, and what to do.
Failed = Callable[[str, str], GreenroomError]


class HubClient:
    """Asks servers. Use it as a context manager, from any number of threads.

    control:   stops every request, also where it waits
    signed_in: whether the hub is sent credentials
    """

    def __init__(self, http: httpx2.Client, settings: NetworkSettings, control: Control, signed_in: bool) -> None:
        self._http, self.control, self.signed_in = http, control, signed_in
        self._connections = _connect_by(http, control)
        self._headers_s = 2 * settings.stall_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()
        self._connections.close()

    def ask(
        self, url: str, failed: Failed, first: int | None = None, last: int | None = None
    ) -> tuple[httpx2.Response, str]:
        """GET, or bytes first to last of it: the open answer behind the redirects, and the file's ETag.

        Its headers have come; whoever reads its body bounds that. Raises httpx2.HTTPError when the connection fails.
        """
        from engine.hub.connections import within

        here, etag = url, ""
        headers = {} if first is None else {"Range": f"bytes={first}-{'' if last is None else last}"}
        for _ in range(_MAX_REDIRECTS):
            with within(self._headers_s):
                response = self._send(here, headers, failed)
            # The first answer speaks of the file, those behind it of one copy.
            etag = etag or response.headers.get("X-Linked-Etag") or response.headers.get("ETag") or ""
            if response.status_code not in _REDIRECTS:
                encoding = response.headers.get("Content-Encoding", "").lower()
                if response.is_success and encoding not in ("", "identity"):
                    # It may unpack to anything, and nobody asked for it.
                    response.close()
                    raise failed(say("the server sent it compressed"), say("Use another mirror."))
                return response, etag.removeprefix("W/").strip('"')[:200]
            response.close()
            here = next_address(here, response.headers.get("Location", ""), failed)
        raise failed(say("it was redirected again and again"), say("Try again later, or use another mirror."))

    def whole(
        self, url: str, failed: Failed, limit: int, first: int | None = None, last: int | None = None
    ) -> tuple[httpx2.Response, bytes]:
        """As `ask`, with the body, read only if the answer is 200, or 206 where bytes first to last were asked for.

        Raises GreenroomError when it has more than `limit` bytes, and when the connection fails.
        """
        import httpx2

        from engine.hub.connections import within

        content = bytearray()
        try:
            with within(ANSWER_S):
                response, _ = self.ask(url, failed, first, last)
                with contextlib.closing(response):
                    wanted = response.status_code == (200 if first is None else 206)
                    for chunk in response.iter_raw() if wanted else ():
                        content += chunk
                        if len(content) > limit:
                            raise failed(say("the answer is far too long"), say("Try again, or use another mirror."))
        except httpx2.HTTPError as error:
            raise network_error(error, urlsplit(url).netloc) from error
        return response, bytes(content)

    def _send(self, url: str, headers: dict[str, str], failed: Failed) -> httpx2.Response:
        import httpx2
        import socksio

        try:
            return self._http.send(self._http.build_request("GET", url, headers=headers), stream=True)
        except (httpx2.InvalidURL, ValueError) as error:
            raise failed(
                say("its address cannot be used"), say("Check the hub's address, or use another mirror.")
            ) from error
        except socksio.ProtocolError as error:
            raise httpx2.ProxyError("it does not speak SOCKS") from error


def next_address(here: str, target: str, failed: Failed) -> str:
    """Where an answer sends us. Raises GreenroomError for what is no plain address, and where encryption would end."""
    import httpx2

    try:
        if not target or len(target) > _MAX_ADDRESS or re.search(r"[\x00-\x20\x7f]", target):
            raise ValueError("no address")
        # Some servers leave letters of other languages as they are.
        found = urljoin(here, quote(target, safe=_PRINTABLE))
        parts = urlsplit(found)
        good = (
            parts.scheme in ("https", urlsplit(here).scheme)
            and "@" not in parts.netloc
            and _HOST.fullmatch(parts.hostname or "") is not None
            and (parts.port is None or parts.port > 0)
            # What looks at addresses here and what follows them take the same to be the host.
            and httpx2.URL(found).host == parts.hostname
        )
    except (ValueError, httpx2.InvalidURL):
        good = False
    if not good:
        raise failed(say("it was redirected to an address that is not safe"), say("Try another mirror."))
    return found


def open_client(settings: NetworkSettings, token: str | None = None, control: Control | None = None) -> HubClient:
    """A client for this hub.

    token:   for the hub only: no other origin ever sees it
    control: None takes that of the work on this thread

    Raises GreenroomError when offline, and for an address, token or certificate file that cannot be used.
    """
    if settings.offline or _is_true(os.environ.get("HF_HUB_OFFLINE")):
        raise GreenroomError(
            say("{host} was not asked", host=settings.host),
            say("Greenroom is set to work offline"),
            say("Switch offline mode off in Settings, Network (or unset HF_HUB_OFFLINE), and try again."),
        )
    check_address(settings.address, say("The hub address"))
    check_address(settings.proxy, say("The proxy address"), proxy=True)
    import httpx2

    control = control or current_control()
    credentials = _credentials(settings, token)
    try:
        origin = httpx2.URL(settings.hub).origin
    except (httpx2.InvalidURL, ValueError):
        raise no_address(settings.address, say("The hub address")) from None
    try:
        http = httpx2.Client(
            proxy=join_password(settings.proxy) or None,
            verify=read_certificates(settings.ca_file),
            follow_redirects=False,
            timeout=httpx2.Timeout(settings.stall_s, connect=min(_CONNECT_S, settings.stall_s)),
            headers={"User-Agent": "greenroom", "Accept-Encoding": "identity"},
            event_hooks={"request": [_Credentials(origin, credentials)]},
        )
    except OSError as error:  # raised without a name, so the variable is named instead
        raise GreenroomError(
            say("The network cannot be used"),
            say("the certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read"),
            say("Correct or unset it."),
        ) from error
    # A proxy variable of the environment that cannot be understood; the error may hold its password.
    except (ValueError, ImportError, httpx2.InvalidURL):
        raise GreenroomError(
            say("The network cannot be used"),
            say("its proxy setting is wrong"),
            say("Correct it in Settings, Network (in a terminal HTTPS_PROXY)."),
        ) from None
    return HubClient(http, settings, control, signed_in=bool(credentials))


class _Credentials:
    """Runs before every request, also before those a library makes by itself: the one place that adds credentials.

    Cookies are never sent: no server gets to recognise us by them.
    """

    def __init__(self, origin: object, value: str) -> None:
        self._origin, self._value = origin, value

    def __call__(self, request: httpx2.Request) -> None:
        for name in ("Authorization", "Cookie"):
            request.headers.pop(name, None)
        if self._value and request.url.origin == self._origin:
            request.headers["Authorization"] = self._value


def _credentials(settings: NetworkSettings, token: str | None) -> str:
    """What the hub is sent: name and password out of its address, else the token; "" for neither."""
    login = urlsplit(settings.address).netloc.rpartition("@")[0]
    if login:
        return "Basic " + base64.b64encode(unquote(login).encode()).decode()
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise GreenroomError(
            say("The access token cannot be used"),
            say("it is not a token"),
            say("Copy it again from the hub's settings page."),
        )
    return f"Bearer {token}" if token else ""


def _connect_by(http: httpx2.Client, control: Control) -> Connections:
    """httpx2 offers no way to say how connections are opened; its transports' pools have one."""
    import httpcore2

    from engine.hub.connections import Connections

    made = Connections(control)
    transports = cast(Any, http)._transport, *cast(Any, http)._mounts.values()
    for transport in transports:
        if transport is not None:
            assert isinstance(transport._pool._network_backend, httpcore2.NetworkBackend)
            transport._pool._network_backend = made
    return made


def _is_true(value: str | None) -> bool:
    return (value or "").strip().lower() in ("1", "true", "yes", "on")
