"""Network: the hub or a mirror, proxy, certificates, the access token, limits of downloads."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from app.language import mark, tr
from app.settings.network import Line, Token
from app.settings.options import Group, Option, Page, toggle, whole_number
from app.settings.proxy import Proxy
from app.settings.store import DOWNLOADS_RANGE, RATE_RANGE, SettingsStore
from engine.errors import GreenroomError
from engine.hub.network import DEFAULT_ENDPOINT, check_address, read_certificates
from engine.words import say

THE_SYSTEMS = mark("System default")


def _line(field: str, title: str, said: str, empty: str, check: Callable[[str], object], words: str = "") -> Option:
    def make(settings: SettingsStore) -> Line:
        return Line(tr(title), tr(empty), check, lambda text: settings.change(**{field: text}))

    return Option(
        field, title, said, make, lambda line, values: line.show_text(getattr(values, field)), (field,), words
    )


def _check_hub(text: str) -> None:
    check_address(text, say("The hub address"))
    if "@" in urlsplit(text).netloc:
        raise GreenroomError(
            tr("The hub address was not saved"),
            tr("it contains a name or password, which would be saved in the settings file"),
            tr("Leave it out and save an access token instead."),
        )


PAGE = Page(
    "network",
    mark("Network"),
    "globe",
    (
        Group(
            (
                toggle(
                    "offline",
                    mark("Offline"),
                    mark("Greenroom does not use the network, even when you press a button that would."),
                    mark("Work offline"),
                    words="internet",
                ),
                whole_number(
                    "downloads_at_once",
                    mark("Simultaneous downloads"),
                    mark("How many models download at the same time. The others wait."),
                    DOWNLOADS_RANGE,
                    mark("Two"),
                    2,
                ),
                whole_number(
                    "download_rate",
                    mark("Speed limit"),
                    mark("In megabytes per second, for all downloads together."),
                    RATE_RANGE,
                    mark("No limit"),
                    words="bandwidth rate",
                ),
            )
        ),
        Group(
            (
                Option(
                    "token",
                    mark("Access token"),
                    mark("For models whose terms you accepted on Hugging Face. It is saved in the system keyring."),
                    lambda settings: Token(),
                    words="hf login account password",
                ),
                _line(
                    "hub",
                    mark("Hub"),
                    mark("Use a different Hugging Face-compatible server, such as a company mirror."),
                    DEFAULT_ENDPOINT,
                    _check_hub,
                    "mirror endpoint hugging face",
                ),
                Option(
                    "proxy",
                    mark("Proxy"),
                    mark("For example socks5h://localhost:1080, or http://name:password@host:3128."),
                    lambda settings: Proxy(tr("Proxy"), tr(THE_SYSTEMS), settings),
                    lambda proxy, values: proxy.load(values),
                    ("proxy",),
                    "socks http https password",
                ),
                _line(
                    "ca_file",
                    mark("Certificates"),
                    mark("A PEM file to trust, for networks that inspect HTTPS traffic."),
                    THE_SYSTEMS,
                    read_certificates,
                    "tls ssl ca",
                ),
            ),
            mark("Hugging Face"),
        ),
    ),
)
