"""Experts on their way into slots: few at a time, beside the work, and never looked at before they are there."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import torch

from engine.executors.devices import Device, Event
from engine.executors.hybrid.hot_cache import HotCache, Upload
from engine.executors.hybrid.streaming import Carrier, Pieces
from engine.words import say

log = logging.getLogger(__name__)

#: Share of a token's time that copies into slots may take of the link, and most of them per token. They read RAM
#: while the CPU computes, so that more would slow the answer down.
UPLOAD_SHARE, MOST_UPLOADS = 0.25, 16
#: Failed copies after which no more are tried.
MOST_FAILURES = 3


class SlotUploads:
    """slot:   the bytes of a slot on the device, uint8
    pieces: an expert's packed bytes in RAM, by layer and expert

    under_way: copies asked for and not yet received
    notes:     what does not work, a sentence each
    """

    def __init__(
        self,
        device: Device,
        carrier: Carrier,
        cache: HotCache,
        slot: Callable[[int], torch.Tensor],
        pieces: Callable[[int, int], Pieces],
    ) -> None:
        self.under_way = self.failures = 0
        self.notes: list[str] = []
        self._device, self._carrier, self._cache = device, carrier, cache
        self._slot, self._pieces = slot, pieces
        #: In the order of their copies; what went wrong instead of an event.
        self._arrivals: deque[tuple[Upload, Event | BaseException]] = deque()

    def ask(self, room: float) -> None:
        """Start what the cache wants most. room: bytes that the link carries during one token."""
        if self.failures >= MOST_FAILURES or not self._cache.slots:
            return
        most = int(UPLOAD_SHARE * room / self._slot(0).nbytes)
        for upload in self._cache.next_uploads(min(MOST_UPLOADS, max(1, most)) - self.under_way):
            self.start(upload)

    def start(self, upload: Upload) -> None:
        # Whatever still reads the slot has been queued before this.
        after = self._device.mark()
        self.under_way += 1

        def job() -> None:
            try:
                pieces = self._pieces(upload.layer, upload.expert)
                arrived: Event | BaseException = self._carrier.send(pieces, self._slot(upload.slot), after)
            except BaseException as error:
                arrived = error
            self._arrivals.append((upload, arrived))

        self._carrier.do(job)

    def receive(self) -> None:
        """What has arrived may be used from now on."""
        while self._arrivals:
            upload, arrived = self._arrivals[0]
            if isinstance(arrived, BaseException):
                self._cache.failed(upload)
                self._failed(arrived)
            elif arrived.query():
                self._cache.uploaded(upload)
            else:
                return
            self._arrivals.popleft()
            self.under_way -= 1

    def settle(self) -> None:
        """Wait for all copies under way, and receive them."""
        self._carrier.idle()
        for _, arrived in list(self._arrivals):
            if not isinstance(arrived, BaseException):
                arrived.synchronize()
        self.receive()

    def _failed(self, error: BaseException) -> None:
        self.failures += 1
        log.warning("an expert could not be copied to VRAM: %s", error)
        if self.failures == MOST_FAILURES:
            why = str(error).partition("\n")[0]
            self.notes.append(say("The experts in VRAM stay as they are: copies to it fail ({why}).", why=why))
