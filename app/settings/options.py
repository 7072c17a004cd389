"""What a page of the settings is made of: records that say which control shows which fields of the settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtWidgets import QCheckBox, QWidget

from app.language import tr
from app.settings.fields import Combo, Fraction, LongText, WholeNumber
from app.settings.store import Settings, SettingsStore

#: (text, value); texts are marked, and translated when they are shown.
Entries = Sequence[tuple[str, object]]


@dataclass(frozen=True)
class Option:
    """One line of a page. Texts are in English and marked, see `app.language`.

    name:   how the line is reached; the field's name where it has one
    title, said: what it is, and one sentence about it
    make:   its control
    load:   shows the settings' values in the control; called after every change of a field
    fields: of the settings; what "reset" sets back
    words:  what else it is found by
    below:  the control stands under its words and takes the whole width
    """

    name: str
    title: str
    said: str
    make: Callable[[SettingsStore], QWidget]
    load: Callable[[Any, Settings], None] | None = None
    fields: tuple[str, ...] = ()
    words: str = ""
    below: bool = False


@dataclass(frozen=True)
class Group:
    """Options on one card. title: "" for none; note: a sentence below the card."""

    options: tuple[Option, ...]
    title: str = ""
    note: str = ""


@dataclass(frozen=True)
class Page:
    """key: how it is reached; intro: a sentence under its title, "" for none."""

    key: str
    title: str
    icon: str
    groups: tuple[Group, ...]
    intro: str = ""

    @property
    def options(self) -> tuple[Option, ...]:
        return tuple(option for group in self.groups for option in group.options)

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(name for option in self.options for name in option.fields)


def choice(
    field: str,
    title: str,
    said: str,
    entries: Entries | Callable[[], Entries],
    words: str = "",
    unknown: str = "{value}",
) -> Option:
    """One of several values. entries may be a function where they are known only at run time.

    unknown: how a value reads that is none of the entries
    """

    def make(settings: SettingsStore) -> Combo:
        known = entries() if callable(entries) else entries
        combo = Combo(tr(title), tuple((tr(text), value) for text, value in known))
        combo.activated.connect(lambda: settings.change(**{field: combo.currentData()}))
        return combo

    def load(combo: Combo, values: Settings) -> None:
        value = getattr(values, field)
        if combo.findData(value) < 0:
            combo.addItem(tr(unknown, value=value), value)
        combo.setCurrentIndex(combo.findData(value))

    return Option(field, title, said, make, load, (field,), words)


def toggle(field: str, title: str, said: str, text: str, words: str = "") -> Option:
    """On or off. text: beside the box."""

    def make(settings: SettingsStore) -> QCheckBox:
        box = QCheckBox(tr(text))
        box.setAccessibleName(tr(title))
        box.clicked.connect(lambda on: settings.change(**{field: on}))
        return box

    return Option(field, title, said, make, lambda box, values: box.setChecked(getattr(values, field)), (field,), words)


def whole_number(
    field: str, title: str, said: str, limits: tuple[int, int], unset: str, default: int | None = None, words: str = ""
) -> Option:
    """unset: what the field says while nothing is chosen, which is kept as `default`."""

    def make(settings: SettingsStore) -> WholeNumber:
        number = WholeNumber(tr(title), limits, tr(unset))
        number.chosen.connect(lambda value: settings.change(**{field: default if value is None else value}))
        return number

    return Option(field, title, said, make, lambda box, values: box.show_value(getattr(values, field)), (field,), words)


def fraction(
    field: str,
    title: str,
    said: str,
    limits: tuple[float, float],
    usual: float,
    unset: str,
    step: float = 0.05,
    words: str = "",
) -> Option:
    """usual: where the arrows start from."""

    def make(settings: SettingsStore) -> Fraction:
        number = Fraction(tr(title), limits, usual, tr(unset), step)
        number.chosen.connect(lambda value: settings.change(**{field: value}))
        return number

    return Option(field, title, said, make, lambda box, values: box.show_value(getattr(values, field)), (field,), words)


def long_text(field: str, title: str, said: str, placeholder: str, words: str = "") -> Option:
    def make(settings: SettingsStore) -> LongText:
        text = LongText(tr(title), tr(placeholder))
        text.written.connect(lambda value: settings.change(**{field: value}))
        return text

    return Option(
        field, title, said, make, lambda box, values: box.show_text(getattr(values, field)), (field,), words, below=True
    )
