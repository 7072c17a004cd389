"""The way to the network: proxies, certificates, offline mode, and what went wrong in plain words."""

from __future__ import annotations

import os
import re
import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from engine.errors import GreenroomError
from engine.words import say

DEFAULT_ENDPOINT = "https://huggingface.co"

#: Seconds without a single byte after which a connection counts as dead.
STALL_S = 30.0
#: Of a word: what may stand in front of a name and password, and these, up to the last @ however odd they are.
_LOGIN = re.compile(r"""(?<![^\s"'<>])([^\s"'<>/:@]*://)?[^\s"'<>]*@""")


@dataclass(frozen=True)
class NetworkSettings:
    """How to reach the hub. Empty fields take the environment's: HF_ENDPOINT, HTTPS_PROXY, SSL_CERT_FILE, ...

    endpoint: address of the hub or of a mirror that speaks its API; it may contain name:password@
    proxy:    http://, https://, socks5:// or socks5h:// address; the password is `proxy_password`'s
    ca_file:  PEM file with the certificates to trust instead of the system's
    offline:  refuse every request (HF_HUB_OFFLINE does the same)
    stall_s:  seconds without a byte before a connection is given up
    """

    endpoint: str = field(default="", repr=False)
    proxy: str = field(default="", repr=False)
    ca_file: str = ""
    offline: bool = False
    stall_s: float = STALL_S

    @property
    def address(self) -> str:
        """The hub's address in use, with name and password if there are any: never to be shown or kept."""
        return (self.endpoint or os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")

    @property
    def hub(self) -> str:
        """The hub's address in use, without name and password and without a slash at its end."""
        try:
            parts = urlsplit(self.address)
        except ValueError:
            return shown(self.address)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    @property
    def host(self) -> str:
        return self.hub.partition("//")[2].partition("/")[0] or self.hub


def shown(text: str) -> str:
    """An address, or a text with addresses in it, without any name and password: what may be shown, kept and logged."""
    return _LOGIN.sub(r"\1", text)


def check_address(address: str, what: str, proxy: bool = False) -> None:
    """Raises GreenroomError for an address that is none; an empty one is fine."""
    if not address:
        return
    schemes = ("http", "https", "socks5", "socks5h") if proxy else ("http", "https")
    try:
        parts = urlsplit(address)
        good = (
            parts.scheme in schemes
            and bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
            and re.search(r"[\x00-\x20\x7f\\]", address) is None
        )
    except ValueError:
        good = False
    if not good:
        raise no_address(address, what, schemes[-1])


def no_address(address: str, what: str, scheme: str = "https") -> GreenroomError:
    """For an address that cannot be used. what: "The hub's address"."""
    return GreenroomError(
        say("{what} cannot be used", what=what),
        say('"{address}" is no address', address=shown(address)[:200]),
        say("Write one like {value}://host:port.", value=scheme),
    )


def read_certificates(ca_file: str) -> ssl.SSLContext | bool:
    """Whom to trust: those in the file, or for "" the system's. Raises GreenroomError for a file without any."""
    if not ca_file:
        return True
    try:
        return ssl.create_default_context(cafile=Path(ca_file).expanduser())
    except (OSError, ssl.SSLError) as error:
        why = say("there is no such file") if isinstance(error, FileNotFoundError) else say("it holds no certificates")
        raise GreenroomError(
            say("The certificate file {ca_file} cannot be used", ca_file=ca_file),
            why,
            say("Choose a PEM file in Settings, Network."),
        ) from error


def network_error(error: Exception, host: str, resumes: bool = False) -> GreenroomError:
    """A failed connection in plain words. `error` is one of httpx2's, which wrap the system's.

    resumes: what was under way goes on from the same byte
    """
    import httpx2

    chain = _causes(error)
    what = say("{host} cannot be reached", host=host)
    check = say("Check the network, or the proxy in Settings, Network (in a terminal HTTPS_PROXY).")
    if resumes:
        check = say(
            "Check the network, or the proxy in Settings, Network (in a terminal HTTPS_PROXY); the download goes on "
            "where it stopped."
        )
    for cause in chain:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return GreenroomError(
                say("{host} was not trusted", host=host),
                say("its certificate was refused ({value})", value=cause.verify_message or "verification failed"),
                say(
                    "Check the clock; if your network inspects traffic, choose its certificate file in Settings, "
                    "Network (in a terminal SSL_CERT_FILE)."
                ),
            )
        if isinstance(cause, ssl.SSLError):
            return GreenroomError(
                what,
                say("no secure connection came about ({value})", value=cause.reason or "TLS error"),
                say("Check the proxy settings."),
            )
    if isinstance(error, httpx2.ProxyError) and "407" in str(error):
        return _proxy_password()
    if isinstance(error, httpx2.ProxyError):
        return GreenroomError(
            say("The proxy refused"),
            _plain(str(error)) or "no reason given",
            say("Check it in Settings, Network (in a terminal HTTPS_PROXY)."),
        )
    refused = any(isinstance(cause, ConnectionRefusedError) for cause in chain)
    if any(isinstance(cause, socket.gaierror | UnicodeError) for cause in chain):
        return GreenroomError(what, say("its name cannot be looked up"), check)
    if isinstance(error, httpx2.ReadTimeout):
        return GreenroomError(say("{host} fell silent", host=host), say("its answer did not come in time"), check)
    if isinstance(error, httpx2.ConnectTimeout):
        return GreenroomError(what, say("it does not answer"), check)
    if isinstance(error, httpx2.ConnectError):
        return GreenroomError(what, say("the connection was refused") if refused else say("no connection"), check)
    return GreenroomError(
        say("The connection to {host} broke", host=host), say("it was closed before everything had come"), check
    )


def _plain(text: str) -> str:
    """What another program said, fit for a sentence."""
    return shown("".join(filter(str.isprintable, text)))[:200]


def _proxy_password() -> GreenroomError:
    return GreenroomError(
        say("The proxy refused"),
        say("it wants a name and a password"),
        say(
            "Write them into its address in Settings, Network (in a terminal HTTPS_PROXY), like "
            "http://name:password@host:port."
        ),
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
            why = say("your access token does not allow it: the repository is private or gated")
            remedy = say(
                "Open {page}, accept its terms while signed in, and check the token in Settings, Network.", page=page
            )
        else:
            why = say("the repository is private or gated, or does not exist")
            remedy = say(
                "Open {page}, accept its terms, then put an access token into Settings, Network (or HF_TOKEN).",
                page=page,
            )
        return GreenroomError(what, why, remedy)
    if status == 407:
        return _proxy_password()
    if status == 404:
        return GreenroomError(what, say("{host} has no such file or repository", host=host), say("Check the name."))
    if status == 429:
        return GreenroomError(
            what,
            say("{host} asks to slow down", host=host),
            say("Try again in a few minutes, or sign in with a token."),
        )
    if status >= 500:
        return GreenroomError(
            what, say("{host} has a fault (status {status})", host=host, status=status), say("Try again later.")
        )
    return GreenroomError(
        what, say("{host} answered with status {status}", host=host, status=status), say("Try again later.")
    )


def page_of(url: str) -> str:
    """The page of the repository that a file's address belongs to."""
    return url.partition("/resolve/")[0]
