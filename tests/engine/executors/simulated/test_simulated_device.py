"""The simulated accelerator: what goes wrong on a GPU goes wrong there too."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from tiny_models import Tiny

from engine.errors import GreenroomError
from engine.executors.devices import HostDevice, device_errors
from engine.executors.opening import open_device
from engine.executors.simulated.device import GRANULE, SimDevice
from engine.hardware.simulated import Simulated, simulated

MakeSim = Callable[..., SimDevice]


@pytest.fixture
def sim() -> Iterator[MakeSim]:
    """sim(**settings)"""
    made: list[SimDevice] = []

    def make(**settings: float | str) -> SimDevice:
        made.append(SimDevice(Simulated(**settings)))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for device in made:
        device.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("sim")]


def test_settings_are_read_from_the_name() -> None:
    assert simulated("sim") == Simulated()
    expected = Simulated(vram=2_000_000_000, copy=1e9, latency=1e-3, fail="pin", error_after=7, seed=3)
    assert simulated("sim:vram=2e9,copy=1e9,latency=1e-3,fail=pin,error_after=7,seed=3") == expected
    assert expected.gpu().total_bytes == 2_000_000_000


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("cuda", "does not begin with sim"),
        ("sim:x=1", 'no setting "x"'),
        ("sim:fail=x", "nothing that can fail"),
        ("sim:fail", "nothing that can fail"),
        ("sim:vram=1e9,vram=2e9", "says vram twice"),
        ("sim:error_after=1.5", "no whole number"),
        *((f"sim:vram={value}", "no number from") for value in ("", "x", "-1", "0", "nan", "inf", "1e30")),
        # Copies that nobody would see the end of.
        *((f"sim:{setting}", "no number from") for setting in ("copy=0", "copy=1", "latency=60", "latency=-1")),
    ],
)
def test_wrong_settings_are_a_clear_error(name: str, why: str) -> None:
    with pytest.raises(GreenroomError, match="cannot be used") as refused:
        simulated(name)
    assert why in refused.value.why


def test_spaces_between_settings_do_not_matter() -> None:
    assert simulated("sim: vram=2e9, copy=1e9") == simulated("sim:vram=2e9,copy=1e9")


def test_a_copy_arrives_late_and_is_not_a_number_until_then(sim: MakeSim) -> None:
    device = sim(latency=0.2)
    source, target = device.host_buffer(4, dtype=torch.float32), device.empty(4)
    source.fill_(3.0)
    stream = device.new_stream()
    device.upload(source, target, stream)
    event = device.mark(stream)
    assert not event.query()
    assert target.isnan().all()
    event.synchronize()
    assert event.query()
    assert (target == 3).all()
    back = device.host_buffer(4, dtype=torch.float32)
    device.download(target, back, stream)
    assert back.isnan().all()
    device.synchronise()
    assert (back == 3).all()


def test_integers_that_have_not_arrived_are_no_index(sim: MakeSim) -> None:
    device = sim(latency=0.2)
    ids = device.host_buffer(3, dtype=torch.int32)
    ids.fill_(1)
    there = device.upload(ids)
    assert (there == -1).all()
    device.synchronise()
    assert (there == 1).all()


def test_work_waits_for_copies_of_its_own_stream_and_events_it_is_told_of(sim: MakeSim) -> None:
    device = sim(latency=0.05)
    source = device.host_buffer(4, dtype=torch.float32)
    source.fill_(2.0)
    other = device.new_stream()
    with device.working():
        assert (device.upload(source) + 1 == 3).all()
        early = device.upload(source, stream=other)
        device.wait_for(device.mark(other))
        assert (early + 1 == 3).all()
        with device.on(other):
            assert (device.upload(source) * 2 == 4).all()


def test_streams_overtake_each_other_but_not_themselves(sim: MakeSim) -> None:
    device = sim(latency=0.01)
    streams = [device.new_stream() for _ in range(4)]
    source, target = device.host_buffer(1, dtype=torch.float32), device.empty(4, 5)
    source.fill_(1.0)
    orders = set()
    for _ in range(10):
        done: list[int] = []
        for number, stream in enumerate(streams):
            for step in range(2):
                device.upload(source, target[number, step : step + 1], stream)
                stream.queue(partial(done.append, number))  # type: ignore[attr-defined]
        device.synchronise()
        assert sorted(done) == [0, 0, 1, 1, 2, 2, 3, 3]
        orders.add(tuple(done))
    assert len(orders) > 1


@pytest.mark.parametrize("wait", [None, "before", "after", "host"])
def test_memory_that_is_let_go_while_another_stream_uses_it_is_found_out(sim: MakeSim, wait: str | None) -> None:
    device = sim(latency=0.05)
    copies = device.new_stream()
    target = device.host_buffer(1000, dtype=torch.float32)
    with device.working():
        source = device.empty(1000).fill_(3.0)
        device.wait_for(device.mark(), copies)
        device.download(source, target, copies)
        copied = device.mark(copies)
        if wait == "before":
            device.wait_for(copied)
        del source
        if wait == "after":
            device.wait_for(copied)
        if wait == "host":
            copied.synchronize()
        if wait is None:
            told = "4000 bytes that sim-stream-1 reads were let go, and may be handed out again on sim-compute"
            with pytest.raises(torch.AcceleratorError, match=told):
                device.empty(10)
            return
        # Its home stream's next work comes after the copy: the allocator may take the memory.
        device.empty(10)
    device.synchronise()
    assert (target == 3).all()


def test_what_is_made_on_another_stream_is_its_memory(sim: MakeSim) -> None:
    device = sim()
    copies = device.new_stream()
    ones = torch.ones(8)
    with device.working():
        made = device.upload(ones, stream=copies)
        device.wait_for(device.mark(copies))
        made += 1
        del made
        device.empty(8)  # of the compute stream: not that memory
        with pytest.raises(torch.AcceleratorError, match="that sim-compute reads were let go"):
            device.upload(ones, stream=copies)


def test_a_host_that_does_not_wait_for_its_buffers_is_found_out(sim: MakeSim) -> None:
    device = sim(latency=0.1)
    source = device.host_buffer(4, dtype=torch.float32)
    source.fill_(1.0)
    there = device.upload(source)
    source.fill_(2.0)
    with pytest.raises(torch.AcceleratorError, match=r"the host has changed \[4\] before it was copied"):
        device.synchronise()

    device = sim(latency=0.1)
    target = device.host_buffer(4, dtype=torch.float32)
    device.download(device.empty(4).fill_(1.0), target)
    target[1] = 3.0
    with pytest.raises(torch.AcceleratorError, match=r"the host has written to \[4\]"):
        device.mark().synchronize()

    device = sim(latency=0.1)
    # Memory that is not page-locked holds the caller instead.
    plain = torch.ones(4)
    there = device.upload(plain)
    plain.fill_(2.0)
    assert (there == 1).all()


def test_what_a_copy_brings_may_not_be_used_before(sim: MakeSim) -> None:
    device = sim()
    other = device.new_stream()
    source = device.host_buffer(4, dtype=torch.float32).fill_(2.0)
    with device.working():
        there = device.upload(source, stream=other)
        with pytest.raises(torch.AcceleratorError, match=r"sim-compute reads \[4\], which sim-stream-1 writes"):
            there + 1


@pytest.mark.parametrize("waits", [True, False])
def test_a_copy_may_not_overwrite_what_is_still_read(sim: MakeSim, waits: bool) -> None:
    """Operations are done at once here, on a GPU they are not: only the missing wait can be seen."""
    device = sim(latency=1e-6)
    other = device.new_stream()
    source = device.host_buffer(4, dtype=torch.float32).fill_(2.0)
    with device.working():
        slots = device.empty(2, 4).zero_()
        device.synchronise()
        slots[0] + 1
        # Another slot is free to be written, without any wait.
        device.upload(source, slots[1], other)
        if waits:
            device.wait_for(device.mark(), other)
            device.upload(source, slots[0], other)
            device.synchronise()
            assert (slots == 2).all()
        else:
            with pytest.raises(torch.AcceleratorError, match=r"sim-stream-1 writes \[4\], which sim-compute reads"):
                device.upload(source, slots[0], other)


def test_waiting_for_an_event_brings_what_that_has_waited_for(sim: MakeSim) -> None:
    device = sim(latency=1e-3)
    first, second = device.new_stream(), device.new_stream()
    source, back = (device.host_buffer(4, dtype=torch.float32).fill_(1.0) for _ in range(2))
    with device.working():
        there = device.upload(source, stream=first)
        device.wait_for(device.mark(first), second)
        device.wait_for(device.mark(second))
        there += 1
        # The host has waited for a later event of the same stream: what it queues now comes behind.
        device.mark().synchronize()
        device.download(there, back, first)
        device.synchronise()
        assert (back == 2).all()


def test_tensors_count_until_the_last_of_their_views_is_gone(sim: MakeSim) -> None:
    device = sim(vram=1 << 20)
    assert device.memory().free == 1 << 20
    with device.working():
        first = device.empty(1000)
        assert device.memory().held == 8 * GRANULE
        view = first[10:]
        made = view * 2
        assert device.memory().held == 16 * GRANULE
        del first
        assert device.memory().held == 16 * GRANULE
        del view
        assert device.memory().held == 8 * GRANULE
        del made
    memory = device.memory()
    assert (memory.held, memory.peak) == (0, 16 * GRANULE)
    device.reset_peak()
    assert device.memory().peak == 0


def test_beyond_its_memory_torch_says_so(sim: MakeSim) -> None:
    device = sim(vram=1 << 20)
    with pytest.raises(torch.OutOfMemoryError, match="of 1048576 free"):
        device.empty(1 << 20)
    with device.working():
        half = device.empty(1 << 17)
        with pytest.raises(torch.OutOfMemoryError):
            torch.cat((half, half))
        assert device.memory().held == 1 << 19
        del half
        device.empty(1 << 17)


def test_host_and_device_do_not_meet(sim: MakeSim) -> None:
    device, here = sim(), torch.ones(4)
    with device.working():
        there = device.empty(4)
        with pytest.raises(RuntimeError, match="of the host meets"):
            there + here
        assert (there.copy_(here) + torch.tensor(1.0) == 2).all()
        assert (here + here == 2).all()
    assert device.memory().held == GRANULE
    for wrong in (lambda: device.download(here), lambda: device.upload(there), lambda: device.upload(here, here)):
        with pytest.raises(RuntimeError):
            wrong()


def test_values_the_host_asks_for_are_counted(sim: MakeSim) -> None:
    device = sim()
    with device.working():
        ones = torch.ones(4)
        assert device.syncs == 0
        assert ones.sum().item() == 4
        assert device.syncs == 1


def test_page_locking_that_fails_is_said_and_copies_hold_the_caller(sim: MakeSim) -> None:
    device = sim(fail="pin", latency=0.05)
    source = device.host_buffer(4, dtype=torch.float32)
    assert not device.pinned
    assert "page-locked" in device.notes[0]
    device.host_buffer(4, dtype=torch.float32)
    assert len(device.notes) == 1
    source.fill_(1.0)
    assert (device.upload(source) == 1).all()


def test_graphs_that_cannot_be_captured_are_said(
    sim: MakeSim, tiny: Callable[[str, str], Tiny], run: Callable[..., Any]
) -> None:
    assert sim().no_graphs() == ""
    assert "told" in sim(fail="capture").no_graphs()
    model = tiny("qwen3_moe", "gguf-F32")
    status = run(model, device="sim:fail=capture", mode="hybrid").status()
    assert not status.graphs
    assert [note for note in status.notes if "graphs cannot be captured (as the simulated device was told)" in note]
    assert not run(model, device="sim", mode="hybrid").status().notes


def test_a_device_that_breaks_down_stays_broken_and_closes(sim: MakeSim) -> None:
    device = sim(error_after=3)
    with device.working():
        ones = torch.ones(4)
        ones + 1
        with pytest.raises(torch.AcceleratorError):
            ones + 2
        with pytest.raises(torch.AcceleratorError):
            device.download(ones)
    with (
        pytest.raises(GreenroomError, match="sim has stopped working"),
        device_errors(device, "The answer was interrupted"),
    ):
        device.synchronise()
    device.close()
    device.close()


def test_the_cpu_copies_nothing() -> None:
    device = open_device("cpu")
    assert isinstance(device, HostDevice)
    tensor = torch.ones(3)
    assert device.upload(tensor) is tensor
    assert device.download(tensor) is tensor
    assert device.mark().query()
