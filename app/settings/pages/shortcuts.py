"""Shortcuts: every action of the window, by menu."""

from __future__ import annotations

from app.actions import ACTIONS, MENUS, ActionSpec
from app.language import mark
from app.settings.options import Group, Option, Page
from app.settings.shortcut_field import ShortcutField, shortcut_control


def _option(spec: ActionSpec) -> Option:
    return Option(
        f"shortcut:{spec.key}",
        spec.text,
        "",
        shortcut_control(spec),
        ShortcutField.show_values,
        ("shortcuts",),
        f"keyboard key {spec.shortcut}",
    )


PAGE = Page(
    "shortcuts",
    mark("Shortcuts"),
    "keyboard",
    tuple(Group(tuple(_option(spec) for spec in ACTIONS if spec.menu == menu), menu) for menu in MENUS),
    mark("Click a field and press the keys."),
)
