"""Before a link is opened, its host is to be seen, whole."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication, QTextDocument
from PySide6.QtWidgets import QLabel, QPushButton

from app.chat.link_bar import LinkBar
from app.chat.rendering.body_view import BodyView
from app.chat.rendering.flow_view import FlowView
from app.chat.style import chat_style
from app.theme import theme

DEEP = "www.bank.example.login." + "a-b." * 50 + "evil.example"
PATHS = ["/", "/" + "path/" * 2000, "/?" + "x=1&" * 2500]


@pytest.fixture
def opened(monkeypatch):
    made = []
    monkeypatch.setattr(QDesktopServices, "openUrl", made.append)
    return made


@pytest.fixture
def bar(qtbot):
    made = LinkBar()
    made.setStyleSheet(chat_style(theme().tokens))
    qtbot.addWidget(made)
    made.resize(420, 90)
    return made


def place_of(bar):
    return bar._place.text().replace("\u200b", "")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("host", ["evil.example", DEEP, "a" * 63 + "." + "b" * 63 + ".example"])
@pytest.mark.parametrize("before", ["", "bank.example@", "bank.example%2F" * 300 + "@"])
def test_the_host_is_whole_and_what_is_opened_is_what_is_shown(bar, opened, before, host, path):
    bar.offer(f"https://{before}{host}{path}")
    bar.setFixedWidth(420)
    bar.setFixedHeight(bar.heightForWidth(420) if bar.hasHeightForWidth() else bar.sizeHint().height())
    assert place_of(bar) == f"https://{host}"
    # Laid out in the width that it has, all of it has room.
    needed = bar._place.heightForWidth(bar._place.width())
    assert bar._place.height() >= needed
    words = [word for word in bar._place.text().split("\u200b") if word]
    assert max(map(bar._place.fontMetrics().horizontalAdvance, words)) <= bar._place.width()
    bar.open_button.click()
    assert opened == [QUrl(f"https://{host}{path}")]
    assert opened[0].toString(QUrl.ComponentFormattingOption.FullyEncoded) == place_of(bar) + bar._rest.text()


@pytest.mark.parametrize(
    "address", ["file:///etc/passwd", "smb://evil.example/x", "javascript:alert(1)", "x:y", "page"]
)
def test_what_is_no_web_page_is_only_shown(bar, opened, address):
    bar.offer("https://example.org/")
    bar.offer(address)
    assert not bar.open_button.isVisible()
    assert bar.address == address
    assert bar._place.isHidden()
    assert bar._rest.text() == address
    assert bar._said.text() == "Greenroom only opens web pages and email addresses."
    next(b for b in bar.findChildren(QPushButton) if b.text() == "Copy address").click()
    assert QGuiApplication.clipboard().text() == address
    assert opened == []


def test_an_address_is_plain_text(bar):
    bar.offer("https://example.org/?<img src=x>")
    for shown in bar.findChildren(QLabel):
        assert shown.textFormat().name == "PlainText"


def test_a_link_of_an_answer_says_where_it_leads(qtbot):
    body = BodyView()
    qtbot.addWidget(body)
    body.set_width(500)
    body.set_text(f"[bank.example](https://bank.example@{DEEP}/{'x' * 5000})")
    (view,) = body.findChildren(FlowView)
    cursor = view.textCursor()
    cursor.setPosition(3)
    assert cursor.charFormat().toolTip().startswith(f"https://{DEEP}/xxx")
    assert len(cursor.charFormat().toolTip()) < 700
    with qtbot.waitSignal(body.linkChosen) as chosen:
        view.anchorClicked.emit(QUrl(cursor.charFormat().anchorHref()))
    assert QUrl(chosen.args[0]).host() == DEEP


@pytest.mark.parametrize("scheme", ["http://127.0.0.1:9", "file:///etc", "data:image/png;base64,AAAA", "qrc:"])
def test_no_picture_is_ever_loaded(qtbot, monkeypatch, scheme):
    loaded = []
    monkeypatch.setattr(QTextDocument, "loadResource", lambda *args: loaded.append(args))
    body = BodyView()
    qtbot.addWidget(body)
    body.set_width(500)
    body.show()
    picture = f"![cat]({scheme}/cat.png)"
    table = f"| {picture} |\n|---|\n| {picture} |"
    body.set_text(f"{picture}\n\n<img src='{scheme}/cat.png'>\n\n{table}\n\n```<img/src={scheme}>\n```")
    body.grab()
    assert loaded == []
    for view in body.findChildren(FlowView):
        assert "\ufffc" not in view.toPlainText()
    for shown in body.findChildren(QLabel):
        assert shown.textFormat().name == "PlainText"
