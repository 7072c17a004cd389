"""What a row of the models list says and how tall it is, known before it has a widget: only those in view have one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import QFontMetrics

from app.language import told, tr
from app.models.survey import ModelRow
from app.theme import theme
from app.words import predicted, sentence
from engine.hub.download_words import progress_text
from engine.hub.downloads import DownloadStatus

CHIP_WIDTH, SPEED_WIDTH, SIZE_WIDTH = 250, 112, 72
MARGIN_X, MARGIN_Y, GAP, LINE_GAP = 16, 12, 12, 2
#: The line around a row.
_FRAME = 1
_LEAST_HEIGHT = 64
#: Beside this much of other things a whole line of progress has room; else it takes two.
_WIDE = 1080
_ACTION_WIDTH, _WIDE_ACTION_WIDTH = 168, 280
#: A narrower list folds its rows: plan, speed and size go under the name.
_ROOMY = 900
#: In one still narrower the buttons go under all that.
_STACKED = 520


@dataclass(frozen=True)
class Measures:
    """Of a row's parts, in the fonts and with the padding that the theme gives them now."""

    strong: QFontMetrics
    small: QFontMetrics
    chip: QFontMetrics
    #: What a chip without a text takes.
    empty_chip: QSize
    button: int
    #: Below a download's text: the bar, and what can be done.
    progress: int


def is_compact(width: int) -> bool:
    """Whether a list this wide folds its rows."""
    return width < theme().px(_ROOMY)


def is_stacked(width: int) -> bool:
    """Whether a row's buttons stand under its text."""
    return width < theme().px(_STACKED)


def action_width(width: int) -> int:
    if is_stacked(width):
        return max(theme().px(_ACTION_WIDTH), width - 2 * (MARGIN_X + _FRAME))
    return theme().px(_WIDE_ACTION_WIDTH if width >= theme().px(_WIDE) else _ACTION_WIDTH)


def is_planned(row: ModelRow) -> bool:
    """Whether there is a plan, or will be."""
    return not trouble(row) and (row.plan is not None or row.checkpoint is not None or row.entry is not None)


def trouble(row: ModelRow) -> str:
    """Why it cannot be used, or did not come, and what to do."""
    error = None if row.download is None else row.download.error
    return (row.problem or "") if error is None else f"{sentence(told(error.why))}. {told(error.remedy)}"


def standing(status: DownloadStatus, width: int) -> str:
    """How a download stands; in two lines where the list is not wide."""
    done, dot, rest = progress_text(status).partition(" · ")
    return sentence(f"{done}{dot if width >= theme().px(_WIDE) or not dot else chr(10)}{rest}")


def figures(row: ModelRow) -> str:
    """Speed and size in one text: "~57 tok/s · 18.6 GB"."""
    runs = row.plan is not None and row.plan.mode != "too_large"
    said = tr("{value} tok/s", value=predicted(row.plan)) if runs else ""
    return " · ".join(filter(None, (said, row.size if row.nbytes else "")))


def chip_size(row: ModelRow, of: Measures) -> QSize:
    """Of the chip with the plan's label, or of what stands there until there is a plan."""
    if row.plan is None:
        return of.small.size(0, tr("calculating…"))
    text = of.chip.horizontalAdvance(told(row.plan.short_label))
    return QSize(of.empty_chip.width() + text, of.empty_chip.height())


def chip_column(rows: Iterable[ModelRow], of: Measures) -> int:
    """How wide the column of chips is: as the widest of them, so that the texts beside it have the rest."""
    widest = max((chip_size(row, of).width() for row in rows if is_planned(row)), default=0)
    return min(max(widest, theme().px(96)), theme().px(CHIP_WIDTH))


def text_width(row: ModelRow, width: int, chip: int) -> int:
    """What a list this wide leaves to the texts at a row's left. chip: the width of that column."""
    used = 2 * (MARGIN_X + _FRAME)
    if not is_stacked(width):
        used += action_width(width) + GAP
    if not is_compact(width):
        used += chip + theme().px(SPEED_WIDTH) + 2 * GAP if is_planned(row) else 0
        used += theme().px(SIZE_WIDTH) + GAP if is_planned(row) or row.nbytes else 0
    return max(80, width - used)


def in_one_line(row: ModelRow, width: int, of: Measures) -> bool:
    """Whether, under the name, chip and figures stand beside each other."""
    return chip_size(row, of).width() + GAP + of.small.horizontalAdvance(figures(row)) <= text_width(row, width, 0)


def row_height(row: ModelRow, width: int, chip: int, of: Measures) -> int:
    """What a row needs in a list this wide. chip: the width of that column."""
    room, told_trouble = text_width(row, width, chip), trouble(row)
    left = of.strong.size(0, row.name).height()
    for text in filter(None, (row.detail, told_trouble)):
        left += LINE_GAP + wrapped(text, room, of.small)
    if is_compact(width) and is_planned(row):
        facts = chip_size(row, of).height(), of.small.size(0, figures(row)).height()
        left += 2 * LINE_GAP + (max(facts) if in_one_line(row, width, of) else sum(facts) + LINE_GAP)
    right = of.button
    if row.download is not None:
        said = wrapped(standing(row.download, width), action_width(width), of.small)
        # While figures change, a row stays as high as the longest of them need.
        lines = 2 if row.download.state == "downloading" and width < theme().px(_WIDE) else 1
        right = max(said, lines * of.small.height()) + of.progress
    both = left + GAP + right if is_stacked(width) else max(left, right)
    return max(theme().px(_LEAST_HEIGHT), 2 * (MARGIN_Y + _FRAME) + both)


def wrapped(text: str, width: int, metrics: QFontMetrics) -> int:
    """The height of a text in lines of that width, as labels have it."""
    return metrics.boundingRect(QRect(0, 0, width, 10_000), Qt.TextFlag.TextWordWrap, text).height()
