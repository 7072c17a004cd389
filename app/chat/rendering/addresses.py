"""Where a link really leads, as text that cannot be mistaken for another place."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from urllib.parse import unquote

from PySide6.QtCore import QUrl, QUrlQuery

#: Only these leave the program; anything else in a model's answer is not to be trusted with a click.
WEB, MAIL = ("http", "https"), "mailto"
_ENCODED = QUrl.ComponentFormattingOption.FullyEncoded
_HOST = re.compile(r"[a-z0-9._-]{1,253}|[0-9a-f:.]{2,45}")
#: No mail address is longer.
LONGEST_MAIL = 320
#: What a mail address may fill in. Some mail programs take others for the name of a file on this computer, however they
#: are written, and look for them behind any "?" or "#".
_MAIL_FIELDS = frozenset({"to", "cc", "bcc", "subject", "body", "in-reply-to"})
_MAIL = re.compile(r"[^\s?&#\"<>\x00-\x1f\x7f]+")
#: Encoded characters beyond ASCII.
_OTHERS = re.compile(r"(?:%[89A-F][0-9A-F])+")
#: The most of an address that a tool tip shows.
LONGEST_TIP = 300


@dataclass(frozen=True)
class Address:
    """An address taken apart, each part as it is shown.

    whole:  what is copied and opened: ASCII only, and without the name and password that may stand before the host
    place:  its scheme, host and port, or a mail address; "" when nothing here would open it
    rest:   what follows
    """

    whole: str
    place: str
    rest: str


def read_address(text: str) -> Address:
    """Take an address apart as the system will that opens it. A host of other letters is shown as its ASCII name."""
    # "https://bank.example@other.example" leads to the other one: a name before the host is there to deceive.
    url = QUrl(QUrl(text).toString(_ENCODED | QUrl.UrlFormattingOption.RemoveUserInfo))
    whole = url.toString(_ENCODED)
    place = _web(url) if url.scheme() in WEB else _mail(url) if url.scheme() == MAIL else ""
    if not url.isValid() or not place or not whole.startswith(place):
        return Address(_ascii(text), "", _ascii(text))
    return Address(whole, place, _readable(whole[len(place) :]))


def tip_of(text: str) -> str:
    """What a link's tool tip says: the place is always whole."""
    address = read_address(text)
    rest = address.rest
    if len(rest) > LONGEST_TIP:
        rest = f"{rest[: LONGEST_TIP // 2]}…{rest[-LONGEST_TIP // 2 :]}"
    return address.place + rest


def _web(url: QUrl) -> str:
    host = url.host(_ENCODED)
    if not _HOST.fullmatch(host):
        return ""
    named = f"[{host}]" if ":" in host else host
    return f"{url.scheme()}://{named}" + (f":{url.port()}" if url.port() >= 0 else "")


def _mail(url: QUrl) -> str:
    path = url.path(_ENCODED)
    names = (name.lower() for name, _ in QUrlQuery(url).queryItems(QUrl.ComponentFormattingOption.FullyDecoded))
    harmless = _MAIL_FIELDS.issuperset(names) and not url.hasFragment() and _MAIL.fullmatch(unquote(path)) is not None
    return f"{MAIL}:{path}" if harmless and not url.host() and 0 < len(path) <= LONGEST_MAIL else ""


def _ascii(text: str) -> str:
    """With everything but plain characters encoded: nothing invisible, and nothing that turns the text around."""
    return "".join(sign if "!" <= sign <= "~" else _encoded(sign) for sign in text)


def _encoded(sign: str) -> str:
    return "".join(f"%{byte:02X}" for byte in sign.encode("utf-8", "replace"))


def _readable(encoded: str) -> str:
    """With the letters of languages that are written from left to right as what they are."""

    def decode(found: re.Match[str]) -> str:
        letters = unquote(found[0])
        plain = all(sign.isalpha() and unicodedata.bidirectional(sign) == "L" for sign in letters)
        return letters if plain else found[0]

    return _OTHERS.sub(decode, encoded)
