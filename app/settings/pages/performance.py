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
                    mark("In tokens: how much text a chat can hold. Longer needs more memory."),
                    ((BY_PLAN, None), *lengths((2048, 4096, 8192, 16384, 32768, 65536, 131072))),
                    words="kv cache memory tokens",
                ),
                whole_number(
                    "threads",
                    mark("Threads"),
                    mark("One for each physical core is usually best, more can be slower."),
                    THREADS_RANGE,
                    BY_PLAN,
                    words="cpu cores",
                ),
                toggle(
                    "keep_gpu",
                    mark("Graphics card"),
                    mark("Models then run on the CPU alone, and usually slower."),
                    mark("Keep my GPU for games"),
                    words="gpu vram game",
                ),
                toggle(
                    "prefer_gpu",
                    mark("GPU or CPU"),
                    mark("The GPU is then used even where the prediction says that the CPU alone is faster."),
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
                    mark("In gigabytes, for other programs. More leaves less room for models."),
                    RESERVE_RANGE,
                    4.0,
                    BY_PLAN,
                    0.5,
                    words="reserve memory",
                ),
                fraction(
                    "leave_vram",
                    mark("VRAM to leave free"),
                    mark("In gigabytes, for the desktop and other programs. More leaves fewer experts on the GPU."),
                    RESERVE_RANGE,
                    1.0,
                    BY_PLAN,
                    0.5,
                    words="reserve memory gpu",
                ),
                fraction(
                    "max_vram",
                    mark("VRAM to use at most"),
                    mark("In gigabytes. Less makes answers slower."),
                    RESERVE_RANGE,
                    8.0,
                    mark("All that is free"),
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
                    mark("How the conversation is kept. q8 takes half the memory of bf16."),
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
                    mark("Exact arithmetic"),
                    mark(
                        "For comparing with other programs. Costs two to four times the memory, and most of the speed."
                    ),
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
                    mark("Fewer are faster in proportion, and answers get worse, noticeably below three quarters."),
                    (
                        (mark("As the model was trained"), 1.0),
                        (mark("Three quarters of them"), 0.75),
                        (mark("Half of them"), 0.5),
                    ),
                    words="moe top-k router speed",
                ),
                choice(
                    "deferred_share",
                    mark("Deferred experts"),
                    mark(
                        "With experts in RAM beside a GPU: the weakest take effect a layer later, while the GPU goes "
                        "on. Others measured up to 1.45 times the speed, and half a percent of accuracy lost."
                    ),
                    ((mark("None"), 0.0), (mark("A quarter of them"), 0.25), (mark("Half of them"), 0.5)),
                    words="moe hybrid speed",
                ),
            ),
            mark("Shortcuts that change the answers"),
        ),
    ),
    mark("Holds from the next loading of a model on. What fits, and how fast, is worked out anew at once."),
)
