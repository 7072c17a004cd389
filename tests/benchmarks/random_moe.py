"""Writes a mixture of experts of any size as GGUF, with random weights in the stored format itself.

    python tests/benchmarks/random_moe.py OUT.gguf --format Q4_0 --layers 6

Speed does not depend on what the weights say, so nothing is quantised: codes are random bytes, scales small numbers.
The default shape is a layer of Qwen3-30B-A3B. Needs the test extra (gguf).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

#: A scale as float16 that keeps values of any code near those of a trained matrix.
_SCALE = np.float16(2e-3).view(np.uint16)
#: Where the float16 scales (and minima) lie in a block of each format.
_SCALES = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q4_K": (0, 2), "Q5_K": (0, 2),
           "Q6_K": (208,), "IQ4_NL": (0,)}  # fmt: skip
#: Weights are drawn from a pool of this many bytes: drawing each anew would take minutes a gigabyte.
_POOL = 1 << 24


@dataclass(frozen=True)
class Shape:
    layers: int = 6
    hidden: int = 2048
    intermediate: int = 768
    experts: int = 128
    top_k: int = 8
    heads: int = 32
    kv_heads: int = 4
    head_dim: int = 128
    vocab: int = 4096
    tied: bool = False


def write(path: Path, shape: Shape, form: str, seed: int = 0) -> None:
    """form: "BF16" or a block format with float16 scales; the router and the norms are F32."""
    writer = gguf.GGUFWriter(path, "qwen3moe")
    writer.add_name("random mixture of experts")
    writer.add_context_length(32768)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.intermediate * shape.top_k)
    writer.add_expert_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_expert_count(shape.experts)
    writer.add_expert_used_count(shape.top_k)
    _add_vocabulary(writer, shape.vocab)
    kind = gguf.GGMLQuantizationType[form]
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    tensors = list(_tensors(shape))
    for name, dims, is_matrix in tensors:
        count = int(np.prod(dims))
        if is_matrix:
            stored = (*dims[:-1], dims[-1] // block * block_bytes)
            writer.add_tensor_info(name, stored, np.dtype(np.uint8), count // block * block_bytes, raw_dtype=kind)
        else:
            writer.add_tensor_info(name, dims, np.dtype(np.float32), 4 * count)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    rng = np.random.default_rng(seed)
    pool = _pool(rng, form, block_bytes)
    for _, dims, is_matrix in tensors:
        count = int(np.prod(dims))
        if is_matrix:
            writer.write_tensor_data(_drawn(rng, pool, count // block * block_bytes, block_bytes))
        elif len(dims) > 1:
            writer.write_tensor_data(rng.standard_normal(dims, dtype=np.float32) * np.float32(0.05))
        else:
            writer.write_tensor_data(np.ones(dims, np.float32))
    writer.close()


def _tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    """Name, shape in rows first, and whether it is a matrix in the stored format."""
    hidden, wide = shape.hidden, shape.intermediate
    yield "token_embd.weight", (shape.vocab, hidden), True
    yield "output_norm.weight", (hidden,), False
    if not shape.tied:
        yield "output.weight", (shape.vocab, hidden), True
    for layer in range(shape.layers):
        prefix, queries, keys = f"blk.{layer}.", shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        yield prefix + "attn_norm.weight", (hidden,), False
        yield prefix + "attn_q.weight", (queries, hidden), True
        yield prefix + "attn_k.weight", (keys, hidden), True
        yield prefix + "attn_v.weight", (keys, hidden), True
        yield prefix + "attn_output.weight", (hidden, queries), True
        yield prefix + "attn_q_norm.weight", (shape.head_dim,), False
        yield prefix + "attn_k_norm.weight", (shape.head_dim,), False
        yield prefix + "ffn_norm.weight", (hidden,), False
        yield prefix + "ffn_gate_inp.weight", (shape.experts, hidden), False
        yield prefix + "ffn_gate_exps.weight", (shape.experts, wide, hidden), True
        yield prefix + "ffn_up_exps.weight", (shape.experts, wide, hidden), True
        yield prefix + "ffn_down_exps.weight", (shape.experts, hidden, wide), True


def _add_vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    """One token per byte, fillers, and an end of text that random weights hardly ever choose."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(b if b in shown else 256 + sum(other not in shown for other in range(b))) for b in range(256)]
    fillers = ["th", *(f"<filler {i}>" for i in range(size - 258))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*letters, *fillers, "<|endoftext|>"])
    writer.add_token_types([gguf.TokenType.NORMAL] * (size - 1) + [gguf.TokenType.CONTROL])
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(size - 1)
    writer.add_add_bos_token(False)


def _pool(rng: np.random.Generator, form: str, block_bytes: int) -> np.ndarray:
    if form == "BF16":
        values = (rng.standard_normal(_POOL // 2, dtype=np.float32) * np.float32(0.02)).view(np.uint32)
        return (values >> 16).astype(np.uint16).view(np.uint8)
    blocks = rng.integers(0, 256, (_POOL // block_bytes, block_bytes), np.uint8)
    for at in _SCALES[form]:
        blocks[:, at : at + 2] = np.frombuffer(_SCALE.tobytes(), np.uint8)
    return blocks.reshape(-1)


def _drawn(rng: np.random.Generator, pool: np.ndarray, nbytes: int, block_bytes: int) -> np.ndarray:
    out = np.empty(nbytes, np.uint8)
    done = 0
    while done < nbytes:
        count = min(nbytes - done, len(pool) // 2 // block_bytes * block_bytes)
        start = int(rng.integers(0, (len(pool) - count) // block_bytes)) * block_bytes
        out[done : done + count] = pool[start : start + count]
        done += count
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--format", default="Q4_0", choices=["BF16", *_SCALES])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tied", action="store_true", help="the output head is the embedding")
    defaults = Shape()
    sizes = [name for name in Shape.__dataclass_fields__ if name != "tied"]
    for name in sizes:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(defaults, name))
    args = parser.parse_args()
    shape = Shape(**{name: getattr(args, name) for name in sizes}, tied=args.tied)
    write(args.out, shape, args.format, args.seed)


if __name__ == "__main__":
    main()
