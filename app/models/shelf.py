"""What the Models page shows, in which order: sections, filters, sorting. No Qt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from app.language import told, tr
from app.models.survey import ModelRow
from engine.hub.catalogue import CatalogueModel
from engine.hub.downloads import DownloadStatus
from engine.units import size_text

#: Licences that let anybody use a model for anything.
FREE_LICENCES = ("apache-2.0", "mit", "bsd-3-clause", "cc-by-4.0", "cc0-1.0", "openrail")
SORTS = ("recommended", "name", "size", "speed")


@dataclass(frozen=True)
class Heading:
    text: str


ShelfItem = Heading | ModelRow


@dataclass(frozen=True)
class Filter:
    """text: words that name, author or detail must hold. largest: bytes, 0 for any. free: only free licences."""

    text: str = ""
    fits: bool = False
    largest: int = 0
    free: bool = False
    sort: str = "recommended"

    @property
    def active(self) -> bool:
        return bool(self.text or self.fits or self.largest or self.free)

    def takes(self, row: ModelRow) -> bool:
        said = f"{row.name} {row.detail} {told(row.entry.good_at) if row.entry else ''}".casefold()
        return (
            all(word in said for word in self.text.casefold().split())
            # What is not planned yet is shown until it is.
            and not (self.fits and (row.problem is not None or (row.plan is not None and not row.plan.runnable)))
            and not (self.largest and row.nbytes > self.largest)
            and not (self.free and row.choice is not None and row.licence.lower() not in FREE_LICENCES)
        )

    def sorted(self, rows: Iterable[ModelRow]) -> list[ModelRow]:
        kept = [row for row in rows if self.takes(row)]
        if self.sort == "name":
            kept.sort(key=lambda row: row.name.casefold())
        elif self.sort == "size":
            kept.sort(key=lambda row: row.nbytes)
        elif self.sort == "recommended":
            # In their own order, but what cannot run here comes last.
            kept.sort(key=lambda row: row.plan is not None and row.plan.mode == "too_large")
        elif self.sort == "speed":
            kept.sort(key=_speed, reverse=True)
        return kept


def _speed(row: ModelRow) -> float:
    """0 where nothing is predicted, as of what cannot run here."""
    if row.plan is None or row.plan.mode == "too_large":
        return 0.0
    return row.plan.prediction.decode_tps.likely


def shelf(
    here: Sequence[ModelRow],
    offers: Sequence[ModelRow],
    hits: Sequence[ModelRow],
    downloads: Sequence[DownloadStatus],
    wanted: Filter,
    others: Sequence[ModelRow] = (),
) -> list[ShelfItem]:
    """The page from top to bottom.

    hits: what a search of the hub found. others: the catalogue's offers of what is on its way, if they are not among
    offers: another quantisation
    """
    by_path = {str(status.path): status for status in downloads}
    unfinished = [status for status in downloads if status.state != "finished"]
    coming = {(status.repo, status.label) for status in unfinished}
    have = {(status.repo, status.label) for status in downloads if status.state == "finished"} & {
        (by_path[row.path].repo, by_path[row.path].label) for row in here if row.path in by_path
    }
    # What the user has just asked for comes first.
    items = _section(tr("On Hugging Face · %n repositories", n=len(hits)), hits)
    found = wanted.sorted(_with_entries(here, by_path, offers))
    size = sum(row.nbytes for row in found)
    head = tr("On this PC · %n models", n=len(found))
    items += _section(tr("{head}, {size}", head=head, size=size_text(size)) if size else head, found)
    plans = {(row.choice.repo, row.choice.label): row for row in (*others, *offers) if row.choice is not None}
    items += _section(tr("Downloading"), [_coming(status, plans) for status in unfinished])
    open_offers = [row for row in offers if not downloads_of(row.entry) & (coming | have)]
    items += _section(tr("Catalogue"), wanted.sorted(open_offers))
    return items


def _with_entries(
    here: Sequence[ModelRow], by_path: Mapping[str, DownloadStatus], offers: Sequence[ModelRow]
) -> list[ModelRow]:
    """Models that came from the catalogue lead back to their other quantisations."""
    entries = {key: row.entry for row in offers for key in downloads_of(row.entry)}
    came = {path: entries.get((status.repo, status.label)) for path, status in by_path.items()}
    return [replace(row, entry=came.get(row.path)) for row in here]


def downloads_of(entry: CatalogueModel | None) -> set[tuple[str, str]]:
    """(repository, label) of each of an entry's quantisations."""
    return set() if entry is None else {(download.repo, download.label) for download in entry.downloads}


def _section(title: str, rows: Sequence[ModelRow]) -> list[ShelfItem]:
    if not rows:
        return []
    places = ["only"] if len(rows) == 1 else ["first", *["middle"] * (len(rows) - 2), "last"]
    return [Heading(title), *(replace(row, place=place) for row, place in zip(rows, places, strict=True))]


def _coming(status: DownloadStatus, offers: dict[tuple[str, str], ModelRow]) -> ModelRow:
    """A download as a row, with its plan where the catalogue knows the model."""
    known = offers.get((status.repo, status.label))
    detail = f"{status.label} · {status.repo}"
    key = f"download:{status.id}"
    if known is None:
        return ModelRow(key, status.name.rpartition("/")[2], detail, status.total, download=status)
    return replace(known, path=key, detail=detail, nbytes=status.total, download=status)
