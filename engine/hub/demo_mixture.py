"""A dense llama GGUF rearranged into a mixture of experts, in the qwen2moe form that other programs read too.

- Attention, embeddings and the gate and up rows of every feed-forward neuron keep their stored bits; rows only move.
- q and k rows leave the interleaved rotary order of llama files for the half-split one of qwen2moe.
- Down columns are corrected, moved and stored again as Q8_0.
- Every chosen expert has the same weight: the router is so small that its softmax is 1/experts to within a fraction of
  a percent (only the order counts), and the routed down matrices are multiplied by the number of experts. The gate of
  the shared expert is as good as zero, its sigmoid one half, and the shared down matrix doubled.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import gguf
import numpy as np
import numpy.typing as npt
from gguf.quants import dequantize, quantize

from engine.checkpoints.file_bytes import read_bytes
from engine.checkpoints.gguf_header import read_header
from engine.progress import Progress, ProgressCallback, ignore_progress
from engine.words import say

Array = npt.NDArray[Any]

MODEL_NAME = "Greenroom demo (SmolLM2-135M as a mixture of experts)"

#: Stored routers give logits within about 1 of their mean. This small, their softmax is 1/experts to within 0.5 %,
#: and float32, which resolves 6e-8 of a weight, still keeps the experts in order.
_ROUTER_SPREAD = 0.005
#: The shared gate must not be exactly zero: some programs compute sigmoid(x) as silu(x) / x.
_SHARED_GATE = 2.0**-16
#: What a tokenizer's single settings are stored as.
_KINDS = {
    str: gguf.GGUFValueType.STRING,
    bool: gguf.GGUFValueType.BOOL,
    int: gguf.GGUFValueType.UINT32,
    float: gguf.GGUFValueType.FLOAT32,
}


@dataclass(frozen=True)
class Parts:
    """What was learned. L layers, H hidden width, F feed-forward neurons, E experts, r rank.

    order:     int16 [L, F], the old neuron at each new place: the shared expert's first, then expert after expert
    router:    int8 [L, E, H], router_scale: float32 [L, E]; logits within about 1 of their mean over the experts
    out, inn:  int8 [L, H, r] and [L, r, F], rank_scale: float32 [L, r]; columns of down in the new order become
    gain:      (down + (out * rank_scale) @ inn) * gain, gain float16 [L, F]
    norms:     float16 [2 L + 1, H], added to 1 the factors of attn_norm and ffn_norm of each layer, then output_norm
    """

    shared: int
    experts: int
    used: int
    order: Array
    router: Array
    router_scale: Array
    out: Array
    inn: Array
    rank_scale: Array
    gain: Array
    norms: Array

    @property
    def layers(self) -> int:
        return int(self.order.shape[0])

    @property
    def width(self) -> int:
        """Neurons of one routed expert."""
        return (int(self.order.shape[1]) - self.shared) // self.experts


def load_parts(path: Path) -> Parts:
    """The learned parts from an .npz file."""
    with np.load(path, allow_pickle=False) as stored:
        shared, experts, used = (int(n) for n in stored["shape"])
        arrays = {name: stored[name] for name in stored.files if name != "shape"}
    return Parts(shared, experts, used, **arrays)


class _Dense:
    """The stored tensors of the dense file, as rows of bytes or values, and its settings."""

    def __init__(self, path: Path) -> None:
        self.header = read_header(path)

    def stored(self, name: str) -> tuple[Array, gguf.GGMLQuantizationType]:
        """float32 of the tensor's shape, or uint8 [rows, bytes of a row], and what it is stored as."""
        tensor = self.header.tensors[name]
        data: Array = read_bytes(tensor.path, tensor.offset, tensor.nbytes)
        if tensor.format == "F32":
            return data.view(np.float32).reshape(tensor.shape), gguf.GGMLQuantizationType.F32
        return data.reshape(tensor.shape[0], -1), gguf.GGMLQuantizationType[tensor.format]

    def values(self, name: str) -> Array:
        data, kind = self.stored(name)
        values: Array = dequantize(data, kind)
        return values

    def metadata(self, key: str) -> Any:
        return self.header.config[key]

    def copy_tokenizer(self, writer: gguf.GGUFWriter) -> None:
        header = self.header
        for key, value in header.config.items():
            if key.startswith("tokenizer."):
                writer.add_key_value(key, value, _KINDS[type(value)])
        for key, array in header.arrays.items():
            if key.startswith("tokenizer."):
                kind = gguf.GGUFValueType(array.kind)
                values = header.strings(key) if kind is gguf.GGUFValueType.STRING else header.numbers(key).tolist()
                writer.add_key_value(key, values, gguf.GGUFValueType.ARRAY, kind)


def write_demo(dense: Path, target: Path, parts: Parts, progress: ProgressCallback = ignore_progress) -> None:
    """Write the mixture-of-experts GGUF for one checked dense file. The same input gives the same bytes."""
    source = _Dense(dense)
    writer = gguf.GGUFWriter(target, "qwen2moe")
    try:
        _write_metadata(writer, source, parts)
        _add_embeddings(writer, source, parts)
        for layer in range(parts.layers):
            progress(
                Progress(
                    layer,
                    parts.layers,
                    say("Rearranging layer {layer} of {layers} into experts", layer=layer + 1, layers=parts.layers),
                )
            )
            _add_attention(writer, source, parts, layer)
            _add_experts(writer, source, parts, layer)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()
    progress(Progress(parts.layers, parts.layers, say("The demo model is ready")))


