"""Network: the hub or a mirror, proxy, certificates, the access token, limits of downloads."""

from __future__ import annotations

from collections.abc import Callable

from app.language import mark, tr
from app.settings.network import Line, Token
from app.settings.options import Group, Option, Page, toggle, whole_number
from app.settings.store import DOWNLOADS_RANGE, RATE_RANGE, SettingsStore
from engine.hub.network import DEFAULT_ENDPOINT, check_address, read_certificates
from engine.words import say

THE_SYSTEMS = mark("The system's")


def _line(field: str, title: str, said: str, empty: str, check: Callable[[str], object], words: str = "") -> Option:
    def make(settings: SettingsStore) -> Line:
        return Line(tr(title), tr(empty), check, lambda text: settings.change(**{field: text}))

    return Option(
        field, title, said, make, lambda line, values: line.show_text(getattr(values, field)), (field,), words
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
                    mark("Nothing is asked of the network, not even when you press a button that would."),
                    mark("Work offline"),
                    words="internet",
                ),
                whole_number(
                    "downloads_at_once",
                    mark("Downloads at once"),
                    mark("Models on their way at the same time; the others wait."),
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
                    mark("For models whose terms you accepted on Hugging Face. It is kept in the system's keyring."),
                    lambda settings: Token(),
                    words="hf login account password",
                ),
                _line(
                    "hub",
                    mark("Hub"),
                    mark("Another address that speaks the same language, such as a mirror of your company."),
                    DEFAULT_ENDPOINT,
                    lambda text: check_address(text, say("The hub's address")),
                    "mirror endpoint hugging face",
                ),
                _line(
                    "proxy",
                    mark("Proxy"),
                    mark("http, https, socks5 or socks5h, for example socks5h://localhost:1080."),
                    THE_SYSTEMS,
                    lambda text: check_address(text, say("The proxy's address"), proxy=True),
                    "socks http",
                ),
                _line(
                    "ca_file",
                    mark("Certificates"),
                    mark("A PEM file to trust, for networks that look into encrypted traffic."),
                    THE_SYSTEMS,
                    read_certificates,
                    "tls ssl ca",
                ),
            ),
            mark("Hugging Face"),
        ),
    ),
)
