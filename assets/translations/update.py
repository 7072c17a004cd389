"""Collects the texts of the window and of the engine into the translations.

    python assets/translations/update.py           brings every file up to date
    python assets/translations/update.py de        begins a translation into German

Finds the literal texts of `tr(...)`, `mark(...)` and `say(...)` in app/ and of `say(...)` in engine/, and what the
catalogue says of its models. Translations are kept, texts that are gone are dropped, new ones are marked unfinished.
English holds plural forms only: its other texts are their own translation. What the engine says has both forms in the
code: `say("%n threads", n=count, one="%n thread")`.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
#: Which calls hold texts, by folder.
CALLS = {"app": ("tr", "mark", "say"), "engine": ("say",)}
CATALOGUE = "assets/catalogue.json"
HEAD = '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE TS>\n'


@dataclass
class Text:
    """files: where it is used, relative to the repository; one: its English form for 1, where the code has it"""

    source: str
    files: list[str] = field(default_factory=list)
    one: str = ""

    @property
    def counts(self) -> bool:
        return "%n" in self.source


def literals(path: Path, names: tuple[str, ...]) -> Iterator[Text]:
    """The texts of one source file, in its order. Raises ValueError for one that is put together at run time."""
    calls = [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names and node.args
    ]
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        forms = [call.args[0], *(keyword.value for keyword in call.keywords if keyword.arg == "one")]
        for text in forms:
            if isinstance(text, (ast.JoinedStr, ast.BinOp)):
                raise ValueError(
                    f"{path}:{text.lineno}: a text to translate must be one literal, with {{names}} for values"
                )
        found = [text.value for text in forms if isinstance(text, ast.Constant) and isinstance(text.value, str)]
        if found:
            yield Text(found[0], one="".join(found[1:]))


def collect(root: Path = ROOT) -> dict[str, Text]:
    """Every text of the program by itself, in the order of files and lines."""
    texts: dict[str, Text] = {}
    for folder, names in CALLS.items():
        for path in sorted((root / folder).rglob("*.py")):
            for found in literals(path, names):
                text = texts.setdefault(found.source, found)
                text.one = text.one or found.one
                file = path.relative_to(root).as_posix()
                if file not in text.files:
                    text.files.append(file)
    for source in described(root / CATALOGUE):
        texts.setdefault(source, Text(source)).files.append(CATALOGUE)
    return texts


def described(path: Path) -> list[str]:
    """What the models of the catalogue are said to be good at, each text once."""
    models = json.loads(path.read_text(encoding="utf-8"))["models"] if path.exists() else []
    return list(dict.fromkeys(model["good_at"] for model in models))


def merge(path: Path, code: str, texts: dict[str, Text]) -> str:
    """The file as it should be: its own translations, for the texts there are."""
    from app.language import SOURCE, plural_count

    before = {}
    if path.exists():
        for message in ElementTree.parse(path).getroot().iter("message"):
            before[message.findtext("source") or ""] = message
    lines = [f'<TS version="2.1" language="{code}" sourcelanguage="{SOURCE}">', "<context>"]
    lines.append("    <name>greenroom</name>")
    for text in texts.values():
        if text.counts or code != SOURCE:
            forms = [text.one, text.source] if text.one and code == SOURCE else None
            lines += _message(text, before.get(text.source), plural_count(code), forms)
    return HEAD + "\n".join([*lines, "</context>", "</TS>"]) + "\n"


def _message(
    text: Text, before: ElementTree.Element | None, plurals: int, known: list[str] | None = None
) -> Iterator[str]:
    """known: the forms, where they need nobody to translate them"""
    old = None if before is None else before.find("translation")
    comment = None if before is None else before.findtext("translatorcomment")
    yield '    <message numerus="yes">' if text.counts else "    <message>"
    yield from (f'        <location filename="../../{file}"/>' for file in text.files)
    yield f"        <source>{_escaped(text.source)}</source>"
    if comment:
        yield f"        <translatorcomment>{_escaped(comment)}</translatorcomment>"
    if text.counts:
        found = [] if old is None else [form.text or "" for form in old.iter("numerusform")]
        forms = known or (found + [""] * plurals)[:plurals]
        finished = known is not None or (all(forms) and old is not None and old.get("type") is None)
        kind = "" if finished else ' type="unfinished"'
        yield f"        <translation{kind}>"
        yield from (f"            <numerusform>{_escaped(form)}</numerusform>" for form in forms)
        yield "        </translation>"
    else:
        found_text = "" if old is None else old.text or ""
        kind = "" if found_text and old is not None and old.get("type") is None else ' type="unfinished"'
        yield f"        <translation{kind}>{_escaped(found_text)}</translation>"
    yield "    </message>"


def _escaped(text: str) -> str:
    """As Linguist writes it, so that a file saved there differs only in what was translated."""
    for raw, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&apos;")):
        text = text.replace(raw, safe)
    return text


def main(codes: list[str]) -> None:
    sys.path.insert(0, str(ROOT))
    there = [path.stem.removeprefix("greenroom_") for path in FOLDER.glob("greenroom_*.ts")]
    texts = collect()
    for code in sorted({*there, *codes, "en"}):
        path = FOLDER / f"greenroom_{code}.ts"
        path.write_text(merge(path, code, texts), encoding="utf-8", newline="\n")
        print(f"{path.name}: {path.read_text(encoding='utf-8').count('unfinished')} unfinished")


if __name__ == "__main__":
    main(sys.argv[1:])
