"""Models by their description alone, for plans of what is not here: the catalogue's, and some that are only planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import GreenroomError
from engine.hub.catalogue import RECIPES, CatalogueModel, catalogue, parse
from engine.resources import asset
from engine.words import say

if TYPE_CHECKING:
    from engine.checkpoints.checkpoint import Checkpoint


def references() -> tuple[CatalogueModel, ...]:
    """Well-known models that Greenroom does not compute, for whoever decides about a machine."""
    path = asset("references.json")
    return parse(path.read_bytes(), path.name)[1]


def described(name: str) -> Checkpoint | None:
    """What "glm-4.6", "deepseek-v3:Q8_0" or "owner/repository:Q4_K_M" is, for a plan; None for a name that neither list
    has.

    Without a quantisation it is the first that is offered. Raises GreenroomError for one that is not known.
    """
    wanted, _, label = name.partition(":")
    wanted = wanted.casefold()
    models = (*catalogue(), *references())
    found = next((model for model in models if wanted in (model.id, *_repositories(model))), None)
    if found is None:
        return None
    offered = [d for d in found.downloads if d.repo.casefold() == wanted] or found.downloads
    labels = {download.label.casefold(): download.label for download in found.downloads}
    labels |= {known.casefold(): known for known in RECIPES}
    if label and label.casefold() not in labels:
        raise GreenroomError(
            say('"{name}" cannot be planned', name=name),
            say("its quantisation is not known"),
            say("Choose one of {labels}.", labels=", ".join(download.label for download in found.downloads)),
        )
    return found.checkpoint(labels[label.casefold()] if label else offered[0].label)


def _repositories(model: CatalogueModel) -> list[str]:
    return [download.repo.casefold() for download in model.downloads]
