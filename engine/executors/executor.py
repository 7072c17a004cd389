"""What the runtime asks of whoever computes the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from engine.status import EngineStatus, ExpertUsage


class TryAgain(Exception):
    """The device ran out of memory and room was made, for which `Executor.chunk` may have become smaller. The sequence
    is as before the call.
    """


class Executor(Protocol):
    """One loaded model with one sequence in its KV cache.

    kernel:     what computes the routed experts, for the status bar: "int4 avx512vnni, 2 threads", and which kinds of
                blocks torch computes instead of our kernels
    length:     tokens in the KV cache
    context:    tokens the KV cache can hold
    chunk:      tokens that one call should bring at most
    remembers:  set it once answers are written, and not only measured: which experts they call is then kept
    takes_drafts: whether tokens get the same bits in one call as one by one, and any number of those of a last call of
                at most DRAFT can be taken back
    """

    kernel: str
    context: int
    chunk: int
    takes_drafts: bool
    remembers: bool

    @property
    def length(self) -> int: ...

    def forward(self, token_ids: npt.NDArray[np.int64], logits: str = "last") -> npt.NDArray[np.float32]:
        """Append token_ids [T] to the sequence, 1 <= T <= context - length; the caller chunks, by `chunk` or less.

        logits: "last" -> float32 [1, vocab]; "all" -> float32 [T, vocab]; "draft" the same, for tokens that are a
        guess: what a later turn can go back to is then as after single tokens.
        Raises Cancelled when `cancel` was called meanwhile, TryAgain, GreenroomError when memory runs out or the
        device breaks down; the sequence is then as before the call.
        """

    def truncate(self, length: int) -> int:
        """Forget every token from `length` on, or more; returns how many are left.

        Fewer than `length` where a layer with a window or a recurrent state cannot go back just so far.
        """

    def cancel(self) -> None:
        """Stop a running forward as soon as possible. Any thread may call it."""

    def usage(self) -> ExpertUsage | None:
        """Which routed experts were called how often; None for a model without. Cheap; any thread may call it."""

    def status(self) -> EngineStatus:
        """The path actually in use. Cheap; any thread may call it."""

    def close(self) -> None:
        """Give all memory back. The object is unusable afterwards."""
