"""One run on a machine with a GPU: does every plan compute the same, in the memory it was promised, and how fast?

    python tests/device/check_gpu.py                    on the first CUDA (or ROCm) device, within six minutes
    python tests/device/check_gpu.py --device sim       on the simulated accelerator, for whoever changes this script
    python tests/device/check_gpu.py --pack FOLDER      copies the pure Python packages it needs, for a machine that
                                                        has only torch, numpy, cmake and a compiler: --packages FOLDER

Makes a model of random weights itself, of Qwen3-30B-A3B's shape with fewer layers. Prints a table, writes JSON.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import pack
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: What a machine with torch has anyway, or must not be taken from another one.
LEFT_OUT = {"torch", "numpy", "engine", "__main__", "mkl", "triton", "cuda"}
BLOCK_VALUES, BLOCK_BYTES, ALIGNMENT = 32, 18, 32


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int = 2048
    intermediate: int = 768
    experts: int = 128
    top_k: int = 8
    heads: int = 32
    kv_heads: int = 4
    head_dim: int = 128
    vocab: int = 32768


TINY = Shape(2, hidden=256, intermediate=128, experts=16, top_k=4, heads=4, kv_heads=2, head_dim=64, vocab=1024)


def tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    """Name, shape in rows first, whether it is stored as Q4_0."""
    hidden, wide = shape.hidden, shape.intermediate
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    yield "token_embd.weight", (shape.vocab, hidden), True
    yield "output_norm.weight", (hidden,), False
    yield "output.weight", (shape.vocab, hidden), True
    for layer in range(shape.layers):
        name = f"blk.{layer}."
        yield name + "attn_norm.weight", (hidden,), False
        yield name + "attn_q.weight", (queries, hidden), True
        yield name + "attn_k.weight", (keys, hidden), True
        yield name + "attn_v.weight", (keys, hidden), True
        yield name + "attn_output.weight", (hidden, queries), True
        yield name + "attn_q_norm.weight", (shape.head_dim,), False
        yield name + "attn_k_norm.weight", (shape.head_dim,), False
        yield name + "ffn_norm.weight", (hidden,), False
        yield name + "ffn_gate_inp.weight", (shape.experts, hidden), False
        yield name + "ffn_gate_exps.weight", (shape.experts, wide, hidden), True
        yield name + "ffn_up_exps.weight", (shape.experts, wide, hidden), True
        yield name + "ffn_down_exps.weight", (shape.experts, hidden, wide), True


def text(value: str) -> bytes:
    return pack("<Q", len(value)) + value.encode()


def write_model(path: Path, shape: Shape) -> None:
    """A GGUF file, version 3: scales as of real weights, every code possible."""
    import numpy as np

    numbers = {
        "block_count": shape.layers,
        "context_length": 32768,
        "embedding_length": shape.hidden,
        "feed_forward_length": shape.intermediate * shape.top_k,
        "expert_feed_forward_length": shape.intermediate,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "expert_count": shape.experts,
        "expert_used_count": shape.top_k,
    }
    floats = {"rope.freq_base": 1e6, "attention.layer_norm_rms_epsilon": 1e-6}
    entries = [text("general.architecture") + pack("<I", 8) + text("qwen3moe")]
    entries += [text(f"qwen3moe.{key}") + pack("<II", 4, value) for key, value in numbers.items()]
    entries += [text(f"qwen3moe.{key}") + pack("<If", 6, value) for key, value in floats.items()]
    infos, offset, listed = [], 0, list(tensors(shape))
    for name, dims, coded in listed:
        count = int(np.prod(dims))
        info = text(name) + pack("<I", len(dims)) + b"".join(pack("<Q", dim) for dim in reversed(dims))
        infos.append(info + pack("<IQ", 2 if coded else 0, offset))
        nbytes = count // BLOCK_VALUES * BLOCK_BYTES if coded else 4 * count
        offset += -(-nbytes // ALIGNMENT) * ALIGNMENT
    rng = np.random.default_rng(0)
    pool = rng.integers(0, 256, (1 << 16, BLOCK_BYTES), np.uint8)
    pool[:, :2] = (rng.uniform(0.5, 1.5, 1 << 16) * 0.004).astype("<f2")[:, None].view(np.uint8)
    with path.open("wb") as file:
        file.write(b"GGUF" + pack("<IQQ", 3, len(infos), len(entries)) + b"".join(entries) + b"".join(infos))
        file.write(bytes(-file.tell() % ALIGNMENT))
        for name, dims, coded in listed:
            count = int(np.prod(dims))
            if coded:
                blocks = count // BLOCK_VALUES
                for first in range(0, blocks, len(pool)):
                    start = int(rng.integers(len(pool)))
                    file.write(np.roll(pool, -start, 0)[: min(len(pool), blocks - first)].tobytes())
            else:
                # Routers whose choices differ from token to token; norms of ones.
                values = rng.standard_normal(dims) * 0.05 if "gate_inp" in name else np.ones(dims)
                file.write(values.astype("<f4").tobytes())
            file.write(bytes(-file.tell() % ALIGNMENT))


def find_native() -> None:
    """Builds the extension where it is missing."""
    try:
        from engine import _native  # noqa: F401
    except ImportError:
        import pybind11

        build = ROOT / "build" / "device"
        options = [f"-Dpybind11_DIR={pybind11.get_cmake_dir()}", "-DCMAKE_BUILD_TYPE=Release"]
        subprocess.run(
            ["cmake", "-S", ROOT, "-B", build, f"-DPython_EXECUTABLE={sys.executable}", *options], check=True
        )
        subprocess.run(["cmake", "--build", build, "-j"], check=True)
        for library in build.rglob("_native*.so"):
            shutil.copy(library, ROOT / "engine")


def copies(device: Any) -> str:
    """Many copies on two streams, ordered by nothing but events."""
    import torch

    streams = [device.new_stream(), device.new_stream()]
    host = [device.host_buffer(1 << 16, dtype=torch.float32) for _ in streams]
    back = device.host_buffer(1 << 16, dtype=torch.float32)
    with device.working():
        there = [device.empty(1 << 16) for _ in streams]
        for round in range(50):
            for stream, source, target in zip(streams, host, there, strict=True):
                source.fill_(round)
                device.upload(source, target, stream)
            for stream in streams:
                device.wait_for(device.mark(stream))
            device.download(there[0] + there[1], back)
            device.mark().synchronize()
            if not bool((back == 2 * round).all()):
                return f"wrong in round {round}"
            device.synchronise()
    return "right, page-locked" if device.pinned else "right, not page-locked"


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def check(path: Path, device: str, threads: int, tokens: int) -> list[dict[str, Any]]:
    """A row per plan."""
    import numpy as np

    import engine
    from engine.executors import load
    from engine.hardware.report import CpuReport, DiskReport, GpuReport, HardwareReport, Isa, Kernels, MemoryReport
    from engine.models import model_spec
    from engine.placement.planner import plan as make

    checkpoint = engine.open_checkpoint(path)
    spec = model_spec(checkpoint)
    kernels = Kernels("avx2", "avx2", "avx2")
    cpu = CpuReport(platform.processor(), "", threads, threads, threads, Isa(), kernels, threads)
    total = 1 << 38
    gpu = [GpuReport("GPU", "nvidia", total, total, integrated=False)]
    memory = MemoryReport(total, total)
    report = HardwareReport(cpu, memory, gpu, [], DiskReport("/", 0, 0), {"system": platform.system()}, [])
    experts = make(checkpoint, report, 2048, device="cpu").bytes.ram["experts"]
    dense = make(checkpoint, report, 2048, device=device, max_vram=None).bytes.vram_total - experts
    wishes: dict[str, dict[str, Any]] = {
        "CPU": {"device": "cpu"},
        "experts in RAM": {"device": device, "max_vram": dense + experts // 50},
        "half of them cached": {"device": device, "max_vram": dense + experts // 2},
        "all on the GPU": {"device": device},
    }
    ids = np.random.default_rng(1).integers(0, spec.vocab, 512 + tokens)
    rows: list[dict[str, Any]] = []
    expected = None
    for name, wish in wishes.items():
        plan = make(checkpoint, report, 2048, threads=threads, **wish)
        row: dict[str, Any] = {"plan": name, "mode": plan.mode, "slots": plan.hot_slots}
        rows.append(row)
        try:
            row["load_s"], executor = timed(lambda plan=plan: load(checkpoint, spec, plan))
        except engine.GreenroomError as error:
            row["failed"] = str(error)
            continue
        try:
            logits = executor.forward(ids[:128], "all")
            expected = logits if expected is None else expected
            row["error"] = float(np.sqrt(((logits - expected) ** 2).mean()) / expected.std())
            executor.truncate(0)
            seconds, _ = timed(lambda executor=executor: executor.forward(ids[:512]))
            row["prefill_tps"] = 512 / seconds
            executor.forward(ids[512:513])
            seconds, _ = timed(
                lambda executor=executor: [executor.forward(ids[i : i + 1]) for i in range(513, len(ids))]
            )
            row["decode_tps"] = (tokens - 1) / seconds
            status = executor.status()
            row |= {"handoff_us": 1e6 * status.handoff_s, "hit_rate": status.hit_rate, "notes": list(status.notes)}
            on = getattr(executor, "_device", None)
            if on is not None and on.device.accelerator:
                row |= {"peak_vram": on.device.memory().peak, "planned_vram": plan.bytes.vram_total}
                row["operators"] = dict(on.device.operators)
                on.device.reset_peak()
        except engine.GreenroomError as error:
            row["failed"] = str(error)
        finally:
            executor.close()
    checkpoint.close()
    return rows


def take_along(folder: Path) -> None:
    """Copy what this run has imported from site-packages."""
    names = {name.partition(".")[0] for name in sys.modules} - LEFT_OUT - set(sys.stdlib_module_names)
    for name in sorted(names | {"pybind11"}):
        origin = getattr(sys.modules.get(name) or __import__(name), "__file__", None)
        if origin is None or "site-packages" not in origin:
            continue
        source = Path(origin)
        if source.name == "__init__.py":
            shutil.copytree(
                source.parent, folder / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(source, folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help='"cuda" or "sim"')
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=33)
    parser.add_argument("--out", type=Path, help="where the JSON document goes")
    parser.add_argument("--packages", type=Path, help="a folder that --pack has filled")
    parser.add_argument("--pack", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    sys.path[:0] = [str(ROOT), *([str(args.packages)] if args.packages else [])]
    started = time.perf_counter()
    find_native()
    import torch

    from engine.executors.devices import open_device

    simulated = args.device.startswith("sim") or args.pack
    device = open_device("sim" if args.pack else "cuda:0" if args.device == "cuda" else args.device)
    shape = TINY if simulated else Shape(args.layers)
    name = torch.cuda.get_device_name() if device.torch_device.type == "cuda" else device.name
    document: dict[str, Any] = {
        "device": name,
        "machine": platform.node(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "shape": vars(shape),
        "copies": copies(device),
        "graph": device.no_graphs() or "can be captured",
    }
    device.close()
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder) / "model.gguf", shape)
        wished = "sim" if args.pack else args.device
        document["plans"] = check(Path(folder) / "model.gguf", wished, 1 if simulated else args.threads, args.tokens)
    document["seconds"] = time.perf_counter() - started
    print(f"{name}, torch {torch.__version__}; copies: {document['copies']}; graph: {document['graph']}")
    print(f"{'plan':22}{'mode':9}{'slots':>6}{'error':>8}{'prefill':>9}{'decode':>8}{'hand-off':>9}  VRAM peak / plan")
    failed = False
    for row in document["plans"]:
        failed |= "failed" in row or not row["error"] < 0.05
        if "failed" in row:
            print(f"{row['plan']:22}{row['mode']:9}{row['failed']}")
            continue
        vram = f"{row['peak_vram'] / 1e6:.0f} / {row['planned_vram'] / 1e6:.0f} MB" if "peak_vram" in row else ""
        figures = f"{row['error']:8.4f}{row['prefill_tps']:9.1f}{row['decode_tps']:8.2f}{row['handoff_us']:7.0f}us"
        print(f"{row['plan']:22}{row['mode']:9}{row['slots']:6}{figures}  {vram}")
        for note in row["notes"]:
            print(f"  {note}")
    if args.out:
        args.out.write_text(json.dumps(document, indent=1))
    if args.pack:
        args.pack.mkdir(parents=True, exist_ok=True)
        take_along(args.pack)
    return int(failed)


if __name__ == "__main__":
    from engine.errors import GreenroomError

    try:
        sys.exit(main())
    except GreenroomError as error:
        sys.exit(str(error))
