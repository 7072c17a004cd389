"""One Qt style sheet, built from the tokens.

Widgets say what they are through dynamic properties, never how they look:
  QLabel       role = title | heading | strong | muted | small | faint | figure | mono | warn | warn-small | accent
  QLabel, QPushButton  chip = accent | vram | warn | bad | plain
  QPushButton  kind = primary | nav | ghost | link | model (none: the bordered default)
  QWidget      surface = page | card | row | shelf | side | stage | topbar | statusbar | banner-warn | banner-bad |
               banner-info
  QFrame       surface = card, with best = true: the one that is recommended or chosen
  QFrame       surface = shelf: a row of a card, with place = first | middle | last | only
"""

from __future__ import annotations

import re
from dataclasses import asdict
from string import Template

from app.theme.tokens import Tokens

_SHEET = Template("""
* { outline: none; }
QWidget { color: $text; }
QMainWindow, QDialog { background: $bg; }
QToolTip { background: $panel; color: $text; border: 1px solid $line; padding: 4px 8px; }

QLabel { background: transparent; border: none; }
QLabel[role="title"] { font-size: ${px_title}px; font-weight: 600; }
QLabel[role="heading"] { font-size: ${px_heading}px; font-weight: 600; }
QLabel[role="strong"] { font-weight: 600; }
QLabel[role="muted"] { color: $muted; }
QLabel[role="small"] { color: $muted; font-size: ${px_small}px; }
QLabel[role="faint"] { color: $faint; font-size: ${px_tiny}px; font-weight: 600; }
QLabel[role="figure"] { font-size: ${px_small}px; font-weight: 600; }
QLabel[role="mono"] { color: $muted; font-family: "$mono"; font-size: ${px_small}px; }
QLabel[role="warn-small"] { color: $warn; font-size: ${px_small}px; }
QLabel[role="warn"] { color: $warn; }
QLabel[role="accent"] { color: $accent; font-size: ${px_small}px; font-weight: 500; }

QLabel[chip], QPushButton[chip] {
    font-size: ${px_small}px; font-weight: 500; border: 1px solid transparent; border-radius: 10px;
    padding: 3px 10px; min-height: 14px; max-height: 14px; background: $soft; color: $accent; }
QLabel[chip="vram"], QPushButton[chip="vram"] { background: $vram_soft; color: $vram; }
QLabel[chip="warn"], QPushButton[chip="warn"] { background: $warn_soft; color: $warn; }
QLabel[chip="bad"], QPushButton[chip="bad"] { background: $bad_soft; color: $bad; }
QLabel[chip="plain"], QPushButton[chip="plain"] { background: transparent; border-color: $line; color: $muted; }
QPushButton[chip="plain"]:checked { background: $soft; border-color: transparent; color: $accent; }
QPushButton[chip]:hover { border-color: $accent; }

QPushButton {
    background: $panel; color: $text; border: 1px solid $line; border-radius: 8px;
    padding: 7px 12px; min-height: 20px; font-weight: 500; }
QPushButton:hover { background: $hover; }
QPushButton:pressed { background: $line; }
QPushButton:disabled { color: $faint; background: transparent; }
QPushButton:focus { border: 2px solid $accent; padding: 6px 11px; }
QPushButton[chip]:focus { border: 2px solid $accent; padding: 2px 9px; }
QPushButton[kind="primary"] { background: $accent; border-color: $accent; color: $accent_ink; }
QPushButton[kind="primary"]:hover { background: $accent_hover; border-color: $accent_hover; }
QPushButton[kind="primary"]:focus { border-color: $text; }
QPushButton[kind="primary"]:disabled { background: $hover; border-color: $line; color: $faint; }
QPushButton[kind="nav"] {
    background: transparent; border: 1px solid transparent; color: $muted; text-align: left;
    padding: 8px 8px; font-weight: 400; }
QPushButton[kind="nav"]:hover { background: $hover; color: $text; }
QPushButton[kind="nav"]:checked { background: $panel; border-color: $line; color: $text; font-weight: 500; }
QPushButton[kind="nav"][rail="true"] { text-align: center; padding: 8px 0; }
QPushButton[kind="nav"]:focus { border: 2px solid $accent; padding: 7px 7px; }
QPushButton[kind="ghost"] { background: transparent; border-color: transparent; padding: 5px 8px; }
QPushButton[kind="ghost"]:hover { background: $hover; }
QPushButton[kind="ghost"]:checked { background: $hover; border-color: $line; }
QPushButton[kind="ghost"]:focus { border: 2px solid $accent; padding: 4px 7px; }
QPushButton[kind="link"] {
    background: transparent; border: 1px solid transparent; color: $muted; padding: 1px 4px;
    font-size: ${px_small}px; font-weight: 400; border-radius: 4px; }
QPushButton[kind="link"]:hover { color: $text; }
QPushButton[kind="link"]:focus { border-color: $accent; }
QPushButton[kind="link"]:disabled { color: $faint; }
QListWidget::item { padding: 5px 10px; }
QPushButton::menu-indicator { image: none; width: 0; }
QPushButton[kind="model"] { background: transparent; border-color: transparent; padding: 5px 8px;
    font-weight: 600; text-align: left; }
QPushButton[kind="model"]:hover { background: $hover; }
QPushButton[kind="model"]:focus { border: 2px solid $accent; padding: 4px 7px; }

QLineEdit, QPlainTextEdit, QTextEdit, QSpinBox, QDoubleSpinBox, QComboBox {
    background: $panel; color: $text; border: 1px solid $line; border-radius: 8px; padding: 7px 10px; min-height: 20px;
    selection-background-color: $accent; selection-color: $accent_ink; }
QLineEdit:focus, QPlainTextEdit:focus, QTextEdit:focus, QSpinBox:focus, QDoubleSpinBox:focus, QComboBox:focus {
    border: 2px solid $accent; padding: 6px 9px; }
QLineEdit[wrong="true"] { border-color: $bad; }
QLineEdit:disabled, QSpinBox:disabled, QDoubleSpinBox:disabled, QComboBox:disabled { color: $faint; background: $bg; }
QAbstractSpinBox QLineEdit, QAbstractSpinBox QLineEdit:focus {
    border: none; padding: 0; min-height: 0; background: transparent; }
QSpinBox::up-button, QSpinBox::down-button, QDoubleSpinBox::up-button, QDoubleSpinBox::down-button {
    border: none; background: transparent; width: 20px; }
QSpinBox::up-arrow, QDoubleSpinBox::up-arrow { image: url("$icon_up"); width: 12px; height: 12px; }
QSpinBox::down-arrow, QDoubleSpinBox::down-arrow { image: url("$icon_down"); width: 12px; height: 12px; }
QComboBox { combobox-popup: 0; }
QComboBox::drop-down { border: none; width: 28px; }
QComboBox::down-arrow { image: url("$icon_down"); width: 12px; height: 12px; }
QComboBox QAbstractItemView, QComboBox QAbstractItemView:focus {
    background: $panel; color: $text; border: 1px solid $faint; border-radius: 0; padding: 6px; }
QComboBox QScrollBar::handle { background: $faint; }
QComboBox QAbstractItemView::item { padding: 7px 8px; border: none; border-radius: 6px; }
QComboBox QAbstractItemView::item:selected { background: $accent; color: $accent_ink; }
QCheckBox, QRadioButton { spacing: 8px; padding: 3px; border: 1px solid transparent; border-radius: 6px; }
QCheckBox:focus, QRadioButton:focus { border-color: $accent; }
QCheckBox::indicator { width: 16px; height: 16px; border: 1px solid $faint; border-radius: 4px; background: $panel; }
QCheckBox::indicator:checked { background: $accent; border-color: $accent; image: url("$icon_check"); }

QRadioButton::indicator { width: 14px; height: 14px; border: 1px solid $faint; border-radius: ${radio}px;
    background: $panel; }
QRadioButton::indicator:checked { width: 6px; height: 6px; border: 5px solid $accent; border-radius: 8px;
    background: $accent_ink; }

QFrame[surface="card"], QWidget[surface="card"] { background: $panel; border: 1px solid $line; border-radius: 12px; }
QFrame[surface="palette"] { background: $panel; border: 1px solid $line; border-radius: 14px; }
QFrame[surface="card"][best="true"] { border: 2px solid $accent; }
QWidget[surface="side"] { background: $side; border: none; border-right: 1px solid $line; }
QWidget[surface="page"] { background: $bg; }
QWidget[surface="stage"] { background: $panel; border: none; border-left: 1px solid $line; }
QWidget[surface="topbar"] { background: $bg; border: none; border-bottom: 1px solid $line; }
QWidget[surface="statusbar"] { background: $panel; border: none; border-top: 1px solid $line; }
QFrame[surface="banner-bad"] { background: $bad_soft; border: 1px solid $bad; border-radius: 10px; }
QFrame[surface="banner-warn"] { background: $warn_soft; border: 1px solid $warn; border-radius: 10px; }
QFrame[surface="banner-info"] { background: $soft; border: 1px solid $accent; border-radius: 10px; }
QFrame[surface="row"] { background: transparent; border: none; border-top: 1px solid $line; }
QFrame[surface="row"][first="true"] { border-top: none; }
QFrame[surface="shelf"] { background: $panel; border: 1px solid $line; border-radius: 12px; }
QFrame[surface="shelf"][place="first"] { border-bottom: none; border-bottom-left-radius: 0;
    border-bottom-right-radius: 0; }
QFrame[surface="shelf"][place="middle"] { border-bottom: none; border-radius: 0; }
QFrame[surface="shelf"][place="last"] { border-top-left-radius: 0; border-top-right-radius: 0; }

QProgressBar { background: $line; border: none; border-radius: 3px; min-height: 6px; max-height: 6px; }
QProgressBar::chunk { background: $accent; border-radius: 3px; }
QProgressBar[tone="vram"]::chunk { background: $vram; }

QSlider::groove:horizontal { background: $line; height: 4px; border-radius: 2px; }
QSlider::sub-page:horizontal { background: $accent; border-radius: 2px; }
QSlider::handle:horizontal { background: $accent; width: 12px; height: 12px; margin: -4px 0; border-radius: 6px; }
QSlider::handle:horizontal:focus { border: 2px solid $text; }
QSlider::handle:horizontal:disabled, QSlider::sub-page:horizontal:disabled { background: $faint; }

QProgressBar[thin="true"] { background: transparent; border-radius: 0; min-height: 3px; max-height: 3px; }
QProgressBar[thin="true"]::chunk { border-radius: 0; }

QMenu { background: $panel; color: $text; border: 1px solid $line; padding: 6px; menu-scrollable: 1; }
QMenu::item { padding: 7px 28px 7px 12px; border-radius: 6px; }
QMenu::item:selected { background: $hover; }
QMenu::item:disabled { color: $faint; }
QMenu::separator { height: 1px; background: $line; margin: 6px 4px; }
QMenu::icon { padding-left: 8px; }
QMenu::indicator { width: 14px; height: 14px; padding-left: 8px; }
QMenu::indicator:checked { image: url("$icon_chosen"); }
QMenu::right-arrow { image: url("$icon_right"); width: 12px; height: 12px; padding-right: 8px; }

QAbstractItemView:focus { border: 2px solid $accent; }
QScrollArea, QAbstractScrollArea[frameless="true"] { background: transparent; border: none; }
QScrollArea > QWidget > QWidget[surface="page"] { background: $bg; }
QWizard, QWizard QScrollArea > QWidget > QWidget[surface="page"] { background: $panel; }
QScrollBar:vertical { background: transparent; width: 10px; margin: 0; border: none; }
QScrollBar:horizontal { background: transparent; height: 10px; margin: 0; border: none; }
QScrollBar::handle { background: $line; border-radius: 4px; margin: 1px; }
QScrollBar::handle:vertical { min-height: 32px; }
QScrollBar::handle:horizontal { min-width: 32px; }
QScrollBar::handle:hover { background: $faint; }
QScrollBar::add-line, QScrollBar::sub-line { width: 0; height: 0; border: none; }
QScrollBar::add-page, QScrollBar::sub-page { background: transparent; }
QSplitter::handle { background: $line; }

QDialogButtonBox { dialogbuttonbox-buttons-have-icons: 0; }
QAbstractItemView { background: $panel; color: $text; border: 1px solid $line; border-radius: 8px;
    selection-background-color: $hover; selection-color: $text; }
QHeaderView::section { background: $panel; color: $muted; border: none; border-bottom: 1px solid $line;
    padding: 5px 8px; }
QToolButton { background: transparent; border: 1px solid transparent; border-radius: 6px; padding: 4px; }
QToolButton:hover { background: $hover; }
QToolButton:checked { background: $hover; border-color: $line; }
""")


