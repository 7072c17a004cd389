"""Configs of tiny models of every family, each switch in some of them."""

from __future__ import annotations

from typing import Any

#: The last three are asked for by llama.cpp's converter of GLM.
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "[gMASK]", "<|user|>", "<|observation|>")
MERGES = (("t", "h"), ("th", "e"), ("a", "n"), ("i", "n"), ("Ġ", "the"), ("e", "r"), ("o", "n"), ("Ġ", "a"))
#: One token per byte, the merges' results, and the special tokens, some of them spare: every row has its token.
VOCAB = 288
BOS, EOS = 256 + len(MERGES), 258 + len(MERGES)

SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "pad_token_id": None,
}
MOE = {"intermediate_size": 96, "moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2}
DEEPSEEK_MOE = {
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.5,
    "norm_topk_prob": True,
    "scoring_func": "sigmoid",
}
LOCAL_MOE = {"intermediate_size": 32, "num_local_experts": 8, "num_experts_per_tok": 2}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "original_max_position_embeddings": 64,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
GRANITE = {
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.35,
    "residual_multiplier": 0.6,
    "logits_scaling": 2.5,
    "tie_word_embeddings": True,
}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.1, 1.3, 1.6, 1.9, 2.3, 2.8, 3.4],
    "long_factor": [1.0, 1.6, 2.7, 4.1, 6.3, 9.2, 13.0, 17.0],
    # What llama.cpp's converter computes from the two contexts, whatever the file says: sqrt(1 + ln 8 / ln 64).
    "short_mscale": 1.5**0.5,
    "long_mscale": 1.5**0.5,
    "original_max_position_embeddings": 64,
}
PHIMOE = {**LOCAL_MOE, "attention_bias": True, "lm_head_bias": True, "rope_parameters": LONGROPE}
OLMOE = {"intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2}
GEMMA4 = {
    **SIZES,
    "num_hidden_layers": 5,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "enable_moe_block": True,
    "num_experts": 8,
    "top_k_experts": 2,
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "hidden_size_per_layer_input": 0,
    "final_logit_softcapping": 3.0,
    "pad_token_id": 0,
}
LLAMA4 = {
    **SIZES,
    "num_hidden_layers": 4,
    "head_dim": 16,
    "intermediate_size": 32,
    "intermediate_size_mlp": 96,
    "num_local_experts": 8,
    "num_experts_per_tok": 1,
    "interleave_moe_layer_step": 2,
    "attention_chunk_size": 8,
    "floor_scale": 4,
    "attn_scale": 0.3,
}

#: Variant -> (config.json's model_type, what differs from SIZES).
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3_moe": ("qwen3_moe", {**MOE, "head_dim": 32, "norm_topk_prob": True}),
    "qwen3_moe-raw": ("qwen3_moe", {**MOE, "head_dim": 24, "norm_topk_prob": False, "attention_bias": True}),
    "qwen3_moe-windowed": (
        "qwen3_moe",
        {**MOE, "head_dim": 16, "mlp_only_layers": [1], "use_sliding_window": True, "sliding_window": 8},
    ),
    "gpt_oss": (
        "gpt_oss",
        {
            **LOCAL_MOE,
            "num_hidden_layers": 4,
            "head_dim": 16,
            "sliding_window": 8,
            "rope_parameters": {**YARN, "truncate": False},
        },
    ),
    "gpt_oss-limited": (
        "gpt_oss",
        {
            **LOCAL_MOE,
            "head_dim": 16,
            "sliding_window": 8,
            "layer_types": ["full_attention", "full_attention", "sliding_attention"],
            "swiglu_limit": 1.0,
            "rope_parameters": {**YARN, "truncate": True, "attention_factor": 1.3},
        },
    ),
    "glm4_moe": ("glm4_moe", {**DEEPSEEK_MOE, "head_dim": 32, "attention_bias": True}),
    "glm4_moe-qk_norm": ("glm4_moe", {**DEEPSEEK_MOE, "head_dim": 32, "attention_bias": True, "use_qk_norm": True}),
    "glm4_moe-grouped": (
        "glm4_moe",
        {**DEEPSEEK_MOE, "n_shared_experts": 2, "norm_topk_prob": False, "n_group": 4, "topk_group": 2},
    ),
    "gemma4": ("gemma4", {"text_config": GEMMA4}),
    "gemma4-dense": (
        "gemma4_text",
        {**GEMMA4, "enable_moe_block": False, "num_experts": None, "attention_k_eq_v": False},
    ),
    "gemma4-biased": (
        "gemma4_text",
        {
            **GEMMA4,
            "enable_moe_block": False,
            "num_experts": None,
            "attention_bias": True,
            "final_logit_softcapping": None,
            "layer_types": None,
            "num_hidden_layers": 6,
        },
    ),
    "minimax_m2": ("minimax_m2", {**LOCAL_MOE, "head_dim": 32, "rotary_dim": 16, "scoring_func": "sigmoid"}),
    "mixtral": ("mixtral", LOCAL_MOE),
    "mixtral-windowed": ("mixtral", {**LOCAL_MOE, "sliding_window": 8, "head_dim": 32}),
    "qwen3": ("qwen3", {"intermediate_size": 96, "head_dim": 32, "tie_word_embeddings": True}),
    "qwen3-windowed": (
        "qwen3",
        {
            "intermediate_size": 96,
            "head_dim": 16,
            "use_sliding_window": True,
            "sliding_window": 8,
            "max_window_layers": 2,
            "attention_bias": True,
        },
    ),
    "qwen2": ("qwen2", {"intermediate_size": 96, "tie_word_embeddings": True}),
    "qwen2-windowed": (
        "qwen2",
        {
            "intermediate_size": 96,
            "use_sliding_window": True,
            "sliding_window": 8,
            "max_window_layers": 1,
            "layer_types": None,
        },
    ),
    "olmoe": ("olmoe", OLMOE),
    "olmoe-clipped": ("olmoe", {**OLMOE, "clip_qkv": 1.0, "norm_topk_prob": True}),
    "ernie4_5_moe": (
        "ernie4_5_moe",
        {
            "intermediate_size": 128,
            "moe_intermediate_size": 32,
            "moe_num_experts": 8,
            "moe_k": 2,
            "moe_num_shared_experts": 2,
            "moe_layer_start_index": 1,
        },
    ),
    "ernie4_5_moe-interval": (
        "ernie4_5_moe",
        {
            "intermediate_size": 128,
            "moe_intermediate_size": 32,
            "moe_num_experts": 8,
            "moe_k": 2,
            "moe_num_shared_experts": 0,
            "moe_layer_start_index": 0,
            "moe_layer_end_index": 3,
            "moe_layer_interval": 2,
            "moe_norm_min": 0.6,
            "num_hidden_layers": 6,
        },
    ),
    "hunyuan_v1_moe": (
        "hunyuan_v1_moe",
        {
            "intermediate_size": 32,
            "moe_intermediate_size": [32] * 3,
            "num_shared_expert": [1] * 3,
            "head_dim": 16,
            "num_experts": 8,
            "moe_topk": [2] * 3,
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 1.0, "alpha": 1000.0},
        },
    ),
    "hunyuan_v1_moe-uneven": (
        "hunyuan_v1_moe",
        {
            "intermediate_size": 32,
            "moe_intermediate_size": [32] * 3,
            "num_shared_expert": [1] * 3,
            "head_dim": 16,
            "num_experts": 8,
            "moe_topk": [1, 2, 3],
            "attention_bias": True,
        },
    ),
    "granitemoe": ("granitemoe", {**LOCAL_MOE, **GRANITE}),
    "granitemoe-biased": ("granitemoe", {**LOCAL_MOE, "attention_bias": True}),
    "granitemoeshared": ("granitemoeshared", {**LOCAL_MOE, **GRANITE, "shared_intermediate_size": 64}),
    "phimoe": ("phimoe", PHIMOE),
    "phimoe-windowed": (
        "phimoe",
        {**PHIMOE, "attention_bias": False, "lm_head_bias": False, "sliding_window": 8, "router_jitter_noise": 0.2},
    ),
    "phimoe-mscale": ("phimoe", {**PHIMOE, "rope_parameters": {**LONGROPE, "short_mscale": 1.1}}),
    "dots1": ("dots1", {**DEEPSEEK_MOE, "n_shared_experts": 2, "head_dim": 16}),
    "dots1-windowed": (
        "dots1",
        {
            **DEEPSEEK_MOE,
            "head_dim": 16,
            "norm_topk_prob": False,
            "n_group": 2,
            "topk_group": 1,
            "sliding_window": 8,
            "max_window_layers": 1,
            "attention_bias": True,
        },
    ),
    "llama4": ("llama4", {"text_config": LLAMA4}),
    "llama4-plain": (
        "llama4",
        {
            "text_config": {
                **LLAMA4,
                "attn_temperature_tuning": False,
                "use_qk_norm": False,
                "no_rope_layer_interval": 2,
                "moe_layers": [0, 3],
                "num_experts_per_tok": 2,
            }
        },
    ),
    "lfm2_moe": (
        "lfm2_moe",
        {
            "intermediate_size": 96,
            "moe_intermediate_size": 32,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "num_dense_layers": 1,
            "num_hidden_layers": 4,
            "layer_types": ["conv", "full_attention", "conv", "full_attention"],
            "norm_eps": 1e-5,
        },
    ),
    "lfm2_moe-biased": (
        "lfm2_moe",
        {
            "intermediate_size": 96,
            "moe_intermediate_size": 32,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "num_dense_layers": 0,
            "layer_types": ["full_attention", "conv", "conv"],
            "conv_bias": True,
            "conv_L_cache": 4,
            "use_expert_bias": False,
            "norm_topk_prob": False,
            "routed_scaling_factor": 1.7,
        },
    ),
    # transformers lacks it, but computes the same as GLM-4 with groups; `save` gives it its own names.
    "bailing_moe2": (
        "glm4_moe",
        {
            **DEEPSEEK_MOE,
            "head_dim": 16,
            "use_qk_norm": True,
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 2.5,
            "num_mtp_layers": 0,
        },
    ),
    "qwen2_moe": ("qwen2_moe", {**MOE, "shared_expert_intermediate_size": 64}),
    "qwen2_moe-mixed": (
        "qwen2_moe",
        {**MOE, "shared_expert_intermediate_size": 64, "norm_topk_prob": True, "mlp_only_layers": [1]},
    ),
    "qwen2_moe-windowed": (
        "qwen2_moe",
        {
            **MOE,
            "shared_expert_intermediate_size": 64,
            "qkv_bias": False,
            "use_sliding_window": True,
            "sliding_window": 8,
            "max_window_layers": 2,
            "decoder_sparse_step": 2,
        },
    ),
    "llama": ("llama", {"intermediate_size": 96, "tie_word_embeddings": True}),
    "llama-biased": ("llama", {"intermediate_size": 96, "attention_bias": True, "mlp_bias": True}),
    "llama-llama3": ("llama", {"intermediate_size": 96, "rope_parameters": LLAMA3}),
    "llama-yarn": ("llama", {"intermediate_size": 96, "rope_parameters": YARN}),
    "llama-linear": (
        "llama",
        {
            "intermediate_size": 96,
            "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 3.0},
        },
    ),
    "llama-deepseek_yarn": (
        "llama",
        {"intermediate_size": 96, "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.4, "beta_fast": 16.0}},
    ),
    "mistral": ("mistral", {"intermediate_size": 96, "head_dim": 24, "sliding_window": None}),
    "mistral-windowed": ("mistral", {"intermediate_size": 96, "sliding_window": 8}),
}
