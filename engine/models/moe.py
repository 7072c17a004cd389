"""What the MoE families share: which layers are sparse, and the router's switches."""

from __future__ import annotations

from engine.models.header import Header
from engine.models.spec import MlpSpec, MoeSpec
from engine.models.weights import WeightMap

#: config.json's two ways of naming the dense layers of a sparse model.
DENSE_LAYER_KEYS: dict[str, tuple[str, ...]] = {
    "sparse_step": ("decoder_sparse_step",),
    "dense_layers": ("mlp_only_layers",),
}


def dense_layers(header: Header, weights: WeightMap, layers: int) -> frozenset[int]:
    """Layers with a plain MLP. GGUF has no key for them: there the tensors tell."""
    if header.checkpoint.form == "gguf":
        return frozenset(i for i in range(layers) if not weights.is_moe(i) and weights.has("ffn.gate", i))
    step = header.integer("sparse_step", 1, limit=1 << 20)
    named = header.get("dense_layers") or []
    if not isinstance(named, list) or not all(isinstance(i, int) for i in named):
        raise header.fail(f'its header\'s "{header.key("dense_layers")}" is not a list of layer numbers')
    return frozenset(i for i in range(layers) if i in set(named) or (i + 1) % step)


def moe_spec(
    header: Header,
    weights: WeightMap,
    layer: int,
    *,
    renormalise: bool,
    shared: MlpSpec | None = None,
    shared_gated: bool = False,
) -> MoeSpec:
    """Softmax over all experts, then top-k. renormalise holds when the header does not say."""
    experts = header.integer("experts")
    top_k = header.integer("top_k")
    if top_k > experts:
        raise header.fail(f"its header asks for {top_k} of only {experts} experts per token")
    return MoeSpec(
        experts=experts,
        top_k=top_k,
        intermediate=header.integer("expert_intermediate", weights.expert_intermediate(layer)),
        renormalise=header.flag("renormalise", renormalise),
        shared=shared,
        shared_gated=shared_gated,
    )
