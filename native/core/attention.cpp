#include "attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "dispatch.h"

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
  if (name == "q8")
    return kKvQ8;
  throw std::invalid_argument("unknown type \"" + name + "\" for keys and values; known are f32, bf16, f16, q8");
}

size_t element_nbytes(KvType type) {
  return type == kKvF32 ? 4 : type == kKvQ8 ? 1 : 2;
}

size_t scale_nbytes(KvType type) {
  return type == kKvQ8 ? sizeof(float) : 0;
}

size_t round_up(size_t n, size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

void check(bool condition, const std::string& what) {
  if (!condition)
    throw std::invalid_argument(what);
}

void check_cache(long long kv_heads, long long head_dim, long long context, long long reach, long long rollback) {
  check(kv_heads >= 1 && kv_heads <= 4096, "kv_heads must be 1 to 4096");
  check(head_dim >= 1 && head_dim <= static_cast<long long>(kMostHeadDim), "head_dim must be 1 to 512");
  check(context >= 1 && context <= (1LL << 32), "context must be 1 to 2^32");
  check(reach >= 0 && reach <= (1LL << 32), "window and chunk must be 0 to 2^32");
  check(rollback >= 1 && rollback <= (1LL << 32), "rollback must be 1 to 2^32");
}

// One block more than the tokens take, because these may start anywhere in one.
size_t cache_blocks(long long context, long long reach, long long rollback) {
  const auto blocks = [](long long tokens) { return round_up(static_cast<size_t>(tokens), kKeyBlock) / kKeyBlock; };
  return reach ? std::min(blocks(context), blocks(reach + rollback) + 1) : blocks(context);
}

} // namespace

size_t kv_cache_nbytes(long long kv_heads, long long head_dim, long long context, const std::string& kv_type,
                       long long reach, long long rollback) {
  const KvType type = kv_type_named(kv_type);
  check_cache(kv_heads, head_dim, context, reach, rollback);
  const size_t keys = static_cast<size_t>(head_dim), values = round_up(keys, kValueLanes);
  return static_cast<size_t>(kv_heads) * cache_blocks(context, reach, rollback) * kKeyBlock *
         ((keys + values) * element_nbytes(type) + 2 * scale_nbytes(type));
}

// Everything the tiles of one forward share. A tile is one KV head and a few neighbouring tokens.
struct Attention::Pass {
  float* qkv;
  size_t tokens;
  const float* turns;
  size_t start;
  uint8_t* cache;
  float* y;
  size_t tile_tokens, token_tiles, first_split, splits;
  float* states; // of all splits: [tiles, splits, tile rows]
};

Attention::Attention(const AttentionShape& shape, const std::string& kv_type, AttentionWeights weights,
                     const std::optional<std::string>& isa)
    : shape_(shape), type_(kv_type_named(kv_type)), weights_(std::move(weights)),
      kernels_(&attention_kernels(type_, isa)), vectors_(&vector_kernels(isa)) {
  check(shape.window >= 0 && shape.chunk >= 0, "window and chunk must not be negative");
  check(shape.window == 0 || shape.chunk == 0, "a layer has a window or chunks, not both");
  const long long reach = std::max(shape.window, shape.chunk);
  check_cache(shape.kv_heads, shape.head_dim, shape.context, reach, shape.rollback);
  check(shape.heads >= shape.kv_heads && shape.heads <= 65536 && shape.heads % shape.kv_heads == 0,
        "heads must be a multiple of kv_heads, at most 65536");
  check(shape.rotated >= 0 && shape.rotated <= shape.head_dim && shape.rotated % 2 == 0,
        "rotated must be even and at most head_dim");
  check(shape.temperature_interval >= 0, "temperature_interval must not be negative");
  check(shape.clip >= 0.0f, "clip must not be negative");
  heads_ = static_cast<size_t>(shape.heads);
  kv_heads_ = static_cast<size_t>(shape.kv_heads);
  group_ = heads_ / kv_heads_;
  head_dim_ = static_cast<size_t>(shape.head_dim);
  width_ = round_up(head_dim_, kValueLanes);
  rotated_ = static_cast<size_t>(shape.rotated);
  context_ = static_cast<size_t>(shape.context);
  blocks_ = cache_blocks(shape.context, reach, shape.rollback);
  element_ = element_nbytes(type_);
  scale_nbytes_ = scale_nbytes(type_);

  const std::string& norm = shape.qk_norm;
  check(norm == "head" || norm == "full" || norm == "l2",
        "unknown norm \"" + norm + "\" of q and k; known are head, full, l2");
  check(!(norm == "full" && shape.norm_after_rope), "a norm over all heads comes before the rotation");
  if (norm == "l2") {
    check(weights_.q_norm.empty() && weights_.k_norm.empty(), "the norm l2 has no weights");
    weights_.q_norm.assign(head_dim_, 1.0f);
    weights_.k_norm.assign(head_dim_, 1.0f);
  }
  const auto fits = [&](const std::vector<float>& weight, size_t heads, const char* what) {
    const size_t n = norm == "full" ? heads * head_dim_ : head_dim_;
    check(weight.empty() || weight.size() == n, std::string(what) + " must have " + std::to_string(n) + " weights");
  };
  fits(weights_.q_norm, heads_, "the norm of q");
  fits(weights_.k_norm, kv_heads_, "the norm of k");
  check(weights_.bias.empty() || weights_.bias.size() == row_floats(),
        "the bias must have one value per row of q, k and v");
  check(weights_.sinks.empty() || weights_.sinks.size() == heads_, "sinks must have one logit per head");
  sink_states_.resize(weights_.sinks.size() * state_floats());
  for (size_t head = 0; head < weights_.sinks.size(); ++head) {
    float* tail = sink_states_.data() + head * state_floats() + width_;
    tail[kStateLargest] = weights_.sinks[head] * kernels_->score_unit;
    tail[kStateSum] = 1.0f;
  }
}

