#include "attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "dispatch.h"
#include "norm.h"

namespace greenroom {
namespace {

constexpr size_t kMostHeadDim = 512;
// Rows of a tile: enough to share each block of keys while it is in the L2 cache, few enough for their sums to be
// there, too.
constexpr size_t kTileRows = 64;
// Splits are shared among threads when there are fewer tiles than this for each; more tiles are even enough.
constexpr size_t kTilesPerThread = 4;
// More states of splits than this are not kept at once: one thread then does all splits of a tile.
constexpr size_t kMostStatesNbytes = size_t{64} << 20;

KvType kv_type_named(const std::string& name) {
  if (name == "f32")
    return kKvF32;
  if (name == "bf16")
    return kKvBf16;
  if (name == "f16")
    return kKvF16;
  throw std::invalid_argument("unknown type \"" + name + "\" for keys and values; known are f32, bf16, f16");
}

size_t element_nbytes(KvType type) {
  return type == kKvF32 ? 4 : 2;
}

size_t round_up(size_t n, size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

void check(bool condition, const std::string& what) {
  if (!condition)
    throw std::invalid_argument(what);
}

void check_cache(long long kv_heads, long long head_dim, long long context) {
  check(kv_heads >= 1 && kv_heads <= 4096, "kv_heads must be 1 to 4096");
  check(head_dim >= 1 && head_dim <= static_cast<long long>(kMostHeadDim), "head_dim must be 1 to 512");
  check(context >= 1 && context <= (1LL << 32), "context must be 1 to 2^32");
}

} // namespace

size_t kv_cache_nbytes(long long kv_heads, long long head_dim, long long context, const std::string& kv_type) {
  const KvType type = kv_type_named(kv_type);
  check_cache(kv_heads, head_dim, context);
  const size_t keys = static_cast<size_t>(head_dim), values = round_up(keys, kValueLanes);
  return static_cast<size_t>(kv_heads) * round_up(static_cast<size_t>(context), kKeyBlock) * (keys + values) *
         element_nbytes(type);
}

// Everything the tiles of one forward share. A tile is one KV head and a few neighbouring tokens.
struct Attention::Pass {
  float* qkv;
  size_t tokens;
  const float* turns;
  size_t start;
  uint8_t* cache;
  float* y;
  size_t tile_tokens, token_tiles, splits;
  float* states; // of all splits: [tiles, splits, tile rows]
};

Attention::Attention(const AttentionShape& shape, const std::string& kv_type, std::vector<float> bias,
                     std::vector<float> q_norm, std::vector<float> k_norm, const std::optional<std::string>& isa)
    : scale_(shape.scale), norm_eps_(shape.norm_eps), type_(kv_type_named(kv_type)), bias_(std::move(bias)),
      q_norm_(std::move(q_norm)), k_norm_(std::move(k_norm)), kernels_(&attention_kernels(isa)) {
  check_cache(shape.kv_heads, shape.head_dim, shape.context);
  check(shape.heads >= shape.kv_heads && shape.heads <= 65536 && shape.heads % shape.kv_heads == 0,
        "heads must be a multiple of kv_heads, at most 65536");
  check(shape.rotated >= 0 && shape.rotated <= shape.head_dim && shape.rotated % 2 == 0,
        "rotated must be even and at most head_dim");
  heads_ = static_cast<size_t>(shape.heads);
  kv_heads_ = static_cast<size_t>(shape.kv_heads);
  group_ = heads_ / kv_heads_;
  head_dim_ = static_cast<size_t>(shape.head_dim);
  width_ = round_up(head_dim_, kValueLanes);
  rotated_ = static_cast<size_t>(shape.rotated);
  context_ = static_cast<size_t>(shape.context);
  blocks_ = round_up(context_, kKeyBlock) / kKeyBlock;
  element_ = element_nbytes(type_);
  check(bias_.empty() || bias_.size() == row_floats(), "the bias must have one value per row of q, k and v");
  check(q_norm_.empty() || q_norm_.size() == head_dim_, "the norm of q must have one weight per dimension of a head");
  check(k_norm_.empty() || k_norm_.size() == head_dim_, "the norm of k must have one weight per dimension of a head");
}

void Attention::forward(ThreadPool& pool, float* qkv, size_t tokens, const float* turns, long long start,
                        uint8_t* cache, float* y) const {
  check(start >= 0 && static_cast<size_t>(start) <= context_ && tokens <= context_ - static_cast<size_t>(start),
        std::to_string(tokens) + " tokens from position " + std::to_string(start) + " on do not fit a context of " +
            std::to_string(context_));
  if (tokens == 0)
    return;
  ThreadPool::Call call(pool);
  Pass pass{qkv, tokens, turns, static_cast<size_t>(start), cache, y, 0, 0, 0, nullptr};
  const size_t threads = static_cast<size_t>(call.threads());
  pass.tile_tokens = std::max<size_t>(1, std::min(tokens, kTileRows / group_));
  pass.token_tiles = (tokens + pass.tile_tokens - 1) / pass.tile_tokens;
  pass.splits = (pass.start + tokens + kSplitKeys - 1) / kSplitKeys;
  const size_t tiles = kv_heads_ * pass.token_tiles, rows = pass.tile_tokens * group_;
  const size_t tile_nbytes = rows * state_floats() * sizeof(float);
  const auto prepare_token = [&](size_t token, int) { prepare(pass, token); };

  // Either way the states of splits are joined in the same order, so the result has the same bits.
  const bool share_splits = pass.splits > 1 && tiles < kTilesPerThread * threads && threads > 1 &&
                            tiles * pass.splits <= kMostStatesNbytes / tile_nbytes;
  if (share_splits) {
    pass.states = reinterpret_cast<float*>(call.scratch(tiles * pass.splits * tile_nbytes));
    call.run({{tokens, prepare_token},
              {tiles * pass.splits, [&](size_t i, int) { split_tile(pass, i / pass.splits, i % pass.splits); }},
              {tiles, [&](size_t tile, int) { join_splits(pass, tile); }}});
    return;
  }
  float* scratch = reinterpret_cast<float*>(call.scratch(threads * 2 * tile_nbytes));
  // Later tokens see more: the longest tiles go first.
  call.run({{tokens, prepare_token}, {tiles, [&](size_t i, int worker) {
                                        float* states =
                                            scratch + static_cast<size_t>(worker) * 2 * rows * state_floats();
                                        whole_tile(pass, tiles - 1 - i, states);
                                      }}});
}

// One token's q is biased, normed, rotated and scaled in place; its k and v go to the cache.
void Attention::prepare(const Pass& pass, size_t token) const {
  float* row = pass.qkv + token * row_floats();
  if (!bias_.empty())
    for (size_t i = 0; i < row_floats(); ++i)
      row[i] += bias_[i];
  const float* turns = pass.turns + token * rotated_;
  for (size_t head = 0; head < heads_ + kv_heads_; ++head) {
    float* x = row + head * head_dim_;
    const bool query = head < heads_;
    const std::vector<float>& norm = query ? q_norm_ : k_norm_;
    if (!norm.empty()) {
      const float factor = 1.0f / std::sqrt(square_sum(x, head_dim_) / static_cast<float>(head_dim_) + norm_eps_);
      for (size_t i = 0; i < head_dim_; ++i)
        x[i] = x[i] * factor * norm[i];
    }
    for (size_t i = 0; i < rotated_; i += 2) {
      const float a = x[i], b = x[i + 1], cosine = turns[i], sine = turns[i + 1];
      x[i] = a * cosine - b * sine;
      x[i + 1] = a * sine + b * cosine;
    }
    if (query)
      for (size_t i = 0; i < head_dim_; ++i)
        x[i] *= scale_;
  }
  const float* keys = row + heads_ * head_dim_;
  for (size_t head = 0; head < kv_heads_; ++head)
    append(pass, head, pass.start + token, keys + head * head_dim_, keys + (kv_heads_ + head) * head_dim_);
}

void Attention::append(const Pass& pass, size_t head, size_t position, const float* key, const float* value) const {
  float padded[kMostHeadDim] = {};
  alignas(64) uint8_t narrowed[kMostHeadDim * sizeof(float)];
  std::memcpy(padded, key, head_dim_ * sizeof(float));
  kernels_->narrow[type_](padded, width_, narrowed);
  uint8_t* column = pass.cache + head * head_keys_nbytes() +
                    (position / kKeyBlock * kKeyBlock * head_dim_ + position % kKeyBlock) * element_;
  if (type_ == kKvF32)
    for (size_t i = 0; i < head_dim_; ++i)
      std::memcpy(column + i * kKeyBlock * 4, narrowed + i * 4, 4);
  else
    for (size_t i = 0; i < head_dim_; ++i)
      std::memcpy(column + i * kKeyBlock * 2, narrowed + i * 2, 2);
  std::memcpy(padded, value, head_dim_ * sizeof(float));
  uint8_t* values = pass.cache + kv_heads_ * head_keys_nbytes() + head * head_values_nbytes();
  kernels_->narrow[type_](padded, width_, values + position * width_ * element_);
}

// Without a range of keys and states, which the caller fills in. rows: [tile_tokens * group].
AttentionTask Attention::task_of(const Pass& pass, size_t tile, const float** rows) const {
  const size_t head = tile % kv_heads_, first = tile / kv_heads_ * pass.tile_tokens;
  const size_t tokens = std::min(pass.tile_tokens, pass.tokens - first);
  for (size_t row = 0; row < tokens * group_; ++row)
    rows[row] = pass.qkv + (first + row / group_) * row_floats() + (head * group_ + row % group_) * head_dim_;
  AttentionTask task{};
  task.q = rows;
  task.rows = tokens * group_;
  task.group = group_;
  task.visible = pass.start + first + 1;
  task.head_dim = head_dim_;
  task.width = width_;
  task.keys = pass.cache + head * head_keys_nbytes();
  task.values = pass.cache + kv_heads_ * head_keys_nbytes() + head * head_values_nbytes();
  return task;
}

void Attention::whole_tile(const Pass& pass, size_t tile, float* states) const {
  std::vector<const float*> rows(pass.tile_tokens * group_);
  AttentionTask task = task_of(pass, tile, rows.data());
  const size_t seen = task.visible + task.rows / group_ - 1;
  float* next = states + rows.size() * state_floats();
  for (size_t first = 0; first < seen; first += kSplitKeys) {
    task.first_key = first;
    task.last_key = std::min(seen, first + kSplitKeys);
    task.states = first ? next : states;
    kernels_->attend[type_](&task);
    for (size_t row = 0; first && row < task.rows; ++row)
      if (task.visible + row / group_ > first)
        kernels_->merge(states + row * state_floats(), next + row * state_floats(), width_);
  }
  finish(pass, tile, states);
}

void Attention::split_tile(const Pass& pass, size_t tile, size_t split) const {
  std::vector<const float*> rows(pass.tile_tokens * group_);
  AttentionTask task = task_of(pass, tile, rows.data());
  const size_t seen = task.visible + task.rows / group_ - 1;
  task.first_key = split * kSplitKeys;
  task.last_key = std::min(seen, task.first_key + kSplitKeys);
  task.states = pass.states + (tile * pass.splits + split) * rows.size() * state_floats();
  if (task.first_key < seen)
    kernels_->attend[type_](&task);
}

void Attention::join_splits(const Pass& pass, size_t tile) const {
  const size_t rows = pass.tile_tokens * group_, first = tile / kv_heads_ * pass.tile_tokens;
  float* states = pass.states + tile * pass.splits * rows * state_floats();
  for (size_t row = 0; row < std::min(pass.tile_tokens, pass.tokens - first) * group_; ++row) {
    const size_t visible = pass.start + first + 1 + row / group_;
    for (size_t split = 1; split * kSplitKeys < visible; ++split)
      kernels_->merge(states + row * state_floats(), states + (split * rows + row) * state_floats(), width_);
  }
  finish(pass, tile, states);
}

void Attention::finish(const Pass& pass, size_t tile, const float* states) const {
  const size_t head = tile % kv_heads_, first = tile / kv_heads_ * pass.tile_tokens;
  for (size_t row = 0; row < std::min(pass.tile_tokens, pass.tokens - first) * group_; ++row) {
    const float* state = states + row * state_floats();
    const float sum = state[width_ + kStateSum];
    float* y = pass.y + ((first + row / group_) * heads_ + head * group_ + row % group_) * head_dim_;
    for (size_t i = 0; i < head_dim_; ++i)
      y[i] = state[i] / sum;
  }
}

} // namespace greenroom
