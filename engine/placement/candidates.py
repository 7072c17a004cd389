"""The ways a model can be placed on a machine, each with its bytes and what is missing for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.hardware.report import GpuReport, HardwareReport
from engine.hardware.simulated import is_simulated
from engine.models.spec import ROLLBACK, ModelSpec
from engine.placement import sizes
from engine.placement.buffers import cpu_buffers
from engine.placement.device_buffers import device_ram_bytes, device_work_bytes
from engine.placement.plan import Wishes
from engine.placement.profiles import multiplies_pairs
from engine.placement.sizes import Inventory, Layout

#: Tokens per call of prompts whose experts may be streamed to a GPU, and the share of spare VRAM they may take.
LONG_CHUNKS = (4096, 2048, 1024)
CHUNK_SHARE = 0.1


@dataclass(frozen=True)
class Room:
    """One memory, in bytes: free now, there at all, and kept back from both."""

    free: int
    total: int
    reserve: int


@dataclass(frozen=True)
class Problem:
    """A model, a machine and wishes, checked. gpu is (index among NVIDIA GPUs, report) or None with the reason."""

    spec: ModelSpec
    inventory: Inventory
    report: HardwareReport
    context: int
    wishes: Wishes
    gpu: tuple[int, GpuReport] | None
    no_gpu_reason: str

    @property
    def ram(self) -> Room:
        memory, wished = self.report.memory, self.wishes.ram_free
        free = memory.available_bytes if wished is None else wished
        total = max(memory.total_bytes, wished or 0)
        leave = self.wishes.leave_ram
        reserve = sizes.ram_reserve(total) if leave is None else leave
        return Room(min(total, free + self.wishes.unload_bytes), total, reserve)

    @property
    def vram(self) -> Room:
        if self.gpu is None:
            return Room(0, 0, 0)
        gpu, wished = self.gpu[1], self.wishes.vram_free
        free = gpu.free_bytes if wished is None else wished
        total = max(gpu.total_bytes, wished or 0)
        # Windows that are opened later want more of a card that a screen hangs on.
        reserve = sizes.vram_reserve(total) * (2 if gpu.drives_display else 1)
        if self.wishes.leave_vram is not None:
            reserve = self.wishes.leave_vram
        if self.wishes.max_vram is not None:
            # The limit is on what the model takes; the reserve comes on top of it.
            limit = self.wishes.max_vram + reserve
            free, total = min(free, limit), min(total, limit)
        return Room(free, total, reserve)


@dataclass(frozen=True)
class Candidate:
    """One placement. ram and vram: bytes per PlanBytes role, without the reserve; hot_slots and prefill_chunk
    as in OffloadPlan."""

    mode: str
    device: str
    dense_dtype: str
    kv_type: str
    experts: str
    ram: dict[str, int]
    vram: dict[str, int]
    ram_room: Room
    vram_room: Room
    hot_slots: int = 0
    prefill_chunk: int = sizes.PREFILL_CHUNK

    @property
    def ram_total(self) -> int:
        return sum(self.ram.values())

    @property
    def vram_total(self) -> int:
        return sum(self.vram.values())

    @property
    def missing_ram(self) -> int:
        return max(0, self.ram_total + self.ram_room.reserve - self.ram_room.free)

    @property
    def missing_vram(self) -> int:
        return max(0, self.vram_total + self.vram_room.reserve - self.vram_room.free) if self.vram else 0

    @property
    def beyond_machine(self) -> int:
        """Bytes that would be missing even if nothing else ran."""
        ram = max(0, self.ram_total + self.ram_room.reserve - self.ram_room.total)
        vram = max(0, self.vram_total + self.vram_room.reserve - self.vram_room.total) if self.vram else 0
        return ram + vram

    @property
    def fits(self) -> bool:
        return self.missing_ram == 0 and self.missing_vram == 0


def expert_layout(problem: Problem) -> Layout:
    """How routed experts lie in RAM."""
    wishes = problem.wishes
    if wishes.dtype == "float32":
        return Layout("packed", "float32", wishes.isa)
    return Layout("packed", None if wishes.experts == "stored" else wishes.experts, wishes.isa)


def dense_layout(problem: Problem, dense_dtype: str) -> Layout:
    if dense_dtype == "quantised":
        return Layout("packed", None, problem.wishes.isa)
    return Layout(dense_dtype)


def device_expert_layout(dense_dtype: str) -> Layout:
    """How routed experts lie on a device that holds them all: stored codes, dequantised as they are used."""
    return Layout("blocks", floats="float32" if dense_dtype == "float32" else "bfloat16")


def slot_bytes(problem: Problem) -> int:
    """What a copy of one expert takes in VRAM: as much as the largest takes in RAM."""
    return sizes.largest_expert_bytes(problem.inventory, expert_layout(problem))


def streaming_slots(inventory: Inventory) -> int:
    """Slots from which on prompts may be computed on the device: in a ring of some, or where a whole layer has them."""
    return min(sizes.LEAST_RING * sizes.RING_SHARE, *(moe.experts for moe, _ in inventory.experts))


def candidates(problem: Problem) -> list[Candidate]:
    """In order of preference, as far as the wished device allows."""
    device = problem.wishes.device
    found = []
    if problem.gpu is not None and device != "cpu":
        dense_types = _dense_types(problem)
        if problem.spec.is_moe:
            # With experts in RAM nothing of the model is rounded as roughly as int4 does.
            found += [_all_gpu(problem, dense) for dense in dense_types if dense != "int4"]
            found += [_hybrid(problem, dense) for dense in dense_types]
        else:
            found += [_all_gpu(problem, dense) for dense in dense_types]
    if device in ("auto", "cpu"):
        found.append(_cpu(problem))
    return found


def choose(problem: Problem) -> tuple[Candidate, str]:
    """The best placement and its mode: the first that fits, else the one that lacks least ("tight", "too_large")."""
    found = candidates(problem)
    for candidate in found:
        if candidate.fits:
            return candidate, candidate.mode
    possible = [candidate for candidate in found if candidate.beyond_machine == 0]
    if possible:
        # Experts in RAM before experts that do not quite fit in VRAM: RAM is what other programs give back.
        moe = problem.spec.is_moe
        return min(possible, key=lambda c: (moe and c.mode == "all_gpu", c.missing_ram + c.missing_vram)), "tight"
    return min(found, key=lambda candidate: candidate.beyond_machine), "too_large"


def with_wishes(problem: Problem, **changes: object) -> Problem:
    return replace(problem, wishes=replace(problem.wishes, **changes))  # type: ignore[arg-type]


def _dense_types(problem: Problem) -> tuple[str, ...]:
    """How dense weights may be held on a GPU, best first."""
    wished = problem.wishes.dtype
    return ("bfloat16", "int8", "int4") if wished == "auto" else (wished,)


def _kv_bytes(problem: Problem, kv_type: str) -> int:
    return problem.spec.kv_bytes(problem.context, kv_type)


def _gpu_parts(
    problem: Problem, dense_dtype: str, *, experts_there: bool
) -> tuple[dict[str, int], dict[str, int], str]:
    """(ram, vram, kv_type) of everything but the routed experts."""
    kv_type = problem.wishes.kv_type
    if kv_type == "auto":
        kv_type = "f32" if dense_dtype == "float32" else "bf16"
    layout = dense_layout(problem, dense_dtype)
    vram = sizes.dense_bytes(problem.inventory, layout)
    ram = {"embeddings": vram.pop("embeddings", 0)}
    context = 0 if is_simulated(problem.wishes.device) else sizes.CUDA_CONTEXT_BYTES
    ram["buffers"] = _gpu_program(problem, dense_dtype, sizes.PREFILL_CHUNK, experts_there=experts_there)
    vram["kv_cache"] = _kv_bytes(problem, kv_type)
    vram["buffers"] = context + _work_bytes(problem, dense_dtype, kv_type, "device" if experts_there else "ram")
    return ram, vram, kv_type


def _gpu_program(problem: Problem, dense_dtype: str, chunk: int, *, experts_there: bool) -> int:
    """RAM of the process beside weights."""
    ram = device_ram_bytes(
        problem.spec, problem.inventory, problem.context, dense_dtype, experts_there=experts_there, chunk=chunk
    )
    return ram if is_simulated(problem.wishes.device) else ram + sizes.CUDA_PROGRAM_BYTES


def _all_gpu(problem: Problem, dense_dtype: str) -> Candidate:
    ram, vram, kv_type = _gpu_parts(problem, dense_dtype, experts_there=True)
    if problem.spec.is_moe:
        layout = device_expert_layout(dense_dtype)
        vram = {"experts": sizes.expert_bytes(problem.inventory, layout), **vram}
    return _candidate(problem, "all_gpu", dense_dtype, kv_type, "stored", ram, vram)


def _hybrid(problem: Problem, dense_dtype: str) -> Candidate:
    ram, vram, kv_type = _gpu_parts(problem, dense_dtype, experts_there=False)
    layout = expert_layout(problem)
    ram = {"experts": sizes.expert_bytes(problem.inventory, layout), **ram}
    made = _candidate(problem, "hybrid", dense_dtype, kv_type, layout.recode or "stored", ram, vram)
    # What is left holds copies of the experts that are called most.
    each = slot_bytes(problem)
    spare = made.vram_room.free - made.vram_room.reserve - made.vram_total
    chunk, more = _longest_chunk(problem, dense_dtype, kv_type, spare)
    every = sum(moe.experts for moe, _ in problem.inventory.experts)
    slots = max(0, min((spare - more) // each, every))
    streaming = streaming_slots(problem.inventory)
    if slots < streaming:
        chunk = sizes.PREFILL_CHUNK
        usual = _work_bytes(problem, dense_dtype, kv_type, "ram")
        more = _work_bytes(problem, dense_dtype, kv_type, "few") - usual
        slots = max(0, min((spare - more) // each, streaming - 1))
    if not slots:
        return made
    vram["buffers"] += more
    # Copies go through page-locked RAM.
    ram["buffers"] = _gpu_program(problem, dense_dtype, chunk, experts_there=False)
    ram["buffers"] += min(sizes.STAGING_BUFFERS * each, max(sizes.STAGING_BYTES, 2 * each))
    made = _candidate(problem, "hybrid", dense_dtype, kv_type, layout.recode or "stored", ram, vram)
    return replace(made, vram={"hot_experts": slots * each, **vram}, hot_slots=slots, prefill_chunk=chunk)


def _work_bytes(
    problem: Problem, dense_dtype: str, kv_type: str, experts: str, chunk: int = sizes.PREFILL_CHUNK
) -> int:
    return device_work_bytes(
        problem.spec, problem.inventory, problem.context, dense_dtype, kv_type, experts, chunk, slot_bytes(problem)
    )


def _longest_chunk(problem: Problem, dense_dtype: str, kv_type: str, spare: int) -> tuple[int, int]:
    """Tokens of a prompt per call, and bytes of VRAM that these and copies of experts take beyond what the usual
    chunk does without.

    A prompt whose experts' weights are streamed takes as long as it has chunks, so that some VRAM is better spent on
    longer ones than on slots. Where windows forget the oldest tokens, a call may bring no more than can be taken back.
    """
    spec, context = problem.spec, problem.context
    most = ROLLBACK if any(attention.reach is not None for attention in spec.attentions) else context
    without = _work_bytes(problem, dense_dtype, kv_type, "ram")
    usual = _work_bytes(problem, dense_dtype, kv_type, "cached")
    for tokens in LONG_CHUNKS:
        work = _work_bytes(problem, dense_dtype, kv_type, "cached", tokens)
        if tokens <= most and work - usual <= CHUNK_SHARE * spare:
            return tokens, work - without
    return sizes.PREFILL_CHUNK, usual - without


def _cpu(problem: Problem) -> Candidate:
    dense_dtype = {"auto": "quantised"}.get(problem.wishes.dtype, problem.wishes.dtype)
    # Two bytes halve the cache and its traffic; the divergence they add (measured: 5e-7 in f16, 3e-5 in bf16) is lost
    # beside that of rounding activations to int8 (3e-3). Some CPUs multiply bf16 twice as fast.
    kv_type = problem.wishes.kv_type
    if kv_type == "auto":
        half = "bf16" if multiplies_pairs(problem.report, problem.wishes.isa) else "f16"
        kv_type = "f32" if problem.wishes.dtype == "float32" else half
    dense = dense_layout(problem, dense_dtype)
    layout = expert_layout(problem)
    ram = sizes.dense_bytes(problem.inventory, dense)
    if problem.spec.is_moe:
        ram = {"experts": sizes.expert_bytes(problem.inventory, layout), **ram}
    ram["kv_cache"] = _kv_bytes(problem, kv_type)
    ram["buffers"] = cpu_buffers(problem.spec, problem.inventory, problem.context, dense, layout)
    return _candidate(problem, "cpu", dense_dtype, kv_type, layout.recode or "stored", ram, {})


def _candidate(
    problem: Problem,
    mode: str,
    dense_dtype: str,
    kv_type: str,
    experts: str,
    ram: dict[str, int],
    vram: dict[str, int],
) -> Candidate:
    device = "cpu"
    if vram and problem.gpu is not None:
        wished = problem.wishes.device
        device = wished if is_simulated(wished) else f"cuda:{problem.gpu[0]}"
    ram = {role: nbytes for role, nbytes in ram.items() if nbytes}
    return Candidate(mode, device, dense_dtype, kv_type, experts, ram, vram, problem.ram, problem.vram)
