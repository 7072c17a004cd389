"""The translations fit the program: every text is in every file, with the same holes."""

from __future__ import annotations

import importlib.util
import string
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from app.language import plural_count

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "assets" / "translations"
FILES = sorted(FOLDER.glob("greenroom_*.ts"))
NAMES = [path.stem for path in FILES]


@pytest.fixture(scope="module")
def update() -> ModuleType:
    spec = importlib.util.spec_from_file_location("update_translations", FOLDER / "update.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclass looks for itself
    spec.loader.exec_module(module)
    return module


def messages(path: Path) -> list[tuple[str, bool, list[str]]]:
    """Each text, whether it is finished, and its translation or plural forms."""
    found = []
    for message in ElementTree.parse(path).getroot().iter("message"):
        translation = message.find("translation")
        assert translation is not None
        forms = [form.text or "" for form in translation.iter("numerusform")] or [translation.text or ""]
        found.append((message.findtext("source") or "", translation.get("type") is None, forms))
    return found


def holes(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_there_is_english_and_korean() -> None:
    assert {"greenroom_en", "greenroom_ko"} <= set(NAMES)


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_every_text_of_the_program_is_in_the_file(path: Path, update: ModuleType) -> None:
    wanted = update.merge(path, path.stem.removeprefix("greenroom_"), update.collect())
    there = {source for source, _, _ in messages(path)}
    asked = {message.findtext("source") for message in ElementTree.fromstring(wanted.encode()).iter("message")}
    assert asked == there, "run python assets/translations/update.py"


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_translations_have_the_holes_of_their_text(path: Path) -> None:
    plurals = plural_count(path.stem.removeprefix("greenroom_"))
    for source, finished, forms in messages(path):
        if finished:
            assert len(forms) == (plurals if "%n" in source else 1), source
            for form in forms:
                assert form, source
                # Without values a text is shown as it is: braces are no holes there.
                assert holes(form) == holes(source), source


@pytest.mark.parametrize("code", ["en", "ko"])
def test_what_is_promised_is_complete(code: str) -> None:
    """English needs its plural forms only."""
    unfinished = [source for source, finished, _ in messages(FOLDER / f"greenroom_{code}.ts") if not finished]
    assert unfinished == []


def test_english_has_the_forms_that_the_engine_says(update: ModuleType) -> None:
    written = {source: forms for source, _, forms in messages(FOLDER / "greenroom_en.ts")}
    said = {source: [text.one, source] for source, text in update.collect().items() if text.one}
    assert len(said) > 20
    assert {source: written[source] for source in said} == said, "run python assets/translations/update.py"


def test_texts_are_found_where_they_are_written(tmp_path: Path, update: ModuleType) -> None:
    (tmp_path / "app" / "chat").mkdir(parents=True)
    (tmp_path / "engine").mkdir()
    (tmp_path / "app" / "chat" / "a.py").write_text('X = mark("One" " text")\nprint(tr(X), tr("%n files", n=2))\n')
    (tmp_path / "app" / "b.py").write_text('tr("One text"); other("Not this"); say("Also this")\n')
    (tmp_path / "engine" / "c.py").write_text('say("Out of {what}", what=1)\nsay("%n bits", n=1, one="%n bit")\n')
    texts = update.collect(tmp_path)
    assert {source: text.files for source, text in texts.items()} == {
        "One text": ["app/b.py", "app/chat/a.py"],
        "%n files": ["app/chat/a.py"],
        "Also this": ["app/b.py"],
        "Out of {what}": ["engine/c.py"],
        "%n bits": ["engine/c.py"],
    }
    assert [text.one for text in texts.values() if text.counts] == ["", "%n bit"]


@pytest.mark.parametrize("code", ['tr(f"Hello {name}")', 'tr("Hello " + name)'])
def test_a_text_put_together_at_run_time_is_refused(code: str, tmp_path: Path, update: ModuleType) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "a.py").write_text(code)
    with pytest.raises(ValueError, match="one literal"):
        update.collect(tmp_path)


def test_translations_are_kept_and_texts_that_are_gone_dropped(tmp_path: Path, update: ModuleType) -> None:
    def texts(*sources: str) -> dict[str, object]:
        return {source: update.Text(source, ["app/a.py"]) for source in sources}

    file, kept = tmp_path / "greenroom_ko.ts", 'Keep <this> & "that"'
    empty, done = '<translation type="unfinished"></translation>', "<translation>예</translation>"
    file.write_text(update.merge(file, "ko", texts(kept, "Gone")).replace(empty, done), encoding="utf-8")
    assert [source for source, finished, _ in messages(file) if finished] == [kept, "Gone"]
    merged = update.merge(file, "ko", texts(kept, "New", "%n files"))
    file.write_text(merged, encoding="utf-8")
    assert messages(file) == [(kept, True, ["예"]), ("New", False, [""]), ("%n files", False, [""])]
    assert update.merge(file, "ko", texts(kept, "New", "%n files")) == merged


def test_english_asks_for_plural_forms_only(tmp_path: Path, update: ModuleType) -> None:
    texts = {source: update.Text(source, ["app/a.py"]) for source in ("Plain", "%n files")}
    file = tmp_path / "greenroom_en.ts"
    file.write_text(update.merge(file, "en", texts), encoding="utf-8")
    assert messages(file) == [("%n files", False, ["", ""])]
