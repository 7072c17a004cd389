// One layer's grouped-query attention on the CPU: bias, norm and rotation of q and k, the KV cache, softmax(q k) v.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attention_kernels.h"
#include "thread_pool.h"

namespace greenroom {

struct AttentionShape {
  long long heads, kv_heads, head_dim;
  long long rotated; // the first dimensions of each head, in pairs of neighbours
  long long context; // tokens the cache can hold
  float scale;       // of the scores
  float norm_eps;
};

// What one layer's cache takes: keys of all heads, then values (see attention_kernels.h).
size_t kv_cache_nbytes(long long kv_heads, long long head_dim, long long context, const std::string& kv_type);

class Attention {
public:
  // bias: added to qkv, one per row of it, or empty. q_norm, k_norm: [head_dim] weights of each head's RMS norm, or
  // empty. kv_type: "f32", "bf16" or "f16". Throws std::invalid_argument for impossible sizes and unknown names.
  Attention(const AttentionShape& shape, const std::string& kv_type, std::vector<float> bias, std::vector<float> q_norm,
            std::vector<float> k_norm, const std::optional<std::string>& isa);

  const char* tier() const { return kernels_->name; }

  // Tokens at positions start .. start + tokens - 1 join the cache and attend to everything up to themselves.
  // qkv [tokens, heads + 2 kv_heads, head_dim]: overwritten. turns [tokens, rotated / 2, 2]: cosine and sine.
  // y [tokens, heads * head_dim]. Throws std::invalid_argument when the cache has no room.
  void forward(ThreadPool& pool, float* qkv, size_t tokens, const float* turns, long long start, uint8_t* cache,
               float* y) const;

private:
  struct Pass;

  size_t head_keys_nbytes() const { return blocks_ * kKeyBlock * head_dim_ * element_; }
  size_t head_values_nbytes() const { return blocks_ * kKeyBlock * width_ * element_; }
  size_t row_floats() const { return (heads_ + 2 * kv_heads_) * head_dim_; }
  size_t state_floats() const { return width_ + kStateExtra; }

  void prepare(const Pass& pass, size_t token) const;
  void append(const Pass& pass, size_t head, size_t position, const float* key, const float* value) const;
  AttentionTask task_of(const Pass& pass, size_t tile, const float** rows) const;
  void whole_tile(const Pass& pass, size_t tile, float* states) const;
  void split_tile(const Pass& pass, size_t tile, size_t split) const;
  void join_splits(const Pass& pass, size_t tile) const;
  void finish(const Pass& pass, size_t tile, const float* states) const;

  size_t heads_, kv_heads_, group_, head_dim_, width_, rotated_, context_, blocks_, element_;
  float scale_, norm_eps_;
  KvType type_;
  std::vector<float> bias_, q_norm_, k_norm_;
  const AttentionKernels* kernels_;
};

} // namespace greenroom
