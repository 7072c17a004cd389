// One layer's grouped-query attention on the CPU: bias, norm and rotation of q and k, the KV cache, softmax(q k) v.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attention_kernels.h"
#include "thread_pool.h"
#include "vector_kernels.h"

namespace greenroom {

struct AttentionShape {
  long long heads, kv_heads, head_dim;
  long long rotated; // the first dimensions of each head, in pairs of neighbours
  long long context; // tokens of a conversation
  float scale;       // of the scores
  float norm_eps = 0.0f;
  std::string qk_norm =
      "head"; // "head": each head by itself; "full": all heads as one vector; "l2": as head, no weight
  bool norm_after_rope = false;
  bool v_norm = false;                // RMS norm of each value head, without weight
  float clip = 0.0f;                  // of q, k and v; 0: none
  long long window = 0;               // a token sees so many tokens, itself included; 0: all
  long long chunk = 0;                // a token sees those from the last multiple of this on; 0: all
  long long rollback = 1024;          // so many tokens can be taken back from a cache that does not keep all
  long long temperature_interval = 0; // q times 1 + strength * ln(1 + floor((position + 1) / interval)); 0: no
  float temperature_strength = 0.0f;
};

// One layer's weights, each empty where there is none.
struct AttentionWeights {
  std::vector<float> bias;           // added to qkv, one per row of it
  std::vector<float> q_norm, k_norm; // [head_dim], or of all heads with "full"
  std::vector<float> sinks;          // [heads]: logits that take a share of the weight
};

// What one layer's cache takes: keys of all heads, then values (see attention_kernels.h). reach: the most tokens that
// one token sees; 0 for all.
size_t kv_cache_nbytes(long long kv_heads, long long head_dim, long long context, const std::string& kv_type,
                       long long reach, long long rollback);

class Attention {
public:
  // kv_type: "f32", "bf16", "f16" or "q8". Throws std::invalid_argument for impossible sizes and unknown names.
  Attention(const AttentionShape& shape, const std::string& kv_type, AttentionWeights weights,
            const std::optional<std::string>& isa);

  const char* tier() const { return kernels_->name; }
  size_t rotated() const { return rotated_; }
  size_t inputs() const { return row_floats(); }
  size_t outputs() const { return heads_ * head_dim_; }

  // Tokens at positions start .. start + tokens - 1 join the cache and attend to everything up to themselves.
  // qkv [tokens, heads + 2 kv_heads, head_dim]: overwritten. turns [tokens, rotated / 2, 2]: cosine and sine.
  // y [tokens, heads * head_dim]. Throws std::invalid_argument when the cache has no room: it takes what the context
  // leaves, and where it does not keep all, no more than `rollback` at once.
  void forward(ThreadPool& pool, float* qkv, size_t tokens, const float* turns, long long start, uint8_t* cache,
               float* y) const;
  void forward(ThreadPool::Call& call, float* qkv, size_t tokens, const float* turns, long long start, uint8_t* cache,
               float* y, const Ahead& ahead = {}) const;
  // The keys and values that a token at this position reads first.
  Ahead stream(const uint8_t* cache, size_t position) const;

private:
  struct Pass;

  size_t block_nbytes(size_t width) const { return kKeyBlock * (width * element_ + scale_nbytes_); }
  size_t head_keys_nbytes() const { return blocks_ * block_nbytes(head_dim_); }
  size_t head_values_nbytes() const { return blocks_ * block_nbytes(width_); }
  size_t row_floats() const { return (heads_ + 2 * kv_heads_) * head_dim_; }
  size_t state_floats() const { return width_ + kStateExtra; }

  size_t first_seen(size_t position) const;
  void prepare(const Pass& pass, size_t token) const;
  void norm_heads(float* x, size_t heads, const std::vector<float>& weight) const;
  void norm_all(float* x, size_t n, const std::vector<float>& weight) const;
  void narrow_query(float* q) const;
  void append(const Pass& pass, size_t head, size_t position, const float* key, const float* value) const;
  AttentionTask task_of(const Pass& pass, size_t tile, std::vector<const float*>& rows,
                        std::vector<size_t>& first) const;
  void whole_tile(const Pass& pass, size_t tile, float* states) const;
  void split_tile(const Pass& pass, size_t tile, size_t split) const;
  void join_splits(const Pass& pass, size_t tile) const;
  void merge_seen(const AttentionTask& task, size_t split, float* states, const float* next) const;
  void finish(const Pass& pass, size_t tile, float* states) const;

  AttentionShape shape_;
  size_t heads_, kv_heads_, group_, head_dim_, width_, rotated_, context_, blocks_, element_, scale_nbytes_;
  KvType type_;
  AttentionWeights weights_;
  std::vector<float> sink_states_; // [heads] sums of a key with that score and a value of 0
  const AttentionKernels* kernels_;
  const VectorKernels* vectors_;
};

} // namespace greenroom
