"""Performance: what plans are made with. Everything here holds when a model is loaded next."""

from __future__ import annotations

from app.language import mark
from app.settings.options import Group, Page, choice, fraction, toggle, whole_number
from app.settings.pages.answers import lengths
from app.settings.store import RESERVE_RANGE, THREADS_RANGE

BY_PLAN = mark("Chosen by the plan")

PAGE = Page(
    "performance",
    mark("Performance"),
    "gauge",
    (
        Group(
            (
                choice(
                    "context",
                    mark("Context length"),
                    mark("How many tokens a chat may have. A longer context needs more memory."),
                    ((BY_PLAN, None), *lengths((2048, 4096, 8192, 16384, 32768, 65536, 131072))),
                    words="kv cache memory tokens",
                ),
                whole_number(
                    "threads",
                    mark("Threads"),
                    mark("One per physical core is usually best. More can be slower."),
                    THREADS_RANGE,
                    BY_PLAN,
                    words="cpu cores",
                ),
                toggle(
                    "keep_gpu",
                    mark("GPU"),
                    mark("Models run on the CPU only, usually slower."),
                    mark("Keep my GPU for games"),
                    words="gpu vram game",
                ),
                toggle(
                    "prefer_gpu",
                    mark("GPU or CPU"),
                    mark("Use the GPU even when the CPU alone is predicted to be faster."),
                    mark("Prefer the GPU"),
                    words="gpu device cuda",
                ),
            )
        ),
        Group(
            (
                fraction(
                    "leave_ram",
                    mark("RAM to leave free"),
                    mark("In gigabytes, for other programs. Reserving more leaves less room for models."),
                    RESERVE_RANGE,
                    4.0,
                    BY_PLAN,
                    0.5,
                    words="reserve memory",
                ),
                fraction(
                    "leave_vram",
                    mark("VRAM to leave free"),
                    mark(
                        "In gigabytes, for the desktop and other programs. Reserving more puts fewer experts in VRAM."
                    ),
                    RESERVE_RANGE,
                    1.0,
                    BY_PLAN,
                    0.5,
                    words="reserve memory gpu",
                ),
                fraction(
                    "max_vram",
                    mark("VRAM limit"),
                    mark("In gigabytes. A lower limit makes answers slower."),
                    RESERVE_RANGE,
                    8.0,
                    mark("All free VRAM"),
                    0.5,
                    words="limit memory gpu",
                ),
            ),
            mark("Memory"),
        ),
        Group(
            (
                choice(
                    "kv_type",
                    mark("KV cache"),
                    mark("How the context is stored. q8 takes half the memory of bf16."),
                    (
                        (BY_PLAN, "auto"),
                        ("q8", "q8"),
                        ("bf16", "bf16"),
                        ("f16", "f16"),
                        (mark("f32 (twice the memory)"), "f32"),
                    ),
                    words="quantised memory context",
                ),
                toggle(
                    "exact",
                    mark("Full precision"),
                    mark("For comparing with other programs. Takes two to four times the memory and is much slower."),
                    mark("Compute in float32"),
                    words="float32 precision",
                ),
            ),
            mark("Advanced"),
        ),
        Group(
            (
                choice(
                    "experts_share",
                    mark("Experts per token"),
                    mark(
                        "Fewer experts are proportionally faster, but answers get worse, noticeably below "
                        "three quarters."
                    ),
                    (
                        (mark("As the model was trained"), 1.0),
                        (mark("Three quarters"), 0.75),
                        (mark("Half"), 0.5),
                    ),
                    words="moe top-k router speed",
                ),
                choice(
                    "deferred_share",
                    mark("Deferred experts"),
                    mark(
                        "With a GPU and experts in RAM: the least important experts take effect one layer "
                        "later, so the GPU does not wait for them. Published tests: up to 1.45x faster, 0.5 % "
                        "less accurate."
                    ),
                    ((mark("None"), 0.0), (mark("A quarter"), 0.25), (mark("Half"), 0.5)),
                    words="moe hybrid speed",
                ),
            ),
            mark("Speed-ups that change the answers"),
        ),
    ),
    mark("Takes effect when you next load a model. Estimates update immediately."),
)
