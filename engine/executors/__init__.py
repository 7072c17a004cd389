"""Who computes the model?

torch's OpenMP threads must sleep while our own pool works, not spin beside it; its runtime reads these settings once,
when torch is first imported, so this package sets them before any of its modules does that.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.progress import ProgressCallback, ignore_progress

if TYPE_CHECKING:
    from engine.checkpoints.checkpoint import Checkpoint
    from engine.executors.executor import Executor
    from engine.models.spec import ModelSpec
    from engine.placement.plan import OffloadPlan

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("KMP_BLOCKTIME", "0")


def load(
    checkpoint: Checkpoint, spec: ModelSpec, plan: OffloadPlan, progress: ProgressCallback = ignore_progress
) -> Executor:
    """Bring the model into memory as planned. torch takes a second to import: only plans that need it do so.

    Raises GreenroomError for a tensor that cannot be read or used, a device that is not there, or too little RAM;
    Cancelled when progress raises it. Nothing stays allocated then.
    """
    from engine.placement.sizes import all_native

    if all_native(spec, plan.dense_dtype):
        from engine.executors.native.executor import NativeExecutor

        return NativeExecutor(checkpoint, spec, plan, progress)
    from engine.executors.hybrid.executor import TorchExecutor

    return TorchExecutor(checkpoint, spec, plan, progress)