void Attention::forward(ThreadPool& pool, float* qkv, size_t tokens, const float* turns, long long start,
                        uint8_t* cache, float* y) const {
  ThreadPool::Call call(pool);
  forward(call, qkv, tokens, turns, start, cache, y);
}

Ahead Attention::stream(const uint8_t* cache, size_t position) const {
  // More would push the weights that were fetched as well out of the L1 and L2 caches.
  constexpr size_t kMost = 32768;
  // What lies in other places than from the first block on is fetched by the kernels themselves.
  const size_t blocks = first_seen(position) == 0 && position < blocks_ * kKeyBlock ? position / kKeyBlock + 1 : 0;
  const uint8_t* values = cache + kv_heads_ * head_keys_nbytes();
  return {{cache, kv_heads_, head_keys_nbytes(), kv_heads_, blocks * block_nbytes(head_dim_), kMost},
          {values, kv_heads_, head_values_nbytes(), kv_heads_, blocks * block_nbytes(width_), kMost}};
}

void Attention::forward(ThreadPool::Call& call, float* qkv, size_t tokens, const float* turns, long long start,
                        uint8_t* cache, float* y, const Ahead& ahead) const {
  check(start >= 0 && static_cast<size_t>(start) <= context_ && tokens <= context_ - static_cast<size_t>(start),
        std::to_string(tokens) + " tokens from position " + std::to_string(start) + " on do not fit a context of " +
            std::to_string(context_));
  check(blocks_ * kKeyBlock >= context_ || tokens <= static_cast<size_t>(shape_.rollback),
        std::to_string(tokens) + " tokens at once where " + std::to_string(shape_.rollback) + " can be");
  if (tokens == 0)
    return;
  Pass pass{qkv, tokens, turns, static_cast<size_t>(start), cache, y, 0, 0, 0, 0, nullptr};
  const size_t threads = static_cast<size_t>(call.threads());
  pass.tile_tokens = std::max<size_t>(1, std::min(tokens, kTileRows / group_));
  pass.token_tiles = (tokens + pass.tile_tokens - 1) / pass.tile_tokens;
  pass.first_split = first_seen(pass.start) / kSplitKeys;
  pass.splits = (pass.start + tokens + kSplitKeys - 1) / kSplitKeys - pass.first_split;
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
              {tiles, [&](size_t tile, int) { join_splits(pass, tile); }}},
             ahead);
    return;
  }
  float* scratch = reinterpret_cast<float*>(call.scratch(threads * 2 * tile_nbytes));
  // Later tokens see more: the longest tiles go first.
  call.run({{tokens, prepare_token},
            {tiles,
             [&](size_t i, int worker) {
               float* states = scratch + static_cast<size_t>(worker) * 2 * rows * state_floats();
               whole_tile(pass, tiles - 1 - i, states);
             }}},
           ahead);
}

// The first key that the token at this position sees. Never falls from one position to the next.
size_t Attention::first_seen(size_t position) const {
  const size_t window = static_cast<size_t>(shape_.window), chunk = static_cast<size_t>(shape_.chunk);
  if (window)
    return position + 1 > window ? position + 1 - window : 0;
  return chunk ? position / chunk * chunk : 0;
}

