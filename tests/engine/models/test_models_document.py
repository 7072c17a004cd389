"""docs/models.md says what is computed and how that was checked: exactly what the families and the tests have."""

from __future__ import annotations

from pathlib import Path

import pytest
from llama_cpp_files import FOLDER, RECIPES
from tiny_configs import CONFIGS

from engine.checkpoints.formats import GGUF_FORMATS
from engine.checkpoints.opening import open_checkpoint
from engine.checkpoints.widened import WIDENED
from engine.models.families import FAMILIES, Family

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/models.md").read_text(encoding="utf-8")


def code(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def variants(family: Family, names: list[str]) -> list[str]:
    """Of the test models, those of a family, whose names start with its name or, for Mistral, its relative's."""
    kinds = {"llama": ("llama", "mistral"), "granitemoe": ("granitemoe", "granitemoeshared")}
    return [name for name in names if name.split("-")[0] in kinds.get(family.name, (family.name,))]


def row(family: Family) -> list[str]:
    """What the page has to say of a family."""
    files = variants(family, list(RECIPES))
    tensors = [tensor for name in files for tensor in open_checkpoint(FOLDER / f"{name}.gguf").tensors.values()]
    stored = {tensor.origin or tensor.format for tensor in tensors}
    return [
        family.title,
        code(family.architectures["safetensors"]),
        code(family.architectures["gguf"]),
        str(len(variants(family, list(CONFIGS)))),
        " and ".join(sorted({RECIPES[name].trusted for name in files})),
        ", ".join(kind for kind in (*GGUF_FORMATS, *WIDENED) if kind in stored),
    ]


def table(heading: str) -> list[list[str]]:
    """The rows of the table under a heading, without its head."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_whole_models_hold_every_weight_type_that_is_read() -> None:
    shown = {kind for cells in table("Families") for kind in cells[-1].split(", ")}
    assert shown == {*GGUF_FORMATS, *WIDENED}


@pytest.mark.parametrize("number", range(len(FAMILIES)), ids=[family.name for family in FAMILIES])
def test_the_page_describes_every_family(number: int) -> None:
    expected = row(FAMILIES[number])
    rows = table("Families")
    assert len(rows) == len(FAMILIES)
    assert rows[number] == expected, f"| {' | '.join(expected)} |"


def test_every_test_model_belongs_to_a_family() -> None:
    for names in (list(CONFIGS), list(RECIPES)):
        assert sorted(name for family in FAMILIES for name in variants(family, names)) == sorted(names)
