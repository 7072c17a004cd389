"""Faults of our own in words the user can read."""

from __future__ import annotations

import logging

from engine.errors import GreenroomError
from engine.words import say

log = logging.getLogger(__name__)


def as_greenroom_error(error: BaseException, what: str) -> GreenroomError:
    """The error itself if the user can read it; otherwise one that says `what` failed, with the detail in the log."""
    if isinstance(error, GreenroomError):
        return error
    log.error("%s", what, exc_info=error)
    return GreenroomError(
        what, f"{type(error).__name__}: {error}", say("This is a bug in Greenroom. See the log for details.")
    )
