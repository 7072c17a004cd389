"""The device that a plan names: the CPU, a GPU that torch drives, or a simulated one."""

from __future__ import annotations

import torch

from engine.executors.devices import DENSE, DenseDevice, Device, HostDevice, TorchDevice
from engine.executors.simulated.device import SimDevice
from engine.hardware.simulated import is_simulated, simulated
from engine.placement.plan import OffloadPlan


def open_device(name: str) -> Device:
    """Raises GreenroomError when it is not there."""
    if name == "cpu":
        return HostDevice()
    return SimDevice(simulated(name)) if is_simulated(name) else TorchDevice(name)


def dense_device(plan: OffloadPlan) -> DenseDevice:
    """Raises GreenroomError when the planned device is not there."""
    if plan.dense_dtype == "quantised":
        if plan.device != "cpu":
            raise ValueError(f"dense_dtype quantised on {plan.device}")
        return DenseDevice(HostDevice(), torch.float32, native=True)
    dtype, code = DENSE[plan.dense_dtype]
    return DenseDevice(open_device(plan.device), dtype, native=False, code=code)
