"""Messages inside the window."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QPushButton
from pytestqt.qtbot import QtBot

from app.widgets.banner import BannerArea
from engine.errors import GreenroomError

ERROR = GreenroomError("model.gguf cannot be read", "the file ends after 1.2 GB of 4.7 GB", "Download it again.")


def area_in(qtbot: QtBot) -> BannerArea:
    area = BannerArea()
    qtbot.addWidget(area)
    return area


def named(banner: object, name: str) -> QPushButton:
    return next(b for b in banner.findChildren(QPushButton) if b.accessibleName() == name)


def test_says_what_why_and_what_to_do(qtbot: QtBot) -> None:
    banner = area_in(qtbot).show_error(ERROR)
    said = " ".join(label.text() for label in banner.findChildren(QLabel))
    assert "model.gguf cannot be read" in said
    assert "The file ends after 1.2 GB of 4.7 GB. Download it again." in said
    assert banner.accessibleName() == ERROR.what


def test_markup_in_a_message_stays_text(qtbot: QtBot) -> None:
    banner = area_in(qtbot).show_error(GreenroomError("<b>bold</b>", "a", "b"))
    label = next(label for label in banner.findChildren(QLabel) if "bold" in label.text())
    assert label.textFormat() == Qt.TextFormat.PlainText


def test_an_action_closes_the_banner_and_runs(qtbot: QtBot) -> None:
    area = area_in(qtbot)
    happened: list[str] = []
    banner = area.show_error(
        ERROR, actions=[("Try again", lambda: happened.append("ran"))], closed=lambda: happened.append("closed")
    )
    qtbot.mouseClick(named(banner, "Try again"), Qt.MouseButton.LeftButton)
    assert happened == ["closed", "ran"]
    assert area.banners == []
    assert area.isHidden()


def test_a_sticky_banner_stays_until_it_is_dismissed(qtbot: QtBot) -> None:
    area = area_in(qtbot)
    happened: list[str] = []
    banner = area.show_error(ERROR, key="saving", actions=[("Export", lambda: happened.append("ran"))], sticky=True)
    assert [b.accessibleName() for b in banner.findChildren(QPushButton)] == ["Export"]
    qtbot.mouseClick(named(banner, "Export"), Qt.MouseButton.LeftButton)
    assert happened == ["ran"]
    assert area.banners == [banner]
    area.dismiss("saving")
    assert area.banners == []


def test_the_newest_of_a_cause_replaces_the_older(qtbot: QtBot) -> None:
    area = area_in(qtbot)
    area.show_error(ERROR, key="load")
    area.show_error(ERROR, key="store")
    newest = area.show_error(GreenroomError("x", "y", "z"), key="load")
    assert [banner.key for banner in area.banners] == ["store", "load"]
    assert area.banners[1] is newest
    area.dismiss("store")
    assert [banner.key for banner in area.banners] == ["load"]
