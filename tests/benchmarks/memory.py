"""Estimated against measured RAM: what a plan says beside the peak of anonymous memory of a process that obeys it.

    python tests/benchmarks/memory.py [--models FILE_OR_FOLDER ...] [--scratch FOLDER] [--only WORD] [--json OUT]

Plans for the simulated accelerator are measured as well: there the device's tensors, which lie in the process too, are
taken off, and beside its RAM stands what the device held at its peak.

Without models it writes its own, of 0.5 to 1 GB each, one after the other: families with random weights and the formats
of `random_moe.py`. Each is loaded in a process of its own that reads a prompt as long as the context and answers. Not a
measure of time: other programs may run beside. Needs the test extra and Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import device_memory
import random_moe

ROOT = Path(__file__).parents[2]
CONTEXT = 1536
#: What a plan may be off by.
ALLOWED = 0.05
#: Seconds between two looks at the process: a matrix in staging lives longer.
INTERVAL = 0.0005

CHILD = """
import json, pathlib, sys
import device_memory, engine
from engine.runtime.events import SamplingParams

checkpoint = engine.open_checkpoint(sys.argv[1])
wishes = json.loads(sys.argv[2])
kind = wishes.pop("kind", None)

here = engine.probe(quick=True)

def planned(vram=0):
    device = {"device": f"sim:vram={vram}e6"} if vram else {}
    return engine.plan(checkpoint, here, int(sys.argv[3]), ram_free=1 << 40, **wishes, **device)

def fits(vram):
    plan = planned(vram)
    return [plan.mode, plan.dense_dtype] == kind

if kind is None:
    plan = planned()
else:
    # Dense weights are rounded only where VRAM is short: as much of it as still does that.
    near = next(vram for step in (16, 4) for vram in range(2000, 20, -step) if fits(vram))
    plan = planned(next(vram for vram in range(near + 12, near - 1, -4) if fits(vram)))
shown, devices = pathlib.Path(sys.argv[4]), []
if plan.bytes.vram:
    import dataclasses, torch
    # The CPU's library keeps kernels for every shape it was asked for, up to 100 MB that no device's work would take.
    torch.backends.mkldnn.enabled = False
    devices = device_memory.show(shown)
    # A device with more than planned: a peak beyond the plan would give slots back and hide itself.
    plan = dataclasses.replace(plan, device="sim:vram=32e9")
# Planning may measure how fast the RAM is.
device_memory.begin(shown)
with engine.load(checkpoint, plan) as loaded:
    experts = getattr(loaded._executor, "_experts", None)
    if plan.hot_slots and hasattr(experts, "speeds"):
        # Prompts are streamed whatever is sooner here: only that reaches the planned peak.
        experts.speeds.cpu = dict.fromkeys(range(1, 16), 1.0)
    answer = 40
    tokens = [7 + i % 200 for i in range(plan.context - answer - 4)]
    prompt = loaded.tokenizer.decode(tokens)
    while len(loaded.tokenizer.encode(prompt)) > plan.context - answer - 2:
        prompt = prompt[:-1]
    for event in loaded.generate(prompt, SamplingParams(temperature=0.8, seed=1, max_tokens=answer)):
        pass
    for block in loaded.iter_logits(tokens[:300]):
        del block
    status = loaded.status()
print(json.dumps({"bytes": plan.bytes.ram, "total": plan.bytes.ram_total, "experts": plan.experts,
                  "dense": plan.dense_dtype, "kv": plan.kv_type, "stored": checkpoint.nbytes, "mode": plan.mode,
                  "slots": plan.hot_slots, "vram": plan.bytes.vram, "vram_total": plan.bytes.vram_total,
                  "prefill": status.prefill, "hits": status.hits, "misses": status.misses, "notes": status.notes,
                  "vram_peak": max((device.memory().peak for device in devices), default=0)}))
"""


@dataclass(frozen=True)
class Case:
    """write: makes the model's file or folder in a folder and returns it; wishes: of the plan."""

    name: str
    write: Callable[[Path], Path]
    wishes: dict[str, Any] = field(default_factory=dict)
    context: int = CONTEXT


