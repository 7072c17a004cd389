"""How fast a device's link, memory and arithmetic are; run in a process of its own by the calibration."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from engine.executors.device.block_decoder import BlockDecoder, Tables
from engine.executors.devices import Device, device_errors
from engine.executors.opening import open_device
from engine.placement.sizes import DEQUANTISED_BYTES
from engine.words import say

#: Of each copy. Large enough for latency not to count, small enough to fit beside what the card holds already.
COPY_BYTES = 64 << 20
MEMORY_BYTES = 512 << 20
#: Rows and columns of the matrices multiplied.
MATRIX = 4096
#: Coded weights turned into numbers at a time.
CODED = 1 << 24
REPEATS = 7
#: Seconds that one kind of measurement may take.
BUDGET = 1.0
#: Of the device's free memory that this may take.
MOST_SHARE = 4


def device_speed(name: str) -> dict[str, float]:
    """GB/s of copies to and from the device, from page-locked RAM and from other; GB/s of reads of its own memory
    (a copy inside it counts twice); TFLOP/s of bfloat16 products; 1e9 weights a second that are stored in codes.

    What the device cannot do is left out. Raises GreenroomError when it is not there or breaks down.
    """
    device = open_device(name)
    try:
        room = device.memory().free // MOST_SHARE
        count = max(1 << 20, min(COPY_BYTES, room)) // 4
        # Of the host: not made while torch works on the device.
        plain, pinned = torch.ones(count), device.host_buffer(count, dtype=torch.float32)
        pinned.fill_(1.0)
        with device_errors(device, say("The graphics card could not be measured")), device.working():
            found = _copies(device, plain, pinned) | _memory(device, room)
            # Where the CPU plays the device it would measure the CPU.
            if device.torch_device.type != "cpu":
                found |= _arithmetic(device, room) | _codes(device, room)
            return found
    finally:
        device.close()


def _copies(device: Device, plain: torch.Tensor, pinned: torch.Tensor) -> dict[str, float]:
    there = device.empty(plain.numel())
    ways: dict[str, Callable[[], object]] = {
        "to_pageable_gbs": lambda: device.upload(plain, there),
        "from_pageable_gbs": lambda: device.download(there),
    }
    if device.pinned:
        ways["to_pinned_gbs"] = lambda: device.upload(pinned, there)
        ways["from_pinned_gbs"] = lambda: device.download(there, pinned)
    return {name: plain.nbytes / _seconds(device, copy) / 1e9 for name, copy in ways.items()}


def _memory(device: Device, room: int) -> dict[str, float]:
    count = max(1 << 20, min(MEMORY_BYTES, room)) // 8
    a, b = device.empty(count), device.empty(count)
    a.zero_()
    return {"memory_gbs": 2 * a.nbytes / _seconds(device, lambda: b.copy_(a)) / 1e9}


def _arithmetic(device: Device, room: int) -> dict[str, float]:
    size = MATRIX
    while size > 256 and 3 * 2 * size * size > room:
        size //= 2
    left, right, out = (device.empty(size, size, dtype=torch.bfloat16) for _ in range(3))
    left.zero_()
    right.zero_()
    return {"teraflops": 2 * size**3 / _seconds(device, lambda: torch.mm(left, right, out=out)) / 1e12}


def _codes(device: Device, room: int) -> dict[str, float]:
    """As many weights as are turned into numbers at a time, times one token."""
    decode = BlockDecoder("Q4_0", Tables(device))
    rows = max(256, min(CODED, room // DEQUANTISED_BYTES) // MATRIX)
    stored = device.empty(rows * MATRIX // decode.block_values, decode.block_bytes, dtype=torch.uint8)
    stored.zero_()
    x = device.empty(MATRIX, 1, dtype=torch.bfloat16)
    x.zero_()
    seconds = _seconds(device, lambda: torch.mm(decode(stored).view(rows, MATRIX).to(torch.bfloat16), x))
    return {"code_gweights": rows * MATRIX / seconds / 1e9}


def _seconds(device: Device, work: Callable[[], object]) -> float:
    """The median of a few runs after one that does not count."""
    spent: list[float] = []
    started = time.perf_counter()
    for run in range(REPEATS + 1):
        device.synchronise()
        before = time.perf_counter()
        work()
        device.synchronise()
        after = time.perf_counter()
        if run:
            spent.append(after - before)
        if spent and after - started > BUDGET:
            break
    return statistics.median(spent)