// One token's q is biased, normed, rotated and scaled in place; its k and v go to the cache.
void Attention::prepare(const Pass& pass, size_t token) const {
  float* row = pass.qkv + token * row_floats();
  float* keys = row + heads_ * head_dim_;
  float* values = keys + kv_heads_ * head_dim_;
  const bool full = shape_.qk_norm == "full";
  for (size_t i = 0; i < weights_.bias.size(); ++i)
    row[i] += weights_.bias[i];
  if (full && !weights_.q_norm.empty())
    norm_all(row, heads_ * head_dim_, weights_.q_norm);
  if (full && !weights_.k_norm.empty())
    norm_all(keys, kv_heads_ * head_dim_, weights_.k_norm);
  // A NaN stays.
  for (size_t i = 0; shape_.clip > 0.0f && i < row_floats(); ++i)
    row[i] = row[i] > shape_.clip ? shape_.clip : row[i] < -shape_.clip ? -shape_.clip : row[i];
  const auto norm_each = [&] {
    norm_heads(row, heads_, weights_.q_norm);
    norm_heads(keys, kv_heads_, weights_.k_norm);
  };
  if (!full && !shape_.norm_after_rope)
    norm_each();
  vectors_->rotate(row, heads_ + kv_heads_, head_dim_, pass.turns + token * rotated_, rotated_);
  if (!full && shape_.norm_after_rope)
    norm_each();
  float scale = shape_.scale * kernels_->score_unit;
  if (shape_.temperature_interval) {
    const size_t steps = (pass.start + token + 1) / static_cast<size_t>(shape_.temperature_interval);
    scale *= 1.0f + shape_.temperature_strength * std::log1p(static_cast<float>(steps));
  }
  for (float* q = row; q < keys; ++q)
    *q *= scale;
  if (kernels_->pairs)
    for (float* q = row; q < keys; q += head_dim_)
      narrow_query(q);
  if (shape_.v_norm)
    for (size_t head = 0; head < kv_heads_; ++head)
      norm_all(values + head * head_dim_, head_dim_, {});
  for (size_t head = 0; head < kv_heads_; ++head)
    append(pass, head, pass.start + token, keys + head * head_dim_, values + head * head_dim_);
}

void Attention::norm_heads(float* x, size_t heads, const std::vector<float>& weight) const {
  for (size_t head = 0; head < heads && !weight.empty(); ++head)
    norm_all(x + head * head_dim_, head_dim_, weight);
}

// An empty weight stands for ones.
void Attention::norm_all(float* x, size_t n, const std::vector<float>& weight) const {
  vectors_->rms_norm(x, n, weight.empty() ? nullptr : weight.data(), shape_.norm_eps);
}

// In place; an odd dimension makes a pair with 0.
void Attention::narrow_query(float* q) const {
  if (head_dim_ == width_)
    return kernels_->narrow[type_](q, width_, q);
  float padded[kMostHeadDim] = {};
  alignas(64) uint8_t narrowed[kMostHeadDim * sizeof(uint16_t)];
  std::memcpy(padded, q, head_dim_ * sizeof(float));
  kernels_->narrow[type_](padded, width_, narrowed);
  std::memcpy(q, narrowed, round_up(head_dim_, 2) * sizeof(uint16_t));
}

void Attention::append(const Pass& pass, size_t head, size_t position, const float* key, const float* value) const {
  alignas(64) uint8_t narrowed[(kMostHeadDim + 1) * sizeof(float)];
  const auto narrow = [&](const float* x) {
    if (head_dim_ == width_)
      return kernels_->narrow[type_](x, width_, narrowed);
    float padded[kMostHeadDim] = {};
    std::memcpy(padded, x, head_dim_ * sizeof(float));
    kernels_->narrow[type_](padded, width_, narrowed);
  };
  const size_t slot = position / kKeyBlock % blocks_, within = position % kKeyBlock;
  const auto store_scale = [&](uint8_t* block, size_t width) {
    std::memcpy(block + kKeyBlock * width * element_ + within * scale_nbytes_, narrowed + width_ * element_,
                scale_nbytes_);
  };
  narrow(key);
  uint8_t* keys = pass.cache + head * head_keys_nbytes() + slot * block_nbytes(head_dim_);
  // Its n elements, or pairs of these, become one column.
  const auto turn = [&](auto element, size_t n) {
    for (size_t i = 0; i < n; ++i)
      std::memcpy(keys + (i * kKeyBlock + within) * sizeof element, narrowed + i * sizeof element, sizeof element);
  };
  if (kernels_->pairs) {
    turn(uint32_t{}, head_dim_ / 2);
    if (head_dim_ % 2)
      std::memcpy(keys + (head_dim_ - 1) * kKeyBlock * element_ + within * element_,
                  narrowed + (head_dim_ - 1) * element_, element_);
  } else if (element_ == 4)
    turn(uint32_t{}, head_dim_);
  else if (element_ == 2)
    turn(uint16_t{}, head_dim_);
  else
    turn(uint8_t{}, head_dim_);
  store_scale(keys, head_dim_);
  narrow(value);
  uint8_t* of_head = pass.cache + kv_heads_ * head_keys_nbytes() + head * head_values_nbytes();
  uint8_t* values = of_head + slot * block_nbytes(width_);
  if (kernels_->pairs)
    for (size_t i = 0; i < width_; ++i)
      std::memcpy(values + ((within / 2 * width_ + i) * 2 + within % 2) * element_, narrowed + i * element_, element_);
  else
    std::memcpy(values + within * width_ * element_, narrowed, width_ * element_);
  store_scale(values, width_);
}