def mixture(form: str, **changes: Any) -> Callable[[Path], Path]:
    """Qwen3-MoE's shape in one stored format, as GGUF."""

    def write(folder: Path) -> Path:
        path = folder / "model.gguf"
        random_moe.write(path, random_moe.Shape(**changes), form)
        return path

    return write


def family(variant: str, **changes: Any) -> Callable[[Path], Path]:
    """One of the tests' families with larger sizes, as safetensors of bfloat16."""

    def write(folder: Path) -> Path:
        sys.path.insert(0, str(ROOT / "tests" / "engine"))
        import tiny_families
        import torch

        torch.manual_seed(0)
        model = tiny_families.build(variant, **changes)
        return tiny_families.save(model.to(torch.bfloat16), folder / variant)

    return write


_WIDE: dict[str, Any] = {"hidden_size": 1024, "num_attention_heads": 16, "max_position_embeddings": 4096}
_MOE = {**_WIDE, "moe_intermediate_size": 512, "intermediate_size": 2048}
_LOCAL = {**_WIDE, "intermediate_size": 512}
_ALL: dict[str, Any] = {"leave_vram": 0}

CASES = (
    Case("Qwen3-MoE, Q4_0", mixture("Q4_0", layers=3)),
    Case("Qwen3-MoE, Q4_0, head is the embedding", mixture("Q4_0", layers=2, vocab=151936, tied=True)),
    Case("Qwen3-MoE, Q4_0, cache in q8", mixture("Q4_0", layers=2), {"kv_type": "q8"}, 4096),
    Case("Qwen3-MoE, Q4_0, cache in f32", mixture("Q4_0", layers=2), {"kv_type": "f32"}, 4096),
    Case("Qwen3-MoE, Q4_K", mixture("Q4_K", layers=3)),
    Case("Qwen3-MoE, Q5_K", mixture("Q5_K", layers=2)),
    Case("Qwen3-MoE, Q6_K", mixture("Q6_K", layers=2)),
    Case("Qwen3-MoE, IQ4_NL", mixture("IQ4_NL", layers=3)),
    Case("Qwen3-MoE, Q8_0", mixture("Q8_0", layers=2)),
    Case("Qwen3-MoE, BF16", mixture("BF16", layers=1)),
    Case("Qwen3-MoE, BF16, experts to int8", mixture("BF16", layers=2), {"experts": "int8"}),
    Case("Qwen3-MoE, BF16, experts to int4", mixture("BF16", layers=2), {"experts": "int4"}),
    Case("Qwen3-MoE, Q4_0, dense part in bfloat16", mixture("Q4_0", layers=2), {"dtype": "bfloat16"}),
    Case("Qwen3-MoE, Q4_0, exact", mixture("Q4_0", layers=1), {"dtype": "float32"}),
    Case("gpt-oss", family("gpt_oss", **_LOCAL, head_dim=64, num_local_experts=32, num_hidden_layers=6)),
    Case("GLM-4 MoE", family("glm4_moe", **_MOE, n_routed_experts=32, num_hidden_layers=7)),
    Case("MiniMax-M2", family("minimax_m2", **_LOCAL, num_local_experts=32, num_hidden_layers=6)),
    Case("Mixtral", family("mixtral", **_WIDE, intermediate_size=2048, num_local_experts=8, num_hidden_layers=6)),
    Case("Llama 4", family("llama4", **_LOCAL, head_dim=64, intermediate_size_mlp=2048, num_local_experts=32,
                           num_hidden_layers=12)),
    Case("Gemma 4", family("gemma4", **_MOE, head_dim=64, global_head_dim=128, num_experts=32, sliding_window=128,
                           num_hidden_layers=5)),
    Case("LFM2-MoE", family("lfm2_moe", **_MOE, num_experts=32, num_hidden_layers=8,
                                   layer_types=["conv", "full_attention"] * 4)),
    Case("Phi-3.5-MoE", family("phimoe", **{**_LOCAL, "num_attention_heads": 64}, num_key_value_heads=16,
                                 num_local_experts=32, num_hidden_layers=6)),
    Case("Qwen3 (dense)", family("qwen3", **_WIDE, intermediate_size=4096, num_hidden_layers=16)),
    Case("Simulated GPU, no slots", mixture("Q4_0", layers=2), {"device": "sim:vram=180e6", **_ALL}),
    Case("Simulated GPU, few slots", mixture("Q4_0", layers=2), {"device": "sim:vram=250e6", **_ALL}),
    Case("Simulated GPU, many slots", mixture("Q4_0", layers=3), {"device": "sim:vram=700e6", **_ALL}),
    Case("Simulated GPU, Q4_K, many slots", mixture("Q4_K", layers=3), {"device": "sim:vram=700e6", **_ALL}),
    Case("Simulated GPU, BF16, slots", mixture("BF16", layers=1), {"device": "sim:vram=700e6", **_ALL}),
    Case("Simulated GPU, int8, cache in q8", mixture("Q4_0", layers=1),
         {"kind": ["hybrid", "int8"], "kv_type": "q8", **_ALL}, 4096),
    Case("Simulated GPU, int4, cache in f16", mixture("Q4_0", layers=3),
         {"kind": ["hybrid", "int4"], "kv_type": "f16", **_ALL}),
    Case("Simulated GPU, wide vocabulary", mixture("Q4_0", layers=2, vocab=151936),
         {"device": "sim:vram=1.5e9", **_ALL}),
    Case("Simulated GPU, gpt-oss, slots", family("gpt_oss", **_LOCAL, head_dim=64, num_local_experts=32,
                                               num_hidden_layers=6), {"device": "sim:vram=500e6", **_ALL}),
    Case("Simulated GPU, GLM-4 MoE, slots", family("glm4_moe", **_MOE, n_routed_experts=32, num_hidden_layers=5),
         {"device": "sim:vram=400e6", **_ALL}),
    Case("Simulated GPU, all on it", mixture("Q4_0", layers=2), {"device": "sim:vram=4e9", **_ALL}),
    Case("Simulated GPU, all on it, int8, cache in q8", mixture("Q4_K", layers=1),
         {"kind": ["all_gpu", "int8"], "kv_type": "q8", **_ALL}, 4096),
    Case("Simulated GPU, all on it, dense, int4", family("qwen3", **_WIDE, intermediate_size=4096,
                                                       num_hidden_layers=16), {"kind": ["all_gpu", "int4"], **_ALL}),
    Case("Simulated GPU, all on it, GLM-4 MoE", family("glm4_moe", **_MOE, n_routed_experts=32, num_hidden_layers=7),
         {"device": "sim:vram=4e9", **_ALL}),
    # None of these had a part in choosing the plan's constants.
    Case("Simulated GPU, Phi-3.5-MoE, slots", family("phimoe", **{**_LOCAL, "num_attention_heads": 64},
         num_key_value_heads=16, num_local_experts=32, num_hidden_layers=4), {"device": "sim:vram=430e6", **_ALL}),
    Case("Simulated GPU, LFM2-MoE, slots", family("lfm2_moe", **_MOE, num_experts=32, num_hidden_layers=6,
         layer_types=["conv", "full_attention"] * 3), {"device": "sim:vram=400e6", **_ALL}),
    Case("Simulated GPU, dots.1, int8, slots", family("dots1", **_MOE, n_routed_experts=32, n_shared_experts=2,
         head_dim=64, num_hidden_layers=5), {"kind": ["hybrid", "int8"], **_ALL}),
    Case("Simulated GPU, Q4_K, long context", mixture("Q4_K", layers=2),
         {"device": "sim:vram=600e6", "kv_type": "f16", **_ALL}, 8192),
    Case("Simulated GPU, BF16, int8, cache in q8", mixture("BF16", layers=1, experts=64),
         {"kind": ["hybrid", "int8"], "kv_type": "q8", **_ALL}, 4096),
    Case("Simulated GPU, Q4_K, int4, slots", mixture("Q4_K", layers=4, experts=48, vocab=32768),
         {"kind": ["hybrid", "int4"], **_ALL}),
    Case("Simulated GPU, Q4_0, wide experts", mixture("Q4_0", layers=2, hidden=4096, intermediate=1536, experts=32,
         top_k=4, heads=64, kv_heads=8), {"device": "sim:vram=700e6", **_ALL}),
    Case("Simulated GPU, Q6_K, few wide experts", mixture("Q6_K", layers=2, intermediate=4096, experts=16, top_k=2),
         {"device": "sim:vram=600e6", **_ALL}),
    Case("Simulated GPU, all on it, BF16", mixture("BF16", layers=1, experts=64), {"device": "sim:vram=4e9", **_ALL}),
    Case("Simulated GPU, all on it, gpt-oss", family("gpt_oss", **_LOCAL, head_dim=64, num_local_experts=32,
         num_hidden_layers=6), {"device": "sim:vram=4e9", **_ALL}),
    Case("Simulated GPU, all on it, Phi-3.5-MoE, int8", family("phimoe", **{**_LOCAL, "num_attention_heads": 64},
         num_key_value_heads=16, num_local_experts=32, num_hidden_layers=4), {"kind": ["all_gpu", "int8"], **_ALL}),
    Case("Simulated GPU, all on it, Gemma 4", family("gemma4", **_MOE, head_dim=64, global_head_dim=128,
         num_experts=32, sliding_window=128, num_hidden_layers=5), {"device": "sim:vram=4e9", **_ALL}, 4096),
    Case("Simulated GPU, all on it, LFM2-MoE, cache in f16", family("lfm2_moe", **_MOE, num_experts=32,
         num_hidden_layers=8, layer_types=["conv", "full_attention"] * 4),
         {"device": "sim:vram=4e9", "kv_type": "f16", **_ALL}, 4096),
    Case("Simulated GPU, all on it, Llama (dense), int4", family("llama", **_WIDE, intermediate_size=6144,
         num_hidden_layers=12), {"kind": ["all_gpu", "int4"], "kv_type": "f16", **_ALL}, 4096),
)  # fmt: skip


