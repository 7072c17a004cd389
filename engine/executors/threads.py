"""The pool a model computes with: threads and weights placed on memory nodes together, or neither.

One without the other is worse than nothing: threads then read half of their weights from the far socket, or fight for
the memory of one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from engine import _native
from engine.hardware.numa import ThreadPlaces, place_threads
from engine.hardware.sources import Sources

log = logging.getLogger(__name__)


def thread_pool(threads: int, places: ThreadPlaces | None = None) -> _native.ThreadPool:
    """places: None asks this machine."""
    places = places or place_threads(threads, Sources())
    log.info("threads: %d, %s", threads, places.why)
    return _native.ThreadPool(threads, places.cpus or None, places.nodes or None)


def settle(layers: Sequence[_native.Experts], places: ThreadPlaces) -> None:
    """Place the pages of layers, into which nothing has been loaded, where the system would not bind them.

    Pages belong to the node of the thread that touches them first.
    """
    unbound = [experts for experts in layers if not experts.bound]
    if not unbound or not places.node_cpus or not hasattr(os, "sched_setaffinity"):
        return
    mine = os.sched_getaffinity(0)
    try:
        for node, cpus in enumerate(places.node_cpus):
            os.sched_setaffinity(0, cpus)
            for experts in unbound:
                experts.touch(node)
    except OSError as error:
        log.info("weights lie on any memory node: this system lets nobody choose (%s)", error.strerror)
    finally:
        os.sched_setaffinity(0, mine)