#: Lengths in the sheet from this on grow with the text; below it they are hairlines and focus rings.
_FIRST_GROWING = 3
_LENGTH = re.compile(r"(?<![\w#.-])(\d+)px")
#: What a control has around it while it has the focus.
_RING = "border: 2px solid"
#: Of the rules that decide how tall a row of controls is, how they read in the compact density.
_COMPACT = (("padding: 7px", "padding: 4px"), ("padding: 6px", "padding: 3px"), ("padding: 8px", "padding: 5px"))


def build_stylesheet(
    tokens: Tokens,
    body_px: int,
    mono_family: str,
    icons: dict[str, str],
    zoom: float = 1.0,
    compact: bool = False,
) -> str:
    """The whole sheet.

    body_px: body text in logical pixels, before the zoom
    icons:   file paths for `icon_up`, `icon_down`, `icon_right`, `icon_check`, `icon_chosen`
    zoom:    factor on text and on the room around it
    compact: less room above and below the text of controls
    """
    sheet = _SHEET.safe_substitute(
        px_title=body_px + 6, px_heading=body_px + 1, px_small=body_px - 2, px_tiny=body_px - 3
    )
    if compact:
        for usual, tight in _COMPACT:
            sheet = sheet.replace(usual, tight)
    # Half of a circle with its line, which does not grow: with a larger radius Qt draws a square.
    radio = (round(14 * zoom) + 2) // 2
    return Template(scaled(sheet, zoom)).substitute(asdict(tokens) | {"mono": mono_family, "radio": radio} | icons)


def scaled(sheet: str, zoom: float) -> str:
    """A style sheet with its lengths in pixels times `zoom`, hairlines left as they are."""
    if zoom == 1.0:
        return sheet

    def grown(match: re.Match[str]) -> str:
        pixels = int(match[1])
        return f"{round(pixels * zoom) if pixels >= _FIRST_GROWING else pixels}px"

    def grown_beside_ring(match: re.Match[str]) -> str:
        # One pixel of it went to the ring: nothing may move when the focus comes.
        return f"{round((int(match[1]) + 1) * zoom) - 1}px"

    rules = sheet.split("}")
    for number, rule in enumerate(rules):
        if _RING in rule:
            before, _, after = rule.partition("padding:")
            lengths, end, rest = after.partition(";")
            kept = _LENGTH.sub(grown_beside_ring, lengths)
            rules[number] = _LENGTH.sub(grown, before) + ("padding:" if after else "") + kept + end + rest
        else:
            rules[number] = _LENGTH.sub(grown, rule)
    return "}".join(rules)
