"""Both themes can be read, follow the choice at once, and reach every icon."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict

import pytest
from PySide6.QtCore import QPoint, QSize
from PySide6.QtGui import QGuiApplication, QIcon, QImage
from PySide6.QtWidgets import QApplication, QMenu, QPushButton
from pytestqt.qtbot import QtBot

from app.theme import DARK, LIGHT, Tokens, theme
from app.theme.icons import icon_source, make_pixmap
from app.theme.stylesheet import build_stylesheet
from app.theme.tokens import TEXT_PAIRS, contrast
from engine.resources import asset

ICON_FILES = {f"icon_{name}": name for name in ("up", "down", "right", "check", "chosen")}
ICONS = sorted(path.stem for path in asset("icons").glob("*.svg") if path.stem != "logo")


@pytest.fixture(autouse=True)
def back_to_system(qapp: QApplication) -> object:
    yield
    theme().set_mode("system")


@pytest.mark.parametrize("tokens", [LIGHT, DARK], ids=lambda t: t.name)
@pytest.mark.parametrize(("ink", "surface"), [(ink, s) for ink, group in TEXT_PAIRS.items() for s in group])
def test_text_can_be_read(tokens: Tokens, ink: str, surface: str) -> None:
    assert contrast(getattr(tokens, ink), getattr(tokens, surface)) >= 4.5


def test_contrast_is_the_known_one() -> None:
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21.0)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("tokens", [LIGHT, DARK], ids=lambda t: t.name)
def test_the_sheet_holds_only_colours_of_its_theme(tokens: Tokens) -> None:
    sheet = build_stylesheet(tokens, 14, "Mono", ICON_FILES)
    assert set(re.findall(r"#[0-9A-Fa-f]{6}\b", sheet)) <= set(asdict(tokens).values())
    assert "$" not in sheet


def test_switching_changes_palette_and_sheet_at_once(qapp: QApplication, qtbot: QtBot) -> None:
    theme().set_mode("light")
    assert qapp.palette().window().color().name().upper() == LIGHT.bg
    with qtbot.waitSignal(theme().changed):
        theme().set_mode("dark")
    assert theme().dark
    assert qapp.palette().window().color().name().upper() == DARK.bg
    assert DARK.panel in qapp.styleSheet()


def test_system_mode_follows_the_system(qapp: QApplication) -> None:
    from PySide6.QtCore import Qt

    theme().set_mode("system")
    hints = QGuiApplication.styleHints()
    try:
        hints.setColorScheme(Qt.ColorScheme.Dark)
        followed = theme().dark == (hints.colorScheme() == Qt.ColorScheme.Dark)
    finally:
        hints.unsetColorScheme()
    assert followed


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="purple"):
        theme().set_mode("purple")


def test_there_is_one_theme(qapp: QApplication) -> None:
    assert theme() is theme()


def inked(image: QImage) -> set[str]:
    """The colours of the fully covered pixels; anti-aliasing may round a channel by one, so only frequent ones."""
    points = [(x, y) for x in range(image.width()) for y in range(image.height())]
    colours = Counter(c.name().upper() for c in (image.pixelColor(x, y) for x, y in points) if c.alpha() == 255)
    return {name for name, count in colours.items() if count >= max(colours.values()) / 2}


@pytest.mark.parametrize("name", ICONS)
def test_every_icon_draws_in_the_colour_it_is_given(qapp: QApplication, name: str) -> None:
    assert "currentColor" in icon_source(name)
    image = make_pixmap(name, "#1E7356", 16, 4.0).toImage()
    assert image.width() == 64
    assert inked(image) == {"#1E7356"}


def test_a_bound_icon_follows_the_theme_and_dies_with_its_button(qtbot: QtBot) -> None:
    theme().set_mode("light")
    button = QPushButton("x")
    qtbot.addWidget(button)
    theme().bind_icon(button, "plus", "text")
    before = inked(button.icon().pixmap(64, 64).toImage())
    theme().set_mode("dark")
    after = inked(button.icon().pixmap(64, 64).toImage())
    assert before == {LIGHT.text}
    assert after == {DARK.text}
    theme().bind_icon(button, "stop", "bad")
    theme().set_mode("light")
    assert inked(button.icon().pixmap(64, 64).toImage()) == {LIGHT.bad}
    button.deleteLater()
    theme().set_mode("dark")


@pytest.mark.parametrize("scale", [1.0, 2.0, 3.0])
def test_icons_are_sharp_at_every_scale(qapp: QApplication, scale: float) -> None:
    theme().set_mode("light")
    pixmap = theme().icon("plus").pixmap(QSize(16, 16), scale)
    assert pixmap.devicePixelRatio() == scale
    assert pixmap.toImage() == make_pixmap("plus", LIGHT.muted, 16, scale).toImage()


def test_a_disabled_icon_is_paler(qapp: QApplication) -> None:
    theme().set_mode("light")
    icon = theme().icon("stop", "text")
    assert inked(icon.pixmap(64, 64, QIcon.Mode.Disabled).toImage()) == {LIGHT.faint}


@pytest.mark.parametrize("zoom", [0.75, 1.1, 1.25, 1.5, 1.75, 2.0])
@pytest.mark.parametrize("compact", [False, True])
def test_nothing_moves_when_the_focus_comes(zoom: float, compact: bool) -> None:
    """Border and padding together are as wide with the ring as without."""
    sheet = build_stylesheet(LIGHT, 14, "Mono", ICON_FILES, zoom, compact)

    def around(selector: str) -> tuple[int, ...]:
        rule = re.search(re.escape(selector) + r"(?:, [^{}]*)? \{([^}]*)\}", sheet)
        assert rule is not None, selector
        border = re.search(r"border: (\d+)px", rule[1])
        padding = re.search(r"padding: (\d+)px (\d+)px", rule[1])
        assert border is not None
        assert padding is not None
        return tuple(int(border[1]) + int(pixels) for pixels in padding.groups())

    for plain, focused in (
        ("\nQPushButton", "\nQPushButton:focus"),
        ("\nQLabel[chip], QPushButton[chip]", "\nQPushButton[chip]:focus"),
        ('\nQPushButton[kind="nav"]', '\nQPushButton[kind="nav"]:focus'),
    ):
        assert around(plain) == around(focused)


@pytest.mark.parametrize("zoom", [0.75, 1.0, 1.25, 1.75, 2.0])
def test_chips_stay_round(zoom: float, qtbot: QtBot) -> None:
    """Qt draws a corner square whose radius is more than half of the height."""
    sheet = build_stylesheet(LIGHT, 14, "Mono", ICON_FILES, zoom)
    rule = re.search(r"QLabel\[chip\], QPushButton\[chip\] \{([^}]*)\}", sheet)
    assert rule is not None
    radius, padding, height = (
        int(re.search(rf"{name}: (\d+)px", rule[1])[1]) for name in ("border-radius", "padding", "min-height")
    )
    assert 2 * radius <= height + 2 * padding + 2


def test_reduced_motion_stops_the_cursors_blinking(qapp: QApplication) -> None:
    theme().set_look("light", 1.0, "comfortable", False)
    before = qapp.cursorFlashTime()
    theme().set_look("light", 1.0, "comfortable", True)
    assert qapp.cursorFlashTime() == 0
    assert theme().reduced_motion
    theme().set_look("light", 1.0, "comfortable", False)
    assert qapp.cursorFlashTime() == before


def test_a_menu_taller_than_the_screen_scrolls(qtbot: QtBot) -> None:
    """Qt's other way are columns, of which the second may be off the screen."""
    theme().set_look("light", 2.0, "comfortable", False)
    menu = QMenu()
    qtbot.addWidget(menu)
    entries = [menu.addAction(f"Entry {number}") for number in range(60)]
    menu.popup(QPoint(10, 10))
    assert menu.screen().availableGeometry().contains(menu.geometry())
    assert len({menu.actionGeometry(entry).left() for entry in entries}) == 1
    menu.close()
    theme().set_look("system", 1.0, "comfortable", False)
