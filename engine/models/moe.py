"""What the MoE families share: which layers are sparse, and the router's switches."""

from __future__ import annotations

from dataclasses import replace

from engine.models.header import Header
from engine.models.spec import MlpSpec, MoeSpec
from engine.models.weights import WeightMap

#: config.json's two ways of naming the dense layers of a sparse model.
DENSE_LAYER_KEYS: dict[str, tuple[str, ...]] = {
    "sparse_step": ("decoder_sparse_step",),
    "dense_layers": ("mlp_only_layers",),
}


def dense_layers(header: Header, weights: WeightMap, layers: int) -> frozenset[int]:
    """Layers with a plain MLP, by step and list. GGUF has no key for them: there the tensors tell."""
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
    top_k: int | None = None,
    shared: MlpSpec | None = None,
    shared_gated: bool = False,
) -> MoeSpec:
    """Softmax over all experts, then top-k; families `replace` what differs.

    renormalise: holds when the header does not say
    top_k:       for a family whose header gives it another way
    """
    experts = header.integer("experts")
    top_k = header.integer("top_k") if top_k is None else top_k
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


#: How headers call sigmoid scores; GGUF by number.
SIGMOID = ("sigmoid", "noaux_tc", 2)


def grouped_sigmoid(header: Header, moe: MoeSpec, *, groups: int = 1, scale: float = 1.0) -> MoeSpec:
    """DeepSeek-V3's router: sigmoid scores, chosen with a bias from the best groups of experts.

    groups, scale: hold when the header does not say
    """
    score = header.get("score")
    if score is not None and score not in SIGMOID:
        raise header.fail(
            f'its header says "{header.key("score")}" is {score!r:.40}, a router that this family is not computed with',
            "Choose another model.",
        )
    groups = header.integer("groups", groups)
    top_groups = header.integer("top_groups", groups)
    if moe.experts % groups or top_groups > groups or moe.top_k > top_groups * (moe.experts // groups):
        raise header.fail(
            f"its header chooses {moe.top_k} of {moe.experts} experts from {top_groups} of {groups} groups, "
            "which is impossible"
        )
    return replace(
        moe,
        score="sigmoid",
        choice_bias=True,
        groups=groups,
        top_groups=top_groups,
        renormalise_eps=1e-20,
        scale=header.number("scale", 1e-6, 1e6, scale),
    )
