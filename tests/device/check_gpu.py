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
#: How much larger an expert's matrices make what they are given.
EXPERT_GAIN = 0.7


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


#: What is computed exactly: in float32 its experts take 1.2 GB of RAM.
EXACT = Shape(2, experts=32)
TINY = Shape(3, hidden=256, intermediate=256, experts=32, top_k=4, heads=4, kv_heads=2, head_dim=64, vocab=1024)


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
    codes = rng.integers(0, 256, (1 << 16, BLOCK_BYTES), np.uint8)
    scales = rng.uniform(0.5, 1.5, 1 << 16)

    def pool(strength: float) -> Any:
        """Blocks whose values are about as large as strength."""
        blocks = codes.copy()
        blocks[:, :2] = (scales * strength / 4.6).astype("<f2")[:, None].view(np.uint8)
        return blocks

    usual = pool(0.02)
    with path.open("wb") as file:
        file.write(b"GGUF" + pack("<IQQ", 3, len(infos), len(entries)) + b"".join(entries) + b"".join(infos))
        file.write(bytes(-file.tell() % ALIGNMENT))
        for name, dims, coded in listed:
            count = int(np.prod(dims))
            if coded:
                # Experts loud enough for a wrong one to be heard in the logits.
                chosen = pool(EXPERT_GAIN * dims[-1] ** -0.5) if "_exps" in name else usual
                blocks = count // BLOCK_VALUES
                for first in range(0, blocks, len(chosen)):
                    start = int(rng.integers(len(chosen)))
                    file.write(np.roll(chosen, -start, 0)[: min(len(chosen), blocks - first)].tobytes())
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


