"""The host that an address really leads to is always what is shown, and nothing else is opened."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QUrl

from app.chat.rendering.addresses import LONGEST_TIP, Address, read_address, tip_of

FORMATS = QUrl.ComponentFormattingOption
DEEP = "www.bank.example.login." + "a." * 100 + "evil.example"


@pytest.mark.parametrize(
    ("text", "place", "rest"),
    [
        ("https://example.org", "https://example.org", ""),
        ("https://example.org/a?b=c#d", "https://example.org", "/a?b=c#d"),
        ("HTTPS://EXAMPLE.org:8443/A", "https://example.org:8443", "/A"),
        ("mailto:a@example.org?subject=x", "mailto:a@example.org", "?subject=x"),
        (
            "mailto:a@b.example,c@d.example?CC=e@f.example&body=x",
            "mailto:a@b.example,c@d.example",
            "?CC=e@f.example&body=x",
        ),
        ("https://ko.example.org/%ED%95%9C%EA%B5%AD", "https://ko.example.org", "/한국"),
        # A name and a password before the host.
        ("https://bank.example@evil.example/x", "https://evil.example", "/x"),
        ("https://bank.example%2Flogin:pw@evil.example", "https://evil.example", ""),
        ("https://bank.example\\@evil.example/", "https://evil.example", "/"),
        ("https://bank.example;@evil.example", "https://evil.example", ""),
        ("https://evil.example#@bank.example/", "https://evil.example", "#@bank.example/"),
        ("https://evil.example?@bank.example/", "https://evil.example", "?@bank.example/"),
        # Encoded, or with what nobody sees.
        ("https://%65vil.example/", "https://evil.example", "/"),
        ("https://ev\u200bil.example/", "https://evil.example", "/"),
        ("https://bank。evil。example/", "https://bank.evil.example", "/"),
        ("http://2130706433/", "http://127.0.0.1", "/"),
        ("http://[::1]:80/a", "http://[::1]:80", "/a"),
        # Letters that look like others.
        ("https://аррӏе.com/", "https://xn--80ak6aa92e.com", "/"),
        ("https://gооgle.com/", "https://xn--ggle-55da.com", "/"),
        ("https://한국.kr/", "https://xn--3e0b707e.kr", "/"),
        # What turns a text around, ends a line, or is a slash for the eye alone.
        ("https://evil.example/\u202egnp.exe", "https://evil.example", "/%E2%80%AEgnp.exe"),
        ("https://evil.example/%E2%80%AE%D7%90\n\0x", "https://evil.example", "/%E2%80%AE%D7%90%0A%00x"),
        ("https://evil.example/a\\b\u2215c", "https://evil.example", "/a%5Cb%E2%88%95c"),
        (f"https://{DEEP}/x", f"https://{DEEP}", "/x"),
    ],
)
def test_what_is_shown_is_where_it_leads(text, place, rest):
    address = read_address(text)
    assert (address.place, address.rest) == (place, rest)
    assert address.whole.isascii()
    opened = QUrl(address.whole, QUrl.ParsingMode.StrictMode)
    assert opened.isValid()
    assert opened.userInfo() == ""
    assert opened.toString(FORMATS.FullyEncoded) == address.whole
    host = opened.host(FORMATS.FullyEncoded)
    assert not host or host in place
    assert tip_of(text) == place + rest


@pytest.mark.parametrize(
    "text",
    [
        *("file:///etc/passwd", "smb://evil.example/x", "javascript:alert(1)", "data:text/html,x", "ms-settings:"),
        *(
            "vbscript:x",
            "ftp://example.org",
            "steam://run/1",
            "//evil.example/x",
            "page.html",
            "#top",
            "",
            "\\\\evil\\x",
        ),
        *("https:", "https:///evil.example", "https:/evil.example", "http:evil.example", "https:\\\\evil.example\\x"),
        *("https://evil.example\\path", "https://ev\u202eil.example", "https://ev%E2%80%AEil.example", "https://a b/"),
        *("https://bank.example%2f.evil.example/", "https://a%00b.example", "https://evil.example:99999/"),
        *("https://" + "a" * 300 + ".example/", "https://" + "a." * 200 + "example/"),
        *("mailto:", "mailto://evil.example", "mailto:" + "a@b.example," * 100),
        *("mailto:a@b.example?attach=/etc/passwd", "mailto:a@b.example?x=1&%41ttachment=x"),
        *("mailto:a@b.example#?attach=/etc/passwd", "mailto:a@b.example??attach=x", "mailto:a@b.example?%20attach=x"),
        *("mailto:a@b.example%3Fattach=/etc/passwd", "mailto:a@b.example%20--attach%20x", "mailto:a%0Ab@c.example"),
    ],
)
def test_anything_else_is_shown_as_it_was_written_and_never_opened(text):
    address = read_address(text)
    assert address.place == ""
    assert address.whole == address.rest
    assert all("!" <= sign <= "~" for sign in address.whole)


def test_a_tool_tip_is_short_and_has_the_host():
    host = "https://" + "a." * 100 + "evil.example"
    tip = tip_of(f"{host}/{'x' * 10_000}end")
    assert tip.startswith(f"{host}/xxx")
    assert tip.endswith("end")
    assert len(tip) <= len(host) + LONGEST_TIP + 1


def test_what_is_no_text_is_no_error():
    assert read_address("https://evil.example/\ud800").whole.isascii()
    assert read_address("\ud800") == Address("%3F", "", "%3F")
