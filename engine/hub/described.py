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
    """What "glm-4.6" or "deepseek-v3:Q8_0" is, for a plan; None for a name that neither list has.

    Without a quantisation it is the first that is offered. Raises GreenroomError for one that is not known.
    """
    wanted, _, label = name.partition(":")
    found = next((model for model in (*catalogue(), *references()) if model.id == wanted.casefold()), None)
    if found is None:
        return None
    labels = {download.label.casefold(): download.label for download in found.downloads}
    labels |= {known.casefold(): known for known in RECIPES}
    if label and label.casefold() not in labels:
        raise GreenroomError(
            say('"{name}" cannot be planned', name=name),
            say("its quantisation is not known"),
            say("Choose one of {labels}.", labels=", ".join(download.label for download in found.downloads)),
        )
    return found.checkpoint(labels[label.casefold()] if label else found.downloads[0].label)