def _write_metadata(writer: gguf.GGUFWriter, source: _Dense, parts: Parts) -> None:
    writer.add_type("model")
    writer.add_name(MODEL_NAME)
    writer.add_license("apache-2.0")
    writer.add_languages(["en"])
    writer.add_base_model_count(1)
    writer.add_base_model_name(0, "SmolLM2-135M-Instruct")
    writer.add_base_model_organization(0, "HuggingFaceTB")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_1)
    writer.add_quantization_version(source.metadata("general.quantization_version"))
    writer.add_block_count(source.metadata("llama.block_count"))
    writer.add_context_length(source.metadata("llama.context_length"))
    writer.add_embedding_length(source.metadata("llama.embedding_length"))
    writer.add_feed_forward_length(source.metadata("llama.feed_forward_length"))
    writer.add_head_count(source.metadata("llama.attention.head_count"))
    writer.add_head_count_kv(source.metadata("llama.attention.head_count_kv"))
    writer.add_rope_freq_base(source.metadata("llama.rope.freq_base"))
    writer.add_layer_norm_rms_eps(source.metadata("llama.attention.layer_norm_rms_epsilon"))
    writer.add_vocab_size(source.metadata("llama.vocab_size"))
    writer.add_expert_count(parts.experts)
    writer.add_expert_used_count(parts.used)
    writer.add_expert_feed_forward_length(parts.width)
    writer.add_expert_shared_feed_forward_length(parts.shared)
    source.copy_tokenizer(writer)


def _add_embeddings(writer: gguf.GGUFWriter, source: _Dense, parts: Parts) -> None:
    data, kind = source.stored("token_embd.weight")
    writer.add_tensor("token_embd.weight", data, raw_dtype=kind)
    # the dense model shares this matrix with its output; readers of qwen2moe expect both
    writer.add_tensor("output.weight", data, raw_dtype=kind)
    writer.add_tensor("output_norm.weight", _norm(source, "output_norm.weight", parts.norms[-1]))


def _norm(source: _Dense, name: str, change: Array) -> Array:
    weight: Array = source.values(name) * (np.float32(1) + change.astype(np.float32))
    return weight


def _add_attention(writer: gguf.GGUFWriter, source: _Dense, parts: Parts, layer: int) -> None:
    name = f"blk.{layer}.attn_"
    writer.add_tensor(f"{name}norm.weight", _norm(source, f"{name}norm.weight", parts.norms[2 * layer]))
    heads = {"q": "llama.attention.head_count", "k": "llama.attention.head_count_kv"}
    for projection in ("q", "k", "v"):
        data, kind = source.stored(f"{name}{projection}.weight")
        if projection in heads:
            data = data[half_split_rows(data.shape[0], source.metadata(heads[projection]))]
        writer.add_tensor(f"{name}{projection}.weight", data, raw_dtype=kind)
        writer.add_tensor(f"{name}{projection}.bias", np.zeros(data.shape[0], np.float32))
    data, kind = source.stored(f"{name}output.weight")
    writer.add_tensor(f"{name}output.weight", data, raw_dtype=kind)


def half_split_rows(rows: int, heads: int) -> Array:
    """For each row of a half-split rotary projection, its row in the interleaved one. int64 [rows]"""
    return np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(rows)


def _add_experts(writer: gguf.GGUFWriter, source: _Dense, parts: Parts, layer: int) -> None:
    name, order, shared = f"blk.{layer}.ffn_", parts.order[layer], parts.shared
    writer.add_tensor(f"{name}norm.weight", _norm(source, f"{name}norm.weight", parts.norms[2 * layer + 1]))
    writer.add_tensor(f"{name}gate_inp.weight", router_weight(parts, layer))
    writer.add_tensor(f"{name}gate_inp_shexp.weight", np.full(parts.router.shape[2], _SHARED_GATE, np.float32))
    for projection in ("gate", "up"):
        data, kind = source.stored(f"{name}{projection}.weight")
        moved = data[order]
        writer.add_tensor(f"{name}{projection}_shexp.weight", moved[:shared], raw_dtype=kind)
        experts = moved[shared:].reshape(parts.experts, parts.width, -1)
        writer.add_tensor(f"{name}{projection}_exps.weight", experts, raw_dtype=kind)
    down = corrected_down(source.values(f"{name}down.weight"), parts, layer)
    kind = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor(f"{name}down_shexp.weight", quantize(2 * down[:, :shared], kind), raw_dtype=kind)
    routed = down[:, shared:].reshape(-1, parts.experts, parts.width).swapaxes(0, 1)
    writer.add_tensor(
        f"{name}down_exps.weight", quantize(np.ascontiguousarray(parts.experts * routed), kind), raw_dtype=kind
    )


def router_weight(parts: Parts, layer: int) -> Array:
    """float32 [E, H], scaled so far down that every softmax weight is about 1/experts."""
    weight = parts.router[layer].astype(np.float32) * parts.router_scale[layer][:, None]
    return cast(Array, weight * np.float32(_ROUTER_SPREAD))


def corrected_down(down: Array, parts: Parts, layer: int) -> Array:
    """float32 [H, F]: the columns of `down` in the new order, with the learned correction and gain."""
    # float64 sums are the same everywhere once rounded to float32, whatever order a BLAS adds in
    outward = parts.out[layer].astype(np.float64) * parts.rank_scale[layer].astype(np.float64)
    correction = (outward @ parts.inn[layer].astype(np.float64)).astype(np.float32)
    return cast(Array, (down[:, parts.order[layer]] + correction) * parts.gain[layer].astype(np.float32))