def peak(path: Path, case: Case) -> tuple[int, dict[str, Any]]:
    """(largest anonymous memory in bytes, without what a simulated device holds; what the plan said)."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parent)])}
    if {"device", "kind"} & {*case.wishes}:
        # The allocator would keep freed tensors of the device, which then would look like RAM.
        environment |= {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    with tempfile.TemporaryDirectory() as folder:
        shown = Path(folder) / "shown"
        watch = device_memory.Watch(shown)
        command = [sys.executable, "-c", CHILD, str(path), json.dumps(case.wishes), str(case.context), str(shown)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
        output: list[str] = []
        assert process.stdout is not None
        reader = threading.Thread(target=lambda: output.append(process.stdout.read()))
        reader.start()
        while process.poll() is None:
            watch.look(process.pid)
            time.sleep(INTERVAL)
        reader.join()
    if process.returncode:
        raise SystemExit(f"{path}: the process failed")
    return watch.peak, json.loads(output[0])


def measure(case: Case, path: Path) -> dict[str, Any]:
    measured, said = peak(path, case)
    return {"name": case.name, "measured": measured, "estimated": said["total"], **said}


def on_device(row: dict[str, Any]) -> dict[str, Any]:
    """The same of what a device holds."""
    return {"name": f"  its VRAM, {row['slots']} slots", "measured": row["vram_peak"], "estimated": row["vram_total"],
            "stored": row["stored"]}  # fmt: skip


def rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for row in processes(args):
        yield row
        if row["vram"]:
            yield on_device(row)


def processes(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    if args.models:
        for path in args.models:
            yield measure(Case(path.name, Path), path.absolute())
        return
    for case in CASES:
        if args.only.lower() not in case.name.lower():
            continue
        folder = Path(tempfile.mkdtemp(dir=args.scratch))
        try:
            yield measure(case, case.write(folder))
        finally:
            shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, nargs="+", default=[])
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--only", default="", metavar="WORD", help="cases whose name has it")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = []
    sys.stdout.write(f"{'':44}{'file':>9}{'estimated':>11}{'measured':>10}{'off':>8}\n")
    for row in rows(args):
        found.append(row)
        off = row["estimated"] / row["measured"] - 1
        figures = "".join(
            f"{row[key] / 1e6:>{w}.0f}" for key, w in (("stored", 9), ("estimated", 11), ("measured", 10))
        )
        mark = "" if abs(off) <= ALLOWED else "  <- more than 5 %"
        sys.stdout.write(f"{row['name']:44}{figures}{off:>+8.1%}{mark}\n")
        sys.stdout.flush()
    if args.json:
        args.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    if any(abs(row["estimated"] / row["measured"] - 1) > ALLOWED for row in found):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