def check(path: Path, device: str, threads: int, tokens: int, dtype: str = "auto") -> list[dict[str, Any]]:
    """A row per plan. Errors are of logits, in standard deviations of the CPU's: of a prompt, of the same with weights
    streamed to the device, and of an answer's tokens.
    """
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
    experts = make(checkpoint, report, 2048, device="cpu", dtype=dtype).bytes.ram["experts"]
    on_gpu = make(checkpoint, report, 2048, device=device, dtype=dtype)
    dense = on_gpu.bytes.vram_total - on_gpu.bytes.vram["experts"]
    wishes: dict[str, tuple[str, dict[str, Any]]] = {
        "CPU": ("cpu", {"device": "cpu"}),
        "experts in RAM": ("hybrid", {"device": device, "max_vram": dense + experts // 50}),
        "half of them cached": ("hybrid", {"device": device, "max_vram": dense + experts // 2}),
        "all on the GPU": ("all_gpu", {"device": device}),
    }
    if dtype == "float32":
        # What is held there as the file stores it takes less than the copies would.
        wishes.pop("half of them cached")
    ids = np.random.default_rng(1).integers(0, spec.vocab, 512 + tokens)
    rows: list[dict[str, Any]] = []
    expected: dict[str, Any] = {}

    def compare(row: dict[str, Any], part: str, logits: Any) -> None:
        right = expected.setdefault(part.removeprefix("streamed_"), logits)
        row[part + "error"] = float(np.sqrt(((logits - right) ** 2).mean()) / right.std())
        # How much less the CPU thinks of the tokens that are chosen here.
        chosen = np.take_along_axis(right, logits.argmax(1)[:, None], 1)[:, 0]
        row["greedy"] = max(row.get("greedy", 0.0), float((right.max(1) - chosen).max() / right.std()))

    for name, (mode, wish) in wishes.items():
        plan = make(checkpoint, report, 2048, threads=threads, dtype=dtype, **wish)
        exact = ", exact" if dtype == "float32" else ""
        row: dict[str, Any] = {"plan": name + exact, "mode": plan.mode, "wished": mode, "slots": plan.hot_slots}
        row["exact"] = bool(exact)
        rows.append(row)
        try:
            row["load_s"], executor = timed(lambda plan=plan: load(checkpoint, spec, plan))
        except engine.GreenroomError as error:
            row["failed"] = str(error)
            continue
        try:
            compare(row, "", executor.forward(ids[:128], "all"))
            executor.truncate(0)
            seconds, _ = timed(lambda executor=executor: executor.forward(ids[:512]))
            row["prefill_tps"] = 512 / seconds
            executor.forward(ids[512:513])
            seconds, answer = timed(
                lambda executor=executor: [executor.forward(ids[i : i + 1]) for i in range(513, len(ids))]
            )
            row["decode_tps"] = (tokens - 1) / seconds
            compare(row, "decode_", np.concatenate(answer))
            status = executor.status()
            row |= {"handoff_us": 1e6 * status.handoff_s, "hit_rate": status.hit_rate, "notes": list(status.notes)}
            store = getattr(executor, "_experts", None)
            if getattr(store, "_stream", None) is not None:
                store.speeds.cpu = dict.fromkeys(range(1, 16), 1.0)  # streamed whatever is sooner
                executor.truncate(0)
                compare(row, "streamed_", executor.forward(ids[:128], "all"))
                row["prefill"] = executor.status().prefill
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


def problems(document: dict[str, Any]) -> Iterator[str]:
    """What is wrong, and where to look: a line each."""
    if not document["copies"].startswith("right"):
        yield f"copies between RAM and the device are {document['copies']}: no other figure here means anything"
    for row in document["plans"]:
        name = row["plan"]
        if "failed" in row:
            yield f"{name}: {row['failed']}"
            continue
        if row["mode"] != row["wished"]:
            yield f"{name}: the plan is {row['mode']} where it should be {row['wished']} (engine/placement)"
        errors = {
            "a prompt": row["error"],
            "a prompt with streamed weights": row.get("streamed_error", 0.0),
            "an answer": row["decode_error"],
        }
        for what, error in errors.items():
            if not error < (1e-3 if row["exact"] else 0.05):  # NaN is none
                yield f"{name}: {what} is off by {error:.2g} standard deviations of the CPU's logits (engine/executors)"
        if row["exact"] and not row["greedy"] < 1e-3:
            yield f"{name}: the most likely token is another than on the CPU"
        if row.get("prefill", "streamed") != "streamed":
            yield f"{name}: weights of a prompt were to be streamed and were not"
        if row.get("peak_vram", 0) > 1.05 * row.get("planned_vram", 0):
            yield f"{name}: took more VRAM than planned (engine/placement/device_buffers.py)"


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
    find_native()
    from engine.errors import GreenroomError

    try:
        return run(args)
    except GreenroomError as error:
        sys.exit(str(error))


def run(args: argparse.Namespace) -> int:
    """1 where something is wrong."""
    started = time.perf_counter()
    import torch

    from engine.executors.opening import open_device

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
        wished, threads = "sim" if args.pack else args.device, 1 if simulated else args.threads
        document["plans"] = []
        for kind, made in {"auto": shape, "float32": TINY if simulated else EXACT}.items():
            path = Path(folder) / f"{kind}.gguf"
            write_model(path, made)
            document["plans"] += check(path, wished, threads, args.tokens, kind)
            path.unlink()
    document["seconds"] = time.perf_counter() - started
    document["problems"] = list(problems(document))
    show(document)
    if args.out:
        args.out.write_text(json.dumps(document, indent=1))
    if args.pack:
        args.pack.mkdir(parents=True, exist_ok=True)
        take_along(args.pack)
    return int(bool(document["problems"]))


def show(document: dict[str, Any]) -> None:
    print(f"{document['device']}, torch {document['torch']}, Python {document['python']}")
    print(f"copies: {document['copies']}; graph: {document['graph']}")
    print(f"{'':28}{'off from the CPU':>24}{'tokens a second':>17}{'hand-off':>10}{'hits':>6}  VRAM, MB")
    print(f"{'plan':22}{'slots':>6}{'prompt':>9}{'answer':>8}{'stream':>7}{'prompt':>9}{'answer':>8}{'us':>10}"
          f"{'':8}peak / plan")  # fmt: skip
    for row in document["plans"]:
        if "failed" in row:
            print(f"{row['plan']:22}  FAILED")
            continue
        stream = f"{row['streamed_error']:7.4f}" if "streamed_error" in row else f"{'':7}"
        hits = f"{row['hit_rate']:6.0%}" if row["hit_rate"] is not None else f"{'':6}"
        vram = f"{row['peak_vram'] / 1e6:.0f} / {row['planned_vram'] / 1e6:.0f}" if "peak_vram" in row else ""
        print(
            f"{row['plan']:22}{row['slots']:6}{row['error']:9.4f}{row['decode_error']:8.4f}{stream}"
            f"{row['prefill_tps']:9.1f}{row['decode_tps']:8.2f}{row['handoff_us']:10.0f}{hits}  {vram}"
        )
        for note in row["notes"]:
            print(f"  {note}")
    print()
    for problem in document["problems"]:
        print(f"WRONG  {problem}")
    if document["problems"]:
        print("Please report this text, and the file of --out, with the card, its driver and the operating system.")
    else:
        print("Everything is as it should be: every plan computes what the CPU does, in the memory it was promised.")


if __name__ == "__main__":
    sys.exit(main())