// Without a range of keys and states, which the caller fills in. rows and first are filled with what the task points
// to.
AttentionTask Attention::task_of(const Pass& pass, size_t tile, std::vector<const float*>& rows,
                                 std::vector<size_t>& first) const {
  const size_t head = tile % kv_heads_, token = tile / kv_heads_ * pass.tile_tokens;
  const size_t tokens = std::min(pass.tile_tokens, pass.tokens - token);
  rows.reserve(tokens * group_);
  first.reserve(tokens);
  for (size_t row = 0; row < tokens * group_; ++row)
    rows.push_back(pass.qkv + (token + row / group_) * row_floats() + (head * group_ + row % group_) * head_dim_);
  for (size_t t = token; t < token + tokens; ++t)
    first.push_back(first_seen(pass.start + t));
  AttentionTask task{};
  task.q = rows.data();
  task.rows = tokens * group_;
  task.group = group_;
  task.visible = pass.start + token + 1;
  task.first = first.data();
  task.blocks = blocks_;
  task.head_dim = head_dim_;
  task.width = width_;
  task.keys = pass.cache + head * head_keys_nbytes();
  task.values = pass.cache + kv_heads_ * head_keys_nbytes() + head * head_values_nbytes();
  return task;
}

// The sums of a split join those of the ones before, for the rows that see any of it.
void Attention::merge_seen(const AttentionTask& task, size_t split, float* states, const float* next) const {
  const size_t begin = split * kSplitKeys, end = begin + kSplitKeys;
  for (size_t row = 0; row < task.rows; ++row)
    if (task.visible + row / group_ > begin && task.first[row / group_] < end)
      kernels_->merge(states + row * state_floats(), next + row * state_floats(), width_);
}

void Attention::whole_tile(const Pass& pass, size_t tile, float* states) const {
  std::vector<const float*> rows;
  std::vector<size_t> first;
  AttentionTask task = task_of(pass, tile, rows, first);
  const size_t seen = task.visible + first.size() - 1, first_split = first[0] / kSplitKeys;
  float* next = states + task.rows * state_floats();
  for (size_t split = first_split; split * kSplitKeys < seen; ++split) {
    task.first_key = split * kSplitKeys;
    task.last_key = std::min(seen, task.first_key + kSplitKeys);
    task.states = split > first_split ? next : states;
    kernels_->attend[type_](&task);
    if (split > first_split)
      merge_seen(task, split, states, next);
  }
  finish(pass, tile, states);
}

void Attention::split_tile(const Pass& pass, size_t tile, size_t split) const {
  std::vector<const float*> rows;
  std::vector<size_t> first;
  AttentionTask task = task_of(pass, tile, rows, first);
  const size_t seen = task.visible + first.size() - 1;
  task.first_key = (pass.first_split + split) * kSplitKeys;
  task.last_key = std::min(seen, task.first_key + kSplitKeys);
  task.states = pass.states + (tile * pass.splits + split) * pass.tile_tokens * group_ * state_floats();
  if (task.first_key < seen)
    kernels_->attend[type_](&task);
}

void Attention::join_splits(const Pass& pass, size_t tile) const {
  std::vector<const float*> rows;
  std::vector<size_t> first;
  const AttentionTask task = task_of(pass, tile, rows, first);
  const size_t seen = task.visible + first.size() - 1, first_split = first[0] / kSplitKeys;
  const auto states = [&](size_t split) {
    return pass.states + (tile * pass.splits + split - pass.first_split) * pass.tile_tokens * group_ * state_floats();
  };
  for (size_t split = first_split + 1; split * kSplitKeys < seen; ++split)
    merge_seen(task, split, states(first_split), states(split));
  finish(pass, tile, states(first_split));
}

void Attention::finish(const Pass& pass, size_t tile, float* states) const {
  const size_t kv_head = tile % kv_heads_, first = tile / kv_heads_ * pass.tile_tokens;
  for (size_t row = 0; row < std::min(pass.tile_tokens, pass.tokens - first) * group_; ++row) {
    float* state = states + row * state_floats();
    const size_t head = kv_head * group_ + row % group_;
    if (!sink_states_.empty())
      kernels_->merge(state, sink_states_.data() + head * state_floats(), width_);
    const float sum = state[width_ + kStateSum];
    float* y = pass.y + ((first + row / group_) * heads_ + head) * head_dim_;
    for (size_t i = 0; i < head_dim_; ++i)
      y[i] = state[i] / sum;
  }
}

} // namespace greenroom
