"""The user's language: every text the window shows goes through `tr`.

    tr("Delete {name}?", name=chat.title)
    tr("%n chats", n=3)

The English text is the message's id. Constants hold it as `mark("...")` and are translated when they are shown, so a
switch of the language needs no restart. The translations are Qt Linguist's files, assets/translations/greenroom_*.ts,
read as they are: there is no step that compiles them. assets/translations/update.py collects the texts;
docs/translating.md says how to add a language.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree

from PySide6.QtCore import QCoreApplication, QLibraryInfo, QLocale, QObject, Qt, QTranslator

from app.particles import settle
from engine.clean_text import MOST_SENTENCE, clean_value, cut
from engine.errors import GreenroomError
from engine.resources import asset
from engine.words import Said, translated

log = logging.getLogger(__name__)

SOURCE = "en"
SYSTEM = "system"
#: The hole for a count in messages with plural forms.
COUNT = "%n"

Text = TypeVar("Text", bound=str)


def mark(text: Text) -> Text:
    """The text itself: says that it is translated where it is shown."""
    return text


def tr(text: str, /, n: int | None = None, written: str | None = None, **values: object) -> str:
    """The text in the user's language; in English where there is no translation.

    n:       the count that %n stands for, and that chooses the plural form
    written: how it is written, where that is not with all its digits: "3.1k"
    values:  fill {name}, each cleaned: names of files and of models are anybody's text
    """
    values = {name: value if isinstance(value, Said) else clean_value(value) for name, value in values.items()}
    found = _translated(text, n, values, written)
    return _filled(text, n, values, written) if found is None else found


def told(text: str) -> str:
    """What the engine said, in the user's language; any other text as `tr` has it, which may be as it is."""
    return translated(text, _translated) if isinstance(text, Said) else tr(text)


def _translated(text: str, n: int | None, values: Mapping[str, object], written: str | None = None) -> str | None:
    """None without a translation that can be filled."""
    forms = _current.forms.get(text)
    if not forms:
        return None
    try:
        form = forms[min(_current.plural(n), len(forms) - 1) if n is not None else 0]
        return _current.finish(cut(_filled(form, n, values, written), MOST_SENTENCE))
    except (LookupError, ValueError, AttributeError) as error:
        log.warning("the %s translation of %r does not fit: %s", _current.code, text, error)
        return None


def _filled(text: str, n: int | None, values: Mapping[str, object], written: str | None) -> str:
    if n is not None:
        # First: a name may hold the sign.
        text = text.replace(COUNT, f"{n:,}".replace(",", "\u202f") if written is None else written)
    return text.format_map(values) if values else text


def _english(n: int) -> int:
    return 0 if n == 1 else 1


def _none(n: int) -> int:
    return 0


def _french(n: int) -> int:
    return 0 if n <= 1 else 1


def _russian(n: int) -> int:
    if n % 10 == 1 and n % 100 != 11:
        return 0
    return 1 if 2 <= n % 10 <= 4 and not 12 <= n % 100 <= 14 else 2


def _polish(n: int) -> int:
    if n == 1:
        return 0
    return 1 if 2 <= n % 10 <= 4 and not 12 <= n % 100 <= 14 else 2


def _czech(n: int) -> int:
    if n == 1:
        return 0
    return 1 if 2 <= n <= 4 else 2


#: Which of a message's forms a count takes, as Qt Linguist orders them. Languages not named here do as English does.
PLURALS: dict[str, Callable[[int], int]] = {
    **dict.fromkeys(("fa", "hu", "id", "ja", "ko", "ms", "th", "tr", "vi", "zh"), _none),
    **dict.fromkeys(("fr", "hy", "pt_BR"), _french),
    **dict.fromkeys(("be", "bs", "hr", "ru", "sr", "uk"), _russian),
    **dict.fromkeys(("cs", "sk"), _czech),
    "pl": _polish,
}


def plural_rule(code: str) -> Callable[[int], int]:
    """For "pt_BR" or "ko": the number of the form that a count takes."""
    return PLURALS.get(code) or PLURALS.get(code.split("_")[0]) or _english


def plural_count(code: str) -> int:
    """How many forms a message with a count has in that language."""
    return 1 + max(plural_rule(code)(n) for n in range(200))


@dataclass(frozen=True)
class Catalogue:
    """forms: what is finished, by its English text: one text, or one for each plural form.

    finish: what a text goes through once its holes are filled
    """

    code: str
    plural: Callable[[int], int] = _english
    forms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    finish: Callable[[str], str] = str


def read_catalogue(path: Path, code: str) -> Catalogue:
    """A .ts file. What is unfinished or empty is left out; a file that is none gives an empty catalogue."""
    forms = {}
    try:
        for message in ElementTree.parse(path).getroot().iter("message"):
            source, translation = message.findtext("source"), message.find("translation")
            if not source or translation is None or translation.get("type") is not None:
                continue
            several = [form.text or "" for form in translation.iter("numerusform")]
            found = tuple(several or [translation.text or ""])
            if all(found):
                forms[source] = found
    except (OSError, ElementTree.ParseError) as error:
        log.warning("the translations in %s cannot be read: %s", path.name, error)
    return Catalogue(code, plural_rule(code), forms, settle if code == "ko" else str)


def languages() -> dict[str, str]:
    """Codes of the languages there are, each with its name in itself: {"en": "English", "ko": "한국어"}."""
    codes = {path.stem.removeprefix("greenroom_") for path in _folder().glob("greenroom_*.ts")} | {SOURCE}
    names = {code: QLocale(code).nativeLanguageName() for code in codes} | {SOURCE: "English"}
    return dict(sorted(names.items(), key=lambda entry: (entry[0] != SOURCE, entry[1])))


def system_language() -> str:
    """The first language of the system's list that there is; English when there is none."""
    known = languages()
    for tag in QLocale.system().uiLanguages():
        parts = tag.split("-")
        for code in (f"{parts[0]}_{parts[-1]}", parts[0]):
            if code in known:
                return code
    return SOURCE


def language() -> str:
    """The code of the language that is shown."""
    return _current.code


def set_language(wanted: str) -> bool:
    """Switches to a code of `languages()`, or to "system"; True when that is another one than before.

    Texts that are on the screen stay as they are: who shows them asks again. Qt's own dialogs follow too.
    """
    code = system_language() if wanted == SYSTEM or wanted not in languages() else wanted
    global _current
    if code == _current.code and _current.forms:
        return False
    changed = code != _current.code
    _current = read_catalogue(_folder() / f"greenroom_{code}.ts", code)
    _translate_qt(code)
    return changed


def _folder() -> Path:
    try:
        return asset("translations")
    except GreenroomError:
        return Path("translations")  # an incomplete installation still speaks English


def _translate_qt(code: str) -> None:
    """The texts of Qt's own dialogs and buttons."""
    application = QCoreApplication.instance()
    if application is None:
        return
    for old in application.findChildren(_QtTexts, options=Qt.FindChildOption.FindDirectChildrenOnly):
        QCoreApplication.removeTranslator(old)
        old.setParent(None)
    if code == SOURCE:
        return
    texts = _QtTexts(application)
    if texts.load(f"qtbase_{code}", QLibraryInfo.path(QLibraryInfo.LibraryPath.TranslationsPath)):
        QCoreApplication.installTranslator(texts)


class _QtTexts(QTranslator):
    """Qt's own texts in the language that is shown."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)


#: One for the whole program, as Qt has it: a text is asked for on any thread, before there is an application too.
_current = Catalogue(SOURCE)
