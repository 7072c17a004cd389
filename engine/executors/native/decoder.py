"""The whole model as one native object: a token is then one call, with no Python or torch operation in between.

It is made of the very matrices, experts and attention kernels of the blocks that were loaded, does the same arithmetic
in the same order, and gives the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from engine import _native
from engine.executors.kv_cache import NativeKv
from engine.executors.layer import Layer, Mixer
from engine.executors.linear import Linear, NativeLinear
from engine.executors.mlp import Mlp, NativeMlp
from engine.executors.moe import Moe, ParallelMoe
from engine.executors.native.blocks import NativeAttention, NativeConvState, NativeRouter, NativeShortConv
from engine.executors.native.expert_store import ExpertStore
from engine.executors.norms import NativeLayerNorm, NativeRmsNorm, Norm
from engine.executors.rope import Rope
from engine.models.spec import RopeSpec

Floats = npt.NDArray[np.float32]


class NativeDecoder:
    """From embeddings to logits."""

    def __init__(
        self,
        pool: _native.ThreadPool,
        layers: Sequence[Layer],
        norm: Norm,
        head: Linear,
        ropes: Mapping[RopeSpec, Rope],
    ) -> None:
        """Raises TypeError when some block is torch's."""
        self._pool = pool
        self._vocab = head.rows
        places = {rope: place for place, rope in enumerate(ropes)}
        tables = [(rope.frequencies.tolist(), rope.magnitude) for rope in ropes.values()]
        self._states: list[NativeKv | NativeConvState] = []
        blocks = [self._layer(layer, places) for layer in layers]
        self._decoder = _native.Decoder(tables, blocks, _norm(norm), _linear(head))

    def forward(self, x: Floats, start: int, *, last_only: bool, draft: bool) -> Floats:
        """x float32 [T, hidden], overwritten -> logits float32 [T, vocab], or [1, vocab] of the last token.

        Raises _native.Interrupted.
        """
        tokens = x.shape[0]
        logits = np.empty((1 if last_only else tokens, self._vocab), np.float32)
        for state in self._states:
            state.reserve(start, start + tokens, draft=draft)
        self._decoder.forward(self._pool, x.ctypes.data, tokens, start, last_only, logits.ctypes.data)
        return logits

    def _layer(self, layer: Layer, places: Mapping[RopeSpec, int]) -> _native.LayerBlock:
        post_norms = layer.post_norms
        return _native.LayerBlock(
            _norm(layer.mixer_norm),
            self._mixer(layer.mixer, places),
            _norm(layer.ffn_norm),
            _ffn(layer.ffn),
            None if post_norms is None else _norm(post_norms[0]),
            None if post_norms is None else _norm(post_norms[1]),
            layer.multiplier,
            layer.output_scale,
        )

    def _mixer(self, mixer: Mixer, places: Mapping[RopeSpec, int]) -> _native.AttentionBlock | _native.ConvBlock:
        if isinstance(mixer, NativeShortConv):
            self._states.append(mixer.state)
            inputs, out = _linear(mixer.inputs, mixer.in_bias), _linear(mixer.out, mixer.out_bias)
            return _native.ConvBlock(inputs, mixer.kernel, out, *mixer.addresses)
        if not isinstance(mixer, NativeAttention):
            raise _of_torch(mixer)
        self._states.append(mixer.state)
        rope = None if mixer.rope is None else places[mixer.rope]
        return _native.AttentionBlock(
            _linear(mixer.qkv), mixer.kernel, _linear(mixer.o, mixer.o_bias), rope, mixer.state.address
        )


def _of_torch(block: object) -> TypeError:
    return TypeError(f"{type(block).__name__} has no kernel")


def _norm(norm: Norm) -> _native.NormBlock:
    if isinstance(norm, NativeLayerNorm):
        return _native.NormBlock(norm.weight, norm.bias, norm.eps)
    if isinstance(norm, NativeRmsNorm):
        return _native.NormBlock(norm.weight, None, norm.eps)
    raise _of_torch(norm)


def _linear(linear: Linear, bias: Floats | None = None) -> _native.LinearBlock:
    if not isinstance(linear, NativeLinear):
        raise _of_torch(linear)
    return _native.LinearBlock(linear.parts, bias)


def _mlp(mlp: Mlp) -> _native.MlpBlock:
    if not isinstance(mlp, NativeMlp):
        raise _of_torch(mlp)
    return _native.MlpBlock(mlp.expert)


def _moe(moe: Moe) -> _native.MoeBlock:
    router, experts = moe.router, moe.experts
    if not isinstance(router, NativeRouter) or not isinstance(experts, ExpertStore) or experts.overlaps:
        raise _of_torch(moe)
    return _native.MoeBlock(
        _linear(router.logits),
        router.kernel,
        None if router.norm is None else _norm(router.norm),
        experts.experts(moe.layer),
        moe.weigh_input,
        None if moe.shared is None else _mlp(moe.shared),
    )


def _ffn(ffn: Mlp | Moe | ParallelMoe) -> _native.MlpBlock | _native.MoeBlock | _native.ParallelBlock:
    if isinstance(ffn, Moe):
        return _moe(ffn)
    if isinstance(ffn, ParallelMoe):
        return _native.ParallelBlock(
            _mlp(ffn.dense), _norm(ffn.dense_post_norm), _norm(ffn.norm), _moe(ffn.experts), _norm(ffn.post_norm)
        )
    return _mlp(ffn)
