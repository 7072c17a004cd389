"""The way to the network: proxies, certificates, offline mode, and what went wrong in plain words.

huggingface_hub's HTTP library (httpx2) does the talking. Nothing here runs unless the user asked for it.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from engine.errors import GreenroomError

if TYPE_CHECKING:
    import httpx2

DEFAULT_ENDPOINT = "https://huggingface.co"

#: Seconds without a single byte after which a connection counts as dead.
STALL_S = 30.0
_CONNECT_S = 15.0


@dataclass(frozen=True)
class NetworkSettings:
    """How to reach the hub. Empty fields take the environment's: HF_ENDPOINT, HTTPS_PROXY, SSL_CERT_FILE, ...

    endpoint: address of the hub or of a mirror that speaks its API
    proxy:    http://, https://, socks5:// or socks5h:// address
    ca_file:  PEM file with the certificates to trust instead of the system's
    offline:  refuse every request (HF_HUB_OFFLINE does the same)
    stall_s:  seconds without a byte before a connection is given up
    """

    endpoint: str = ""
    proxy: str = ""
    ca_file: str = ""
    offline: bool = False
    stall_s: float = STALL_S

    @property
    def hub(self) -> str:
        """The hub's address in use, without a slash at its end."""
        return (self.endpoint or os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")

    @property
    def host(self) -> str:
        return urlsplit(self.hub).netloc or self.hub


def open_client(settings: NetworkSettings) -> httpx2.Client:
    """A client that follows no redirect by itself (a token must not travel to another host).

    Raises GreenroomError when offline, and for an address or certificate file that cannot be used.
    """
    if settings.offline or _is_true(os.environ.get("HF_HUB_OFFLINE")):
        raise GreenroomError(
            f"{settings.host} was not asked",
            "Greenroom is set to work offline",
            "Switch offline mode off in Settings, Network (or unset HF_HUB_OFFLINE), and try again.",
        )
    for address, what in ((settings.hub, "The hub's address"), (settings.proxy, "The proxy's address")):
        check_address(address, what, proxy=address is settings.proxy)
    import httpx2

    try:
        return httpx2.Client(
            proxy=settings.proxy or None,
            verify=read_certificates(settings.ca_file),
            follow_redirects=False,
            timeout=httpx2.Timeout(settings.stall_s, connect=min(_CONNECT_S, settings.stall_s)),
            headers={"User-Agent": "greenroom", "Accept-Encoding": "identity"},
        )
    except (ValueError, ImportError) as error:  # a proxy variable of the environment that cannot be understood
        raise GreenroomError(
            "The network cannot be used", f"its proxy setting is wrong ({error})", "Correct it in Settings, Network."
        ) from error


def check_address(address: str, what: str, proxy: bool = False) -> None:
    """Raises GreenroomError for an address that is none; an empty one is fine."""
    if not address:
        return
    schemes = ("http", "https", "socks5", "socks5h") if proxy else ("http", "https")
    try:
        parts = urlsplit(address)
        good = parts.scheme in schemes and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good:
        raise GreenroomError(
            f"{what} cannot be used", f'"{address}" is no address', f"Write one like {schemes[-1]}://host:port."
        )


def read_certificates(ca_file: str) -> ssl.SSLContext | bool:
    """Whom to trust: those in the file, or for "" the system's. Raises GreenroomError for a file without any."""
    if not ca_file:
        return True
    try:
        return ssl.create_default_context(cafile=Path(ca_file).expanduser())
    except (OSError, ssl.SSLError) as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else "it holds no certificates"
        raise GreenroomError(
            f"The certificate file {ca_file} cannot be used", why, "Choose a PEM file in Settings, Network."
        ) from error


def network_error(error: Exception, host: str) -> GreenroomError:
    """A failed connection in plain words. `error` is one of httpx2's, which wrap the system's."""
    import httpx2

    chain = _causes(error)
    what = f"{host} cannot be reached"
    check = "Check the network, or the proxy in Settings, Network; the download goes on where it stopped."
    for cause in chain:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return GreenroomError(
                f"{host} was not trusted",
                f"its certificate was refused ({cause.verify_message or 'verification failed'})",
                "Check the clock; if your network inspects traffic, choose its certificate file in Settings, Network.",
            )
        if isinstance(cause, ssl.SSLError):
            return GreenroomError(
                what, f"no secure connection came about ({cause.reason or 'TLS error'})", "Check the proxy settings."
            )
    if isinstance(error, httpx2.ProxyError) and "407" in str(error):
        return _proxy_password()
    if isinstance(error, httpx2.ProxyError):
        return GreenroomError("The proxy refused", str(error) or "no reason given", "Check it in Settings, Network.")
    text = " ".join(str(cause) for cause in chain)
    if "Name or service not known" in text or "getaddrinfo" in text or "name resolution" in text:
        return GreenroomError(what, "its name cannot be looked up", check)
    if isinstance(error, httpx2.ReadTimeout):
        return GreenroomError(f"{host} fell silent", "no byte came for a while", check)
    if isinstance(error, httpx2.ConnectTimeout):
        return GreenroomError(what, "it does not answer", check)
    if isinstance(error, httpx2.ConnectError):
        return GreenroomError(what, "the connection was refused" if "refused" in text else "no connection", check)
    return GreenroomError(f"The connection to {host} broke", "it was closed before everything had come", check)


def _proxy_password() -> GreenroomError:
    return GreenroomError(
        "The proxy refused",
        "it wants a name and a password",
        "Write them into its address in Settings, Network, like http://name:password@host:port.",
    )


def _causes(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__
    return chain


def status_error(status: int, what: str, host: str, page: str = "", token_given: bool = False) -> GreenroomError:
    """An answer that is no success, in plain words.

    what: "bartowski/X cannot be listed"
    page: address of the repository's page, where its terms are accepted
    """
    page = page or f"https://{host}"
    if status in (401, 403):
        if token_given:
            why = "your access token does not allow it: the repository is private or gated"
            remedy = f"Open {page}, accept its terms while signed in, and check the token in Settings, Network."
        else:
            why = "the repository is private or gated, or does not exist"
            remedy = f"Open {page}, accept its terms, then put an access token into Settings, Network."
        return GreenroomError(what, why, remedy)
    if status == 407:
        return _proxy_password()
    if status == 404:
        return GreenroomError(what, f"{host} has no such file or repository", "Check the name.")
    if status == 429:
        return GreenroomError(what, f"{host} asks to slow down", "Try again in a few minutes, or sign in with a token.")
    if status >= 500:
        return GreenroomError(what, f"{host} has a fault (status {status})", "Try again later.")
    return GreenroomError(what, f"{host} answered with status {status}", "Try again later.")


def page_of(url: str) -> str:
    """The page of the repository that a file's address belongs to."""
    return url.partition("/resolve/")[0]


def _is_true(value: str | None) -> bool:
    return (value or "").strip().lower() in ("1", "true", "yes", "on")
