"""The device that computes everything except the routed experts."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.errors import GreenroomError
from engine.placement.plan import OffloadPlan

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
KV_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


@dataclass(frozen=True)
class DenseDevice:
    """device:  where dense weights, activations and the KV cache live
    dtype:   arithmetic of dense projections; activations between them stay float32
    native:  dense projections run in our kernels, on the stored codes
    handoff: routed experts see the hidden states through host buffers, while the device goes on.
             True for every accelerator; also for "sim", an accelerator played by the CPU.
    """

    device: torch.device
    dtype: torch.dtype
    native: bool
    handoff: bool

    @property
    def own_attention(self) -> bool:
        """Whether norms and attention run in our kernels: on the CPU, unless it plays an accelerator."""
        return self.device.type == "cpu" and not self.handoff

    @classmethod
    def of_plan(cls, plan: OffloadPlan) -> DenseDevice:
        """Raises GreenroomError when the planned device is not there."""
        kind = plan.device.partition(":")[0]
        if plan.dense_dtype == "quantised":
            if kind != "cpu":
                raise ValueError(f"dense_dtype quantised on {plan.device}")
            return cls(torch.device("cpu"), torch.float32, native=True, handoff=False)
        dtype = DTYPES[plan.dense_dtype]
        if kind in ("cpu", "sim"):
            return cls(torch.device("cpu"), dtype, native=False, handoff=kind == "sim")
        device = torch.device(plan.device)
        try:
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError) as error:
            raise GreenroomError(
                f"The model cannot be loaded on {plan.device}",
                f"this device does not answer ({str(error).splitlines()[0]})",
                "Check its driver, or load the model on the CPU.",
            ) from error
        return cls(device, dtype, native=False, handoff=True)

    def host_buffer(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        """Host memory that this device copies to and from; page-locked where that makes copies asynchronous."""
        return torch.empty(shape, dtype=dtype, pin_memory=self.device.type == "cuda")

    def mark(self) -> torch.cuda.Event | None:
        """A point in the device's queue, to be waited for by another thread; None when work is done at once."""
        if self.device.type != "cuda":
            self.synchronise()
            return None
        event: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event

    def release(self) -> None:
        """Give freed memory back to the device: its allocator keeps it for itself otherwise."""
        if self.device.type != "cpu":
            getattr(torch, self.device.type).empty_cache()

    def synchronise(self) -> None:
        """Wait for everything queued on the device."""
        if self.device.type != "cpu":
            getattr(torch, self.device.type).synchronize()
