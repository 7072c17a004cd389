"""A row of the models list is as tall as what it says, at every width of the list, size of text, and language."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import make_plan
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot
from whole import cut

from app import language
from app.models.row import RowWidget
from app.models.row_size import chip_column, row_height
from app.models.survey import ModelRow
from app.theme import theme
from engine.errors import GreenroomError
from engine.hub.downloads import DownloadStatus


def status(state: str, error: GreenroomError | None = None) -> DownloadStatus:
    known = ("o/m", "Q4_K_M", "Qwen3-30B-A3B Instruct", "GGUF", state, 5_600_000_000, 18_600_000_000, 34e6, 382.0)
    return DownloadStatus(1, *known, Path("/m/x"), error, "")


DETAIL = "Q4_K_M · Mistral AI · 46.7B, 12.9B active · Apache-2.0"
HERE = Path("/m/x.gguf")
TROUBLE = GreenroomError("No download", "the disk is full", "Free 13.1 GB in /home/someone/models, or choose another.")
ROWS = (
    ModelRow("a", "Demo model", "작은 데모 모델이며 처음에 93 MB를 내려받습니다"),
    ModelRow("b", "Mixtral-8x7B Instruct v0.1", DETAIL, 17_100_000_000, make_plan(), checkpoint=HERE, own=True),
    ModelRow("c", "Qwen3-235B-A22B Instruct", DETAIL, 142_000_000_000, make_plan("too_large"), checkpoint=HERE),
    ModelRow("d", "GLM-4.5-Air", DETAIL, 9_000_000_000, make_plan("tight"), checkpoint=HERE),
    ModelRow("e", "gpt-oss-20b", DETAIL, 12_100_000_000, checkpoint=HERE),
    ModelRow("f", "Broken", DETAIL, 9_000_000_000, problem="The file ends early. Download it again.", checkpoint=HERE),
    ModelRow("g", "On its way", DETAIL, 18_600_000_000, make_plan("cpu"), download=status("downloading")),
    ModelRow("h", "Waiting", DETAIL, 18_600_000_000, make_plan("cpu"), download=status("queued")),
    ModelRow("i", "Failed", DETAIL, 18_600_000_000, download=status("failed", TROUBLE)),
)


@pytest.fixture(params=[("en", 1.0), ("ko", 1.0), ("en", 2.0), ("ko", 2.0)], ids=lambda p: f"{p[0]}-{p[1]:g}")
def look(request: pytest.FixtureRequest, qapp: object) -> Iterator[None]:
    code, zoom = request.param
    language.set_language(code)
    theme().set_look("light", zoom, "comfortable", False)
    yield
    theme().set_look("light", 1.0, "comfortable", False)


@pytest.mark.parametrize("width", [400, 520, 640, 899, 900, 1180])
def test_nothing_is_cut_or_lies_over_anything(look: None, width: int, qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    width = theme().px(width)
    window.resize(width, 4000)
    first, top = RowWidget(window), 0
    first.hide()
    measures = first.measures
    chip = chip_column(ROWS, measures)
    for row in ROWS:
        widget = RowWidget(window)
        widget.set_width(width, chip)
        widget.show_row(row)
        height = row_height(row, width, chip, measures)
        widget.setGeometry(0, top, width, height)
        assert widget.layout().minimumHeightForWidth(width) <= height, row.name
        top += height
    window.show()
    assert cut(window) == []
